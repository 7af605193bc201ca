"""Stages of a run: who waits, who is passed over, and what the results say of it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from agenteval_otel.engine.config import EvaluationRunConfig
from agenteval_otel.engine.offline import run_evaluation_sync, run_evaluations_sync
from agenteval_otel.engine.run import EvaluationRunner, RunOutcome
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.execution import Executor
from agenteval_otel.execution.wire import answer_of, encode_answer
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
)
from agenteval_otel.redaction import default_redactors
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.sampling import Escalation, FunctionSampler, LabelSampler, ScoreSampler
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.escalation import second_randomness
from agenteval_otel.scoring.aggregation import AllMustPass
from tests.execution.support import forever
from tests.testing.doubles import Fixed, Free, Raw, Thinking

INPUT = EvaluationInput(response="the answer", prompt="the question")
NEVER = next(draw for draw in range(1_000) if second_randomness(draw) > 0.99 * RANDOMNESS_RANGE)
ALWAYS = next(draw for draw in range(1_000) if second_randomness(draw) < 0.01 * RANDOMNESS_RANGE)
KEYWORDS = {"type": "KeywordCoverage", "criterion_name": "long", "expected_keywords": ["a"]}
LOW = Escalation(baseline_rate=0.02, rules=[ScoreSampler(below=0.5)])


class Asked:
    """An action for `Thinking` that keeps what it was asked."""

    def __init__(self) -> None:
        self.inputs: list[EvaluationInput] = []

    async def __call__(self, made: EvaluationInput) -> Score:
        self.inputs.append(made)
        return Score(value=0.25, passed=False)


def run(
    escalation: Escalation | None, *evaluators: Evaluator, randomness: int | None = NEVER,
    made: EvaluationInput = INPUT, redaction: Redaction | None = None, **arguments: Any,
) -> RunOutcome:  # fmt: skip
    runner = EvaluationRunner(evaluators, executor=Executor(live=False), escalation=escalation, redaction=redaction)
    try:
        return asyncio.run(runner.run(made, randomness=randomness, **arguments))
    finally:
        runner.executor.close()


def summary_of(outcome: RunOutcome) -> list[tuple[str, str, float | None, str | None]]:
    return [
        (result.criterion_name, result.skip_reason or result.status, result.probability, result.sampling_reason)
        for result in outcome.results
    ]


def test_a_rule_sends_an_answer_on() -> None:
    """A low score of the first stage: the second sees the answer for sure, and the results stand as configured."""
    judge, first = Asked(), Free(criterion_name="cheap", value=0.1)
    outcome = run(LOW, Thinking(action=judge), first, probability=0.5)
    assert summary_of(outcome) == [("thinking", "scored", 0.5, "score"), ("cheap", "scored", 0.5, None)]
    assert judge.inputs == [INPUT]


def test_what_no_rule_matches_is_passed_over() -> None:
    """It is skipped with a word, with the probability that the floor gave it; the evaluator never sees it."""
    judge, first = Asked(), Free(criterion_name="cheap", value=0.9)
    outcome = run(LOW, Thinking(action=judge), first, probability=0.5)
    assert summary_of(outcome) == [("thinking", "not_escalated", 0.01, "baseline"), ("cheap", "scored", 0.5, None)]
    assert not judge.inputs
    assert not outcome.errors


def test_the_floor_takes_some_whatever_was_found() -> None:
    """Its draw lies below the floor: it goes on, with the floor's probability, unless a rule knows a larger one."""
    for value, expected in ((0.9, 0.02), (0.1, 1.0)):
        judge = Asked()
        outcome = run(LOW, Free(value=value), Thinking(action=judge), randomness=ALWAYS, probability=1.0)
        assert summary_of(outcome)[1] == ("thinking", "scored", expected, "score" if value < 0.5 else "baseline")
        assert len(judge.inputs) == 1


def test_what_the_floor_takes_waits_for_nobody() -> None:
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


def test_without_an_escalation_everybody_sees_everything() -> None:
    """No stages, no reasons."""
    judge = Asked()
    assert summary_of(run(None, Free(value=0.9), Thinking(action=judge), probability=1.0))[1] == (
        "thinking", "scored", 1.0, None
    )  # fmt: skip


