"""What waits for export: encoded once, bounded, split where it is too large, sent again as the same
bytes, counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.telemetry.private import Exporter
from agenteval_otel.telemetry.target import SendOutcome
from tests.telemetry.encoded import sdk_signal
from tests.telemetry.support import start_no_thread

DELIVERED, AWAY = SendOutcome(True, "200"), SendOutcome(False, "503", retryable=True)


class Receiver:
    """A sender whose other end takes what it is set to take."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.taken: list[str] = []
        self.largest = 10_000
        self.delivery = DELIVERED
        self.begun = threading.Event()

    def send(self, body: bytes) -> SendOutcome:
        """One request."""
        self.begun.set()
        self.asked.append(body)
        names = names_of(body)
        if len(names) > self.largest:
            return SendOutcome(False, "413", too_large=True)
        if self.delivery.delivered:
            self.taken += names
        return self.delivery

    def close(self) -> None:
        """Nothing to close."""


def names_of(body: bytes) -> list[str]:
    """The names of a request's spans, in order."""
    return [
        span.name
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.fixture(scope="module")
def spans() -> list[Any]:
    """Finished spans, named by their numbers, of two scopes."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    for number in range(300):
        provider.get_tracer(f"scope {number % 2}").start_span(str(number)).end()
    provider.shutdown()
    return sorted(kept.get_finished_spans(), key=lambda span: int(span.name))


class Sending:
    """An exporter of spans, its receiver, and what was lost."""

    def __init__(self) -> None:
        self.receiver, self.lost = Receiver(), dict[str, int]()
        self.exporter = Exporter(self._on_lost)
        self.exporter.add(sdk_signal("TRACES"), self.receiver)

    def _on_lost(self, signal: str, reason: str, count: int) -> None:
        assert signal == "traces"
        self.lost[reason] = self.lost.get(reason, 0) + count

    def put(self, items: Iterable[Any], size_bytes: int = 1_000) -> None:
        for item in items:
            self.exporter.put("TRACES", item, size_bytes)

    def flush(self) -> bool:
        return self.exporter.flush()


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    """An exporter without a thread, which sends when it is flushed."""
    start_no_thread(monkeypatch)
    sending = Sending()
    yield sending
    sending.exporter.close()
    assert MEMORY.encoded_batches.used_bytes == 0


def test_in_small_batches(sending: Sending, spans: list[Any]) -> None:
    """Everything is sent once, bounded by spans and by bytes; an item larger than that goes alone."""
    sending.put(spans)
    assert sending.flush()
    assert sorted(sending.receiver.taken, key=int) == [str(number) for number in range(300)]
    sending.put(spans[:5], 500_000)
    sending.put(spans[5:6], 5_000_000)
    assert sending.flush()
    assert [len(names_of(body)) for body in sending.receiver.asked] == [128, 128, 44, 2, 2, 1, 1]


def test_a_failed_export_says_what_to_look_at(
    sending: Sending, spans: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing has answered; a receiver that has answered gave its reason, the status."""
    for status, expected in (("UNAVAILABLE", 1), ("503", 1)):
        sending.put(spans[:1])
        sending.receiver.delivery = SendOutcome(False, status, retryable=True)
        sending.flush()
        assert caplog.text.count("fix='does a Collector listen at the endpoint?") == expected
    assert SendOutcome(False, "503").fix() == {}


def test_a_retry_sends_the_same_bytes(sending: Sending, spans: list[Any]) -> None:
    """A batch that may be sent again waits, packed, and the next flush sends the same bytes;
    nothing is lost.
    """
    receiver = sending.receiver
    sending.put(spans[:100])
    receiver.delivery = AWAY
    assert not sending.flush()
    first = receiver.asked[0]
    assert 0 < MEMORY.encoded_batches.used_bytes < len(first)
    receiver.delivery = DELIVERED
    assert sending.flush()
    assert receiver.asked == [first, first]
    assert sending.lost == {}


def test_a_receiver_that_names_a_time_gets_no_request_before_it(
    sending: Sending, spans: list[Any]
) -> None:
    """No flush sends before that time; what comes meanwhile waits too."""
    receiver = sending.receiver
    sending.put(spans[:1])
    receiver.delivery = SendOutcome(False, "429", retryable=True, wait_s=60.0)
    assert not sending.flush()
    sending.put(spans[1:2])
    receiver.delivery = DELIVERED
    assert not sending.flush()
    assert len(receiver.asked) == 1
    sending.exporter.streams["TRACES"].queue.not_before_s = 0.0
    assert sending.flush()
    assert receiver.taken == ["0", "1"]


@pytest.mark.parametrize("count", [2, 3, 17, 100])
def test_a_request_that_is_too_large_is_halved(
    sending: Sending, spans: list[Any], count: int
) -> None:
    """It is sent in halves until the receiver takes them; a single item that is too large is lost."""
    sending.receiver.largest = 3
    sending.put(spans[:count])
    assert sending.flush()
    assert sorted(sending.receiver.taken, key=int) == [str(number) for number in range(count)]
    sending.receiver.largest = 0
    sending.put(spans[:1])
    assert sending.flush()
    assert sending.lost == {"too_large": 1}


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_sender_that_raises_loses_its_batch_only(
    sending: Sending, spans: list[Any], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Whatever the sender raises costs its batch and nothing else."""

    def broken(body: bytes) -> SendOutcome:
        raise error

    sending.put(spans[:1])
    with monkeypatch.context() as patch:
        patch.setattr(sending.receiver, "send", broken)
        assert sending.flush()
    sending.put(spans[1:2])
    assert sending.flush()
    assert (sending.receiver.taken, sending.lost) == (["1"], {"rejected": 1})


def test_an_item_that_cannot_be_encoded_costs_itself(sending: Sending, spans: list[Any]) -> None:
    """One item that the encoder refuses, or that no memory has room for, is counted, and its
    neighbours arrive.
    """
    sending.put(spans[:1], MEMORY.encoded_batches.max_bytes + 1)
    sending.put([*spans[:5], object(), *spans[5:10]])
    assert sending.flush()
    assert sorted(sending.receiver.taken, key=int) == [str(number) for number in range(10)]
    assert sending.lost == {"no_room": 1, "unencodable": 1}


def test_its_thread_sends_and_ends(spans: list[Any], no_thread_left: None) -> None:
    """The first item starts the thread, a well filled queue wakes it, closing ends it, and what
    comes later is lost.
    """
    lost: list[tuple[str, str, int]] = []
    receiver = Receiver()
    exporter = Exporter(lambda *loss: lost.append(loss))
    exporter.add(sdk_signal("TRACES"), receiver)
    for span in spans * 2:
        exporter.put("TRACES", span, 1_000)
    assert receiver.begun.wait(10)
    exporter.close()
    assert len(receiver.taken) == 600
    exporter.put("TRACES", spans[0], 1_000)
    assert lost == [("traces", "shutdown", 1)]


@pytest.mark.slow
def test_new_series_are_collected_before_the_next_export() -> None:
    """The first collection is soon after the start, the next one when there is new to show and five
    seconds are over.
    """
    collected = threading.Semaphore(0)
    exporter = Exporter(lambda signal, reason, count: None)
    exporter.collect_with(collected.release, 3_600.0)
    try:
        assert collected.acquire(timeout=30.0)
        exporter.collect_soon()
        assert collected.acquire(timeout=30.0)
        assert not collected.acquire(blocking=False), "once"
    finally:
        exporter.close()
