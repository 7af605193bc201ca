"""The budget of series: whatever comes from outside, a criterion of an agent stays within it and loses no count."""

from __future__ import annotations

from typing import Any

from agenteval_otel.models import EvaluationResult
from agenteval_otel.telemetry.metrics import ResultTotals


def test_what_came_first_keeps_its_series() -> None:
    """Three models with verdicts have their own series, in the order in which they came; the others share one.

    Each criterion of each agent has a budget of its own.
    """
    totals = ResultTotals()

    def add(criterion: str, agent: str, model: str, label: str) -> str | None:
        facts: dict[str, Any] = {"criterion_name": criterion, "evaluator_type": "T", "score": 1.0}
        return totals.add(EvaluationResult(**facts, label=label, passed=label == "pass"), agent, model)

    for criterion, agent in (("one", "a"), ("two", "a"), ("one", "b")):
        models = [add(criterion, agent, f"m{index}", "pass") for index in range(5)]
        assert models == ["m0", "m1", "m2", "_other", "_other"]
        assert add(criterion, agent, "m1", "fail") == "m1"
