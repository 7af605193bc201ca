"""The contract checks refuse parts that break their contract, and pass those that keep it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agenteval_otel.embedders import Embedder
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.ground_truth import GroundTruth, GroundTruthStore
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
)
from agenteval_otel.sampling import RatioSampler, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.testing import (
    check_component,
    check_embedder,
    check_evaluator,
    check_ground_truth,
    check_sampler,
    check_storage,
)
from tests.testing.doubles import Free, Raw

_numbers = itertools.count()


def raw(**fields: Any) -> Raw:
    return Raw(
        results=(EvaluationResult(**{"criterion_name": "raw", "evaluator_type": "Raw", **fields}),)
    )


class Overeager(CriterionEvaluator):
    """Scores criteria that were not requested."""

    criterion_name: str = "raw"

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        return list(raw(score=1).results)


class Nameless(Evaluator):
    """Has no criteria."""

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return ()


class Sampling(Sampler):
    sampled: Any = True
    probability: Any = 0.5
    reason: Any = "test"
    outcome: Any = "not_sampled"

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return SamplingDecision(self.sampled, self.probability, self.reason, self.outcome)


class Store(EvaluationStorageProvider):
    fails_on: str = ""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        assert all(result.status != self.fails_on for result in aggregated.results), (
            "cannot save that"
        )

    async def close(self) -> None:
        assert not self.__dict__.get("closed") or self.fails_on != "closing", "closed twice"
        self.__dict__["closed"] = True


class Rows(Embedder):
    """Embeds with a function of each text."""

    row: Any = None
    most: int | None = None

    async def embed(self, texts: Any) -> Any:
        return [self.row(text, texts) for text in texts][: self.most]


def unit(text: str, texts: Any) -> list[float]:
    return [float(bool(text)), 0.0]


class Answers(GroundTruthStore):
    """Finds what a function makes of the prompt."""

    answer: Any = None

    def find(self, evaluation_input: EvaluationInput) -> Any:
        return self.answer(evaluation_input.prompt)


BAD: list[tuple[Callable[[Any], None], Any, str]] = [
    (check_evaluator, raw(criterion_name="other", score=1), "not among its criteria"),
    (check_evaluator, raw(score=float("inf")), "must be finite"),
    (check_evaluator, raw(score=3, normalized=3.0), r"normalized lies in \[0, 1\]"),
    (check_evaluator, Raw(results={"score": 1}), "gives a list"),
    (check_evaluator, Free(action=lambda _: Score(value=next(_numbers))), "the same scores"),
    (check_evaluator, Overeager(), "not asked for"),
    (check_evaluator, Nameless(), "declare its criteria"),
    (check_sampler, Sampling(sampled="yes"), "true or false"),
    (check_sampler, Sampling(probability=2.0), "a probability lies"),
    (check_sampler, Sampling(probability=-1.0), "a probability lies"),
    (check_sampler, Sampling(reason=""), "has a reason"),
    (check_sampler, Sampling(outcome="lost"), "is no outcome"),
    *(
        (check_storage, Store(fails_on=status), "cannot save")
        for status in ("failed", "skipped", "scored")
    ),
    (check_storage, Store(fails_on="closing"), "closed twice"),
    (lambda part: check_component(part, Evaluator), RatioSampler(), "not a Evaluator"),
    (lambda part: check_component(part, Sampler), Sampling(), "registry"),
    (check_embedder, Rows(row=unit, most=3), "one row a text"),
    (check_embedder, Rows(row=lambda text, texts: [1.0] * (1 + len(text) % 2)), "one length"),
    (check_embedder, Rows(row=lambda text, texts: [math.nan]), "finite"),
    (check_embedder, Rows(row=lambda text, texts: [float(bool(text)) * 2]), "length 1"),
    (check_embedder, Rows(row=lambda text, texts: [1.0]), "empty"),
    (
        check_embedder,
        Rows(row=lambda text, texts: unit(text, texts) if len(texts) > 1 else [0.0, 1.0]),
        "same row",
    ),
    (
        check_ground_truth,
        Answers(answer=lambda prompt: "a"),
        "expected a GroundTruth or None, found 'a'",
    ),
    (
        check_ground_truth,
        Answers(answer=lambda prompt: GroundTruth(answer="a")),
        "nothing to answer",
    ),
    (
        check_ground_truth,
        Answers(answer=lambda prompt: GroundTruth(answer="a", share=2.0) if prompt else None),
        "share",
    ),
    (
        check_ground_truth,
        Answers(answer=lambda prompt: GroundTruth(answer=next(_numbers)) if prompt else None),
        "same",
    ),
]


@pytest.mark.parametrize(
    ("check", "part", "message"), BAD, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_part_that_breaks_its_contract_is_refused(
    check: Callable[[Any], None], part: Any, message: str
) -> None:
    """Each of them breaks one condition, which the error names."""
    with pytest.raises(AssertionError, match=message):
        check(part)
