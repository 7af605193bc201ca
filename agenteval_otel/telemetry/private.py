"""Private providers, where the application has none of its own, and their exporter.

The only module that meets the SDK.

The providers register no exit handlers: the SDK's may take 30 s. Its batch processors and exporters
drop a batch after ten seconds without a receiver, discard the result, and take CPU time from the
host's threads: ours does not.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from opentelemetry.context import (
    _SUPPRESS_INSTRUMENTATION_KEY,
    Context,
    attach,
    detach,
    set_value,
)
from opentelemetry.sdk._logs import LogRecordLimits
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from agenteval_otel.components.retry import Entry, RetryQueue
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY, MemoryPart
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.telemetry.messages import (
    INTERNAL,
    Encoder,
    EventEncoder,
    EventMessages,
    MetricMessages,
    SpanMessages,
    SumDeltas,
    envelope_of,
    fill_attributes,
    fill_links,
    fill_place,
    fill_status,
    size_of,
)
from agenteval_otel.telemetry.metrics import OF_PROCESS
from agenteval_otel.telemetry.spans import ADDED_AT_END, OwnTracerProviders
from agenteval_otel.telemetry.target import (
    OtlpTarget,
    RequestSender,
    SendOutcome,
    Signal,
    exemplar_filter,
    metrics_temporality,
    positive,
)

_METRICS_EVERY_MS = 60_000.0
_FIRST_METRICS_S = 1.0
"""Prometheus counts growth from a counter's first sample on: it should hold few results."""
_LEAST_BETWEEN_S = 5.0
"""Between collections for series that are new: names from outside may bring them again and again."""
_EAGER_ITEMS = 512
_REST_MAX_S = 0.1
_BATCH_ITEMS = 128
_BATCH_BYTES = 1024 * 1024
_FIRST_RETRY_S = 1.0

OnOver = Callable[[Sequence[str], "str | None"], object]


def private_provider(
    signal: str,
    target: OtlpTarget,
    exporter: Exporter,
    resource: Resource | None = None,
    sums: SumDeltas | None = None,
) -> Any:
    """Build a provider of one signal that emits to the exporter.

    Of traces these are two (`OwnTracerProviders`). Without a resource it takes the one from the
    environment. `sums` remember what an earlier provider of metrics has exported.
    """
    loaded = Signal(signal)
    exporter.add(loaded, target.sender(loaded))
    resource = resource or own_resource()
    if signal == "TRACES":
        return _tracer_providers(loaded, exporter, resource)
    if signal == "LOGS":
        return _event_provider(loaded, exporter, resource)
    return _meter_provider(loaded, exporter, resource, sums or SumDeltas(OF_PROCESS))


def _tracer_providers(signal: Signal, exporter: Exporter, resource: Resource) -> OwnTracerProviders:
    ids = _OwnIds()
    agents = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=ids)
    agents.add_span_processor(_ExportedSpans(exporter))
    limits = SpanLimits()
    put = partial(exporter.put, signal.name)
    evaluations = SpanMessages(agents.sampler, ids, limits, put)
    signal.encode = Encoder(
        envelope_of(signal, resource), signal.records, limits.max_span_attribute_length
    )
    return OwnTracerProviders(agents, evaluations)  # type: ignore[arg-type]


def _event_provider(signal: Signal, exporter: Exporter, resource: Resource) -> EventMessages:
    of_events = LogRecordLimits()
    # Those of log records alone are newer than the SDK's other limits.
    most = getattr(of_events, "max_log_record_attributes", of_events.max_attributes)
    longest = getattr(of_events, "max_log_record_attribute_length", of_events.max_attribute_length)
    signal.encode = EventEncoder(envelope_of(signal, resource), signal.records, longest)
    return EventMessages(most, partial(exporter.put, signal.name))


