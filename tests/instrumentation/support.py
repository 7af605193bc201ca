"""A monitored pipeline that keeps what it evaluated."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pydantic import Field

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.sampling import RatioSampler
from tests.pipelines import pipeline_with
from tests.testing.doubles import Free

__all__ = ["Seen", "in_loop", "outcomes_of"]


class _Note(Free):
    """Keeps every input that it is asked about; judges errors too."""

    seen: Any = Field(default=None, exclude=True)
    evaluates_errors = True  # type: ignore[misc]

    def score(self, evaluation_input: EvaluationInput) -> Score:
        self.seen.append(evaluation_input)
        return Score(value=1.0)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def outcomes_of(pipeline: Pipeline) -> dict[str, int]:
    """The outcomes that calls of a pipeline had, with their numbers."""
    outcomes = pipeline.accounting.outcomes()
    return {outcome: count for outcome, count in outcomes.items() if count}


class Seen:
    """A pipeline, `monitor` on it, and the evaluation inputs that came through."""

    def __init__(self, ratio: float = 1.0, storage: Sequence[Any] = (), **settings: Any) -> None:
        self.inputs: list[EvaluationInput] = []
        self.pipeline = pipeline_with(
            sampler=RatioSampler(ratio=ratio),
            evaluators=(_Note(seen=self.inputs),),
            storage=tuple(storage),
            dispatcher=InlineDispatcher(),
            **settings,
        )

    def monitor(self, function: Any = None, /, **arguments: Any) -> Any:
        decorator: Callable[[Any], Any] = monitor(pipeline=self.pipeline, **arguments)
        return decorator if function is None else decorator(function)

    @property
    def last(self) -> EvaluationInput:
        return self.inputs[-1]

    @property
    def outcomes(self) -> dict[str, int]:
        return outcomes_of(self.pipeline)
