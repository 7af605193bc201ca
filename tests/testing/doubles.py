"""Small real parts that several rooms' tests use: evaluators that do what they are told, storage
that keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
)
from agenteval_otel.offline.config import EvaluationRunConfig

__all__ = ["Fixed", "Free", "Keeping", "Raw", "Thinking", "config_of", "enter_and_wait"]


class Fixed(CriterionEvaluator):
    """Gives a fixed value, or what its action gives or raises; nobody says where it runs."""

    criterion_name: str = "fixed"
    value: Any = 0.5
    reason_code: str | None = None
    reasoning: str | None = None
    action: Callable[[EvaluationInput], Any] | None = Field(default=None, exclude=True)

    def score(self, evaluation_input: EvaluationInput) -> Any:
        if self.action is not None:
            return self.action(evaluation_input)
        return Score(value=self.value, reason_code=self.reason_code, reasoning=self.reasoning)


class Free(Fixed):
    """The same, evaluated inline."""

    def preferred_execution(self) -> Literal["inline"]:
        return "inline"


class Thinking(CriterionEvaluator):
    """An async evaluator, so taken to call a model."""

    criterion_name: str = "thinking"
    action: Callable[[EvaluationInput], Awaitable[Any]] | None = Field(default=None, exclude=True)
    reasoning: str | None = None

    async def score(self, evaluation_input: EvaluationInput) -> Any:
        actual = None if self.action is None else await self.action(evaluation_input)
        return Score(value=0.75, reasoning=self.reasoning) if actual is None else actual


class Raw(Evaluator):
    """An evaluator from outside that makes its results itself, well or badly."""

    results: Any = Field(default=(), exclude=True)
    name: str = "raw"

    def preferred_execution(self) -> Literal["inline"]:
        return "inline"

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return (EvaluationCriteria(name=self.name, scale="numeric"),)

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        return list(self.results) if isinstance(self.results, tuple) else self.results


class Keeping:
    """A storage provider that keeps what it is given."""

    def __init__(self) -> None:
        self.saved: list[AggregatedEvaluationResult] = []

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        self.saved.append(aggregated)

    @property
    def results(self) -> list[EvaluationResult]:
        return [result for aggregated in self.saved for result in aggregated.results]


def config_of(*evaluators: Any, **fields: Any) -> EvaluationRunConfig:
    """A run configuration of these evaluators."""
    return EvaluationRunConfig(evaluators=evaluators, **fields)


def enter_and_wait(entered: threading.Event, leave: threading.Event) -> None:
    """Block a thread until the test lets it go; bounded, so that a broken test does not hang."""
    entered.set()
    leave.wait(20.0)
