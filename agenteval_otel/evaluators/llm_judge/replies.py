"""What a judge answered for each criterion, read strictly: a score that would have to be guessed is refused."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.llm_judge.prompt import NAMES, CriterionTask, ReplyForm
from agenteval_otel.evaluators.llm_judge.rubric import Claims
from agenteval_otel.judges import JudgeUsage, Verdict
from agenteval_otel.judges.prompt import CaseText
from agenteval_otel.models import ScoreValue
from agenteval_otel.models.judge_calls import Judgement

__all__ = ["Counted", "CriterionReply", "counted", "judge_facts", "judgement_of", "reply_of"]

_GAP = re.compile(r"\.\.\.|\u2026")  # space and brackets around it are no word anyhow
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
_NO_WORD = re.compile(r"[\W_]+")
_MOST_CLAIM_CHARACTERS = 2_000


class Counted(NamedTuple):
    """The share of the claims that holds, each claim as the judge gave it, and how many quotes were not found."""

    share: float
    claims: tuple[Mapping[str, Any], ...]
    unfound: int


def counted(listing: Any, claims: Claims, source: CaseText | None) -> Counted:
    """The claims that were given, held to what they were quoted from: ``share = holding / found``.

    Args:
        given: What the answer has for ``claims``.
        claims: What was asked for.
        source: The field that they are quoted from, as the judge saw it; of tool calls each one is a claim.

    Raises:
        EvaluationError: ``malformed_answer`` where one is no claim, where tool calls and verdicts are not equally many,
            or where most quotes are not in the source; ``out_of_range`` where there are more than were asked for.
        EvaluationSkipped: No claims: a share of nothing is no score.
    """
    if not isinstance(listing, list):
        raise EvaluationError("the judge's answer has no list of claims", error_type="malformed_answer")
    material = source.text if source is not None else ""
    entries = material if isinstance(material, list) and claims.source == "tool_calls" else None
    each = None if entries is None else len(entries)
    if each is None and len(listing) > claims.most:
        raise EvaluationError(f"the judge listed {len(listing)} claims, of at most {claims.most}",
                              error_type="out_of_range")  # fmt: skip
    if each is not None and len(listing) != each:
        raise EvaluationError(
            f"the judge gave {len(listing)} verdicts for {each} entries", error_type="malformed_answer"
        )
    listed = [_claim(claim) for claim in listing]
    if not listed:
        raise EvaluationSkipped("no claims")
    texts = [_text_of(material)] * len(listed) if entries is None else [_text_of(claim) for claim in entries]
    quoted = [claim for claim, text in zip(listed, texts, strict=True) if _stands_in(claim["quote"], text)]
    unfound = len(listed) - len(quoted)
    if unfound > len(quoted):
        raise EvaluationError(f"{unfound} of {len(listed)} quotes of the judge are not in the {claims.source}",
                              error_type="malformed_answer")  # fmt: skip
    return Counted(sum(claim["holds"] for claim in quoted) / len(quoted), tuple(quoted), unfound)


def _claim(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise EvaluationError("one of the judge's claims is no object", error_type="malformed_answer")
    quote, evidence, holds = item.get("quote"), item.get("evidence", ""), item.get("holds")
    if not isinstance(quote, str) or not quote.strip():
        raise EvaluationError("one of the judge's claims has no quote", error_type="malformed_answer")
    if not isinstance(holds, bool):
        raise EvaluationError("one of the judge's claims neither holds nor fails", error_type="malformed_answer")
    if not isinstance(evidence, str):
        raise EvaluationError("the evidence of a claim is no text", error_type="malformed_answer")
    return {"quote": quote[:_MOST_CLAIM_CHARACTERS], "evidence": evidence[:_MOST_CLAIM_CHARACTERS], "holds": holds}


def _text_of(value: Any) -> tuple[str, str]:
    """A source as it stands, and its letters and digits only: models change quotation marks, spaces and emphasis."""
    text = value if isinstance(value, str) else _ESCAPE.sub(" ", json.dumps(value, ensure_ascii=False))
    return text, _bare(text)


def _stands_in(quote: str, source: tuple[str, str]) -> bool:
    """Whether each part of the quote, where it leaves something out, is in the source, one behind the other."""
    text, bare = source
    parts = _parts_of(quote)
    if not parts:  # symbols only
        return quote.strip() in text
    if _stand_in(parts, bare):
        return True
    # A judge that copies what it sees copies JSON: a line's end is a backslash and an n there.
    return "\\" in quote and _stand_in(_parts_of(_ESCAPE.sub(" ", quote)), bare)


def _parts_of(quote: str) -> list[str]:
    return [part for part in map(_bare, _GAP.split(quote)) if part]


def _stand_in(parts: list[str], bare: str) -> bool:
    at = 0
    for part in parts:
        at = bare.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(parts)


def _bare(text: str) -> str:
    """Letters and digits, in whatever form they are written; marks go first, of which a long row takes long to sort."""
    bare = _NO_WORD.sub("", text)
    if not bare.isascii():
        bare = _NO_WORD.sub("", unicodedata.normalize("NFKD", bare))
    return bare.casefold()


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_NO_REASON = "no reason provided"
_MOST_CHARACTERS = 4_000
_MOST_QUOTES = 20


class CriterionReply(NamedTuple):
    """A criterion's score as the judge gave it, its reason, and what it rests on, by the names of the metadata."""

    raw: ScoreValue
    reason: str | None
    facts: Mapping[str, Any]