def _meter_provider(
    signal: Signal, exporter: Exporter, resource: Resource, sums: SumDeltas
) -> MetricMessages:
    temporality = metrics_temporality()
    provider = MetricMessages(
        envelope_of(signal, resource),
        signal.records,
        exemplar_filter(),
        is_delta=temporality != "cumulative",
        deltas=sums if temporality == "delta" else None,
    )
    signal.encode = provider.collect
    stream = exporter.streams[signal.name]
    stream.keeps_newest = temporality == "cumulative"
    every_ms = positive(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", ""), _METRICS_EVERY_MS)
    exporter.collect_with(stream.keep_collection, every_ms / 1000)
    return provider


class _SdkSpan:
    """An agent span, which is the SDK's and has ended, until it is filled into its message."""

    def __init__(self, span: ReadableSpan, added_at_end: Mapping[str, Any]) -> None:
        self._span = span
        # A copy, which is a dictionary: the SDK's own mapping reads each value in Python.
        recorded = (span.attributes or {}).copy()  # type: ignore[attr-defined]
        self.attributes: Mapping[str, Any] = {**recorded, **added_at_end}

    def fill(self, message: Any, longest: int | None) -> None:
        """Fill in what the SDK has recorded within its own limits, and what was added at its end."""
        span = self._span
        fill_place(message, span.context, span.parent)
        message.name = span.name
        message.kind = INTERNAL + span.kind.value  # in the interface INTERNAL is 0
        message.start_time_unix_nano = span.start_time
        message.end_time_unix_nano = span.end_time
        fill_attributes(message.attributes, self.attributes, longest)
        message.dropped_attributes_count = span.dropped_attributes
        message.dropped_events_count = span.dropped_events
        message.dropped_links_count = span.dropped_links
        for event in span.events:
            filled = message.events.add(name=event.name, time_unix_nano=event.timestamp)
            fill_attributes(filled.attributes, event.attributes or {})
            filled.dropped_attributes_count = event.dropped_attributes
        fill_links(message, span.links)
        fill_status(message, span.status)


class _ExportedSpans(SpanProcessor):
    """Passes agent spans to the exporter, which `Providers` flushes and closes itself."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._added_at_end: dict[int, Mapping[str, Any]] = {}

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        setattr(span, ADDED_AT_END, self._added_at_end)

    def on_end(self, span: Any) -> None:
        if span.context.trace_flags.sampled:
            ended = _SdkSpan(span, self._added_at_end.pop(span.context.span_id, {}))
            self._exporter.put("TRACES", ended, size_of(ended.attributes))


class _OwnIds(IdGenerator):
    """Generates ids with a generator of our own.

    The SDK's generator moves the host's `random`, and a host that seeds it would repeat ids.
    """

    def __init__(self) -> None:
        self._random = Random()
        reset_in_child(self._seed)
        self._seed()

    def _seed(self) -> None:  # once: a system call for each id would release the GIL
        self._random.seed(os.urandom(32))

    def generate_span_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._random.getrandbits(128) or 1


def own_resource() -> Resource:
    """Return the resource of a process whose application has none, from the environment."""
    resource = Resource({"host.name": socket.gethostname(), "service.instance.id": _instance_id()})
    try:
        return resource.merge(Resource.create())
    except RuntimeError:
        # At the process's exit the SDK's detectors cannot start threads: the variables alone.
        return resource.merge(Resource({"service.name": "unknown_service"})).merge(
            OTELResourceDetector().detect()
        )


@cache
def _instance_id() -> str:
    """Return one id for each process, including a forked child."""
    return str(uuid.uuid4())


reset_in_child(_instance_id.cache_clear)


class Exporter:
    """Holds a bounded queue for each signal, and one worker at low duty.

    The worker looks at the queues once a second or more often.

    `on_lost` gets, on any thread, the signal, one of `semconv.LOST_REASONS` and how many items will
    never be sent.

    It rests between two steps, but for a process that has no application's threads.

    Args:
        memory: Limits what waits.
        max_age_s: How long a batch is retried. By default as long as there is room.
        on_over: Receives the owners of items (by the signal's `owner_of`, if it has one), and None
            if the items were delivered, else the reason.
    """

    def __init__(
        self,
        on_lost: Callable[[str, str, int], object],
        *,
        memory: MemoryPart = MEMORY.encoded_batches,
        max_age_s: float = math.inf,
        on_over: OnOver | None = None,
    ) -> None:
        self.streams: dict[str, _Stream] = {}
        self._on_lost = on_lost
        self._memory = memory
        self._max_age_s = max_age_s
        self._on_over = on_over
        self._collect: Callable[[], None] | None = None
        self._collect_every_s = self._collect_at = self._collected_at = 0.0
        self._exporting = threading.Lock()
        idle_s = 1.0 if PROCESS.rests else 0.1
        self._worker = Worker(
            "agenteval-export", max_waiting=64, idle_s=idle_s, on_idle=self._export_all, stays=True
        )
        self._closed = False
        self._is_of_parent = False
        reset_in_child(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        self._is_of_parent = True

    def __repr__(self) -> str:
        return f"<Exporter {' '.join(sorted(self.streams)).lower()}>"

    def add(self, signal: Signal, sender: RequestSender) -> None:
        self.streams[signal.name] = _Stream(
            signal,
            sender,
            self._on_lost,
            self._drop_oldest,
            self._memory,
            self._max_age_s,
            self._on_over,
        )

    def collect_with(self, collect: Callable[[], None], every_s: float) -> None:
        self._collect = collect
        self._collect_every_s = every_s
        self._collect_at = time.monotonic() + min(every_s, _FIRST_METRICS_S)
        self._worker.start()

    def collect_soon(self) -> None:
        """Collect one second from now, but not twice within five seconds. Any thread."""
        soon = time.monotonic() + _FIRST_METRICS_S
        self._collect_at = min(self._collect_at, max(soon, self._collected_at + _LEAST_BETWEEN_S))

    def put(self, name: str, item: object, size_bytes: int) -> None:
        """Take an item of a signal.

        Never blocks. In a forked child nothing is taken, because it has providers of its
        own.
        """
        if self._is_of_parent:
            return
        stream = self.streams[name]
        if self._closed:
            self._on_lost(stream.name, "shutdown", 1)
            return
        stream.put(item, size_bytes)
        if self._closed:  # a close came between
            stream.drop_all("shutdown")
        elif not self._worker.has_thread:
            # at the interpreter's exit none starts: a flush exports what waits
            self._worker.start()
        elif len(stream) >= _EAGER_ITEMS and not self._worker.waiting:
            self._worker.submit(self._export_all)

    def flush(self, *, with_metrics: bool = True) -> bool:
        """Send on this thread what waits now, without rests.

        Return False if something of it still waits.
        """
        if with_metrics:
            self._collect_now()
        streams = [
            stream
            for name, stream in list(self.streams.items())
            if with_metrics or name != "METRICS"
        ]
        return all([self._flush(stream) for stream in streams])

    def close(self) -> None:
        """Take nothing more, send what waits as long as the receiver takes it, and end the thread."""
        if self._is_of_parent:
            return
        self._closed = True
        self._worker.close(0.0)
        self.flush()
        for stream in self.streams.values():
            stream.drop_all("shutdown")
            stream.sender.close()

    def abandon(self) -> None:
        """Take nothing more, and send nothing more: what waits is lost, also what is under way."""
        self._closed = True
        self._worker.close(0.0)
        for stream in self.streams.values():
            stream.drop_all("shutdown")
            stream.drop_sending("shutdown")
            stream.sender.close()

    def _flush(self, stream: _Stream) -> bool:
        items = len(stream)
        while items > 0:
            with self._exporting:
                items -= stream.encode_next()
        end_s = time.monotonic()
        while True:
            with self._exporting:  # what the thread was sending is sent now, or waits again
                oldest_s = stream.oldest_s()
                if oldest_s is None or oldest_s > end_s:
                    return True
                # A flush obeys the receiver's word alone, not our own back-off.
                if time.monotonic() < stream.queue.not_before_s or not stream.send_next():
                    return False

    def _collect_now(self) -> None:
        if self._collect is None:
            return
        self._collected_at = time.monotonic()
        self._collect_at = self._collected_at + self._collect_every_s
        try:
            with self._exporting:
                self._collect()
        except Exception as error:
            log.warning("export_failed", part="metrics", status=type(error).__name__)

    def _export_all(self) -> None:
        """Encode what waits now, with rests, and send it as far as the receiver takes it."""
        if not self._closed and time.monotonic() >= self._collect_at:
            self._collect_now()
        for stream in list(self.streams.values()):
            # later items are for the next round: they would make small batches
            items = len(stream)
            is_sending = True
            while (items > 0 or is_sending) and not self._closed:
                began = time.thread_time()
                with self._exporting:
                    if items > 0:
                        items -= stream.encode_next()
                    is_sending = False
                    if stream.oldest_s() is not None and not stream.is_waiting():
                        is_sending = stream.send_next()
                if PROCESS.rests:
                    time.sleep(min(_REST_MAX_S, time.thread_time() - began))

    def _drop_oldest(self) -> bool:
        """Make room.

        Cumulative metrics stay, because the newest replace them anyway. Return whether
        something was dropped.
        """
        others = [stream for stream in list(self.streams.values()) if not stream.keeps_newest]
        others.sort(key=lambda stream: stream.oldest_s() or time.monotonic())
        return any(stream.drop_oldest("no_room") for stream in others)


class _Batch(NamedTuple):
    """Holds an encoded request, the number of its items, and whose they are.

    The request is packed while its receiver is away.
    """

    data: bytes
    item_count: int
    owners: tuple[str, ...] = ()
    is_packed: bool = False

    def packed(self) -> _Batch:
        data = self.data if self.is_packed else zlib.compress(self.data, 1)  # OTLP repeats itself
        return self._replace(data=data, is_packed=True)

    def request(self) -> bytes:
        return zlib.decompress(self.data) if self.is_packed else self.data


class _Stream:
    """Holds one signal's items that wait to be encoded, then a queue of encoded batches.

    Both are bounded together by a part of `MEMORY`.

    `put` and the drop methods are for any thread, the rest for one at a time. `make_room` drops the
    oldest of all.
    """

    def __init__(
        self,
        signal: Signal,
        sender: RequestSender,
        on_lost: Callable[[str, str, int], object],
        make_room: Callable[[], bool],
        memory: MemoryPart,
        max_age_s: float,
        on_over: OnOver | None,
    ) -> None:
        self.name = signal.name.lower()
        self.sender = sender
        self._signal = signal
        self._on_lost = on_lost
        self._make_room = make_room
        self._memory = memory
        self._on_over = on_over
        self._items: deque[tuple[Any, int]] = deque()
        self.queue: RetryQueue[_Batch] = RetryQueue(
            memory, max_age_s=max_age_s, first_wait_s=_FIRST_RETRY_S
        )
        self.keeps_newest = False  # what waits is replaced, as cumulative metrics are

    def __len__(self) -> int:
        return len(self._items)

    def oldest_s(self) -> float | None:
        """Return when the oldest batch was encoded, by `time.monotonic`."""
        oldest = self.queue.oldest()
        return None if oldest is None else oldest.added_s

    def is_waiting(self) -> bool:  # for the next try
        return time.monotonic() < self.queue.retry_at_s()

    def put(self, item: object, size_bytes: int) -> None:
        """Take an item. If there is no room, the oldest is dropped. Never blocks."""
        while not self._memory.reserve(size_bytes):
            if not self._make_room():
                self._lose("no_room", 1, self._owners_of([item]))
                return
        self._items.append((item, size_bytes))

    def keep_collection(self, item: object = ()) -> None:
        """Take a collection of metrics, if it shows any. A cumulative one replaces all that waits."""
        batches = [batch for batch in self._encoded(item) if batch.item_count]
        if not batches:
            return
        if self.keeps_newest:
            self.queue.release(self.queue.remove_all(also_sending=False))
        self._keep(batches)

    def encode_next(self) -> int:
        """Encode the oldest items, as many as fit into a batch. Return their number, at least 1."""
        items: list[Any] = []
        size = 0
        with contextlib.suppress(IndexError):  # another thread drops the oldest
            while len(items) < _BATCH_ITEMS and (
                not items or size + self._items[0][1] <= _BATCH_BYTES
            ):
                item, size_bytes = self._items.popleft()
                items.append(item)
                size += size_bytes
        batches = self._encoded(items) if items else []
        self._memory.release(size)
        self._keep(batches)
        return max(1, len(items))

    def send_next(self) -> bool:
        """Send the oldest batch. Return False if it has to wait. A retry sends the same bytes."""
        taken = self.queue.take(1)
        if not taken:
            return True
        (entry,) = taken
        batch = entry.value
        data = batch.request()
        delivery = self._send(data)
        if not self.queue.take_back(taken):  # dropped meanwhile
            return True
        self.queue.release(taken)
        if delivery.retryable:
            self._back_off(delivery)
            self._keep([batch], instead_of=entry)
            self._drop(self.queue.remove_expired(), "expired")
            return False
        self.queue.reached()
        if delivery.too_large and batch.item_count > 1:
            self._keep(self._halves(data, batch), instead_of=entry)
            return True
        lost = min(delivery.rejected, batch.item_count) if delivery.delivered else batch.item_count
        if lost:
            log.warning("export_failed", part=self.name, status=delivery.status, lost=lost)
            self._lose("too_large" if delivery.too_large else "rejected", lost, batch.owners[:lost])
        if self._on_over is not None and lost < batch.item_count:
            self._on_over(batch.owners[lost:], None)
        return True

    def drop_oldest(self, reason: str) -> bool:
        """Drop the oldest batch, or the oldest item if there is no batch.

        Return False if nothing waits.
        """
        oldest = self.queue.remove_oldest()
        if oldest:
            self._drop(oldest, reason)
            return True
        with contextlib.suppress(IndexError):  # another thread takes it
            item, size_bytes = self._items.popleft()
            self._memory.release(size_bytes)
            self._lose(reason, 1, self._owners_of([item]))
            return True
        return False

    def drop_all(self, reason: str) -> None:
        while self.drop_oldest(reason):
            pass

    def drop_sending(self, reason: str) -> None:
        """Count the batches as lost whose reply has not arrived yet."""
        self._drop(self.queue.remove_all(also_sending=True), reason)

    def _drop(self, entries: Sequence[Entry[_Batch]], reason: str) -> None:
        for entry in entries:
            self._lose(reason, entry.value.item_count, entry.value.owners)
        self.queue.release(entries)

    def _halves(self, data: bytes, batch: _Batch) -> list[_Batch]:
        middle = batch.item_count // 2
        first, second = self._signal.halves(data, batch.item_count)
        return [
            _Batch(*first, batch.owners[:middle]),
            _Batch(*second, batch.owners[middle:]),
        ]

    def _owners_of(self, items: Sequence[Any]) -> tuple[str, ...]:
        owner_of = self._signal.owner_of
        return () if owner_of is None else tuple(map(owner_of, items))

    def _lose(self, reason: str, count: int, owners: Sequence[str]) -> None:
        self._on_lost(self.name, reason, count)
        if self._on_over is not None:
            self._on_over(owners, reason)

    def _encoded(self, items: Any) -> list[_Batch]:
        """Return the items as requests. An item that cannot be encoded is lost alone."""
        try:
            request = self._signal.encode(items)
            owners = self._owners_of(items)
            return [_Batch(request.SerializeToString(), self._signal.count(request), owners)]
        except Exception as error:
            if isinstance(items, list) and len(items) > 1:
                middle = len(items) // 2
                return self._encoded(items[:middle]) + self._encoded(items[middle:])
            log.warning("export_failed", part=self.name, status=type(error).__name__, lost=1)
            self._lose("unencodable", 1, self._owners_of(items))
            return []

    def _keep(self, batches: list[_Batch], *, instead_of: Entry[_Batch] | None = None) -> None:
        """Queue batches, if necessary by dropping the oldest. What still does not fit is lost."""
        in_order = batches if instead_of is None else reversed(batches)
        for made in in_order:
            batch = made.packed() if self.is_waiting() else made
            while self.queue.add(batch, len(batch.data), instead_of=instead_of) is None:
                if not self._make_room():
                    self._lose("no_room", batch.item_count, batch.owners)
                    break

    def _back_off(self, delivery: SendOutcome) -> None:
        self.queue.back_off(delivery.wait_s)
        facts: dict[str, Any] = {"waiting_batches": len(self.queue) + 1, **delivery.fix()}
        log.warning("export_failed", part=self.name, status=delivery.status, **facts)

    def _send(self, data: bytes) -> SendOutcome:
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # exports are not traced
        try:
            return self.sender.send(data)
        except (
            BaseException
        ) as error:  # also SystemExit: it would end the thread, and with it every export
            return SendOutcome(False, type(error).__name__)
        finally:
            detach(token)
