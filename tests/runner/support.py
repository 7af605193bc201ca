"""Evaluators run in lanes by hand."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from typing import Any

from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from agenteval_otel.engine import Lanes

INPUT = EvaluationInput(response="text")


async def run(lanes: Lanes, evaluator: Evaluator) -> list[EvaluationResult]:
    return await lanes.run(evaluator, evaluator.lane, INPUT, evaluator.criteria())


def alone(evaluator: Evaluator) -> list[EvaluationResult]:
    lanes = Lanes()
    try:
        return asyncio.run(run(lanes, evaluator))
    finally:
        lanes.close()


async def forever(_: Any = None) -> None:
    await asyncio.get_running_loop().create_future()


class Starting(CriterionEvaluator, type="StartingAProcess"):
    """Starts a process and ends it, with the order that everybody uses."""

    criterion_name: str = "starting"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        with subprocess.Popen(["sleep", "60"]) as process:
            process.terminate()
            return Score(value=process.wait() == -signal.SIGTERM)
