"""Which providers the signals go to: explicit, global, private, none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import OtlpTarget, Providers, private
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.testing.doubles import Free, Keeping

VARIABLES = (
    "OTEL_SDK_DISABLED",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    *(
        f"OTEL_EXPORTER_OTLP_{signal}_{what}"
        for signal in ("TRACES", "LOGS", "METRICS")
        for what in ("ENDPOINT", "PROTOCOL")
    ),
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the surroundings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def set_globally(
    monkeypatch: pytest.MonkeyPatch, recorded: RecordedTelemetry, *, only_tracer: bool = False
) -> None:
    """Make the recorded providers the application's global ones."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorded.tracer_provider)
    if not only_tracer:
        monkeypatch.setattr(_logs, "get_logger_provider", lambda: recorded.logger_provider)
        monkeypatch.setattr(metrics, "get_meter_provider", lambda: recorded.meter_provider)


@pytest.fixture
def globally() -> Iterator[RecordedTelemetry]:
    """Recorded telemetry that stands in for the application's."""
    recorded = RecordedTelemetry()
    yield recorded
    recorded.shutdown()


@pytest.fixture
def privately(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RecordedTelemetry, list[str]]]:
    """Recorded telemetry in place of what would export over OTLP, and the signals that were built
    for it.
    """
    recorded, built = RecordedTelemetry(), []

    def build(signal: str, target: OtlpTarget, exporter: Any, resource: Any, sums: Any) -> Any:
        built.append(signal)
        return {
            "TRACES": recorded.tracer_provider,
            "LOGS": recorded.logger_provider,
            "METRICS": recorded.meter_provider,
        }[signal]

    monkeypatch.setattr(private, "private_provider", build)
    yield recorded, built
    recorded.shutdown()


def emit(emitter: OtlpStorageProvider, times: int = 1) -> AggregatedEvaluationResult:
    kept = Keeping()
    made = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(ResponseHealth(), Free()),
        storage=(emitter, kept),
        dispatcher=InlineDispatcher(),
    )
    handler = monitor(agent="support", pipeline=made)(str.upper)
    for _ in range(times):
        handler("answer")
    assert made.shutdown(5)
    assert made.accounting.outcomes()["evaluated"] == times
    return kept.saved[0]


def counts(telemetry: RecordedTelemetry) -> tuple[bool, bool, bool]:
    return bool(telemetry.spans("evaluation")), bool(telemetry.events()), bool(telemetry.metrics())


ALL, NOTHING = (True, True, True), (False, False, False)


@pytest.mark.parametrize(
    ("explicit", "application", "to_explicit", "to_application", "to_private"),
    [
        (True, "all", ALL, NOTHING, NOTHING),
        (False, "all", NOTHING, ALL, NOTHING),
        (False, "tracer", NOTHING, (True, False, False), (False, True, True)),
        (False, "none", NOTHING, NOTHING, ALL),
    ],
)
@pytest.mark.parametrize("how", ["argument", "variable"])
def test_each_signal_has_the_first_provider_that_there_is(
    telemetry: RecordedTelemetry,
    globally: RecordedTelemetry,
    privately: Any,
    monkeypatch: pytest.MonkeyPatch,
    explicit: bool,
    application: str,
    to_explicit: Any,
    to_application: Any,
    to_private: Any,
    how: str,
) -> None:
    """An explicit one, else the application's, else a private one for the endpoint; the globals are
    not replaced.
    """
    if application != "none":
        set_globally(monkeypatch, globally, only_tracer=application == "tracer")
    before = trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()
    settings = {"endpoint": "http://127.0.0.1:1"} if how == "argument" else {}
    if how == "variable":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    emit(telemetry.storage(**settings) if explicit else OtlpStorageProvider(**settings), times=2)
    recorded, built = privately
    assert [counts(each) for each in (telemetry, globally, recorded)] == [
        to_explicit,
        to_application,
        to_private,
    ]
    assert len(built) == sum(to_private)
    assert (
        trace.get_tracer_provider(),
        metrics.get_meter_provider(),
        _logs.get_logger_provider(),
    ) == before


@pytest.mark.parametrize(
    ("has_tracer", "missing"),
    [(False, "traces, logs, metrics"), (True, "logs, metrics")],
    ids=["nothing", "a tracer"],
)
def test_nothing_to_emit_to_is_one_warning(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture, has_tracer: bool, missing: str
) -> None:
    """Without provider and endpoint results stay in the process, and exactly one warning names
    signals and fix.
    """
    provider = OtlpStorageProvider(
        tracer_provider=telemetry.tracer_provider if has_tracer else None
    )
    with caplog.at_level(logging.WARNING, logger="agenteval_otel"):
        assert len(emit(provider, times=5).results) == 2
    (record,) = [entry for entry in caplog.records if entry.name == "agenteval_otel"]
    assert record.levelno == logging.WARNING
    assert missing in record.getMessage()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in record.getMessage()
    assert counts(telemetry) == (has_tracer, False, False)


