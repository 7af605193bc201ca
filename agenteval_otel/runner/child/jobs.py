"""A job: one evaluation on its way through the child process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from agenteval_otel.models import EvaluationCriteria, EvaluationInput

__all__ = ["Job", "settle"]


class Job:
    """Made on the loop that waits for it; its future gives the bytes of the answer.

    Args:
        evaluator: The evaluator's number among those of the lanes.
        recipe: Gives its recipe as JSON, for a child process that does not know it yet.
        given: The input and the criteria that are asked for.
        limit_s: How long the evaluation may take, once it has begun.
    """

    __slots__ = ("attempts", "criteria", "evaluator", "future", "given_up", "input", "limit_s", "loop", "recipe")

    def __init__(
        self,
        evaluator: int,
        recipe: Callable[[], bytes],
        given: tuple[EvaluationInput, Sequence[EvaluationCriteria]],
        limit_s: float,
    ) -> None:
        self.evaluator, self.recipe, self.limit_s = evaluator, recipe, limit_s
        self.input, self.criteria = given
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bytes] = self.loop.create_future()
        self.attempts, self.given_up = 0, False


def settle(answers: Sequence[tuple[Job, Any]]) -> None:
    """Hand answers and exceptions to those who wait for them, on their loop."""
    for job, answer in answers:
        if job.future.done():
            continue
        if isinstance(answer, Exception):
            job.future.set_exception(answer)
        else:
            job.future.set_result(answer)
