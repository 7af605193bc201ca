"""EvaluationRunner: results in configured order, every failure isolated, no score that is none."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.run import EvaluationRunner, RunOutcome
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, ResponseHealth
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from tests.testing.doubles import Fixed, Free, Raw, Thinking

INPUT = EvaluationInput(response="the answer", prompt="the question")


def run(*evaluators: Evaluator, made: EvaluationInput = INPUT, **arguments: Any) -> RunOutcome:
    runner = EvaluationRunner(evaluators, executor=Executor(live=False))
    try:
        return asyncio.run(runner.run(made, **arguments))
    finally:
        runner.executor.close()


def breaking(error: BaseException) -> Any:
    def act(_: EvaluationInput) -> Score:
        raise error

    return act


def test_results_stand_in_configured_order() -> None:
    """Whoever is done first, the results have the order of the evaluators."""
    first_may_go = threading.Event()

    def last(_: EvaluationInput) -> Score:
        first_may_go.set()
        return Score(value=0.1)

    def first(_: EvaluationInput) -> Score:
        assert first_may_go.wait(10)
        return Score(value=0.9)

    async def think(evaluation_input: EvaluationInput) -> Score:
        return await asyncio.to_thread(first, evaluation_input)

    outcome = run(
        Thinking(action=think), Fixed(criterion_name="b", action=last), Free(criterion_name="c")
    )
    assert [result.criterion_name for result in outcome.results] == ["thinking", "b", "c"]
    assert [criterion.name for criterion in outcome.criteria] == ["thinking", "b", "c"]
    assert not outcome.errors


def test_a_failure_or_a_skip_leaves_the_others_alone() -> None:
    """A raising evaluator leaves a failed result and a run error, one that abstains a reason; the
    others score.
    """
    outcome = run(
        Free(criterion_name="a"),
        Free(criterion_name="b", action=breaking(KeyError("x"))),
        Fixed(),
        Free(criterion_name="c", action=breaking(EvaluationSkipped("no ground truth"))),
        Fixed(criterion_name="d", action=breaking(EvaluationSkipped())),
    )
    assert [result.status for result in outcome.results] == [
        "scored",
        "failed",
        "scored",
        "skipped",
        "skipped",
    ]
    failed = outcome.results[1]
    assert (failed.error, failed.error_type, failed.score, failed.raised) == (
        "KeyError: 'x'",
        "KeyError",
        None,
        True,
    )
    assert [(error.evaluator_type, error.message) for error in outcome.errors] == [
        ("Free:b", "KeyError: 'x'")
    ]
    assert [result.skip_reason for result in outcome.results[3:]] == ["no ground truth", "skipped"]


@pytest.mark.parametrize("value", [math.nan, -math.inf, 10**400], ids=["nan", "-inf", "huge"])
@pytest.mark.parametrize("scale", ["numeric", "binary", "custom"])
def test_a_value_that_is_no_number_never_becomes_a_score(value: Any, scale: str) -> None:
    """Whatever the scale, and whichever part made the result; nor does a number outside of the
    scale.
    """
    own = EvaluationResult.model_construct(criterion_name="raw", score=value, evaluator_type="Raw")
    scoring = Free(action=lambda _: Score(value=value), scale=scale, threshold=0.5)
    for evaluator in (scoring, Raw(results=(own,)), Free(action=lambda _: 4)):
        (result,) = run(evaluator).results
        assert (result.status, result.error_type, result.score) == ("failed", "invalid_score", None)
        assert (result.normalized, result.label, result.passed) == (None, None, None)


@pytest.mark.parametrize(
    ("answer", "scale", "normalized"),
    [
        (0.5, "numeric", 0.5),
        (4, "likert5", 0.75),
        (True, "binary", 1.0),
        (40, "0-100", 0.4),
        ("good", "mood", None),
    ],
)
def test_a_bare_value_is_a_score(answer: Any, scale: str, normalized: float | None) -> None:
    """A ``score`` method may return the value alone; it counts on the criterion's scale."""
    (result,) = run(Free(action=lambda _: answer, scale=scale)).results
    assert (result.status, result.score, result.normalized) == ("scored", answer, normalized)


ALONE = EvaluationResult(criterion_name="raw", score=1, evaluator_type="Raw")
UNDECLARED = EvaluationResult(criterion_name="made up", score=1, evaluator_type="Raw")


@pytest.mark.parametrize(
    "results", [None, "scored", (None,), {"a": 1}, ALONE, (UNDECLARED,), (ALONE, ALONE)]
)
def test_results_of_the_wrong_kind_fail(results: Any) -> None:
    """No list of results, two for one criterion, or one for a criterion that would be a series
    without end.
    """
    (result,) = run(Raw(results=results)).results
    assert (result.criterion_name, result.status, result.error_type) == (
        "raw",
        "failed",
        "invalid_result",
    )


def test_only_health_sees_a_call_that_raised() -> None:
    """A handler that raised gave no answer: evaluators that cannot judge that are skipped."""
    raised = EvaluationInput(response="", error_type="TimeoutError")
    before, result, after = run(Free(), ResponseHealth(), Fixed(), made=raised).results
    assert before.skip_reason == after.skip_reason == "no answer: the handler raised"
    assert (result.criterion_name, result.passed, result.reason_code) == (
        "response_health",
        False,
        "handler_error",
    )
    part = EvaluationInput(response="half an", error_type="TimeoutError", stream_end="error")
    assert [result.status for result in run(Free(), ResponseHealth(), made=part).results] == [
        "scored",
        "scored",
    ]


def test_an_own_rate_sees_a_subset() -> None:
    """An evaluator's own rate cuts from the response's draw; its probability is the smaller of the
    two rates.
    """
    expensive, cheap = (
        Free(criterion_name="dear", sample_rate=0.1),
        Free(criterion_name="cheap", sample_rate=0.9),
    )
    seen: dict[str, set[int]] = {"dear": set(), "cheap": set(), "always": set()}
    for step in range(100):
        # the half of the draws that a ratio of 0.5 lets through
        draw = step * (RANDOMNESS_RANGE // 200) + 1_000
        outcome = run(
            expensive, cheap, Free(criterion_name="always"), randomness=draw, probability=0.5
        )
        for result in outcome.results:
            seen[result.criterion_name].add(step)
            expected = {"dear": 0.1, "cheap": 0.5, "always": 0.5}[result.criterion_name]
            assert result.probability == expected
    assert seen["dear"] < seen["cheap"] == seen["always"]
    assert len(seen["dear"]) == 20


def test_own_rates_of_none_and_all() -> None:
    """A rate of 0 never evaluates, one of 1 always; without randomness (offline) rates do not
    count.
    """
    for draw in (0, RANDOMNESS_RANGE - 1):
        assert not run(Free(sample_rate=0), randomness=draw).results
        assert len(run(Free(sample_rate=1), randomness=draw).results) == 1
    assert len(run(Free(sample_rate=0)).results) == 1
    unknown = run(Free(sample_rate=0.5), randomness=0)
    assert unknown.results[0].probability is None, (
        "without a known probability of the response none is made up"
    )
