"""What a judge answered for each criterion, read strictly.

A score that would have to be guessed is refused.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError, EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.judges import JudgeUsage, Verdict
from agenteval_otel.evaluators.judges.answers import without_thinking
from agenteval_otel.evaluators.judges.prompt import CaseText
from agenteval_otel.evaluators.llm_judge.prompt import NAMES, CriterionTask, ReplyForm
from agenteval_otel.evaluators.llm_judge.rubric import Claims
from agenteval_otel.models import EvaluationResult, ScoreValue
from agenteval_otel.models.judge_calls import Judgement

_OMISSION = re.compile(r"\.\.\.|\u2026")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
_NO_LETTER = re.compile(r"[\W_]+")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_MOST_CLAIM_CHARACTERS = 2_000
_MOST_CHARACTERS = 4_000
_MOST_QUOTES = 20


class CriterionReply(NamedTuple):
    """Holds a criterion's score as the judge gave it, and its reason.

    `facts` are its evidence or claims, for the metadata.
    """

    raw: ScoreValue
    reason: str | None
    facts: Mapping[str, Any]


def reply_of(
    verdict: Verdict,
    task: CriterionTask,
    reply_form: ReplyForm,
    case: Mapping[str, CaseText],
    *,
    alone: bool,
) -> CriterionReply:
    """Return the verdict on one criterion.

    Raises `EvaluationSkipped` if the judge was to list claims, and there are none.
    """
    if reply_form == "lines":
        return _of_lines(without_thinking(verdict.raw), task)
    if reply_form == "number":
        return CriterionReply(_whole_number(without_thinking(verdict.raw), task), None, {})
    claims = task.rubric.claims
    answer = verdict.answer
    if reply_form == "evidence":
        field_name = "claims" if claims else "score"
        is_bare = alone and field_name in answer  # of the only criterion, without its key
        if not is_bare:
            answer = answer.get(task.key)  # type: ignore[assignment]
    if not isinstance(answer, Mapping):
        raise _malformed("the judge's answer has nothing for this criterion")
    if claims is None and "score" not in answer:
        raise _malformed("the judge's answer has no score")
    reason = answer.get("reason", answer.get("reasoning"))
    if reason is not None and not isinstance(reason, str):
        raise _malformed("the judge's reason is no text")
    reason = reason[:_MOST_CHARACTERS] if reason else None
    if claims is not None:
        return claims_reply(answer.get("claims"), claims, case.get(NAMES[claims.source]), reason)
    quotes = answer.get("evidence")
    quotes = quotes if isinstance(quotes, list) else [quotes]
    evidence = [
        quote[:_MOST_CHARACTERS]
        for quote in quotes[:_MOST_QUOTES]
        if isinstance(quote, str) and quote
    ]
    facts: dict[str, Any] = {"evidence": evidence} if evidence else {}
    shown = _readings({name: text.text for name, text in case.items()}) if evidence else ("", "")
    unfound = sum(not _is_quoted(quote, shown) for quote in evidence)
    if unfound:
        facts["unfoundEvidence"] = unfound  # its score may be made up too
    return CriterionReply(task.scale.read(answer["score"]), reason, facts)


class FormError(EvaluationError):
    """Tells that the judge's reply is not in the form that was asked for."""


def _malformed(message: str) -> FormError:
    return FormError(message, error_type="malformed_answer")


def _whole_number(text: str, task: CriterionTask) -> ScoreValue:
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise _malformed("the judge's score is no whole number")
    return task.scale.read(int(text))


def _of_lines(text: str, task: CriterionTask) -> CriterionReply:
    # The last line of each counts; a score line that cannot be read spoils the answer.
    score: ScoreValue | None = None
    reason: str | None = None
    for line in text.split("\n"):
        label, colon, rest = line.partition(":")
        if colon and label.strip().upper() == "SCORE":
            score = _whole_number(rest, task)
        elif colon and label.strip().upper() == "REASON":
            reason = rest.strip()
    if score is None:
        raise _malformed("the judge's answer has no score line")
    if reason is None:
        reason = "no reason provided"
    return CriterionReply(score, reason[:_MOST_CHARACTERS], {})


