"""C11: an outage of the receiver is survived: nothing waits for it, losses are counted, and
delivery resumes.
"""

from __future__ import annotations

import os
import statistics
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
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage import OtlpStorageProvider
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.outages import GRPC_FAULTS, HTTP_FAULTS, OtlpReceiver
from tests.promises.programs import rss

RESUMES_S = 30.0
SILENT_S = float(os.environ.get("AGENTEVAL_C11_SECONDS", "180"))
MARGIN = 96 * 1024 * 1024
LASTING = ("429", "503")
"""Refusals that say when to come again: nothing is lost by them."""
CASES = [("http/protobuf", fault) for fault in HTTP_FAULTS] + [
    ("grpc", fault) for fault in GRPC_FAULTS
]


class Host:
    """A host that answers at a steady pace, and whose results go to the receiver and nowhere else."""

    def __init__(self, receiver: OtlpReceiver, pace_s: float = 0.0, **signals: Any) -> None:
        self.receiver, self.calls, self._pace_s = receiver, 0, pace_s
        self.storage = OtlpStorageProvider(
            endpoint=receiver.endpoint, protocol=receiver.protocol, **signals
        )
        self.pipeline = pipeline_of(storage=(self.storage,))
        self._answer = monitor(pipeline=self.pipeline, agent="host")(_answer)

    def call(self, times: int = 1) -> None:
        """Answer so often, at the host's pace."""
        for _ in range(times):
            self.calls += 1
            self._answer(self.calls)
            if self._pace_s:
                threading.Event().wait(self._pace_s)

    def delivers(self, seconds: float) -> None:
        """Flush until everything has arrived, within so long."""
        began = time.monotonic()
        while not self.pipeline.flush(5.0):
            assert time.monotonic() - began < seconds, "nothing is delivered any more"

    def answer(self, seconds: float) -> float:
        """Answer for so long; gives the median of what an answer took the caller, in seconds."""
        pause, until, took = threading.Event(), time.monotonic() + seconds, []
        while time.monotonic() < until:
            self.calls += 1
            began = time.perf_counter()
            self._answer(self.calls)
            took.append(time.perf_counter() - began)
            pause.wait(self._pace_s)
        return statistics.median(took)

    def resumes(self) -> float:
        """Seconds until one of the answers that are given from now on arrives."""
        first, began = self.calls + 1, time.monotonic()
        while not any(
            f"r-{number}" in self.receiver.taken for number in range(first, self.calls + 1)
        ):
            assert time.monotonic() - began < 2 * RESUMES_S, "nothing is delivered any more"
            self.answer(0.05)
        return time.monotonic() - began

    def lost(self) -> int:
        """Events that were counted as lost on the way out."""
        failures = self.pipeline.accounting.failures
        return sum(count for part, count in failures.items() if "export" in part or "otlp" in part)


def _answer(number: int) -> str:
    annotate(response_id=f"r-{number}")
    return "an answer"


def outlive(
    protocol: str,
    fault: str,
    promise: Callable[..., None],
    *,
    seconds: float,
    pace_s: float = 0.005,
) -> OtlpReceiver:
    """A receiver that is well, broken for so long, and well again."""
    with OtlpReceiver(protocol) as receiver:
        host = Host(receiver, pace_s)
        try:
            host.answer(0.3)
            assert host.pipeline.flush(20.0)
            assert len(receiver.taken) == host.calls
            quiet = host.answer(0.5)
            host.pipeline.flush(20.0)
            before = rss()
            receiver.breaks(fault)
            faulty = min(host.answer(seconds / 3) for _ in range(3))
            flush_began = time.monotonic()
            reported = host.pipeline.flush(0.3)
            flushed_s = time.monotonic() - flush_began
            grown = rss() - before
            receiver.heals()
            resumed_s = host.resumes()
            host.pipeline.flush(30.0)
            missing = host.calls - len(receiver.taken)
            promise(
                "C11",
                figure=(
                    f"{protocol} {fault} for {seconds:g} s: resumed after {resumed_s:.1f} s, "
                    f"{missing} of {host.calls} not "
                    f"delivered, memory {grown / 2**20:+.0f} MB, a call {quiet * 1e6:.0f} -> {faulty * 1e6:.0f} us"
                ),
            )
            outcomes = host.pipeline.accounting.outcomes()
            assert outcomes["evaluated"] == host.calls == sum(outcomes.values())
            assert resumed_s <= RESUMES_S
            assert grown <= MARGIN
            assert flushed_s <= 0.6
            assert faulty <= 4 * quiet + 100e-6
            assert max(receiver.taken.values()) == 1, "delivered twice"
            assert not missing or host.lost(), "losses are counted"
            assert not reported or fault in ("413", "large answer")
            if fault in (*LASTING, "413"):
                assert missing == 0, "what may be sent again, or in halves, is not lost"
        finally:
            host.pipeline.shutdown(2.0)
    return receiver


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters that give up after a second, so that outages of seconds show what outages of
    minutes do.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.mark.parametrize(("protocol", "fault"), CASES)
