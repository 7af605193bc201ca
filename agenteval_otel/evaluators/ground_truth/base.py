"""The contract of ground-truth stores.

`with_ground_truth` is the step of an evaluation in which an input gets its reference answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.components.blocking import part_of, stepwise
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import GroundTruthError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.models.value import Value, copy_with, snapshot_of


class GroundTruth(Value):
    """Holds a reference answer, and how it was found.

    Attributes:
        answer: What a right response says: text, or (from JSONL) any JSON value. Evaluators get it
            as `ground_truth`.
        prompt: The question that it answers, as the store has it.
        category: What kind of question that is, if the store knows.
        module: The part of the system that the question is put to, if the store knows.
        match: ``exact``: the same question, or ``partial``: one of the two questions contains the
            other.
        share: Words of the shorter question over those of the longer, 0 to 1. An exact match has 1.
    """

    answer: Any
    prompt: str = ""
    category: str | None = None
    module: str | None = None
    match: Literal["exact", "partial"] = "exact"
    share: float = 1.0


class GroundTruthStore(Component, contract="ground_truth"):
    """Knows reference answers. Implement `find`.

    It runs on the background thread, before the evaluators, for every evaluated response that has
    no ground truth of its own. A plain method must not block: the background thread waits for it.
    An ``async def`` may call a service, and has `timeout_s` for it. An error is counted
    (``ground_truth``), and the response is evaluated without.

    Attributes:
        timeout_s: Time limit of one lookup by an async `find`, in seconds.
    """

    timeout_s: float = Field(default=1.0, gt=0, le=60)

    def find(
        self, evaluation_input: EvaluationInput
    ) -> GroundTruth | Awaitable[GroundTruth | None] | None:
        """Return the reference answer for the input's prompt, or None if there is none."""
        raise NotImplementedError

    def problems(self) -> Sequence[Exception]:
        """Return what went wrong outside of lookups since the last call.

        An example is a new file that cannot be read.
        """
        return ()


def load_store(value: object, *, path: str = "ground_truth") -> GroundTruthStore | None:
    """Return a store from an instance, a ``{type: ...}`` mapping, a type's name or None.

    Raises `ConfigurationError` for anything else. None stays None.
    """
    return None if value is None else resolve(GroundTruthStore, value, path=path)


async def with_ground_truth(
    evaluation_input: EvaluationInput,
    store: GroundTruthStore | None,
    on_failure: Callable[[BaseException], None],
) -> EvaluationInput:
    """Return the input with the store's answer.

    The input is unchanged if it has its own answer (blank text does not count) or the store has
    none. How the answer was found is in ``metadata["ground_truth"]``. Errors of the store go to
    `on_failure`.
    """
    if store is None:
        return evaluation_input
    try:
        part = part_of("ground_truth", store)
        with part:
            for problem in store.problems():
                on_failure(problem)
            if not is_blank(evaluation_input.ground_truth):
                return evaluation_input
            result: object = store.find(evaluation_input)
        if inspect.isawaitable(result):
            result = await _within_limit(store.timeout_s, stepwise(part, result))
        return _enriched(evaluation_input, result)
    except (Exception, SystemExit) as error:
        on_failure(error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        on_failure(error)  # the store cancelled itself
    return evaluation_input


async def _within_limit(timeout_s: float, lookup: Awaitable[object]) -> object:
    """Await a lookup. Raise `GroundTruthError` if it takes longer than the time limit."""
    # Not `wait_for`, whose task would let a SystemExit end the loop.
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await lookup
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"the lookup took longer than {timeout_s:g} s"
        raise GroundTruthError(message, reason="timeout") from None


def _enriched(evaluation_input: EvaluationInput, result: object) -> EvaluationInput:
    if result is not None and not isinstance(result, GroundTruth):
        raise TypeError(f"expected a GroundTruth or None, found {type(result).__name__}")
    if result is None or is_blank(result.answer):
        return evaluation_input
    how = result.model_dump(mode="json", exclude={"answer"}, exclude_none=True)
    metadata = {**(evaluation_input.metadata or {}), "ground_truth": how}
    return copy_with(
        evaluation_input, {"ground_truth": snapshot_of(result.answer), "metadata": metadata}
    )