def claims_reply(
    listing: object, claims: Claims, source: CaseText | None, reason: str | None
) -> CriterionReply:
    """Return the share of claims that hold: ``holding / quoted``.

    Only claims whose quote is in the source count.
    """
    if not isinstance(listing, list):
        raise _malformed("the judge's answer has no list of claims")
    material = source.text if source is not None else ""
    if isinstance(material, list) and claims.source == "tool_calls":  # each call is a claim
        if len(listing) != len(material):
            raise _malformed(f"the judge gave {len(listing)} verdicts for {len(material)} entries")
        sources = [_readings(entry) for entry in material]
    elif len(listing) > claims.most:
        message = f"the judge listed {len(listing)} claims, of at most {claims.most}"
        raise EvaluationError(message, error_type="out_of_range")
    else:
        sources = [_readings(material)] * len(listing)
    all_claims = [_claim(item) for item in listing]
    if not all_claims:
        raise EvaluationSkipped("no claims")
    quoted = [
        claim
        for claim, place in zip(all_claims, sources, strict=True)
        if _is_quoted(claim["quote"], place)
    ]
    not_quoted = len(all_claims) - len(quoted)
    if not_quoted > len(quoted):
        # In the form, and made up: asking again would be asking for better inventions.
        raise EvaluationError(
            f"{not_quoted} of {len(all_claims)} quotes of the judge are not in the {claims.source}",
            error_type="malformed_answer",
        )
    share = sum(claim["holds"] for claim in quoted) / len(quoted)
    facts: dict[str, Any] = {"claims": quoted}
    if not_quoted:
        facts["unfoundQuotes"] = not_quoted
    return CriterionReply(share, reason, facts)


def _claim(item: object) -> dict[str, Any]:
    fields = item if isinstance(item, Mapping) else {}
    quote = fields.get("quote")
    evidence = fields.get("evidence", "")
    holds = fields.get("holds")
    if not (
        isinstance(quote, str)
        and quote.strip()
        and isinstance(evidence, str)
        and isinstance(holds, bool)
    ):
        raise _malformed(
            "one of the judge's claims is not a quote, a text as evidence and whether it holds"
        )
    return {
        "quote": quote[:_MOST_CLAIM_CHARACTERS],
        "evidence": evidence[:_MOST_CLAIM_CHARACTERS],
        "holds": holds,
    }


def _readings(value: object) -> tuple[str, str]:
    """Return a source as text, and its letters and digits only.

    Models change quotation marks, spaces and emphasis.
    """
    if isinstance(value, str):
        return value, _letters(value)
    text = _ESCAPE.sub(" ", json.dumps(value, ensure_ascii=False))
    return text, _letters(text)


def _is_quoted(quote: str, source: tuple[str, str]) -> bool:
    """Tell whether the quote is in the source.

    Of a quote with omissions each part has to be there, in their order.
    """
    text, letters = source
    if not _letters(quote):  # symbols only
        return quote.strip() in text
    # A judge that copies JSON writes a line's end as a backslash and an n.
    forms = dict.fromkeys((quote, _ESCAPE.sub(" ", quote)))
    return any(_contains_parts(letters, form) for form in forms)


def _contains_parts(letters: str, quote: str) -> bool:
    parts = [part for part in map(_letters, _OMISSION.split(quote)) if part]
    at = 0
    for part in parts:
        at = letters.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(parts)


def _letters(text: str) -> str:
    """Return letters and digits in one form.

    Marks go before normalization, which sorts a long row of them slowly.
    """
    letters = _NO_LETTER.sub("", text)
    if not letters.isascii():
        letters = _NO_LETTER.sub("", unicodedata.normalize("NFKD", letters))
    return letters.casefold()


