"""Which providers the signals go to: explicit, global, private, none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace

from agenteval_otel import monitor
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import OtlpTarget, Providers, private
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Free, Keeping

VARIABLES = ("OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
             *(f"OTEL_EXPORTER_OTLP_{signal}_{what}" for signal in ("TRACES", "LOGS", "METRICS")
               for what in ("ENDPOINT", "PROTOCOL")))  # fmt: skip


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the surroundings, and a log that has said nothing yet."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(log, "_last", {})


@pytest.fixture
def globally(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedTelemetry]:
    """Recorded telemetry that stands in for the application's global providers."""
    recorded = RecordedTelemetry()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorded.tracer_provider)
    monkeypatch.setattr(_logs, "get_logger_provider", lambda: recorded.logger_provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: recorded.meter_provider)
    yield recorded
    recorded.shutdown()


@pytest.fixture
def privately(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RecordedTelemetry, list[str]]]:
    """Recorded telemetry in place of what would export over OTLP, and the signals that were built for it."""
    recorded, built = RecordedTelemetry(), []

    def build(signal: str, target: OtlpTarget, exporter: Any, resource: Any) -> Any:
        built.append(signal)
        return {"TRACES": recorded.tracer_provider, "LOGS": recorded.logger_provider,
                "METRICS": recorded.meter_provider}[signal]  # fmt: skip

    monkeypatch.setattr(private, "private_provider", build)
    yield recorded, built
    recorded.shutdown()


def emit(emitter: OtlpStorageProvider, times: int = 1) -> AggregatedEvaluationResult:
    kept = Keeping()
    made = Pipeline(sampler=RatioSampler(), evaluators=(ResponseHealth(), Free()), storage=(emitter, kept),
                    dispatcher=InlineDispatcher())  # fmt: skip
    handler = monitor(agent="support", pipeline=made)(str.upper)
    for _ in range(times):
        handler("answer")
    assert made.shutdown(5)
    assert made.accounting.outcomes()["evaluated"] == times
    return kept.saved[0]


def counts(telemetry: RecordedTelemetry) -> tuple[bool, bool, bool]:
    return bool(telemetry.spans("evaluation")), bool(telemetry.events()), bool(telemetry.metrics())


