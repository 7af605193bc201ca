"""Evaluators run by hand."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from typing import Any

from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.execution import Executor
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score

INPUT = EvaluationInput(response="text")


async def run(executor: Executor, evaluator: Evaluator) -> list[EvaluationResult]:
    return await executor.run(evaluator, INPUT, evaluator.criteria())


def alone(evaluator: Evaluator) -> list[EvaluationResult]:
    executor = Executor(live=False)
    try:
        return asyncio.run(run(executor, evaluator))
    finally:
        executor.close()


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
