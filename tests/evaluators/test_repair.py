"""``repair``: a reply that is not in the form is asked for once more, and both calls are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationResult
from agenteval_otel.evaluators import Groundedness, LLMJudge
from agenteval_otel.evaluators.judges.cache import SqliteVerdicts
from agenteval_otel.judges import CacheSettings, SpendLimits
from agenteval_otel.testing import ScriptedJudge

INPUT = EvaluationInput(prompt="When is it due?", response="It is due on Tuesday.")
GOOD = {"evidence": ["due"], "reason": "as asked", "score": True}
PROSE = "I would say that it is polite."


def judged(*replies: Any, **settings: Any) -> tuple[EvaluationResult, ScriptedJudge]:
    """Return the result, and the judge that was asked."""
    settings.setdefault("input_tokens", 100)
    judge = ScriptedJudge(replies=replies, **settings)
    evaluator = LLMJudge("Is it polite?", judge=judge, repair=True)
    [result] = asyncio.run(evaluator.evaluate(INPUT, evaluator.criteria()))
    return result, judge


@pytest.mark.parametrize(
    "reply",
    [PROSE, "", '{"reason": "no score"}', '{"score": true', "[true]"],
    ids=["prose", "empty", "no score", "half", "a list"],
)
def test_a_reply_that_cannot_be_read_is_asked_for_once_more(reply: str) -> None:
    """The second reply is the score; what both calls used stands on the result."""
    result, judge = judged(reply, GOOD)
    assert (result.status, result.score) == ("scored", True)
    assert judge.calls == 2
    assert result.metadata is not None
    stated = result.metadata["judge"]
    assert (stated["calls"], stated["inputTokens"], stated["repaired"]) == (2, 200, True)


def test_the_question_comes_again_with_a_reminder_and_without_the_reply() -> None:
    """The words of the first reply may be those of the judged answer: they are not repeated."""
    _, judge = judged(PROSE, GOOD)
    first, second = judge.requests
    assert second.prompt.startswith(first.prompt)
    assert "could not be read" in second.prompt
    assert PROSE not in second.prompt
    assert second.fingerprint not in ("", first.fingerprint)


@pytest.mark.parametrize("second", [PROSE, {"error": "rate_limited"}], ids=["prose", "failure"])
def test_it_is_asked_once_more_and_not_twice(second: Any) -> None:
    """A second call without a score leaves the first failure, with the usage of both calls."""
    result, judge = judged(PROSE, second, GOOD)
    assert (result.status, result.error_type, judge.calls) == ("failed", "malformed_answer", 2)
    assert result.metadata is not None
    assert result.metadata["judge"]["inputTokens"] == 200
    assert "repaired" not in result.metadata["judge"]


MADE_UP = {
    "claims": [{"quote": "It is due in May.", "evidence": "in May", "holds": True}],
    "reason": "as told",
}


@pytest.mark.parametrize(
    ("kind", "fields", "reply", "error_type"),
    [
        (LLMJudge, {}, "I'm sorry, but I can't help with that.", "refusal"),
        (LLMJudge, {}, {"error": "truncated"}, "truncated"),
        (LLMJudge, {}, {"error": "rate_limited"}, "rate_limited"),
        (LLMJudge, {"scale": "likert5"}, {**GOOD, "score": 9}, "out_of_range"),
        (Groundedness, {}, MADE_UP, "malformed_answer"),
        (LLMJudge, {"repair": False}, PROSE, "malformed_answer"),
    ],
    ids=["refusal", "truncated", "rate limit", "beyond the scale", "made-up quotes", "unasked"],
)
def test_other_failures_are_not_repaired(
    kind: type[LLMJudge], fields: dict[str, Any], reply: Any, error_type: str
) -> None:
    """What is in the form, and a failed call, stay what they are; by default so does all else."""
    judge = ScriptedJudge(replies=(reply, GOOD))
    evaluator = kind(**{"judge": judge, "criterion_name": "right", "repair": True, **fields})
    asked = INPUT.model_copy(update={"context": {"note": "It is due on Tuesday."}})
    [result] = asyncio.run(evaluator.evaluate(asked, evaluator.criteria()))
    assert (result.status, result.error_type, judge.calls) == ("failed", error_type, 1)


def test_the_spend_limit_holds_for_the_repair_too() -> None:
    """Where nothing is left for the second call, the failure of the first one stays."""
    limits = SpendLimits(tokens_per_day=5_000)
    result, judge = judged(PROSE, GOOD, spend=limits, input_tokens=4_000)
    assert (result.status, result.error_type, judge.calls) == ("failed", "malformed_answer", 1)


def test_a_repaired_verdict_is_kept_in_the_cache(tmp_path: Any) -> None:
    """As the verdict on the question, so a later run pays nothing."""
    cache = CacheSettings(path=tmp_path / "verdicts.db")
    calls = []
    for _ in range(2):
        result, judge = judged(PROSE, GOOD, cache=cache)
        assert result.score is True
        calls.append(judge.calls)
        # The file is written beside the evaluation.
        written = judge.guarded().cache
        assert written is not None
        assert isinstance(written.store, SqliteVerdicts)
        assert written.store.close(5.0)
    assert calls == [2, 0]


def test_the_calls_of_a_function_are_counted_without_usage() -> None:
    """A judge of the user's own reports no tokens: its calls are counted all the same."""
    replies = iter([PROSE, '{"evidence": [], "reason": "b", "score": true}'])
    evaluator = LLMJudge("Is it polite?", judge=lambda prompt: next(replies), repair=True)
    [result] = asyncio.run(evaluator.evaluate(INPUT, evaluator.criteria()))
    assert result.metadata is not None
    assert result.metadata["judge"]["calls"] == 2


def test_the_evaluators_version_does_not_depend_on_it() -> None:
    """Repaired scores are comparable with those of before."""
    versions = {
        LLMJudge("Is it polite?", judge=ScriptedJudge(), repair=repair).fingerprint
        for repair in (False, True)
    }
    assert len(versions) == 1
