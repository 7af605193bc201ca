"""The contract checks catch what breaks the contract."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agenteval_otel.evaluators import CriterionEvaluator, Evaluator, ResponseHealth
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
)
from agenteval_otel.pipeline import Dispatcher, InlineDispatcher
from agenteval_otel.pipeline.dispatcher import Process, Settle
from agenteval_otel.sampling import RatioSampler, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.scoring import Aggregation
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.testing import (
    AWKWARD_INPUTS,
    check_aggregation,
    check_component,
    check_dispatcher,
    check_evaluator,
    check_sampler,
    check_storage,
)
from tests.testing.doubles import Fixed, Free, Raw

_numbers = itertools.count()


def result(**fields: Any) -> EvaluationResult:
    given: dict[str, Any] = {"criterion_name": "raw", "evaluator_type": "Raw", **fields}
    return EvaluationResult(**given)


class Overeager(CriterionEvaluator):
    """Scores whatever it is asked for, and what it is not."""

    criterion_name: str = "raw"

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        return [result(score=1)]


BAD_EVALUATORS = {
    "own criteria": Raw(results=(result(criterion_name="other", score=1),)),
    "no score with an error": Raw(results=(result(score=1, error="broke"),)),
    "finite": Raw(results=(result(score=float("inf")),)),
    "range": Raw(results=(result(score=3, normalized=3.0),)),
    "a list": Raw(results={"score": 1}),
    "the same again": Free(action=lambda _: Score(value=next(_numbers))),
    "nothing unasked": Overeager(),
}


@pytest.mark.parametrize("name", BAD_EVALUATORS)
def test_a_bad_evaluator_is_caught(name: str) -> None:
    """An evaluator that breaks one part of the contract does not pass."""
    with pytest.raises(AssertionError):
        check_evaluator(BAD_EVALUATORS[name])


def test_an_evaluator_without_criteria_is_caught() -> None:
    """An evaluator has to say what it scores."""

    class Nameless(Evaluator):
        def criteria(self) -> tuple[EvaluationCriteria, ...]:
            return ()

    with pytest.raises(AssertionError, match="declare its criteria"):
        check_evaluator(Nameless())


def test_good_evaluators_pass() -> None:
    """Fixed and free ones, one that is built in, and one that sees the awkward inputs."""
    for evaluator in (Fixed(), Free(), ResponseHealth()):
        check_evaluator(evaluator)
    assert any(len(made.response_text) == 262_144 for made in AWKWARD_INPUTS)


class Sampling(Sampler):
    sampled: Any = True
    probability: Any = 0.5
    reason: Any = "test"
    outcome: Any = "not_sampled"

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return SamplingDecision(self.sampled, self.probability, self.reason, self.outcome)


@pytest.mark.parametrize(
    "wrong", [{"sampled": "yes"}, {"probability": 2.0}, {"probability": -1.0}, {"reason": ""}, {"outcome": "lost"}]
)
def test_a_bad_sampler_is_caught(wrong: dict[str, Any]) -> None:
    """A decision without a known outcome, reason or probability does not pass; a good one does."""
    with pytest.raises(AssertionError):
        check_sampler(Sampling(**wrong))
    check_sampler(Sampling())
    check_sampler(Sampling(probability=None))


class Settling(Dispatcher):
    """A dispatcher that settles each call so many times, and takes calls after its shutdown, or not."""

    times: int = 1
    outcome: str = "evaluated"
    closes: bool = True
    flushes: bool = True
    left: int = 0

    def start(self, process: Process, settle: Settle) -> None:
        self.__dict__["parts"] = {"settle": settle, "closed": False}

    def submit(self, call: Any, size_bytes: int) -> bool:
        parts = self.__dict__["parts"]
        closed = parts["closed"] and self.closes
        for _ in range(1 if closed else self.times):
            parts["settle"](call, "dropped_shutdown" if closed else self.outcome)
        return not closed

    def flush(self, timeout_s: float) -> bool:
        return self.flushes

    def shutdown(self, timeout_s: float) -> bool:
        self.__dict__["parts"]["closed"] = True
        return True

    def state(self) -> dict[str, int]:
        return {"size": self.left, "capacity": 0, "bytes": 0}


@pytest.mark.parametrize(
    "wrong", [{"times": 0}, {"times": 2}, {"outcome": "lost"}, {"closes": False}, {"flushes": False}, {"left": 1}]
)
def test_a_bad_dispatcher_is_caught(wrong: dict[str, Any]) -> None:
    """One that loses, repeats or misnames calls, flushes untruthfully or goes on after shutdown does not pass."""
    with pytest.raises(AssertionError):
        check_dispatcher(Settling(**wrong))
    check_dispatcher(Settling())
    check_dispatcher(InlineDispatcher())


class Store(EvaluationStorageProvider):
    fails_on: str = ""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        if any(found.status == self.fails_on for found in aggregated.results):
            raise ValueError("cannot save that")

    async def close(self) -> None:
        if self.__dict__.setdefault("closed", False) and self.fails_on == "closing":
            raise ValueError("closed twice")
        self.__dict__["closed"] = True


@pytest.mark.parametrize("fails_on", ["failed", "skipped", "scored", "closing"])
def test_a_bad_storage_is_caught(fails_on: str) -> None:
    """One that cannot take results of every kind, or be closed twice, does not pass."""
    with pytest.raises(ValueError, match=r"cannot save|closed twice"):
        check_storage(Store(fails_on=fails_on))
    check_storage(Store())


def test_components_are_checked() -> None:
    """A component of another contract, or one whose type is not registered, does not pass."""
    check_component(RatioSampler(ratio=0.5), Sampler)
    with pytest.raises(AssertionError, match="not a Evaluator"):
        check_component(RatioSampler(), Evaluator)
    with pytest.raises(AssertionError, match="registry"):
        check_component(Sampling(), Sampler)


def test_a_check_leaves_no_thread() -> None:
    """The checks of dispatchers clean up after themselves."""
    before = threading.active_count()
    check_dispatcher(InlineDispatcher())
    assert threading.active_count() == before


class Sum(Aggregation):
    """Adds up, so leaves the range."""

    def combine(self, scored: Sequence[Any]) -> float | None:
        return 1.0 + sum(one.normalized for one in scored)


class Counting(Aggregation):
    """Gives something else each time."""

    def combine(self, scored: Sequence[Any]) -> float | None:
        return 1 / (2 + next(_numbers))


@pytest.mark.parametrize(("aggregation", "wrong"), [(Sum(), r"lies in \[0, 1\]"), (Counting(), "the same")])
def test_strategies_that_make_up_scores_are_caught(aggregation: Aggregation, wrong: str) -> None:
    """A strategy whose overall score leaves [0, 1], or is another each time, does not pass."""
    with pytest.raises(AssertionError, match=wrong):
        check_aggregation(aggregation)
