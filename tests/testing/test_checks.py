"""The contract checks refuse parts that break their contract, and pass those that keep it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.embedders import Embedder, HashingEmbedder
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator, ResponseHealth
from agenteval_otel.ground_truth import FileGroundTruthStore, GroundTruth, GroundTruthStore
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
    check_embedder,
    check_evaluator,
    check_ground_truth,
    check_sampler,
    check_storage,
)
from tests.ground_truth.support import written
from tests.testing.doubles import Fixed, Free, Raw

_numbers = itertools.count()


def result(**fields: Any) -> EvaluationResult:
    return EvaluationResult(**{"criterion_name": "raw", "evaluator_type": "Raw", **fields})


class Overeager(CriterionEvaluator):
    """Scores criteria that were not requested."""

    criterion_name: str = "raw"

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        return [result(score=1)]


class Nameless(Evaluator):
    """Has no criteria."""

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return ()


BAD_EVALUATORS = {
    "own criteria": Raw(results=(result(criterion_name="other", score=1),)),
    "no score with an error": Raw(results=(result(score=1, error="broke"),)),
    "finite": Raw(results=(result(score=float("inf")),)),
    "range": Raw(results=(result(score=3, normalized=3.0),)),
    "a list": Raw(results={"score": 1}),
    "the same again": Free(action=lambda _: Score(value=next(_numbers))),
    "nothing unasked": Overeager(),
    "declares its criteria": Nameless(),
}


@pytest.mark.parametrize("name", BAD_EVALUATORS)
def test_a_bad_evaluator_is_refused(name: str) -> None:
    """Each of them breaks one part of the contract."""
    with pytest.raises(AssertionError):
        check_evaluator(BAD_EVALUATORS[name])


def test_good_evaluators_pass() -> None:
    """The inputs of the check include a large one."""
    for evaluator in (Fixed(), Free(), ResponseHealth()):
        check_evaluator(evaluator)
    assert any(len(evaluation_input.response_text) == 262_144 for evaluation_input in AWKWARD_INPUTS)


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
def test_a_bad_sampler_is_refused(wrong: dict[str, Any]) -> None:
    """A decision needs a known outcome, a reason, and a probability in [0, 1] or None."""
    with pytest.raises(AssertionError):
        check_sampler(Sampling(**wrong))
    check_sampler(Sampling())
    check_sampler(Sampling(probability=None))


class Settling(Dispatcher):
    """A dispatcher with a setting for each mistake."""

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
def test_a_bad_dispatcher_is_refused(wrong: dict[str, Any]) -> None:
    """It must not lose, repeat or misname calls, flush untruthfully, or accept calls after its shutdown."""
    with pytest.raises(AssertionError):
        check_dispatcher(Settling(**wrong))
    check_dispatcher(Settling())
    check_dispatcher(InlineDispatcher())


class Store(EvaluationStorageProvider):
    fails_on: str = ""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        if any(result.status == self.fails_on for result in aggregated.results):
            raise ValueError("cannot save that")

    async def close(self) -> None:
        if self.__dict__.setdefault("closed", False) and self.fails_on == "closing":
            raise ValueError("closed twice")
        self.__dict__["closed"] = True


@pytest.mark.parametrize("fails_on", ["failed", "skipped", "scored", "closing"])
def test_a_bad_storage_provider_is_refused(fails_on: str) -> None:
    """It must save results of every kind, and can be closed twice."""
    with pytest.raises(ValueError, match=r"cannot save|closed twice"):
        check_storage(Store(fails_on=fails_on))
    check_storage(Store())


def test_components_are_checked() -> None:
    """A component of another contract, or of an unregistered type, is refused."""
    check_component(RatioSampler(ratio=0.5), Sampler)
    with pytest.raises(AssertionError, match="not a Evaluator"):
        check_component(RatioSampler(), Evaluator)
    with pytest.raises(AssertionError, match="registry"):
        check_component(Sampling(), Sampler)


class Sum(Aggregation):
    """Adds up, which leaves the range."""

    def combine(self, scored: Sequence[Any]) -> float | None:
        return 1.0 + sum(score.normalized for score in scored)


class Counting(Aggregation):
    """Is different each time."""

    def combine(self, scored: Sequence[Any]) -> float | None:
        return 1 / (2 + next(_numbers))


@pytest.mark.parametrize(("aggregation", "wrong"), [(Sum(), r"lies in \[0, 1\]"), (Counting(), "the same")])
def test_a_bad_aggregation_is_refused(aggregation: Aggregation, wrong: str) -> None:
    """An overall score must lie in [0, 1] and stay the same."""
    with pytest.raises(AssertionError, match=wrong):
        check_aggregation(aggregation)


class Rows(Embedder):
    """Embeds with a function of each text."""

    row: Any = None

    async def embed(self, texts: Any) -> Any:
        return [self.row(text, texts) for text in texts][: 3 if self.row is short else None]


def short(text: str, texts: Any) -> list[float]:
    return [float(bool(text)), 0.0]


WRONG = {
    "one row a text": short,
    "one length": lambda text, texts: [1.0] * (1 + len(text) % 2),
    "finite": lambda text, texts: [math.nan],
    "length 1": lambda text, texts: [float(bool(text)) * 2],
    "empty": lambda text, texts: [1.0],
    "same row": lambda text, texts: [1.0, 0.0] if text and len(texts) > 1 else [0.0, float(bool(text))],
}


@pytest.mark.parametrize(("message", "row"), WRONG.items(), ids=list(WRONG))
def test_a_bad_embedder_is_refused(message: str, row: Any) -> None:
    """Rows must be complete, of one length, finite, normalized, and those of their texts."""
    with pytest.raises(AssertionError, match=message):
        check_embedder(Rows(row=row))


def test_good_embedders_pass() -> None:
    """The built-in one is synchronous, the other asynchronous."""
    check_embedder(HashingEmbedder())
    check_embedder(Rows(row=lambda text, texts: [float(bool(text)), 0.0]))


class Answers(GroundTruthStore):
    """Finds what a function makes of the prompt."""

    answer: Any = None

    def find(self, evaluation_input: EvaluationInput) -> Any:
        return self.answer(evaluation_input.prompt)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("expected a GroundTruth or None, found 'a'", lambda prompt: "a"),
        ("nothing to answer", lambda prompt: GroundTruth(answer="a")),
        ("a share lies", lambda prompt: GroundTruth(answer="a", share=2.0) if prompt else None),
        ("the same input", lambda prompt: GroundTruth(answer=next(_numbers)) if prompt else None),
    ],
)
def test_a_bad_ground_truth_store_is_refused(message: str, answer: Any) -> None:
    """It must not return other values, answers without a prompt, shares above 1, or answers that change."""
    with pytest.raises(AssertionError, match=message):
        check_ground_truth(Answers(answer=answer))


def test_a_good_ground_truth_store_passes(tmp_path: Path) -> None:
    """A CSV file is one."""
    check_ground_truth(FileGroundTruthStore(path=written(tmp_path / "rows.csv", [("how do i how do i", "a")])))
