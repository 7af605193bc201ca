"""What waits for export: encoded once, bounded, split where it is too large, sent again as the same bytes, counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.telemetry.exporter import Exporter
from agenteval_otel.telemetry.senders import Delivery, load_signal

DELIVERED, AWAY = Delivery(True, "200"), Delivery(False, "503", retryable=True)


class Receiver:
    """A sender whose other end takes what it is set to take."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.taken: list[str] = []
        self.largest = 10_000
        self.delivery = DELIVERED
        self.begun = threading.Event()

    def send(self, body: bytes) -> Delivery:
        """One request."""
        self.begun.set()
        self.asked.append(body)
        names = names_of(body)
        if len(names) > self.largest:
            return Delivery(False, "413", too_large=True)
        if self.delivery.delivered:
            self.taken += names
        return self.delivery

    def close(self) -> None:
        """Nothing to close."""


def names_of(body: bytes) -> list[str]:
    """The names of a request's spans, in order."""
    return [
        span.name for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans for span in scope.spans
    ]  # fmt: skip


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


@pytest.fixture
def receiver() -> Receiver:
    """A receiver that takes everything."""
    return Receiver()


@pytest.fixture
def lost() -> dict[tuple[str, str], int]:
    """What was lost, by signal and reason."""
    return {}


@pytest.fixture
def exporter(
    receiver: Receiver, lost: dict[tuple[str, str], int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Exporter]:
    """An exporter of spans without a thread, which sends when it is flushed."""

    def on_lost(signal: str, reason: str, count: int) -> None:
        lost[signal, reason] = lost.get((signal, reason), 0) + count

    made = Exporter(on_lost)
    made.add(load_signal("TRACES"), receiver)
    monkeypatch.setattr(made._worker, "start", lambda: True)
    yield made
    made.close()
    assert MEMORY.encoded_batches.used_bytes == 0


def numbers(count: int) -> set[str]:
    """The names of the first spans."""
    return {str(number) for number in range(count)}


def test_in_small_batches(exporter: Exporter, receiver: Receiver, spans: list[Any]) -> None:
    """Everything is sent once, a bounded number of spans at a time."""
    for span in spans:
        exporter.put("TRACES", span, 1_000)
    assert exporter.flush()
    assert len(receiver.taken) == 300
    assert set(receiver.taken) == numbers(300)
    assert [len(names_of(body)) for body in receiver.asked] == [128, 128, 44]


def test_large_items_go_by_few(exporter: Exporter, receiver: Receiver, spans: list[Any]) -> None:
    """A batch is bounded by bytes too; an item that is larger than that goes alone."""
    for span in spans[:5]:
        exporter.put("TRACES", span, 500_000)
    exporter.put("TRACES", spans[5], 5_000_000)
    assert exporter.flush()
    assert [len(names_of(body)) for body in receiver.asked] == [2, 2, 1, 1]


def test_a_retry_sends_the_same_bytes(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int]
) -> None:
    """A batch that may be sent again waits, packed, and the next flush sends the same bytes; nothing is lost."""
    for span in spans[:100]:
        exporter.put("TRACES", span, 1_000)
    receiver.delivery = AWAY
    assert not exporter.flush()
    first = receiver.asked[0]
    assert 0 < MEMORY.encoded_batches.used_bytes < len(first)
    receiver.delivery = DELIVERED
    assert exporter.flush()
    assert receiver.asked == [first, first]
    assert lost == {}


def test_who_asks_to_wait_is_not_asked(exporter: Exporter, receiver: Receiver, spans: list[Any]) -> None:
    """A receiver that names a time is not asked before it, by no flush; what comes meanwhile waits too."""
    exporter.put("TRACES", spans[0], 1_000)
    receiver.delivery = Delivery(False, "429", retryable=True, wait_s=60.0)
    assert not exporter.flush()
    exporter.put("TRACES", spans[1], 1_000)
    receiver.delivery = DELIVERED
    assert not exporter.flush()
    assert len(receiver.asked) == 1
    exporter._streams["TRACES"].not_before = 0.0
    assert exporter.flush()
    assert receiver.taken == ["0", "1"]


def test_too_large_is_halved(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int]
) -> None:
    """A request that is too large for the receiver is sent in halves; a single item that is too large is lost."""
    receiver.largest = 3
    for span in spans[:25]:
        exporter.put("TRACES", span, 1_000)
    assert exporter.flush()
    assert len(receiver.taken) == 25
    assert set(receiver.taken) == numbers(25)
    receiver.largest = 0
    exporter.put("TRACES", spans[0], 1_000)
    assert exporter.flush()
    assert lost == {("traces", "too_large"): 1}


