"""A bench for evaluators: each answer is judged by one of them, and what that left is looked at everywhere it went."""

from __future__ import annotations

import math
from typing import Any

from agenteval_otel import monitor
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationResult
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import METRIC_ERRORS, METRIC_RESULTS, METRIC_SCORE
from agenteval_otel.testing import InlineDispatcher, RecordedTelemetry
from tests.testing.doubles import Keeping

AN_ERROR, A_SCORE = "error.type", ("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label")
NORMALIZED = "agenteval.evaluation.score.normalized"


class Bench:
    """Evaluates one answer after the other, each with an evaluator of its own."""

    def __init__(self, telemetry: RecordedTelemetry) -> None:
        self.telemetry, self.kept, self.calls = telemetry, Keeping(), 0
        self.pipeline = Pipeline(
            sampler=RatioSampler(), evaluators=(), storage=(self.kept, telemetry.storage()),
            dispatcher=InlineDispatcher(),
        )  # fmt: skip

    def judge(self, evaluator: Evaluator) -> list[EvaluationResult]:
        self.calls += 1
        monitor(pipeline=self.pipeline, agent="agent", evaluators=[evaluator])(lambda: "an answer")()
        return list(self.kept.saved[-1].results) if len(self.kept.saved) == self.calls else []

    def close(self) -> None:
        self.pipeline.shutdown(5.0)


def assert_one_of_three(result: EvaluationResult) -> None:
    if result.status == "scored":
        assert isinstance(result.score, bool | int | float | str)
        assert not isinstance(result.score, float) or math.isfinite(result.score)
        assert result.normalized is None or 0.0 <= result.normalized <= 1.0
        assert not result.error
    else:
        assert (result.score, result.normalized, result.passed, result.label) == (None, None, None, None)


def assert_average(aggregated: Any) -> None:
    """The overall score is that of the scored ones alone, none where nothing was scored."""
    scored = [result for result in aggregated.results if result.status == "scored"]
    if aggregated.overall_score is not None:
        assert scored
        assert 0.0 <= aggregated.overall_score <= 1.0


def assert_emitted(bench: Bench) -> dict[str, int]:
    """Events, histogram and counters say what the results say; gives the results by status."""
    results = bench.kept.results
    tally = {status: sum(result.status == status for result in results) for status in ("scored", "failed", "skipped")}
    events = bench.telemetry.events()
    failed = [event for event in events if AN_ERROR in event.attributes]
    assert len(events) == tally["scored"] + tally["failed"]
    assert len(failed) == tally["failed"]
    assert not [event for event in failed if {*A_SCORE, NORMALIZED} & event.attributes.keys()]
    recorded = sum(point.count for point in bench.telemetry.points(METRIC_SCORE.name))
    assert recorded == sum(result.status == "scored" and result.normalized is not None for result in results)
    assert sum(point.value for point in bench.telemetry.points(METRIC_RESULTS.name)) == tally["scored"]
    assert sum(point.value for point in bench.telemetry.points(METRIC_ERRORS.name)) == tally["failed"]
    assert tally == bench.pipeline.accounting.results
    return tally
