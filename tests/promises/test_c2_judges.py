"""C2, of judges: no answer of a model that is none becomes a score, and every way of failing has
its own word.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.evaluators.judges.base import ERROR_TYPES
from agenteval_otel.judges import AnthropicJudge, Judge, OpenAICompatibleJudge
from agenteval_otel.models import EvaluationResult
from agenteval_otel.testing import ModelReply, ModelServer, ScriptedJudge
from tests.judges.asking import hosted
from tests.judges.test_failures import ONE_TRY, RETRIED
from tests.promises.bench import (
    AN_ERROR,
    Bench,
    assert_average,
    assert_emitted,
    assert_one_of_three,
)
from tests.promises.figures import Recorder, sized
from tests.promises.outputs import NO_SCORE, honest, some_output

OUTPUTS = sized(600, 5_000)
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])

GOOD = '{"evidence": ["it is"], "reason": "so it is", "score": 4}'
READ, WROTE = 70, 9


def _replying(text: str, **fields: Any) -> ModelReply:
    return ModelReply(text=text, input_tokens=READ, output_tokens=WROTE, **fields)


OWN: dict[str, tuple[ModelReply, str]] = {
    "out of range": (_replying(GOOD.replace("4", "9")), "out_of_range"),
    "between two levels": (_replying(GOOD.replace("4", "3.5")), "malformed_answer"),
    "no score": (_replying('{"evidence": [], "reason": "x"}'), "malformed_answer"),
    "text for a score": (_replying(GOOD.replace("4", '"8/10"')), "malformed_answer"),
    "two objects": (_replying(GOOD + GOOD), "malformed_answer"),
    "a name twice": (_replying(GOOD[:-1] + ', "score": 5}'), "malformed_answer"),
    "NaN": (_replying(GOOD.replace("4", "NaN")), "malformed_answer"),
    "refusal": (_replying("I will not.", finish_reason="content_filter"), "refusal"),
    "truncated": (_replying(GOOD[:20], finish_reason="length"), "truncated"),
    "nothing at all": (_replying(""), "empty_answer"),
    "a tool instead": (
        ModelReply(tool_calls=[{"name": "score", "arguments": {"score": 5}}]),
        "malformed_answer",
    ),
    "429 until tomorrow": (
        ModelReply(status=429, headers={"Retry-After": "86400"}),
        "rate_limited",
    ),
    "529 until tomorrow": (ModelReply(status=529, headers={"Retry-After": "86400"}), "overloaded"),
    "half-open": (ModelReply(hangs="before"), "timeout"),
    "half a body": (_replying(GOOD, hangs="body"), "timeout"),
    "trickling": (_replying(GOOD, trickle_s=0.05), "timeout"),
}
FAILURES = {**ONE_TRY, **RETRIED, **OWN}
PAID = (
    "out of range",
    "no score",
    "two objects",
    "a name twice",
    "NaN",
    "refusal",
    "truncated",
    "nothing at all",
)
"""Those that the provider told the usage of."""


def judged_by(judge: Judge) -> LLMJudge:
    return LLMJudge(judge=judge, criterion_name="helpful", scale="likert5")


@BOTH
def test_each_failure_of_a_provider_has_its_word(
    kind: type[Judge], bench: Bench, promise: Recorder
) -> None:
    """Through the real clients to the event: the failure's own word, no score, and the tokens that
    were told of.
    """
    reply = ModelReply(text=GOOD)
    with ModelServer([lambda _: reply]) as server:
        patient, hasty = (
            judged_by(hosted(kind, server, max_retries=0, deadline_s=deadline_s, breaker=None))
            for deadline_s in (20.0, 0.8)
        )
        assert _judge(bench, patient).score == 4
        results = {}
        for name, (reply, word) in FAILURES.items():
            before = len(server.requests)
            results[name] = _judge(
                bench, hasty if word == "timeout" and reply.status == 200 else patient
            )
            assert len(server.requests) <= before + 1, name
    actual = {name: result.error_type for name, result in results.items()}
    assert actual == {name: word for name, (_, word) in FAILURES.items()}
    for result in results.values():
        assert_one_of_three(result)
    for name in PAID:
        reported = results[name].judgement
        assert reported is not None, name
        assert (reported.input_tokens, reported.output_tokens) == (READ, WROTE), name
    assert assert_emitted(bench) == {"scored": 1, "failed": len(FAILURES), "skipped": 0}
    events = [
        event.attributes[AN_ERROR]
        for event in bench.telemetry.events()
        if AN_ERROR in event.attributes
    ]
    assert sorted(events) == sorted(actual.values())
    words = set(actual.values())
    assert words >= {*ERROR_TYPES, "out_of_range"} - {"budget_exhausted", "breaker_open"}
    promise("C2", figure=f"{len(FAILURES)} failures of a provider, {len(words)} words, 0 scores")


SCALES: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "likert5": ({"scale": "likert5"}, lambda score: _is_number(score) and score in (1, 2, 3, 4, 5)),
    "0-10": ({"scale": "0-10"}, lambda score: _is_number(score) and score in range(11)),
    "numeric": ({"scale": "numeric"}, lambda score: _is_number(score) and 0 <= score <= 1),
    "pass/fail": ({"scale": "pass/fail"}, lambda score: isinstance(score, bool)),
    "words": (
        {"scale": "low|high"},
        lambda score: isinstance(score, str) and score.strip().lower() in ("low", "high"),
    ),
    "levels": (
        {"scale": "rank", "levels": {1: "bad", 2: "fair", 4: "good"}},
        lambda score: _is_number(score) and score in (1, 2, 3, 4),
    ),
}


def _is_number(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool)


@pytest.mark.sized
def test_fuzzed_answers_of_a_judge(bench: Bench, promise: Recorder) -> None:
    """Of thousands of outputs those that are an answer are scored with what they say, and no other
    is.
    """
    dice = random.Random(7)
    text = ""
    evaluators = {
        scale: LLMJudge(
            judge=ScriptedJudge(answer=lambda _: text), criterion_name="judged", **fields
        )
        for scale, (fields, _) in SCALES.items()
    }
    for number in range(OUTPUTS):
        scale, text = dice.choice(list(SCALES)), some_output(dice)
        result = _judge(bench, evaluators[scale])
        assert_one_of_three(result)
        assert_average(bench.kept.saved[-1])
        expected = honest(text, SCALES[scale][1])
        if result.status == "scored":
            assert _equal(result.score, expected), (
                f"output {number} on {scale}: {text[:300]!r} gave {result.score!r}"
            )
        else:
            assert expected is NO_SCORE, (
                f"output {number} on {scale}: {text[:300]!r} was refused: {result.error}"
            )
            words = ("malformed_answer", "empty_answer", "out_of_range", "refusal")
            assert result.error_type in words, text[:300]
    counts = assert_emitted(bench)
    assert min(counts["scored"], counts["failed"]) > OUTPUTS // 20
    scored, failed = counts["scored"], counts["failed"]
    promise(
        "C2",
        figure=f"{OUTPUTS} outputs of a judge: {scored} answers scored, {failed} failed, 0 invented",
    )


def _equal(score: Any, message: Any) -> bool:
    if isinstance(score, str) and isinstance(message, str):
        return score == message.strip().lower()
    return bool(score == message) and isinstance(score, bool) == isinstance(message, bool)


def _judge(bench: Bench, evaluator: LLMJudge) -> EvaluationResult:
    (result,) = bench.judge(evaluator)
    return result
