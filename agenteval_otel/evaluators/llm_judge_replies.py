"""What a judge answered for each criterion, read strictly: a score that would have to be guessed is none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.llm_judge_asked import Asked
from agenteval_otel.evaluators.llm_judge_claims import counted
from agenteval_otel.evaluators.llm_judge_question import NAMES, ReplyForm
from agenteval_otel.judges import JudgeUsage, Verdict
from agenteval_otel.judges.prompt import CaseText
from agenteval_otel.models import ScoreValue
from agenteval_otel.models.judge_calls import Judgement

__all__ = ["Told", "judge_facts", "judgement_of", "reply_of"]

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_NO_REASON = "no reason provided"
_MOST_CHARACTERS = 4_000
_MOST_QUOTES = 20


class Told(NamedTuple):
    """A criterion's score as the judge gave it, its reason, and what it rests on, by the names of the metadata."""

    raw: ScoreValue
    reason: str | None
    facts: Mapping[str, Any]


def reply_of(verdict: Verdict, one: Asked, reply_form: ReplyForm, case: Mapping[str, CaseText], *, alone: bool) -> Told:
    """What the verdict says of one criterion.

    Raises:
        EvaluationError: ``malformed_answer`` where it says nothing of it or no score, ``out_of_range`` where the score
            is beyond the scale.
        EvaluationSkipped: It was to list claims, and found none.
    """
    if reply_form == "lines":
        return _of_lines(verdict.raw, one)
    if reply_form == "number":
        return Told(_number_in(verdict.raw, one), None, {})
    found: Any = verdict.answer
    if reply_form == "evidence" and not (alone and ("claims" if one.claims else "score") in found):
        found = found.get(one.key)
    if not isinstance(found, Mapping):
        raise EvaluationError("the judge's answer has nothing for this criterion", error_type="malformed_answer")
    if one.claims is not None:
        counts = counted(found.get("claims"), one.claims, case.get(NAMES[one.claims.source]))
        facts: dict[str, Any] = {"claims": [dict(claim) for claim in counts.claims]}
        return Told(
            counts.share, _reason_in(found), facts | ({"unfoundQuotes": counts.unfound} if counts.unfound else {})
        )
    if "score" not in found:
        raise EvaluationError("the judge's answer has no score", error_type="malformed_answer")
    reason, quotes = _reason_in(found), found.get("evidence")
    quotes = quotes if isinstance(quotes, list) else [quotes]
    evidence = [quote[:_MOST_CHARACTERS] for quote in quotes[:_MOST_QUOTES] if isinstance(quote, str) and quote]
    return Told(one.scale.read(found["score"]), reason, {"evidence": evidence} if evidence else {})


def _reason_in(found: Mapping[str, Any]) -> str | None:
    reason = found.get("reason", found.get("reasoning"))
    if reason is not None and not isinstance(reason, str):
        raise EvaluationError("the judge's reason is no text", error_type="malformed_answer")
    return reason[:_MOST_CHARACTERS] if reason else None


def _number_in(text: str, one: Asked) -> ScoreValue:
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise EvaluationError("the judge's answer is no whole number", error_type="malformed_answer")
    return one.scale.read(int(text))


def _of_lines(text: str, one: Asked) -> Told:
    """``SCORE:`` and ``REASON:`` lines, the last of each; a score line that cannot be read spoils the answer."""
    score: ScoreValue | None = None
    reason = ""
    for line in map(str.strip, text.split("\n")):
        word, colon, rest = line.partition(":")
        if not colon:
            continue
        if word.upper() == "SCORE":
            if _WHOLE_NUMBER.fullmatch(rest.strip()) is None:
                raise EvaluationError("the score line holds no whole number", error_type="malformed_answer")
            score = one.scale.read(int(rest))
        elif word.upper() == "REASON":
            reason = rest.strip()
    if score is None:
        raise EvaluationError("the judge's answer has no score line", error_type="malformed_answer")
    return Told(score, (reason or _NO_REASON)[:_MOST_CHARACTERS], {})


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
