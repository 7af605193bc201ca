"""The setting `aggregation`: the same strategies live as offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings, accounting, configure, monitor
from agenteval_otel.config import current_pipeline
from agenteval_otel.engine.aggregation import Aggregation
from tests.config.support import configured
from tests.testing.doubles import Free, Keeping

TWO = [Free(criterion_name="a", value=0.2), Free(criterion_name="b", value=0.8)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", 0.5),
        ("aggregation: weighted_mean", 0.5),
        ("aggregation: minimum", 0.2),
        ("aggregation: {type: once_per_criterion}", 0.5),
        ("aggregation: all_must_pass", None),
    ],
)
def test_a_file_chooses_the_strategy(tmp_path: Path, message: str, expected: float | None) -> None:
    """Live answers get their overall score by the strategy that the settings name."""
    kept = configured(tmp_path, f"sample_rate: 1.0\n{message}")
    monitor(agent="any", evaluators=TWO)(lambda: "answer")()
    (aggregated,) = kept.saved
    assert aggregated.overall_score == (None if expected is None else pytest.approx(expected))


class Broken(Aggregation, type="broken_of_test_aggregation"):
    """Raises."""

    def combine(self, scored: Any) -> float | None:
        raise ZeroDivisionError


def test_a_strategy_that_raises_is_counted_and_costs_the_overall_score_only() -> None:
    """Live, the results are saved all the same, the call counts as evaluated, and the failure is
    counted.
    """
    kept = Keeping()
    configure(Settings(aggregation=Broken(), storage=(kept,), dispatcher="inline", sample_rate=1.0))
    monitor(agent="any", evaluators=TWO)(lambda: "answer")()
    (aggregated,) = kept.saved
    assert (aggregated.overall_score, [result.score for result in aggregated.results]) == (
        None,
        [0.2, 0.8],
    )
    assert accounting()["evaluated"] == 1
    pipeline = current_pipeline()
    assert pipeline is not None
    assert pipeline.accounting.failures["aggregation:broken_of_test_aggregation"] == 1
