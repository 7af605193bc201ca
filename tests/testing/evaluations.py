"""Single evaluations on an executor, as the engine starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import thread_time
from typing import Any

from agenteval_otel.engine.execution import Executor
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult

__all__ = ["evaluate"]


async def evaluate(
    executor: Executor,
    evaluator: Evaluator,
    evaluation_input: EvaluationInput,
    criteria: Sequence[EvaluationCriteria] | None = None,
) -> list[EvaluationResult]:
    """The results of one evaluation, inline ones included; raises what the evaluation raised."""
    criteria = evaluator.criteria() if criteria is None else criteria
    if executor.state(evaluator).mode == "inline":
        began = thread_time()
        results = await evaluator.evaluate(evaluation_input, criteria)
        executor.state(evaluator).ran_inline(thread_time() - began)
        return results
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    cancel = executor.start(evaluator, evaluation_input, criteria, future.set_result)
    try:
        outcome = await future
    except asyncio.CancelledError:
        cancel()
        raise
    if isinstance(outcome, BaseException):
        raise outcome
    assert isinstance(outcome, list)
    return outcome