def test_named_criteria_wait_instead_of_those_that_ask_a_model() -> None:
    """A small judge can decide about a large one, and a slow computation can wait as well."""
    named = Escalation(
        baseline_rate=0.02, rules=[ScoreSampler(criteria=["small"], below=0.5)], criteria=["large", "slow"]
    )
    small, large = Asked(), Asked()
    outcome = run(
        named, Fixed(criterion_name="slow"), Thinking(criterion_name="small", action=small),
        Thinking(criterion_name="large", action=large),
    )  # fmt: skip
    assert [result.status for result in outcome.results] == ["scored"] * 3
    assert len(small.inputs) == len(large.inputs) == 1
    assert [result.skip_reason for result in run(named, Free(criterion_name="slow")).results] == ["not_escalated"]


def breaking(_: EvaluationInput) -> Score:
    raise KeyError("x")


def test_all_of_the_first_stage_failed() -> None:
    """Failures are no scores: only a rule on failures matches them."""
    first = (Free(criterion_name="a", action=breaking), Free(criterion_name="b", action=breaking))
    assert summary_of(run(LOW, *first, Thinking()))[2][1] == "not_escalated"
    failures = Escalation(baseline_rate=0.02, rules=[{"type": "failure"}])
    assert summary_of(run(failures, *first, Thinking()))[2][1:] == ("scored", None, "failure")


def test_one_that_hangs_in_the_first_stage_is_a_failure_after_its_time() -> None:
    """The second stage waits for the first as long as that may take, and no longer."""
    hung = Thinking(criterion_name="small", action=forever, timeout_s=0.05)
    escalation = Escalation(
        baseline_rate=0.02, rules=[{"type": "failure", "error_types": ["timeout"]}], criteria=["large"]
    )
    outcome = run(escalation, hung, Thinking(criterion_name="large"))
    assert [result.status for result in outcome.results] == ["failed", "scored"]


def explode(_: EvaluationInput) -> bool:
    raise RuntimeError("of the user's own")


def test_a_rule_that_raises_is_told_and_costs_nothing_else() -> None:
    """It stands in the errors; the answer is decided by the others."""
    broken = Escalation(baseline_rate=0.02, rules=[FunctionSampler(function=explode), LabelSampler()])
    outcome = run(broken, Free(action=lambda _: Score(value=0.1, passed=False)), Thinking(), probability=1.0)
    assert [result.status for result in outcome.results] == ["scored", "scored"]
    assert summary_of(outcome)[1][2:] == (1.0, "label")
    assert [(error.evaluator_type, error.message) for error in outcome.errors] == [
        ("escalation:function", "RuntimeError: of the user's own")
    ]
    assert [part for part, _ in outcome.broken] == ["escalation:function"]


def test_load_shedding_is_named_first() -> None:
    """While models sit out, that is why: no rule has passed the answer over."""
    for value in (0.1, 0.9):
        assert summary_of(run(LOW, Free(value=value), Thinking(), skip_models=True))[1][1] == "load_shed"


def test_an_own_rate_lowers_the_probability_as_well() -> None:
    """The rate cuts from the draw that sampled the answer, the escalation from another: both multiply."""
    judge = Thinking(sample_rate=0.5)
    assert summary_of(run(LOW, Free(value=0.1), judge, randomness=0, probability=0.8))[1] == (
        "thinking",
        "scored",
        0.5,
        "score",
    )
    assert len(run(LOW, Free(value=0.1), judge, randomness=RANDOMNESS_RANGE - 1, probability=0.8).results) == 1


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, 0.5), (0.25, 0.125), (None, None), (0.0, None), (7.0, None), ("x", None)]
)
def test_an_evaluator_says_with_what_probability_it_went_on(value: Any, expected: float | None) -> None:
    """A spend limit that lets through a quarter of the calls: each result stands for four; no number is unknown."""
    actual = EvaluationResult(criterion_name="raw", evaluator_type="T", score=0.1, sampling_reason="its own")
    outcome = run(None, Raw(results=(actual.model_copy(update={"probability_given_sampled": value}),)), probability=0.5)
    assert summary_of(outcome) == [("raw", "scored", expected, None)]
    unknown = run(None, Raw(results=(actual,)), probability=None)
    assert summary_of(unknown) == [("raw", "scored", None, None)]