def reply_of(
    verdict: Verdict, task: CriterionTask, reply_form: ReplyForm, case: Mapping[str, CaseText], *, alone: bool
) -> CriterionReply:
    """What the verdict says of one criterion.

    Raises:
        EvaluationError: ``malformed_answer`` where it says nothing of it or no score, ``out_of_range`` where the score
            is beyond the scale.
        EvaluationSkipped: It was to list claims, and found none.
    """
    if reply_form == "lines":
        return _of_lines(verdict.raw, task)
    if reply_form == "number":
        return CriterionReply(_number_in(verdict.raw, task), None, {})
    answer: Any = verdict.answer
    if reply_form == "evidence" and not (alone and ("claims" if task.claims else "score") in answer):
        answer = answer.get(task.key)
    if not isinstance(answer, Mapping):
        raise EvaluationError("the judge's answer has nothing for this criterion", error_type="malformed_answer")
    if task.claims is not None:
        counts = counted(answer.get("claims"), task.claims, case.get(NAMES[task.claims.source]))
        facts: dict[str, Any] = {"claims": [dict(claim) for claim in counts.claims]}
        return CriterionReply(
            counts.share, _reason_in(answer), facts | ({"unfoundQuotes": counts.unfound} if counts.unfound else {})
        )
    if "score" not in answer:
        raise EvaluationError("the judge's answer has no score", error_type="malformed_answer")
    reason, quotes = _reason_in(answer), answer.get("evidence")
    quotes = quotes if isinstance(quotes, list) else [quotes]
    evidence = [quote[:_MOST_CHARACTERS] for quote in quotes[:_MOST_QUOTES] if isinstance(quote, str) and quote]
    return CriterionReply(task.scale.read(answer["score"]), reason, {"evidence": evidence} if evidence else {})


def _reason_in(answer: Mapping[str, Any]) -> str | None:
    reason = answer.get("reason", answer.get("reasoning"))
    if reason is not None and not isinstance(reason, str):
        raise EvaluationError("the judge's reason is no text", error_type="malformed_answer")
    return reason[:_MOST_CHARACTERS] if reason else None


def _number_in(text: str, task: CriterionTask) -> ScoreValue:
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise EvaluationError("the judge's answer is no whole number", error_type="malformed_answer")
    return task.scale.read(int(text))


def _of_lines(text: str, task: CriterionTask) -> CriterionReply:
    """``SCORE:`` and ``REASON:`` lines, the last of each; a score line that cannot be read spoils the answer."""
    score: ScoreValue | None = None
    reason = ""
    for line in map(str.strip, text.split("\n")):
        label, colon, rest = line.partition(":")
        if not colon:
            continue
        if label.upper() == "SCORE":
            if _WHOLE_NUMBER.fullmatch(rest.strip()) is None:
                raise EvaluationError("the score line holds no whole number", error_type="malformed_answer")
            score = task.scale.read(int(rest))
        elif label.upper() == "REASON":
            reason = rest.strip()
    if score is None:
        raise EvaluationError("the judge's answer has no score line", error_type="malformed_answer")
    return CriterionReply(score, (reason or _NO_REASON)[:_MOST_CHARACTERS], {})


def judgement_of(verdict: Verdict | None, usage: JudgeUsage | None, asked_model: str) -> Judgement:
    """Who judged and what that took, for the telemetry; the same that `judge_facts` says in the metadata."""
    used: dict[str, Any] = {} if usage is None else {
        name: getattr(usage, name) or None
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    }  # fmt: skip
    if verdict is None:
        return Judgement(model=asked_model, **used)
    return Judgement(
        model=verdict.model or asked_model, response_id=verdict.response_id, cost_usd=verdict.cost_usd,
        from_cache=verdict.from_cache, **used,
    )  # fmt: skip


def judge_facts(verdict: Verdict | None, usage: JudgeUsage | None, names: Sequence[str]) -> dict[str, Any]:
    """Who judged and what that took, for the metadata of the first of the results that one call gave."""
    facts: dict[str, Any] = {"criteria": list(names)} if len(names) > 1 else {}
    if usage is not None:
        facts |= {name: value for name, value in usage.model_dump(by_alias=True).items() if value}
    if verdict is not None:
        known = {
            "model": verdict.model, "responseId": verdict.response_id, "durationS": verdict.duration_s,
            "costUsd": verdict.cost_usd, "fromCache": verdict.from_cache,
        }  # fmt: skip
        facts |= {name: value for name, value in known.items() if value}
    return facts
