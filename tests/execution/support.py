"""Evaluators run by hand."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from agenteval_otel.engine.execution import Executor
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from tests.testing.evaluations import evaluate

T = TypeVar("T")
INPUT = EvaluationInput(response="text")


async def run(
    executor: Executor, evaluator: Evaluator, text: str = "text"
) -> list[EvaluationResult]:
    return await evaluate(executor, evaluator, EvaluationInput(response=text))


async def facts(executor: Executor, evaluator: Evaluator, text: str = "text") -> dict[str, Any]:
    """The metadata of the only result."""
    (result,) = await run(executor, evaluator, text)
    return result.metadata or {}


async def outcome(executor: Executor, evaluator: Evaluator) -> str:
    """The type of the failure, or ``scored``."""
    try:
        (result,) = await run(executor, evaluator)
    except EvaluationError as error:
        return error.error_type
    return result.status


async def outcomes(executor: Executor, evaluator: Evaluator, count: int) -> list[str]:
    """One evaluation after the other."""
    return [await outcome(executor, evaluator) for _ in range(count)]


def fork_server_of(executor: Executor) -> int:
    assert executor.supervisor is not None
    assert executor.supervisor.server is not None
    return executor.supervisor.server.pid


def with_executor(work: Callable[[Executor], Awaitable[T]], *, live: bool = False) -> T:
    """What the work gives, with an executor that is closed afterwards."""

    async def worked() -> T:
        executor = Executor(live=live)
        try:
            return await work(executor)
        finally:
            executor.close()

    return asyncio.run(worked())


def alone(evaluator: Evaluator) -> list[EvaluationResult]:
    return with_executor(lambda executor: run(executor, evaluator))


async def forever(_: Any = None) -> None:
    await asyncio.get_running_loop().create_future()


class Starting(CriterionEvaluator, type="StartingAProcess"):
    """Starts a process and ends it, with the order that everybody uses."""

    criterion_name: str = "starting"
    execution: Execution | None = "process"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        with subprocess.Popen(["sleep", "60"]) as process:
            process.terminate()
            return Score(value=process.wait() == -signal.SIGTERM)