@pytest.mark.usefixtures("impatient")
def test_a_short_outage(protocol: str, fault: str, promise: Callable[..., None]) -> None:
    """Callers notice nothing, a flush does not wait, delivery resumes, and what is lost is counted."""
    receiver = outlive(protocol, fault, promise, seconds=1.8)
    if fault in ("400", "INVALID_ARGUMENT"):
        assert max(receiver.bodies.values()) == 1, "a refusal for good is not repeated"
    if fault == "large answer":
        assert receiver.answered_bytes <= 8 * 1024 * 1024, "a large answer is not read"


@pytest.mark.full
@pytest.mark.parametrize(
    ("protocol", "fault", "seconds"),
    [
        *((*case, 30.0) for case in CASES),
        pytest.param("http/protobuf", "half-open", SILENT_S, id="minutes-http/protobuf"),
        pytest.param("grpc", "half-open", SILENT_S, id="minutes-grpc"),
    ],
)
def test_a_long_outage(
    protocol: str, fault: str, seconds: float, promise: Callable[..., None]
) -> None:
    """The same for half a minute, and without an answer for minutes, with the patience that
    exporters have.
    """
    outlive(protocol, fault, promise, seconds=seconds)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.usefixtures("impatient")
def test_nothing_is_lost_within_the_bound(protocol: str, promise: Recorder) -> None:
    """A receiver that refuses for longer than an exporter's timeout gets every event once; the end
    loses what waits.
    """
    with OtlpReceiver(protocol) as receiver:
        host = Host(receiver, 0.01, signals={"events"})
        receiver.breaks("refuse")
        host.call(300)
        assert [host.pipeline.flush(5.0), host.pipeline.flush(5.0)] == [False, False], (
            "what waits is not delivered"
        )
        receiver.heals()
        host.delivers(30)
        assert len(receiver.taken) == 300
        assert set(receiver.taken.values()) == {1}
        assert host.pipeline.accounting.failures == {}
        assert MEMORY.encoded_batches.used_bytes == 0
        promise(
            "C11",
            figure=f"{protocol}, refused for six timeouts: 300 of 300 events arrived, each once",
        )
        receiver.breaks("refuse")
        host.call(20)
        host.pipeline.shutdown(10.0)
        receiver.heals()
        assert host.storage.emitter.providers.lost == {("logs", "shutdown"): 20}
        assert MEMORY.encoded_batches.used_bytes == 0


@pytest.mark.usefixtures("impatient")
def test_the_oldest_is_dropped_beyond_the_bound(
    monkeypatch: pytest.MonkeyPatch, promise: Recorder
) -> None:
    """Beyond the bound the oldest batches go, every lost event is counted by signal and reason, the
    newest arrive.
    """
    monkeypatch.setattr(MEMORY.encoded_batches, "max_bytes", 8_192)  # some hundred events exceed it
    with OtlpReceiver("http/protobuf") as receiver:
        host = Host(receiver, signals={"events"})
        receiver.breaks("503")
        for _ in range(6):
            host.call(500)
            host.pipeline.flush(5.0)
            assert MEMORY.encoded_batches.used_bytes <= 8_192
        receiver.heals()
        host.delivers(30)
        lost = host.calls - len(receiver.taken)
        assert 0 < lost < host.calls
        assert host.storage.emitter.providers.lost == {("logs", "no_room"): lost}
        assert host.pipeline.accounting.failures == {"export:logs": lost}
        assert f"r-{host.calls}" in receiver.taken
        promise("C11", figure="beyond the bound: the oldest go, every one counted")
        host.pipeline.shutdown(5)


def _provider_with(kind: str) -> tuple[dict[str, Any], str]:
    """The options that name a provider of the host's, and the signal that goes through it."""
    if kind == "logs":
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(SimpleLogRecordProcessor(InMemoryLogRecordExporter()))
        return {"logger_provider": logs, "signals": {"events"}}, "logs"
    traces = TracerProvider(shutdown_on_exit=False)
    if kind != "none":
        processor = BatchSpanProcessor if kind == "batch" else SimpleSpanProcessor
        traces.add_span_processor(processor(InMemorySpanExporter()))
    return {"tracer_provider": traces, "signals": {"traces"}}, "traces"


@pytest.mark.parametrize("kind", ["simple", "batch", "logs", "none"])
def test_a_host_provider_that_was_shut_down(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """After the host has shut its provider down nothing goes there, each item is counted, the SDK
    writes no warnings.

    Behind a tracer provider without any processor a flush says no at once: nothing was handed over.
    """
    options, signal = _provider_with(kind)
    storage = OtlpStorageProvider(**options)
    pipeline = pipeline_of(storage=(storage,), dispatcher=InlineDispatcher())
    handler = monitor(pipeline=pipeline, agent="host")(_answer)
    handler(1)
    assert pipeline.flush(10) is (kind != "none")
    options[f"{'logger' if kind == 'logs' else 'tracer'}_provider"].shutdown()
    if kind != "none":
        for number in range(50):
            handler(number)
        assert pipeline.flush(10) is False
        assert storage.emitter.providers.lost[signal, "provider_shut_down"] >= 50
        assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    pipeline.shutdown(5)