def test_an_explicit_provider_goes_first(
    telemetry: RecordedTelemetry, globally: RecordedTelemetry, privately: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explicit providers are used although there are global ones and an endpoint."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    emit(telemetry.storage())
    assert counts(telemetry) == (True, True, True)
    assert counts(globally) == (False, False, False)
    assert privately[1] == []


def test_the_applications_providers_come_next(
    globally: RecordedTelemetry, privately: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without explicit ones the application's global providers are used, also where an endpoint is configured."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    emit(OtlpStorageProvider())
    assert counts(globally) == (True, True, True)
    assert privately[1] == []


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_an_endpoint_brings_private_providers(privately: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Without either an endpoint, given or from the environment, builds private providers, one for each signal."""
    recorded, built = privately
    before = trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()
    if how == "variable":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    emit(OtlpStorageProvider(endpoint="http://127.0.0.1:1") if how == "argument" else OtlpStorageProvider(), times=3)
    assert sorted(built) == ["LOGS", "METRICS", "TRACES"]
    assert counts(recorded) == (True, True, True)
    assert (trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()) == before


def test_each_signal_is_resolved_by_itself(
    globally: RecordedTelemetry, privately: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that sets a tracer provider only: events and metrics go to the endpoint and do not vanish."""
    monkeypatch.undo()
    recorded, built = RecordedTelemetry(), []
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: globally.tracer_provider)

    def build(signal: str, target: OtlpTarget, exporter: Any, resource: Any) -> Any:
        built.append(signal)
        return recorded.logger_provider if signal == "LOGS" else recorded.meter_provider

    monkeypatch.setattr(private, "private_provider", build)
    emit(OtlpStorageProvider(endpoint="http://127.0.0.1:1"))
    assert counts(globally) == (True, False, False)
    assert counts(recorded) == (False, True, True)
    assert sorted(built) == ["LOGS", "METRICS"]
    recorded.shutdown()


def test_nothing_to_emit_to_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Without provider and endpoint results stay in the process, and exactly one warning names the fix."""
    with caplog.at_level(logging.WARNING, logger="agenteval_otel"):
        saved = emit(OtlpStorageProvider(), times=5)
    assert len(saved.results) == 2
    (record,) = [entry for entry in caplog.records if entry.name == "agenteval_otel"]
    assert record.levelno == logging.WARNING
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in record.getMessage()


def test_half_of_it_is_one_warning_too(telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture) -> None:
    """With a tracer provider only, one warning says that events and metrics go nowhere."""
    emit(OtlpStorageProvider(tracer_provider=telemetry.tracer_provider), times=3)
    (record,) = caplog.records
    assert "logs" in record.getMessage()
    assert "metrics" in record.getMessage()
    assert counts(telemetry) == (True, False, False)


def test_providers_that_come_later_are_found(monkeypatch: pytest.MonkeyPatch, telemetry: RecordedTelemetry) -> None:
    """Results before the application has set up its telemetry are not the end: the next ones look again."""
    emitter = OtlpStorageProvider()
    emit(emitter)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: telemetry.tracer_provider)
    monkeypatch.setattr(_logs, "get_logger_provider", lambda: telemetry.logger_provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: telemetry.meter_provider)
    emit(emitter)
    assert counts(telemetry) == (True, True, True)
    assert len(telemetry.events()) == 2


def test_an_endpoint_that_is_none_costs_no_result(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry that cannot be built is said once for each signal; results are evaluated and saved elsewhere."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:no-port")
    assert len(emit(OtlpStorageProvider(), times=5).results) == 2
    messages = [entry.getMessage() for entry in caplog.records]
    assert len(messages) == 3
    assert all("wrong_telemetry" in message and "ValueError" in message for message in messages)


@pytest.mark.parametrize("endpoint", ["localhost:4317", "http://localhost:no-port", "http://", "ftp://a:1"])
def test_an_endpoint_in_the_settings_is_looked_at(endpoint: str) -> None:
    """What is no address is refused at start, with an example; the exporter would say so much later, on stderr."""
    with pytest.raises(ConfigurationError, match="such as http://localhost:4317"):
        OtlpStorageProvider(endpoint=endpoint)
    assert OtlpStorageProvider(endpoint="").endpoint is None


@pytest.mark.parametrize("value", ["true", "TRUE", " true "])
def test_the_sdk_can_be_switched_off(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """With ``OTEL_SDK_DISABLED`` nothing is emitted, nothing is warned of, and evaluations still happen."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)
    saved = emit(telemetry.storage())
    assert len(saved.results) == 2
    assert counts(telemetry) == (False, False, False)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("endpoint", "variables", "expected"),
    [
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317"}, "grpc"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, "http/protobuf"),
        ("http://h:4318", {}, "http/protobuf"), ("http://h:4317", {}, "grpc"), ("http://h", {}, "grpc"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h:4318/v1/traces"}, "http/protobuf"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, "http/protobuf"),
    ],
)  # fmt: skip
def test_the_protocol(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None, variables: dict[str, str], expected: str
) -> None:
    """The protocol is the configured one, else what the port says, else gRPC."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert OtlpTarget(endpoint).protocol("TRACES") == expected
    assert OtlpTarget(endpoint, "grpc").protocol("TRACES") == "grpc"


def test_an_endpoint_of_one_signal_is_for_that_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's own variable configures that signal only."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:4318/v1/logs")
    target = OtlpTarget()
    assert [target.is_configured(signal) for signal in ("TRACES", "LOGS", "METRICS")] == [False, True, False]


class Stuck:
    """A logger provider whose flush hangs, as the SDK's does against a collector that never answers."""

    def __init__(self, telemetry: RecordedTelemetry) -> None:
        self._telemetry, self.leave = telemetry, threading.Event()

    def get_logger(self, *args: Any, **kwargs: Any) -> Any:
        return self._telemetry.logger_provider.get_logger(*args, **kwargs)

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return self.leave.wait(20)


def test_a_flush_does_not_wait_for_the_sdk(telemetry: RecordedTelemetry) -> None:
    """A flush is over when its time is, whatever the SDK's flush does, and gives False; flushes do not pile up."""
    stuck = Stuck(telemetry)
    made = Providers(logger_provider=stuck)
    assert made.flush(1)
    made.events()
    before = threading.active_count()
    assert made.flush(0.05) is False
    assert made.flush(0.05) is False
    assert threading.active_count() == before + 1
    stuck.leave.set()
    assert made.flush(10)


def test_a_flush_that_fails_is_told(telemetry: RecordedTelemetry) -> None:
    """When a provider says that it could not export, or raises, the flush is False."""

    class Failing(Stuck):
        answer: Any = False

        def force_flush(self, timeout_millis: int = 0) -> bool:
            if self.answer is None:
                raise OSError
            return bool(self.answer)

    for answer, expected in ((False, False), (None, False), (True, True)):
        failing = Failing(telemetry)
        failing.answer = answer
        made = Providers(logger_provider=failing)
        made.events()
        assert made.flush(10) is expected