@pytest.mark.parametrize(
    ("delivery", "count"), [(Delivery(False, "400"), 10), (Delivery(True, "200", rejected=3), 3)],
    ids=["refused", "partial success"],
)  # fmt: skip
def test_what_is_refused_is_lost_once(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int], delivery: Delivery,
    count: int,
) -> None:  # fmt: skip
    """What the receiver refuses for good is not sent again, and counted."""
    for span in spans[:10]:
        exporter.put("TRACES", span, 1_000)
    receiver.delivery = delivery
    assert exporter.flush()
    assert exporter.flush()
    assert len(receiver.asked) == 1
    assert lost == {("traces", "rejected"): count}


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_sender_that_raises_loses_its_batch_only(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int],
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException],
) -> None:  # fmt: skip
    """Whatever the sender raises costs its batch and nothing else."""

    def broken(body: bytes) -> Delivery:
        raise error

    exporter.put("TRACES", spans[0], 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(receiver, "send", broken)
        assert exporter.flush()
    exporter.put("TRACES", spans[1], 1_000)
    assert exporter.flush()
    assert (receiver.taken, lost) == (["1"], {("traces", "rejected"): 1})


def test_an_item_that_cannot_be_encoded_costs_itself(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int]
) -> None:
    """One item that the encoder refuses is counted, and its neighbours arrive."""
    for item in (*spans[:5], object(), *spans[5:10]):
        exporter.put("TRACES", item, 1_000)
    assert exporter.flush()
    assert set(receiver.taken) == numbers(10)
    assert lost == {("traces", "unencodable"): 1}


def test_the_oldest_goes_where_there_is_no_room(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Beyond the bound the oldest batches go, then the oldest items; each item is counted, and the newest arrive."""
    monkeypatch.setattr(MEMORY.encoded_batches, "max_bytes", 60_000)
    receiver.delivery = AWAY
    for start in range(0, 300, 50):
        for span in spans[start : start + 50]:
            exporter.put("TRACES", span, 1_100)
        assert not exporter.flush()
        assert MEMORY.encoded_batches.used_bytes <= 60_000
    receiver.delivery = DELIVERED
    assert exporter.flush()
    assert lost == {("traces", "no_room"): 300 - len(receiver.taken)}
    assert 0 < len(receiver.taken) < 300
    assert "299" in receiver.taken
    assert "0" not in receiver.taken


@pytest.mark.parametrize(
    ("count", "max_bytes"),
    [(20_000, 512 * 1024), pytest.param(600_000, 32 * 1024 * 1024, marks=pytest.mark.full)],
    ids=["shortened", "ten minutes at 500 answers a second"],
)  # fmt: skip
def test_ten_minutes_of_outage_stay_within_the_bound(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int],
    monkeypatch: pytest.MonkeyPatch, count: int, max_bytes: int,
) -> None:  # fmt: skip
    """Two spans an answer wait through an outage within their bound, and arrived and lost ones add up to all."""
    monkeypatch.setattr(MEMORY.encoded_batches, "max_bytes", max_bytes)
    receiver.delivery = AWAY
    for start in range(0, count, 250):
        for number in range(start, start + 250):
            exporter.put("TRACES", spans[number % 300], 1_500)
        assert not exporter.flush()
        receiver.asked.clear()
        assert MEMORY.encoded_batches.used_bytes <= max_bytes
    receiver.delivery = DELIVERED
    assert exporter.flush()
    assert len(receiver.taken) + lost.get(("traces", "no_room"), 0) == count
    assert set(lost) <= {("traces", "no_room")}


def test_an_item_that_never_fits_is_counted(
    exporter: Exporter, receiver: Receiver, spans: list[Any], lost: dict[tuple[str, str], int]
) -> None:
    """An item larger than the whole bound is lost at once, and does not keep the caller."""
    exporter.put("TRACES", spans[0], MEMORY.encoded_batches.max_bytes + 1)
    assert lost == {("traces", "no_room"): 1}
    assert exporter.flush()
    assert receiver.asked == []


def test_its_thread_sends_and_ends(receiver: Receiver, spans: list[Any], no_thread_left: None) -> None:
    """The first item starts the thread, a well filled queue wakes it, closing ends it, and what comes later is lost."""
    lost: list[tuple[str, str, int]] = []
    exporter = Exporter(lambda *loss: lost.append(loss))
    exporter.add(load_signal("TRACES"), receiver)
    for _ in range(2):
        for span in spans:
            exporter.put("TRACES", span, 1_000)
    assert receiver.begun.wait(10)
    exporter.close()
    assert len(receiver.taken) == 600
    exporter.put("TRACES", spans[0], 1_000)
    assert lost == [("traces", "shutdown", 1)]


@pytest.mark.parametrize("count", [2, 3, 17, 300])
def test_halves_hold_everything_once(spans: list[Any], count: int) -> None:
    """The two halves of a request hold its spans once each, with their scopes, and differ in size by one at most."""
    signal = load_signal("TRACES")
    data = signal.encode(spans[:count]).SerializeToString()
    first, second = (names_of(part) for part in signal.halves(data, count))
    assert sorted(first + second, key=int) == sorted(numbers(count), key=int)
    assert abs(len(first) - len(second)) <= 1
