"""The budget of series: whatever comes from outside, a criterion of an agent stays within it and loses no count."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.models import EvaluationResult
from agenteval_otel.semconv import MAX_SERIES
from agenteval_otel.telemetry.metrics import ResultTotals

RESULTS = st.lists(
    st.tuples(
        st.sampled_from([None, *(f"model {index}" for index in range(12))]),
        st.sampled_from([None, "pass", "fail", *(f"category {index}" for index in range(20))]),
        st.booleans(), st.booleans(),
    ),
    max_size=200,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_a_criterion_stays_within_its_series(results: list[tuple[str | None, str | None, bool, bool]]) -> None:
    """Any mix of models, verdicts, categories and failures makes at most forty series, and every result counts."""
    totals, scores, scored = ResultTotals(), set(), 0
    for index, (model, label, judged, failed) in enumerate(results):
        facts: dict[str, Any] = {"criterion_name": "c", "evaluator_type": "T"}
        if failed:
            totals.add(EvaluationResult(**facts, error="e", error_type=f"kind {index % 30}"), "agent", model)
            continue
        passed = label == "pass" if judged or label in ("pass", "fail") else None
        result = EvaluationResult(**facts, score=0.5, normalized=0.5, label=label, passed=passed, probability=0.5)
        scores.add(totals.add(result, "agent", totals.bounded("model", model)))
        scored += 1
    counted = (totals.results, totals.errors, scores, *totals.sums.values())
    assert sum(map(len, counted)) + 1 <= MAX_SERIES  # and the duration
    assert sum(totals.results.values()) == scored
    assert sum(totals.sums["agenteval.evaluation.weight"].values()) == 2 * scored


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