def test_it_is_multiplied_with_the_escalations() -> None:
    """Sampled, escalated and let through: all three."""
    actual = EvaluationResult(criterion_name="raw", evaluator_type="T", score=0.1, probability_given_sampled=0.5)
    escalation = Escalation(baseline_rate=0.02, rules=[ScoreSampler(below=0.5, ratio=1.0)], criteria=["raw"])
    outcome = run(escalation, Raw(results=(actual,)), Free(value=0.1), probability=0.5)
    assert summary_of(outcome)[0] == ("raw", "scored", 0.25, "score")


def test_what_a_spend_limit_lets_through_is_weighted_offline_too() -> None:
    """Every input is evaluated, and a criterion whose evaluator saw a quarter of them stands for four."""
    actual = EvaluationResult(criterion_name="raw", evaluator_type="T", score=0.1, probability_given_sampled=0.25)
    result = run_evaluation_sync(INPUT, EvaluationRunConfig(evaluators=[Raw(results=(actual,)), Free(value=0.1)]))
    assert [item.probability for item in result.results] == [0.25, None]


def test_it_comes_back_from_a_worker_process() -> None:
    """What is left out of dumps is not lost between the processes."""
    actual = EvaluationResult(criterion_name="raw", evaluator_type="T", score=0.1, probability_given_sampled=0.5)
    (back,) = answer_of(*json.loads(encode_answer(0.0, [actual]))[1:])
    assert back == actual
    assert "robability_given" not in json.dumps(actual.model_dump()) + actual.model_dump_json(by_alias=True)


def test_only_what_goes_on_is_redacted() -> None:
    """An input that no model sees costs no redaction; one that goes on is redacted once, for all of the stage."""
    judge, secret = Asked(), EvaluationInput(response="mail me at jane@example.com")
    redaction = Redaction(default_redactors())
    passed_over = run(LOW, Free(value=0.9), Thinking(action=judge), made=secret, redaction=redaction)
    assert passed_over.outgoing is None
    outcome = run(
        LOW, Free(value=0.1), Thinking(action=judge), Thinking(criterion_name="other", action=judge), made=secret,
        redaction=redaction,
    )  # fmt: skip
    assert outcome.outgoing is judge.inputs[0] is judge.inputs[1]
    assert "jane" not in judge.inputs[0].response_text


def test_a_cancelled_run_leaves_nothing_behind() -> None:
    """Cancelled in the first stage, the second never begins."""
    judge = Asked()

    async def cancelled() -> None:
        entered = asyncio.Event()

        async def wait(_: EvaluationInput) -> Score:
            entered.set()
            await forever()
            return Score(value=1.0)

        escalation = Escalation(baseline_rate=0.02, rules=[{"type": "failure"}], criteria=["large"])
        evaluators = (Thinking(criterion_name="small", action=wait), Thinking(criterion_name="large", action=judge))
        runner = EvaluationRunner(evaluators, executor=Executor(live=False), escalation=escalation)
        task = asyncio.create_task(runner.run(INPUT, randomness=NEVER))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        runner.executor.close()

    asyncio.run(cancelled())
    assert not judge.inputs


# --- offline ---------------------------------------------------------------------------------------------------------


def config(*evaluators: Any, **fields: Any) -> EvaluationRunConfig:
    return EvaluationRunConfig(evaluators=evaluators, **fields)


def test_a_run_configuration_says_it() -> None:
    """Offline the same stages, only where the configuration has them; the same inputs go on in every run."""
    inputs = [EvaluationInput(response=f"answer {number}") for number in range(300)]
    judges = (Asked(), Asked())
    actual: list[list[AggregatedEvaluationResult]] = []
    for judge in judges:
        stages = config(Free(value=0.9), Thinking(action=judge), escalation={"baseline_rate": 0.2}, redactors=[])
        actual.append(run_evaluations_sync(inputs, stages))
    assert [evaluation_input.response_text for evaluation_input in judges[0].inputs] == [
        evaluation_input.response_text for evaluation_input in judges[1].inputs
    ]
    assert 35 <= len(judges[0].inputs) <= 85
    statuses = {
        (evaluation_input.results[1].skip_reason, evaluation_input.results[1].probability)
        for evaluation_input in actual[0]
    }
    assert statuses == {(None, 0.2), ("not_escalated", 0.2)}
    assert {evaluation_input.results[0].probability for evaluation_input in actual[0]} == {1.0}
    assert run_evaluation_sync(INPUT, config(Free(), Thinking())).results[1].probability is None


