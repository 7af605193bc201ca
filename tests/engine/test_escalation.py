"""Stages of a run: which evaluators wait, which are skipped, and what the results say of it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.engine.aggregation import AllMustPass
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.execution.wire import answer_of, encode_answer
from agenteval_otel.engine.run import EvaluationRunner, RunOutcome
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
)
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.run import run_evaluation_sync, run_evaluations_sync
from agenteval_otel.redaction import default_redactors
from agenteval_otel.sampling import (
    Escalation,
    FunctionSampler,
    ResultSampler,
    RuleSampler,
    SamplingContext,
)
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.escalation import second_randomness
from tests.execution.support import forever
from tests.testing.doubles import Fixed, Free, Raw, Thinking, config_of

INPUT = EvaluationInput(response="the answer", prompt="the question")
NEVER = next(draw for draw in range(1_000) if second_randomness(draw) > 0.99 * RANDOMNESS_RANGE)
ALWAYS = next(draw for draw in range(1_000) if second_randomness(draw) < 0.01 * RANDOMNESS_RANGE)
KEYWORDS = {"type": "KeywordCoverage", "criterion_name": "long", "expected_keywords": ["a"]}
LOW = Escalation(baseline_rate=0.02, rules=[ResultSampler(below=0.5)])


class Asked:
    """An action for `Thinking` that keeps what it was asked."""

    def __init__(self) -> None:
        self.inputs: list[EvaluationInput] = []

    async def __call__(self, made: EvaluationInput) -> Score:
        self.inputs.append(made)
        return Score(value=0.25, passed=False)


def run(
    escalation: Escalation | None,
    *evaluators: Evaluator,
    randomness: int | None = NEVER,
    made: EvaluationInput = INPUT,
    redaction: Redaction | None = None,
    **arguments: Any,
) -> RunOutcome:
    runner = EvaluationRunner(
        evaluators, executor=Executor(live=False), escalation=escalation, redaction=redaction
    )
    try:
        return asyncio.run(runner.run(made, randomness=randomness, **arguments))
    finally:
        runner.executor.close()


def summary_of(outcome: RunOutcome) -> list[tuple[str, str, float | None, str | None]]:
    return [
        (
            result.criterion_name,
            result.skip_reason or result.status,
            result.probability,
            result.sampling_reason,
        )
        for result in outcome.results
    ]


def test_what_the_baseline_takes_waits_for_no_result() -> None:
    """Where it is known before that an answer goes on, both stages run side by side."""
    judged = threading.Event()

    async def judge(_: EvaluationInput) -> Score:
        judged.set()
        return Score(value=1.0)

    def cheap(_: EvaluationInput) -> Score:
        assert judged.wait(10), "the first stage was waited for"
        return Score(value=0.9)

    outcome = run(LOW, Fixed(action=cheap), Thinking(action=judge), randomness=ALWAYS)
    assert [result.status for result in outcome.results] == ["scored", "scored"]


def test_named_criteria_wait_instead_of_those_that_ask_a_model() -> None:
    """A small judge can decide about a large one, and a slow computation can wait as well."""
    named = Escalation(
        baseline_rate=0.02,
        rules=[ResultSampler(criteria=["small"], below=0.5)],
        criteria=["large", "slow"],
    )
    small, large = Asked(), Asked()
    outcome = run(
        named,
        Fixed(criterion_name="slow"),
        Thinking(criterion_name="small", action=small),
        Thinking(criterion_name="large", action=large),
    )
    assert [result.status for result in outcome.results] == ["scored"] * 3
    assert len(small.inputs) == len(large.inputs) == 1
    assert [result.skip_reason for result in run(named, Free(criterion_name="slow")).results] == [
        "not_escalated"
    ]


def breaking(_: EvaluationInput) -> Score:
    raise KeyError("x")


def test_failures_of_the_first_stage_match_rules_on_failures_only() -> None:
    """The second stage waits for what hangs until its time limit, and no longer."""
    first = (
        Free(action=breaking),
        Thinking(criterion_name="small", action=forever, timeout_s=0.05),
    )
    large = Thinking(criterion_name="large")
    low = Escalation(baseline_rate=0.02, rules=[ResultSampler(below=0.5)], criteria=["large"])
    assert summary_of(run(low, *first, large))[2][1] == "not_escalated"
    failures = Escalation(
        baseline_rate=0.02, rules=[ResultSampler(failed=True)], criteria=["large"]
    )
    assert [result.status for result in run(failures, *first, large).results] == [
        "failed",
        "failed",
        "scored",
    ]


class Undecided(RuleSampler, type="undecided_rule"):
    """Never knows."""

    def matches(self, context: SamplingContext) -> bool | None:
        return None


@pytest.mark.parametrize(
    "error", [SystemExit("no"), asyncio.CancelledError("no"), ValueError("no")], ids=repr
)
def test_a_rule_that_raises_is_told_and_costs_nothing_else(error: BaseException) -> None:
    """It stands in the errors, once; the answer is decided by the others, as far as they know."""

    def explode(_: EvaluationInput) -> bool:
        raise error

    rules = [FunctionSampler(function=explode), Undecided(), ResultSampler(labels=["fail"])]
    broken = Escalation(baseline_rate=0.02, rules=rules)
    outcome = run(
        broken, Free(action=lambda _: Score(value=0.1, passed=False)), Thinking(), probability=1.0
    )
    assert [result.status for result in outcome.results] == ["scored", "scored"]
    assert summary_of(outcome)[1][2:] == (1.0, "result")
    assert [(error.evaluator_type, error.message) for error in outcome.errors] == [
        ("escalation:function", f"{type(error).__name__}: no")
    ]
    assert [part for part, _ in outcome.broken] == ["escalation:function"]


def test_load_shedding_is_named_first() -> None:
    """While models sit out, that is why: no rule has passed the answer over."""
    for value in (0.1, 0.9):
        assert (
            summary_of(run(LOW, Free(value=value), Thinking(), skip_models=True))[1][1]
            == "load_shed"
        )


RESULT = EvaluationResult(
    criterion_name="raw", evaluator_type="T", score=0.1, sampling_reason="its own"
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, 0.5), (0.25, 0.125), (None, None), (0.0, None), (7.0, None), ("x", None)],
)
def test_an_evaluator_says_with_what_probability_it_went_on(
    value: Any, expected: float | None
) -> None:
    """A spend limit that lets through a quarter of the calls: each result stands for four; no
    number is unknown.
    """
    raw = Raw(results=(RESULT.model_copy(update={"probability_given_sampled": value}),))
    assert summary_of(run(None, raw, probability=0.5)) == [("raw", "scored", expected, None)]


def test_all_shares_multiply() -> None:
    """Sampled, the evaluator's own rate, escalated and let through by a spend limit; live and
    offline.
    """
    own_rate = Thinking(sample_rate=0.5)
    outcome = run(LOW, Free(value=0.1), own_rate, randomness=0, probability=0.8)
    assert summary_of(outcome)[1] == ("thinking", "scored", 0.5, "result")
    assert (
        len(
            run(
                LOW, Free(value=0.1), own_rate, randomness=RANDOMNESS_RANGE - 1, probability=0.8
            ).results
        )
        == 1
    )
    limited = Raw(results=(RESULT.model_copy(update={"probability_given_sampled": 0.5}),))
    escalation = Escalation(baseline_rate=0.02, rules=[ResultSampler(below=0.5)], criteria=["raw"])
    outcome = run(escalation, limited, Free(value=0.1), probability=0.5)
    assert summary_of(outcome)[0] == ("raw", "scored", 0.25, "result")
    offline = run_evaluation_sync(INPUT, config_of(limited, Free(value=0.1)))
    assert [item.probability for item in offline.results] == [0.5, None]


def test_it_comes_back_from_a_worker_process() -> None:
    """What is left out of dumps is not lost between the processes."""
    actual = RESULT.model_copy(update={"probability_given_sampled": 0.5})
    (back,) = answer_of(*json.loads(encode_answer(0.0, [actual]))[1:])
    assert back == actual
    assert "robability_given" not in json.dumps(actual.model_dump()) + actual.model_dump_json(
        by_alias=True
    )


def test_only_what_goes_on_is_redacted() -> None:
    """An input that no model sees costs no redaction; one that goes on is redacted once, for all of
    the stage.
    """
    judge, secret = Asked(), EvaluationInput(response="mail me at jane@example.com")
    redaction = Redaction(default_redactors())
    passed_over = run(
        LOW, Free(value=0.9), Thinking(action=judge), made=secret, redaction=redaction
    )
    assert passed_over.outgoing is None
    outcome = run(
        LOW,
        Free(value=0.1),
        Thinking(action=judge),
        Thinking(criterion_name="other", action=judge),
        made=secret,
        redaction=redaction,
    )
    assert outcome.outgoing is judge.inputs[0] is judge.inputs[1]
    assert "jane" not in judge.inputs[0].response_text


# --- offline
# ---------------------------------------------------------------------------------------------------------


def test_a_run_configuration_has_an_escalation() -> None:
    """Offline the same stages, only where the configuration has them; the same inputs go on in
    every run.
    """
    inputs = [EvaluationInput(response=f"answer {number}") for number in range(300)]
    judges = (Asked(), Asked())
    for judge in judges:
        stages = config_of(
            Free(value=0.9), Thinking(action=judge), escalation={"baseline_rate": 0.2}, redactors=[]
        )
        results = run_evaluations_sync(inputs, stages)
    assert judges[0].inputs == judges[1].inputs
    assert 35 <= len(judges[0].inputs) <= 85
    second = {(result.results[1].skip_reason, result.results[1].probability) for result in results}
    assert second == {(None, 0.2), ("not_escalated", 0.2)}
    assert {result.results[0].probability for result in results} == {1.0}
    assert run_evaluation_sync(INPUT, config_of(Free(), Thinking())).results[1].probability is None


def test_what_is_not_escalated_lowers_no_overall_score() -> None:
    """It is no score, and no verdict either: what was evaluated decides."""
    both, rarely = (
        (Free(value=0.9, threshold=0.5), Thinking(threshold=0.9)),
        {"baseline_rate": 1e-9},
    )
    aggregated = run_evaluation_sync(INPUT, config_of(*both, escalation=rarely))
    assert aggregated.overall_score == run_evaluation_sync(INPUT, config_of(both[0])).overall_score
    assert [item["criterionName"] for item in aggregated.original_json()["results"]] == ["fixed"]
    strict = config_of(*both, escalation=rarely, aggregation=AllMustPass())
    assert run_evaluation_sync(INPUT, strict).overall_score == 1.0


def test_results_and_configurations_come_back_from_json() -> None:
    """With probability and reason, and with the rules' types."""
    aggregated = run_evaluation_sync(INPUT, config_of(Free(value=0.1), Thinking(), escalation=LOW))
    text = aggregated.model_dump_json(by_alias=True, exclude_none=True)
    back = AggregatedEvaluationResult.model_validate_json(text)
    assert back.results == aggregated.results
    assert (back.results[1].probability, back.results[1].sampling_reason) == (1.0, "result")
    made = config_of(
        {"type": "ResponseHealth"}, KEYWORDS, escalation={"rules": LOW.rules, "criteria": ["long"]}
    )
    assert (
        EvaluationRunConfig.model_validate_json(made.model_dump_json(by_alias=True)).escalation
        == made.escalation
    )


def test_criteria_of_the_input_hold_in_both_stages() -> None:
    """What the input does not ask for is no skip either."""
    requests = INPUT.model_copy(
        update={"criteria": (EvaluationCriteria(name="fixed", scale="numeric"),)}
    )
    assert summary_of(run(LOW, Free(value=0.9), Thinking(), made=requests)) == [
        ("fixed", "scored", None, None)
    ]
