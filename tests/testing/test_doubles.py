"""ManualClock and RecordedTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from agenteval_otel import configure, monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.testing import ManualClock, RecordedTelemetry


def test_a_manual_clock_moves_only_by_advance() -> None:
    """It never goes back."""
    clock = ManualClock(5.0)
    assert (clock(), clock()) == (5.0, 5.0)
    clock.advance(0.5)
    assert clock() == 5.5
    assert repr(clock) == "<ManualClock 5.5 s>"
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    assert clock() == 5.5


def test_the_documented_use(telemetry: RecordedTelemetry) -> None:
    """The example of its docstring works, and no global provider is set."""
    configure(storage=[telemetry.storage()], dispatcher=InlineDispatcher())

    @monitor
    def handler(question: str) -> str:
        return "An answer."

    handler("q")
    assert telemetry.events()[0].attributes["gen_ai.evaluation.score.label"] == "pass"
    assert repr(telemetry) == "<RecordedTelemetry spans=2 events=1>"
    assert trace.get_tracer_provider() is not telemetry.tracer_provider
    assert metrics.get_meter_provider() is not telemetry.meter_provider
    assert _logs.get_logger_provider() is not telemetry.logger_provider


def test_spans_metrics_and_sampling() -> None:
    """A prefix selects spans, a name selects points, and the sampler is the SDK's."""
    telemetry = RecordedTelemetry()
    telemetry.tracer().start_span("one").end()
    telemetry.tracer().start_span("other").end()
    assert [span.name for span in telemetry.spans("o")] == ["one", "other"]
    assert [span.name for span in telemetry.spans("ot")] == ["other"]
    telemetry.meter_provider.get_meter("m").create_counter("c").add(3)
    assert telemetry.metrics() == {"c"}
    assert [point.value for point in telemetry.points("c")] == [3]
    assert telemetry.points("none") == []
    telemetry.shutdown()
    silent = RecordedTelemetry(sampler=ALWAYS_OFF)
    silent.tracer().start_span("one").end()
    assert silent.spans() == []
    silent.shutdown()