def test_providers_that_come_later_are_found(
    monkeypatch: pytest.MonkeyPatch, telemetry: RecordedTelemetry
) -> None:
    """Results before the application has set up its telemetry are not the end: the next ones look
    again.
    """
    emitter = OtlpStorageProvider()
    emit(emitter)
    set_globally(monkeypatch, telemetry)
    emit(emitter)
    assert counts(telemetry) == (True, True, True)
    assert len(telemetry.events()) == 2


def test_an_endpoint_that_is_none_costs_no_result(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry that cannot be built is said once for each signal; results are evaluated and saved
    elsewhere.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:no-port")
    assert len(emit(OtlpStorageProvider(), times=5).results) == 2
    messages = [entry.getMessage() for entry in caplog.records]
    assert len(messages) == 3
    assert all("wrong_telemetry" in message and "ValueError" in message for message in messages)


@pytest.mark.parametrize(
    "endpoint", ["localhost:4317", "http://localhost:no-port", "http://", "ftp://a:1"]
)
def test_an_endpoint_in_the_settings_is_looked_at(endpoint: str) -> None:
    """What is no address is refused at start, with an example; the exporter would say so much
    later, on stderr.
    """
    with pytest.raises(ConfigurationError, match="such as http://localhost:4317"):
        OtlpStorageProvider(endpoint=endpoint)
    assert OtlpStorageProvider(endpoint="").endpoint is None


@pytest.mark.parametrize("value", ["true", "TRUE", " true "])
def test_the_sdk_can_be_switched_off(
    telemetry: RecordedTelemetry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    """With ``OTEL_SDK_DISABLED`` nothing is emitted, nothing is warned of, and evaluations still
    happen.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)
    saved = emit(telemetry.storage())
    assert len(saved.results) == 2
    assert counts(telemetry) == (False, False, False)
    assert caplog.records == []


@pytest.mark.parametrize("off", ["TRACES", "LOGS", "METRICS"])
def test_a_signal_that_is_switched_off(
    privately: Any, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    """With ``OTEL_<SIGNAL>_EXPORTER=none`` our own exporter sends the other signals and not that
    one.
    """
    monkeypatch.setenv(f"OTEL_{off}_EXPORTER", "none")
    emit(OtlpStorageProvider(endpoint="http://127.0.0.1:1"))
    assert {*privately[1], off} == {"TRACES", "LOGS", "METRICS"}
    assert off not in privately[1]


@pytest.mark.parametrize(
    ("endpoint", "variables", "expected"),
    [
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317"}, "grpc"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, "http/protobuf"),
        ("http://h:4318", {}, "http/protobuf"),
        ("http://h:4317", {}, "grpc"),
        ("http://h", {}, "grpc"),
        (
            None,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "grpc",
        ),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h:4318/v1/traces"}, "http/protobuf"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, "http/protobuf"),
        (None, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://h:4318/v1/logs"}, "grpc"),
    ],
)
def test_the_protocol(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None, variables: dict[str, str], expected: str
) -> None:
    """The protocol is the configured one, else what the port says, else gRPC."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert OtlpTarget(endpoint).protocol("TRACES") == expected
    assert OtlpTarget(endpoint, "grpc").protocol("TRACES") == "grpc"


class Flushing:
    """A logger provider whose flush gives an answer, raises, or hangs as the SDK's does without a
    collector.
    """

    def __init__(self, telemetry: RecordedTelemetry, flush: Callable[[], Any]) -> None:
        self.get_logger, self._flush = telemetry.logger_provider.get_logger, flush

    def force_flush(self, timeout_millis: int = 0) -> Any:
        return self._flush()


def test_a_flush_does_not_wait_for_the_sdk(telemetry: RecordedTelemetry) -> None:
    """A flush is over when its time is, whatever the SDK's flush does, and gives False; flushes do
    not pile up.
    """
    leave = threading.Event()
    made = Providers(logger_provider=Flushing(telemetry, lambda: leave.wait(20)))
    assert made.flush(1)
    made.events()
    before = threading.active_count()
    assert made.flush(0.05) is False
    assert made.flush(0.05) is False
    assert threading.active_count() == before + 1
    leave.set()
    assert made.flush(10)


@pytest.mark.parametrize(
    ("flush", "expected"), [(lambda: False, False), (lambda: 1 / 0, False), (lambda: True, True)]
)
def test_a_flush_that_fails_is_told(
    telemetry: RecordedTelemetry, flush: Callable[[], Any], expected: bool
) -> None:
    """When a provider says that it could not export, or raises, the flush is False."""
    made = Providers(logger_provider=Flushing(telemetry, flush))
    made.events()
    assert made.flush(10) is expected


class Silent(trace.NoOpTracerProvider):
    """An application's own that does nothing."""


def test_a_provider_that_does_nothing_is_none(
    monkeypatch: pytest.MonkeyPatch, privately: Any
) -> None:
    """Also where it is a subclass: then ours export to the endpoint."""
    monkeypatch.setattr(trace, "get_tracer_provider", Silent)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    assert Providers().tracer() is not None
    assert privately[1] == ["TRACES"]
