"""C11: batches wait through an outage of the receiver within a bound of their own; beyond it the loss is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import annotate, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import InlineDispatcher, Pipeline, PoolDispatcher
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from tests.promises.figures import Recorder
from tests.promises.outages import OtlpReceiver
from tests.promises.receiver import Receiver


def _answer(number: int) -> str:
    annotate(response_id=f"r-{number}")
    return "an answer"


def _pipeline(receiver: OtlpReceiver, signals: set[Any]) -> Pipeline:
    storage = OtlpStorageProvider(endpoint=receiver.endpoint, protocol=receiver.protocol, signals=signals)
    return Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), dispatcher=PoolDispatcher(), storage=(storage,)
    )  # fmt: skip


def _burst(handler: Callable[[int], str], numbers: range, pace_s: float) -> None:
    pause = threading.Event()
    for number in numbers:
        handler(number)
        pause.wait(pace_s)


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """A bound of encoded batches that some hundred events exceed."""
    monkeypatch.setattr(MEMORY.encoded_batches, "max_bytes", 8_192)
    return 8_192


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_nothing_is_lost_within_the_bound(protocol: str, monkeypatch: pytest.MonkeyPatch, promise: Recorder) -> None:
    """A receiver that refuses for longer than an exporter's timeout gets every event once it is back, each once."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # an outage of minutes, in seconds
    with OtlpReceiver(protocol) as receiver:
        pipeline = _pipeline(receiver, {"events"})
        handler = monitor(pipeline=pipeline, agent="host")(_answer)
        receiver.breaks("refuse")
        _burst(handler, range(300), 0.01)
        assert pipeline.flush(5.0) is False
        assert pipeline.flush(5.0) is False, "what waits is not delivered"
        receiver.heals()
        began = time.monotonic()
        while not pipeline.flush(5.0):
            assert time.monotonic() - began < 30, "nothing is delivered any more"
        assert len(receiver.taken) == 300
        assert set(receiver.taken.values()) == {1}
        assert pipeline.accounting.failures == {}
        assert MEMORY.encoded_batches.used_bytes == 0
        promise("C11", figure=f"{protocol}, refused for six timeouts: 300 of 300 events arrived, each once")
        pipeline.shutdown(5)


def test_the_oldest_is_dropped_beyond_the_bound(
    monkeypatch: pytest.MonkeyPatch, small_bound: int, promise: Recorder
) -> None:
    """Beyond the bound the oldest batches go, every lost event is counted by signal and reason, the newest arrive."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with OtlpReceiver("http/protobuf") as receiver:
        pipeline = _pipeline(receiver, {"events"})
        (storage,) = pipeline.providers
        handler = monitor(pipeline=pipeline, agent="host")(_answer)
        receiver.breaks("503")
        for start in range(0, 3_000, 500):
            _burst(handler, range(start, start + 500), 0.0)
            pipeline.flush(5.0)
            assert MEMORY.encoded_batches.used_bytes <= small_bound
        receiver.heals()
        began = time.monotonic()
        while not pipeline.flush(5.0):
            assert time.monotonic() - began < 30
        lost = 3_000 - len(receiver.taken)
        assert 0 < lost < 3_000
        assert storage.providers.lost == {("logs", "no_room"): lost}
        assert pipeline.accounting.failures == {"export:logs": lost}
        assert "r-2999" in receiver.taken
        promise("C11", figure="beyond the bound: the oldest go, every one counted")
        pipeline.shutdown(5)


def test_what_the_end_of_the_process_leaves_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that still wait when the pipeline ends are counted as lost by the shutdown."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with OtlpReceiver("http/protobuf") as receiver:
        pipeline = _pipeline(receiver, {"events"})
        (storage,) = pipeline.providers
        handler = monitor(pipeline=pipeline, agent="host")(_answer)
        receiver.breaks("refuse")
        _burst(handler, range(20), 0.0)
        pipeline.shutdown(10.0)
        receiver.heals()
        assert storage.providers.lost == {("logs", "shutdown"): 20}
        assert MEMORY.encoded_batches.used_bytes == 0


def _provider_with(kind: str) -> tuple[Any, str]:
    """A provider of the host's, and the signal that goes through it."""
    if kind == "logs":
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(SimpleLogRecordProcessor(InMemoryLogRecordExporter()))
        return logs, "logs"
    traces = TracerProvider(shutdown_on_exit=False)
    if kind != "none":
        processor = BatchSpanProcessor if kind == "batch" else SimpleSpanProcessor
        traces.add_span_processor(processor(InMemorySpanExporter()))
    return traces, "traces"


@pytest.mark.parametrize("kind", ["simple", "batch", "logs", "none"])
def test_a_host_provider_that_was_shut_down(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """After the host has shut its provider down nothing goes there, each item is counted, the SDK writes no warnings.

    Behind a tracer provider without any processor a flush says no at once: nothing was handed over.
    """
    provider, signal = _provider_with(kind)
    options: dict[str, Any] = (
        {"logger_provider": provider, "signals": {"events"}} if signal == "logs"
        else {"tracer_provider": provider, "signals": {"traces"}}
    )  # fmt: skip
    storage = OtlpStorageProvider(**options)
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), storage=(storage,), dispatcher=InlineDispatcher()
    )
    handler = monitor(pipeline=pipeline, agent="host")(_answer)
    handler(1)
    assert pipeline.flush(10) is (kind != "none")
    provider.shutdown()
    if kind != "none":
        for number in range(50):
            handler(number)
        assert pipeline.flush(10) is False
        assert storage.providers.lost[signal, "provider_shut_down"] >= 50
        assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    pipeline.shutdown(5)


@pytest.mark.parametrize(("off", "path"), [("TRACES", "traces"), ("LOGS", "logs"), ("METRICS", "metrics")])
def test_a_signal_that_is_switched_off(
    off: str, path: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``OTEL_<SIGNAL>_EXPORTER=none`` our own exporter sends the other signals and not that one."""
    monkeypatch.setenv(f"OTEL_{off}_EXPORTER", "none")
    storage = OtlpStorageProvider(endpoint=receiver.endpoint, protocol="http/protobuf")
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), storage=(storage,), dispatcher=InlineDispatcher()
    )
    monitor(pipeline=pipeline, agent="host")(_answer)(1)
    assert pipeline.flush(10) is True
    pipeline.shutdown(5)
    sent = {name for name, bodies in receiver.bodies.items() if bodies}
    assert sent == {"/v1/traces", "/v1/logs", "/v1/metrics"} - {f"/v1/{path}"}
    assert not storage.providers.nowhere
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    assert storage.providers.nowhere
