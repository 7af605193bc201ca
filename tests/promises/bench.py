"""Pipelines, and a bench for evaluators: each answer is judged by one of them, and everything that
left is compared.
"""

from __future__ import annotations

import math
from typing import Any

from agenteval_otel import monitor
from agenteval_otel.engine.capabilities.judge_health import JudgeHealth, JudgeHealthSettings
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.evaluators import Evaluator, ResponseHealth
from agenteval_otel.models import EvaluationResult
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import METRIC_ERRORS, METRIC_RESULTS, METRIC_SCORE
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.testing.doubles import Keeping

AN_ERROR, A_SCORE = "error.type", ("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label")
NORMALIZED = "agenteval.evaluation.score.normalized"


def pipeline_of(*evaluators: Any, sheds: bool = True, **settings: Any) -> Pipeline:
    """A pipeline that evaluates every call, by `ResponseHealth` where no evaluator is named. It watches
    objectives and judges, as one that `configure` makes.

    Args:
        sheds: Whether it samples less under load.
    """
    settings.setdefault("sampler", RatioSampler())
    settings.setdefault(
        "capabilities",
        (Objectives.made_by(ObjectiveSettings()), JudgeHealth.made_by(JudgeHealthSettings())),
    )
    return pipeline_with(
        evaluators=evaluators or (ResponseHealth(),),
        load_shedding=LoadSheddingSettings(enabled=sheds),
        **settings,
    )


class Bench:
    """Evaluates one answer after the other, each with an evaluator of its own."""

    def __init__(self, telemetry: RecordedTelemetry) -> None:
        self.telemetry, self.kept, self.calls = telemetry, Keeping(), 0
        self.pipeline = pipeline_of(
            storage=(self.kept, telemetry.storage()), dispatcher=InlineDispatcher()
        )

    def judge(self, evaluator: Evaluator) -> list[EvaluationResult]:
        self.calls += 1
        monitor(pipeline=self.pipeline, agent="agent", evaluators=[evaluator])(
            lambda: "an answer"
        )()
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
        for field in (result.score, result.normalized, result.passed, result.label):
            assert field is None


def assert_average(aggregated: Any) -> None:
    """There is no overall score where nothing was scored."""
    if aggregated.overall_score is not None:
        assert any(result.status == "scored" for result in aggregated.results)
        assert 0.0 <= aggregated.overall_score <= 1.0


def assert_emitted(bench: Bench) -> dict[str, int]:
    """Events, histogram and counters say what the results say; gives the number of results by
    status.
    """
    results = bench.kept.results
    statuses = [result.status for result in results]
    counts = {status: statuses.count(status) for status in ("scored", "failed", "skipped")}
    assert counts == bench.pipeline.accounting.results
    events = bench.telemetry.events()
    failed = [event for event in events if AN_ERROR in event.attributes]
    assert len(events) == counts["scored"] + counts["failed"]
    assert len(failed) == counts["failed"]
    assert not [event for event in failed if {*A_SCORE, NORMALIZED} & event.attributes.keys()]
    recorded = sum(point.count for point in bench.telemetry.points(METRIC_SCORE.name))
    assert recorded == sum(
        result.status == "scored" and result.normalized is not None for result in results
    )
    for metric, status in ((METRIC_RESULTS, "scored"), (METRIC_ERRORS, "failed")):
        counted = sum(point.value for point in bench.telemetry.points(metric.name))
        assert counted == counts[status]
    return counts
