"""EvaluationRunner: results in configured order, every failure isolated, no score that is none."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.engine.offline import run_evaluation_sync
from agenteval_otel.engine.run import EvaluationRunner, RunOutcome
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.execution import Executor
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from tests.testing.doubles import Fixed, Free, Raw, Thinking, config_of

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

    outcome = run(Thinking(action=think), Fixed(criterion_name="b", action=last), Free(criterion_name="c"))
    assert [result.criterion_name for result in outcome.results] == ["thinking", "b", "c"]
    assert [criterion.name for criterion in outcome.criteria] == ["thinking", "b", "c"]
    assert not outcome.errors


def test_one_that_raises_does_not_touch_the_others() -> None:
    """A raising evaluator leaves a failed result and a run error; the others score."""
    outcome = run(Free(criterion_name="a"), Free(criterion_name="b", action=breaking(KeyError("x"))), Fixed())
    assert [result.status for result in outcome.results] == ["scored", "failed", "scored"]
    failed = outcome.results[1]
    assert (failed.error, failed.error_type, failed.score, failed.raised) == ("KeyError: 'x'", "KeyError", None, True)
    (error,) = outcome.errors
    assert error.evaluator_type == "Free:b"
    assert error.message == "KeyError: 'x'"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "word"),
    [(EvaluationError("slow down", error_type="rate_limited"), "rate_limited"), (SystemExit(3), "SystemExit"),
     (RecursionError(), "RecursionError"), (MemoryError(), "MemoryError"), (TimeoutError("t"), "TimeoutError"),
     (Speechless(), "Speechless"), (StopIteration(1), "StopIteration")],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_every_error_has_a_word(error: BaseException, word: str) -> None:
    """``error_type`` is the error's own word or its class, also for errors that cannot say what they are."""
    (result,) = run(Free(action=breaking(error))).results
    assert (result.status, result.error_type, result.score) == ("failed", word, None)


def test_a_skip_is_neither_score_nor_failure() -> None:
    """An evaluator that abstains leaves a skipped result with its reason, and no run error."""
    outcome = run(
        Free(action=breaking(EvaluationSkipped("no ground truth"))), Fixed(action=breaking(EvaluationSkipped()))
    )
    assert [result.status for result in outcome.results] == ["skipped", "skipped"]
    assert [result.skip_reason for result in outcome.results] == ["no ground truth", "skipped"]
    assert not outcome.errors


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, 10**400, -(10**400), 10**5_000],
    ids=["nan", "inf", "-inf", "big", "-big", "huge"],
)
@pytest.mark.parametrize("scale", ["numeric", "binary", "custom"])
def test_a_value_that_is_no_number_never_becomes_a_score(value: Any, scale: str) -> None:
    """NaN, infinities and numbers beyond every float fail with ``invalid_score``, whoever made the result."""
    own = EvaluationResult.model_construct(criterion_name="raw", score=value, evaluator_type="Raw")
    for evaluator in (Free(action=lambda _: Score(value=value), scale=scale, threshold=0.5), Raw(results=(own,))):
        outcome = run(evaluator)
        (result,) = outcome.results
        assert (result.status, result.error_type, result.score) == ("failed", "invalid_score", None)
        assert (result.normalized, result.label, result.passed) == (None, None, None)


@pytest.mark.parametrize("answer", [None, {"value": 1}, object(), [0.5], b"good", 4, -0.5])
def test_what_is_not_a_score_fails(answer: Any) -> None:
    """A ``score`` method that returns something else, or a number outside the scale, fails with ``invalid_score``."""
    (result,) = run(Free(action=lambda _: answer)).results
    assert (result.status, result.error_type, result.score) == ("failed", "invalid_score", None)


@pytest.mark.parametrize(
    ("answer", "scale", "normalized"),
    [(0.5, "numeric", 0.5), (4, "likert5", 0.75), (True, "binary", 1.0), (40, "0-100", 0.4), ("good", "mood", None)],
)
def test_a_bare_value_is_a_score(answer: Any, scale: str, normalized: float | None) -> None:
    """A ``score`` method may return the value alone; it counts on the criterion's scale."""
    (result,) = run(Free(action=lambda _: answer, scale=scale)).results
    assert (result.status, result.score, result.normalized) == ("scored", answer, normalized)


ALONE = EvaluationResult(criterion_name="raw", score=1, evaluator_type="Raw")


@pytest.mark.parametrize("results", [None, 7, "scored", ("scored",), (None,), {"a": 1}, ALONE])
def test_results_of_the_wrong_kind_fail(results: Any) -> None:
    """An evaluator that returns no list of results has failed with ``invalid_result``."""
    (result,) = run(Raw(results=results)).results
    assert (result.status, result.error_type) == ("failed", "invalid_result")


def test_a_result_for_somebody_elses_criterion_fails() -> None:
    """Names that nobody declared would become attributes and series without end: they are refused."""
    own = EvaluationResult(criterion_name="made up", score=1, evaluator_type="Raw")
    (result,) = run(Raw(results=(own,))).results
    assert (result.criterion_name, result.error_type) == ("raw", "invalid_result")


def test_a_result_that_is_left_out_is_a_skip() -> None:
    """A criterion that was asked for and not answered is accounted for as skipped."""
    (result,) = run(Raw(results=())).results
    assert (result.status, result.skip_reason) == ("skipped", "no result")


