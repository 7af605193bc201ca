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


def test_a_name_selects_points_and_the_sampler_is_the_sdks() -> None:
    """What a sampler of the SDK leaves out is no span."""
    silent = RecordedTelemetry(sampler=ALWAYS_OFF)
    silent.meter_provider.get_meter("m").create_counter("c").add(3)
    assert silent.metrics() == {"c"}
    assert [point.value for point in silent.points("c")] == [3]
    assert silent.points("none") == []
    silent.tracer().start_span("one").end()
    assert silent.spans() == []
    silent.shutdown()
