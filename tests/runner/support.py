"""Evaluators run in lanes by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.runner import Lanes

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