@pytest.mark.parametrize("normalized", [-0.1, 1.1, math.nan, math.inf])
def test_a_normalized_score_outside_its_range_is_not_believed(normalized: float) -> None:
    """Normalized lies in [0, 1] or is not there, whatever a foreign evaluator says."""
    own = EvaluationResult(criterion_name="raw", score=3, evaluator_type="Raw", normalized=normalized)
    (result,) = run(Raw(results=(own,))).results
    assert result.normalized is None


@given(st.booleans() | st.integers() | st.floats() | st.text(max_size=20), st.sampled_from(["numeric", "likert5", "x"]))
def test_a_scored_result_is_always_finite(value: Any, scale: str) -> None:
    """Whatever value an evaluator finds: scored means a finite number, a boolean or a category."""
    (result,) = run(Free(value=value, scale=scale)).results
    if result.status == "scored":
        assert isinstance(result.score, str) or math.isfinite(float(result.score or 0))
        assert result.normalized is None or 0 <= result.normalized <= 1
        json.loads(result.model_dump_json())
    else:
        assert result.score is None


def test_results_carry_their_times() -> None:
    """Every result, failed and skipped ones too, has its start and end."""
    for action in (None, breaking(ValueError()), breaking(EvaluationSkipped())):
        (result,) = run(Free(action=action)).results
        assert result.started_ns is not None
        assert result.ended_ns is not None
        assert 0 <= result.ended_ns - result.started_ns < 60_000_000_000


def test_the_inputs_criteria_go_before_the_evaluators() -> None:
    """When the input names criteria, only those are scored, on its scales; failures stand for asked ones only."""
    requests = EvaluationInput(response="x", criteria=(EvaluationCriteria(name="a", scale="likert5", threshold=4),))
    outcome = run(Free(criterion_name="a", value=3), Free(criterion_name="b"), made=requests)
    (result,) = outcome.results
    assert (result.criterion_name, result.normalized, result.label) == ("a", 0.5, "fail")
    broken = run(Free(criterion_name="b", action=breaking(ValueError())), made=requests)
    assert broken.results == []


def test_only_health_sees_a_call_that_raised() -> None:
    """A handler that raised gave no answer: evaluators that cannot judge that are skipped."""
    raised = EvaluationInput(response="", error_type="TimeoutError")
    before, result, after = run(Free(), ResponseHealth(), Fixed(), made=raised).results
    assert before.skip_reason == after.skip_reason == "no answer: the handler raised"
    assert (result.criterion_name, result.passed, result.reason_code) == ("response_health", False, "handler_error")
    part = EvaluationInput(response="half an", error_type="TimeoutError", stream_end="error")
    assert [result.status for result in run(Free(), ResponseHealth(), made=part).results] == ["scored", "scored"]


def test_an_own_rate_sees_a_subset() -> None:
    """An evaluator's own rate cuts from the response's draw; its probability is the smaller of the two rates."""
    expensive, cheap = Free(criterion_name="dear", sample_rate=0.1), Free(criterion_name="cheap", sample_rate=0.9)
    seen: dict[str, set[int]] = {"dear": set(), "cheap": set(), "always": set()}
    for step in range(100):
        draw = step * (RANDOMNESS_RANGE // 200) + 1_000  # the half of the draws that a ratio of 0.5 lets through
        outcome = run(expensive, cheap, Free(criterion_name="always"), randomness=draw, probability=0.5)
        for result in outcome.results:
            seen[result.criterion_name].add(step)
            expected = {"dear": 0.1, "cheap": 0.5, "always": 0.5}[result.criterion_name]
            assert result.probability == expected
    assert seen["dear"] < seen["cheap"] == seen["always"]
    assert len(seen["dear"]) == 20


def test_own_rates_of_none_and_all() -> None:
    """A rate of 0 never evaluates, one of 1 always; without a draw (offline) rates do not count."""
    for draw in (0, RANDOMNESS_RANGE - 1):
        assert not run(Free(sample_rate=0), randomness=draw).results
        assert len(run(Free(sample_rate=1), randomness=draw).results) == 1
    assert len(run(Free(sample_rate=0)).results) == 1


def test_an_unknown_probability_stays_unknown() -> None:
    """Without a known probability of the response none is made up."""
    assert run(Free(sample_rate=0.5), randomness=0).results[0].probability is None


def test_code_only_leaves_out_who_asks_a_model() -> None:
    """Under load, evaluators that ask a model are not run and say why; the others score as ever."""
    requests = []

    async def ask(_: EvaluationInput) -> None:
        requests.append(True)

    results = run(Free(), Thinking(action=ask), skip_models=True).results
    assert [(result.status, result.skip_reason) for result in results] == [
        ("scored", None),
        ("skipped", "load_shed"),
    ]
    assert results[1].calls_model
    assert not requests
    assert [result.status for result in run(Free(), Thinking(action=ask)).results] == ["scored", "scored"]


def test_live_and_offline_agree() -> None:
    """The same evaluators on the same input give the same scores through the runner and through `run_evaluation`."""
    evaluators = (
        ResponseHealth(), KeywordCoverage(criterion_name="kw", expected_keywords=["answer", "missing"]),
        RuleBased.load({"rules": [{"criterion": "short", "type": "length", "max": 3}]}),
    )  # fmt: skip
    live = run(*evaluators, randomness=0, probability=1.0).results
    offline = run_evaluation_sync(INPUT, config_of(*evaluators)).results
    assert [(r.criterion_name, r.score, r.label) for r in live] == [
        (r.criterion_name, r.score, r.label) for r in offline
    ]
