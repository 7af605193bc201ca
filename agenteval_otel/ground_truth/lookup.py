"""The step on the route where an input gets its ground truth."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from agenteval_otel.components import resolve
from agenteval_otel.components.blocking import part_of, stepwise
from agenteval_otel.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.models.snapshot import snapshot_of
from agenteval_otel.models.value import replaced

__all__ = ["load_store", "with_ground_truth"]


def load_store(value: Any, *, path: str = "ground_truth") -> GroundTruthStore | None:
    """A store from an instance, a ``{type: ...}`` mapping or None.

    Raises:
        ConfigurationError: Neither, an unknown type, or wrong settings: with a file that cannot be used, its line.
    """
    return None if value is None else resolve(GroundTruthStore, value, path=path)


async def with_ground_truth(
    evaluation_input: EvaluationInput, store: GroundTruthStore | None, on_failure: Callable[[BaseException], None]
) -> EvaluationInput:
    """The input with the store's answer; the same one where it brings its own (blank text is none), or there is none.

    How the answer was found stands in ``metadata["ground_truth"]``. Raises nothing that the store raised: that goes to
    `on_failure`.
    """
    if store is None:
        return evaluation_input
    try:
        part = part_of("ground_truth", store)
        with part:
            for trouble in store.troubles():
                on_failure(trouble)
            if not is_blank(evaluation_input.ground_truth):
                return evaluation_input
            found: Any = store.find(evaluation_input)
        if inspect.isawaitable(found):
            # Not `wait_for`, whose task would let a SystemExit end the loop.
            async with asyncio.timeout(store.timeout_s):
                found = await stepwise(part, found)
        return _given(evaluation_input, found)
    except (Exception, SystemExit) as error:
        on_failure(error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        on_failure(error)  # the store's own doing
    return evaluation_input


def _given(evaluation_input: EvaluationInput, found: Any) -> EvaluationInput:
    if found is not None and not isinstance(found, GroundTruth):
        raise TypeError(f"expected a GroundTruth or None, found {type(found).__name__}")
    if found is None or is_blank(found.answer):
        return evaluation_input
    how = found.model_dump(mode="json", exclude={"answer"}, exclude_none=True)
    return replaced(
        evaluation_input,
        {
            "ground_truth": snapshot_of(found.answer),
            "metadata": {**(evaluation_input.metadata or {}), "ground_truth": how},
        },
    )