def test_what_is_passed_over_lowers_no_overall_score() -> None:
    """It is no score, and no verdict either: what was looked at decides."""
    both = (Free(value=0.9, threshold=0.5), Thinking(threshold=0.9))
    rarely = {"baseline_rate": 0.000001}
    overall = run_evaluation_sync(INPUT, config(*both, escalation=rarely)).overall_score
    assert overall == run_evaluation_sync(INPUT, config(both[0])).overall_score
    strict = config(*both, escalation=rarely, aggregation=AllMustPass())
    assert run_evaluation_sync(INPUT, strict).overall_score == 1.0


def test_a_stored_result_says_it_again() -> None:
    """Probability and reason are part of the JSON form, in both directions."""
    aggregated = run_evaluation_sync(INPUT, config(Free(value=0.1), Thinking(), escalation=LOW))
    text = aggregated.model_dump_json(by_alias=True, exclude_none=True)
    back = AggregatedEvaluationResult.model_validate_json(text)
    assert back.results == aggregated.results
    assert (back.results[1].probability, back.results[1].sampling_reason) == (1.0, "score")
    original = run_evaluation_sync(INPUT, config(Free(value=0.9), Thinking(), escalation={"baseline_rate": 1e-9}))
    assert [item["criterionName"] for item in original.original_json()["results"]] == ["fixed"]


def test_the_configuration_comes_back_from_its_dump() -> None:
    """In JSON, with the rules' types."""
    made = config({"type": "ResponseHealth"}, KEYWORDS,
                  escalation={"baseline_rate": 0.1, "rules": [{"type": "label"}], "criteria": ["long"]})  # fmt: skip
    assert EvaluationRunConfig.model_validate_json(made.model_dump_json(by_alias=True)).escalation == made.escalation


@pytest.mark.parametrize(
    ("escalation", "path", "message"),
    [({"rules": [{"type": "score", "criteria": ["cheep"], "below": 0.5}]}, "escalation.rules[0].criteria[0]",
      "no evaluator scores 'cheep': rules look at the first stage (did you mean 'cheap'?); known: cheap"),
     ({"rules": [{"type": "label"}, {"type": "label", "criteria": ["dear"]}]}, "escalation.rules[1].criteria[0]",
      "'dear' is scored in the second stage: rules look at the first stage"),
     ({"rules": [{"type": "disagreement"}]}, "escalation.rules[0]",
      "needs 2 criteria of the first stage, which has cheap"),
     ({"criteria": ["deer"]}, "escalation.criteria[0]", "no evaluator scores 'deer' (did you mean 'dear'?)"),
     ({"criteria": ["cheap", "dear"], "rules": [{"type": "label"}]}, "escalation.rules[0]",
      "needs a criterion of the first stage, which has none"),
     ({"baseline_rate": 2}, "escalation.baseline_rate", "expected at most 1, found 2"),
     ({"rules": [{"type": "slow"}]}, "escalation.rules[0].above_s", "required field is missing"),
     (0.5, "escalation", "expected a mapping"), ({"flor": 0.1}, "escalation.flor", "unknown field")],
)  # fmt: skip
def test_what_cannot_happen_is_refused_at_load(escalation: Any, path: str, message: str) -> None:
    """By its place, with what there is."""
    with pytest.raises(ConfigurationError) as caught:
        config(Free(criterion_name="cheap"), Thinking(criterion_name="dear"), escalation=escalation)
    assert caught.value.path == path
    assert message in str(caught.value)


def test_nobody_who_waits_is_refused() -> None:
    """An escalation without a second stage would change nothing, silently."""
    with pytest.raises(ConfigurationError, match="no evaluator asks a model, so none waits: name those that do"):
        config(Free(), escalation={"baseline_rate": 0.5})
    assert config(Free(), Thinking(), escalation={"baseline_rate": 0.5}, execution=["inline"]).selection.left_out


def test_criteria_of_the_input_are_heeded() -> None:
    """What the input does not ask for is not passed over either."""
    requests = INPUT.model_copy(update={"criteria": (EvaluationCriteria(name="fixed", scale="numeric"),)})
    assert summary_of(run(LOW, Free(value=0.9), Thinking(), made=requests)) == [("fixed", "scored", None, None)]