class JudgeAnswer(NamedTuple):
    """Holds the results of one judge call, one per criterion.

    If a guard refused the call, the results are skips, and there is no outcome.

    Attributes:
        is_unreadable: A reply came, and no criterion of it could be read, for its form.
        earlier: The outcome of another call with the same question.
    """

    tasks: Sequence[CriterionTask]
    results: Sequence[EvaluationResult]
    case: Mapping[str, CaseText]
    outcome: Verdict | JudgeError | None = None
    is_unreadable: bool = False
    earlier: Verdict | JudgeError | None = None

    @property
    def outcomes(self) -> list[Verdict | JudgeError]:
        """Return the outcomes of all calls that were made."""
        return [outcome for outcome in (self.earlier, self.outcome) if outcome is not None]

    @property
    def is_repaired(self) -> bool:
        """Tell whether the second of two calls gave a reply that can be read."""
        return self.earlier is not None and self.verdict is not None and not self.is_unreadable

    @property
    def duration_s(self) -> float:
        """Return how long the calls that the judge answered took, together."""
        verdicts = [outcome for outcome in self.outcomes if isinstance(outcome, Verdict)]
        return sum(verdict.duration_s for verdict in verdicts)

    @property
    def verdict(self) -> Verdict | None:
        return self.outcome if isinstance(self.outcome, Verdict) else None


def outcomes_of(calls: Sequence[JudgeAnswer]) -> list[Verdict | JudgeError]:
    """Return the outcomes of all calls that were made for these answers."""
    outcomes: list[Verdict | JudgeError] = []
    for call in calls:
        outcomes += call.outcomes
    return outcomes


def worst_of(answers: Sequence[JudgeAnswer], task: CriterionTask) -> JudgeAnswer:
    """Return the call with the criterion's lowest score.

    If that score does not fail, a call without a score comes before it, because it could have
    failed.
    """
    results = [(answer.results[answer.tasks.index(task)], answer) for answer in answers]
    unknown = [
        answer for result, answer in results if result.status == "failed" or answer.verdict is None
    ]
    scored = [(result, answer) for result, answer in results if result.status == "scored"]
    if not scored:
        return (unknown or answers)[0]
    worst, answer = min(scored, key=lambda pair: _comparable_score(pair[0]))
    return unknown[0] if unknown and worst.passed is not False else answer


def _comparable_score(result: EvaluationResult) -> float:
    return 1.0 if result.normalized is None else result.normalized


def judgement_of(
    answer: JudgeAnswer, paid: Sequence[JudgeAnswer], requested_model: str
) -> Judgement:
    """Return who judged, and what the calls in `paid` used together, for the telemetry."""
    outcomes = outcomes_of(paid)
    used: dict[str, Any] = {}
    usages = [outcome.usage for outcome in outcomes if outcome.usage is not None]
    if usages:
        names = [name for name in JudgeUsage.model_fields if name != "calls"]
        used = {name: sum(getattr(usage, name) for usage in usages) or None for name in names}
    costs = [outcome.cost_usd for outcome in outcomes if outcome.cost_usd is not None]
    if costs:
        used["cost_usd"] = sum(costs)
    used["left_out_chars"] = sum(text.left_out for text in answer.case.values()) or None
    verdict = answer.verdict
    if verdict is None:
        return Judgement(model=requested_model, **used)
    return Judgement(
        model=verdict.model or requested_model,
        response_id=verdict.response_id,
        from_cache=verdict.from_cache,
        system_fingerprint=verdict.system_fingerprint,
        **used,
    )


def judge_facts(judgement: Judgement, paid: Sequence[JudgeAnswer]) -> dict[str, Any]:
    """Return who judged and what the calls used, with the criteria if they are several.

    The facts are for the metadata of the first of the results that one question gave.
    """
    criteria: dict[str, None] = {}
    for call in paid:
        criteria |= dict.fromkeys(task.criterion.name for task in call.tasks)
    facts: dict[str, Any] = {"criteria": list(criteria) if len(criteria) > 1 else None}
    facts |= judgement.model_dump(by_alias=True, exclude={"left_out_chars"})
    facts["calls"] = sum(map(_calls_of, outcomes_of(paid)))
    facts["durationS"] = max((call.duration_s for call in paid), default=None)
    facts["repaired"] = any(call.is_repaired for call in paid)
    return {name: value for name, value in facts.items() if value}


def _calls_of(outcome: Verdict | JudgeError) -> int:
    if outcome.usage is not None:
        return outcome.usage.calls
    return int(isinstance(outcome, JudgeError) and outcome.is_unreadable)
