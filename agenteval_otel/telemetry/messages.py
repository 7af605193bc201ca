"""OTLP messages, filled directly.

They are used instead of the SDK's providers if the application has none, with our own exporter.

`SpanMessages`, `EventMessages` and `MetricMessages` implement the part of the providers' interface
that the emitter uses, with the SDK's sampler and limits, and produce the same messages as the SDK
(tests/telemetry/test_messages.py). Spans and events stay plain values until a whole batch is filled
at once, measurements until they are collected.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import ATOMS, kept_bytes
from agenteval_otel.runtime.version import scope_version
from agenteval_otel.semconv import SCHEMA_URL, SCOPE_NAME

if TYPE_CHECKING:
    from opentelemetry._logs import SeverityNumber
    from opentelemetry.proto.common.v1 import common_pb2
    from opentelemetry.util import types
    from opentelemetry.util.types import AttributeValue

    from agenteval_otel.telemetry.target import Signal

Put = Callable[[Any, int], object]
"""Takes what is ready to be encoded, and about how much memory it takes."""

INTERNAL: Final = 1  # as a kind of spans
_HAS_REMOTE: Final = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_IS_REMOTE: Final = _HAS_REMOTE | int(SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
_RANDOM: Final = 0x02  # of the flags of W3C's trace context, level 2: handed on
_UNSET: Final = Status()
_ITEM_BYTES: Final = 1_024
_NO_ATTRIBUTES: Final[Mapping[str, Any]] = {}


class Fillable(Protocol):
    """A span or an event that waits for its message."""

    def fill(self, message: Any, longest: int | None) -> None: ...


def envelope_of(signal: Signal, resource: Any) -> Any:
    """Return a request of a signal without records: the resource, and our scope."""
    request = signal.request()
    group = getattr(request, f"resource_{signal.kind}").add()
    group.schema_url = getattr(resource, "schema_url", "")  # the application's may be of any class
    fill_attributes(group.resource.attributes, resource.attributes)
    scope = getattr(group, f"scope_{signal.kind}").add(schema_url=SCHEMA_URL)
    scope.scope.name = SCOPE_NAME
    scope.scope.version = scope_version()
    return request


class Encoder:
    """Encodes a batch below one resource and one scope, which stand in `envelope`.

    Args:
        envelope: A request without records.
        records_of: Gives its one list of records.
        longest: Texts of attributes are cut to so many characters. None: they are not cut.
    """

    def __init__(
        self, envelope: Any, records_of: Callable[[Any], Any], longest: int | None
    ) -> None:
        self._envelope = envelope
        self._records_of = records_of
        self._longest = longest

    def __call__(self, items: Sequence[Fillable]) -> Any:
        request = self._new_request()
        add = self._records_of(request).add
        longest = self._longest
        for item in items:
            item.fill(add(), longest)
        return request

    def _new_request(self) -> Any:
        request = type(self._envelope)()
        request.CopyFrom(self._envelope)
        return request


class SpanMessages:
    """A provider of spans, and its tracer.

    Args:
        sampler: The SDK's, by the environment's variables.
        ids: Generates ids.
        limits: The SDK's limits of a span.
        put: Takes spans that have ended.
    """

    def __init__(self, sampler: Any, ids: Any, limits: Any, put: Put) -> None:
        self._sampler = sampler
        self._ids = ids
        self._put = put
        self._limits = limits

    def __repr__(self) -> str:
        return f"<SpanMessages {self._sampler!r}>"

    def get_tracer(self, *_: Any, **__: Any) -> SpanMessages:
        return self  # the envelope has the scope

    def shutdown(self) -> None: ...

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        start_time: int | None = None,
    ) -> NonRecordingSpan:
        """Start a span, which is exported when it ends.

        Return a non-recording span if it is not sampled.
        """
        parent = trace.get_current_span(context).get_span_context()
        trace_id = parent.trace_id if parent.is_valid else self._ids.generate_trace_id()
        sampled = self._sampler.should_sample(
            context, trace_id, name, SpanKind.INTERNAL, attributes, links
        )
        is_sampled = sampled.decision.is_sampled()
        span_context = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_state=sampled.trace_state,
            trace_flags=TraceFlags((parent.trace_flags & _RANDOM) | int(is_sampled)),
        )
        if not is_sampled:
            return NonRecordingSpan(span_context)
        limits = self._limits
        span = MessageSpan(span_context, limits, self._put)
        span.name = name
        span.start_ns = time.time_ns() if start_time is None else start_time
        span.parent = parent if parent.is_valid else None
        if links:
            valid = [link for link in links if link.context.is_valid or link.context.trace_state]
            most = limits.max_links
            span.dropped_links = 0 if most is None else max(0, len(valid) - most)
            span.links = valid[span.dropped_links :]
        sampled_attributes = sampled.attributes or {}
        span.dropped = _add(span.attributes, sampled_attributes, limits.max_span_attributes)
        return span


class MessageSpan(NonRecordingSpan):
    """Holds a span of the emitter's.

    Of what evaluators may do to it, attributes, name and status are kept. Events, exceptions and
    links are not, and a log line says so. Any thread.
    """

    def __init__(self, context: SpanContext, limits: Any, put: Put) -> None:
        super().__init__(context)
        self._limits = limits  # where spans of the SDK have them
        self._put = put
        self.name = ""
        self.start_ns = 0
        self.end_ns: int | None = None
        self.parent: SpanContext | None = None
        self.links: Sequence[Link] = ()
        self.attributes: dict[str, Any] = {}
        self.dropped = self.dropped_links = 0
        self.status = _UNSET
        self._lock = threading.Lock()  # evaluators on other threads have it as their current span

    def is_recording(self) -> bool:
        return self.end_ns is None

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        # As the SDK does, so that a list that changes later changes nothing here.
        taken = {
            name: tuple(value) if type(value) is list else value
            for name, value in attributes.items()
        }
        with self._lock:
            if self.end_ns is None:
                self.dropped += _add(self.attributes, taken, self._limits.max_span_attributes)

    def update_name(self, name: str) -> None:
        if self.end_ns is None:
            self.name = name

    def add_link(self, context: SpanContext, attributes: types.Attributes = None) -> None:
        log.warning("span_event_left_out", part="traces")

    def add_event(
        self, name: str, attributes: types.Attributes = None, timestamp: int | None = None
    ) -> None:
        log.warning("span_event_left_out", part="traces")

    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        log.warning("span_event_left_out", part="traces")

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        new = status if isinstance(status, Status) else Status(status, description)
        # As the SDK does: OK is final, and UNSET changes nothing.
        has_ended = self.end_ns is not None
        is_final = self.status.status_code is StatusCode.OK
        if not (has_ended or is_final or new.is_unset):
            self.status = new

    def end(self, end_time: int | None = None) -> None:
        with self._lock:
            if self.end_ns is not None:
                return
            self.end_ns = time.time_ns() if end_time is None else end_time
        self._put(self, size_of(self.attributes))

    def fill(self, message: Any, longest: int | None) -> None:
        fill_place(message, self.get_span_context(), self.parent)
        message.name = self.name
        message.kind = INTERNAL
        message.start_time_unix_nano = self.start_ns
        message.end_time_unix_nano = self.end_ns
        fill_attributes(message.attributes, self.attributes, longest)
        message.dropped_attributes_count = self.dropped
        message.dropped_links_count = self.dropped_links
        fill_links(message, self.links)
        fill_status(message, self.status)


def fill_place(message: Any, own: SpanContext, parent: SpanContext | None) -> None:
    """Fill in the ids of a span and of the one above it."""
    message.trace_id = own.trace_id.to_bytes(16)
    message.span_id = own.span_id.to_bytes(8)
    message.flags = _flags_of(parent)
    if parent is not None:
        message.parent_span_id = parent.span_id.to_bytes(8)
    if own.trace_state:
        message.trace_state = ",".join(f"{key}={value}" for key, value in own.trace_state.items())


def fill_links(message: Any, links: Sequence[Link]) -> None:
    """Fill in the links of a span."""
    for link in links:
        filled = message.links.add(
            trace_id=link.context.trace_id.to_bytes(16),
            span_id=link.context.span_id.to_bytes(8),
            flags=_flags_of(link.context),
        )
        fill_attributes(filled.attributes, link.attributes or {})
        filled.dropped_attributes_count = link.dropped_attributes


def fill_status(message: Any, status: Status) -> None:
    """Fill in the status of a span."""
    message.status.SetInParent()  # the SDK's encoder always writes it
    message.status.code = status.status_code.value
    if status.description:
        message.status.message = status.description


class EventEncoder(Encoder):
    """Encodes instances of `Event`.

    Attributes that the events of one answer share are filled once, and copied.
    """

    def __call__(self, items: Sequence[Any]) -> Any:
        request = self._new_request()
        add = self._records_of(request).add
        longest = self._longest
        messages: list[Any] = []
        last: Event | None = None
        for event in items:
            message = add()
            if last is not None and event.has_common_of(last):
                message.CopyFrom(messages[-1])
            else:
                event.fill_common(message, longest)
            messages.append(message)
            last = event
        # After all copies: a copy of a message has what is filled in here.
        for event, message in zip(items, messages, strict=True):
            event.fill_own(message, longest)
        return request


class EventMessages:
    """Provides events, and is its own logger. Each event keeps the newest of too many attributes.

    Attributes:
        takes_common: `emit` also takes the attributes that events of one answer have in common.
    """

    takes_common = True

    def __init__(self, max_attributes: int | None, put: Put) -> None:
        self._max_attributes = max_attributes
        self._put = put
        # The last common attributes, and their size. Those of an answer come with each of its events.
        self._measured: tuple[Mapping[str, Any], int] = ({}, 0)

    def __repr__(self) -> str:
        return "<EventMessages>"

    def get_logger(self, *_: Any, **__: Any) -> EventMessages:
        return self

    def shutdown(self) -> None: ...

    def emit(
        self,
        *,
        event_name: str,
        context: Context,
        timestamp: int,
        severity_number: SeverityNumber,
        severity_text: str,
        body: str,
        attributes: Mapping[str, Any],
        common: Mapping[str, Any] = _NO_ATTRIBUTES,
    ) -> None:
        """Emit an event. Its own `attributes` replace `common` ones of the same name."""
        dropped = 0
        most = self._max_attributes
        is_over = most is not None and len(attributes) + len(common) > most
        if is_over or not common.keys().isdisjoint(attributes):
            kept: dict[str, Any] = {}
            dropped = _add(kept, {**common, **attributes}, most)
            attributes = kept
            common = _NO_ATTRIBUTES
        event = Event(
            event_name,
            _span_context_of(context),
            timestamp,
            time.time_ns(),
            severity_number.value,
            severity_text,
            body,
            attributes,
            dropped,
            common,
        )
        measured, common_bytes = self._measured
        if measured is not common:
            common_bytes = values_bytes(common)
            self._measured = common, common_bytes
        self._put(event, size_of(attributes) + common_bytes)


class Event(NamedTuple):
    """Holds an event that waits for its message. Its attributes no longer change.

    Attributes:
        attributes: Its own.
        common: Those that it shares with other events of its answer, which hold the same object.
    """

    name: str
    span_context: SpanContext
    time_ns: int
    observed_ns: int
    severity: int
    severity_text: str
    body: str | None
    attributes: Mapping[str, Any]
    dropped: int = 0
    common: Mapping[str, Any] = _NO_ATTRIBUTES

    def has_common_of(self, other: Event) -> bool:
        """Tell whether `fill_common` gives the same for both."""
        return (
            self.common is other.common
            and self.span_context is other.span_context
            and self.name == other.name
            and self.severity == other.severity
        )

    def fill(self, message: Any, longest: int | None) -> None:
        self.fill_common(message, longest)
        self.fill_own(message, longest)

    def fill_common(self, message: Any, longest: int | None) -> None:
        """Fill in what the events of one answer have in common, which comes first."""
        span_context = self.span_context
        if span_context.trace_id:
            message.trace_id = span_context.trace_id.to_bytes(16)
        if span_context.span_id:
            message.span_id = span_context.span_id.to_bytes(8)
        message.flags = span_context.trace_flags
        message.event_name = self.name
        message.severity_number = self.severity
        message.severity_text = self.severity_text
        fill_attributes(message.attributes, self.common, longest)

    def fill_own(self, message: Any, longest: int | None) -> None:
        """Fill in the rest."""
        if self.body is not None:
            message.body.string_value = self.body
        message.time_unix_nano = self.time_ns
        message.observed_time_unix_nano = self.observed_ns
        fill_attributes(message.attributes, self.attributes, longest)
        message.dropped_attributes_count = self.dropped


Observe = Callable[[CallbackOptions], Sequence[Observation]]
"""Gives what an instrument shows now."""


class MetricMessages:
    """Provides metrics, and is its own meter.

    Args:
        envelope: A request without metrics.
        records_of: Gives its one list of metrics.
        exemplars: Which measurements may be exemplars: the value of
            ``OTEL_METRICS_EXEMPLAR_FILTER``.
        is_delta: Histograms say what was added since the last collection, and are not cumulative.
        deltas: Makes counters say that too.
    """

    def __init__(
        self,
        envelope: Any,
        records_of: Callable[[Any], Any],
        exemplars: str,
        *,
        is_delta: bool = False,
        deltas: SumDeltas | None = None,
    ) -> None:
        self._envelope = envelope
        self._records_of = records_of
        self._exemplars = exemplars
        self._is_delta = is_delta
        self._sums = CumulativeSums()
        self._counters = deltas or self._sums
        self._instruments: list[HistogramMessages | ObservedMessages] = []

    def __repr__(self) -> str:
        return f"<MetricMessages {len(self._instruments)} instruments>"

    def get_meter(self, *_: Any, **__: Any) -> MetricMessages:
        return self  # the envelope has the scope

    def shutdown(self, *_: Any, **__: Any) -> None: ...

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float],
    ) -> HistogramMessages:
        boundaries = explicit_bucket_boundaries_advisory
        histogram = HistogramMessages(name, unit, description, boundaries, self._exemplars)
        histogram.is_delta = self._is_delta
        self._instruments.append(histogram)
        return histogram

    def create_observable_counter(
        self, name: str, callbacks: Sequence[Observe], unit: str = "", description: str = ""
    ) -> None:
        self._instruments.append(
            ObservedMessages(name, unit, description, callbacks, self._counters, only_grows=True)
        )

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[Observe], unit: str = "", description: str = ""
    ) -> None:
        self._instruments.append(ObservedMessages(name, unit, description, callbacks, self._sums))

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[Observe], unit: str = "", description: str = ""
    ) -> None:
        self._instruments.append(ObservedMessages(name, unit, description, callbacks))

    def collect(self, _: object = ()) -> Any:
        """Return a request with what every instrument shows now.

        One that raises is left out. One thread at a time.
        """
        request = type(self._envelope)()
        request.CopyFrom(self._envelope)
        metrics = self._records_of(request)
        for instrument in self._instruments:
            filled = len(metrics)
            try:
                instrument.fill(metrics, time.time_ns())
            except Exception as error:
                del metrics[filled:]
                log.warning("export_failed", part="metrics", status=type(error).__name__)
        return request


class CumulativeSums:
    """Gives sums as they are: all since their series was first seen. One thread at a time."""

    temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE

    def __init__(self) -> None:
        self._began_ns: dict[_SeriesKey, int] = {}

    def point(self, key: _SeriesKey, total: float, now_ns: int) -> tuple[float, int]:
        """Return the value of a series' next point, and the time at which that begins."""
        return total, self._began_ns.setdefault(key, now_ns)


class SumDeltas:
    """Gives sums as what was added since the collection before. One thread at a time.

    Our counters are read from totals, which outlive a provider. The SDK's own deltas begin with the
    whole total for each provider, so what is exported already would be counted again.

    Args:
        of_process: Counters whose totals are the whole process's: what others have exported of them
            before, such as ahead of a reload, is not repeated.
    """

    temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    _exported_here: ClassVar[dict[_SeriesKey, float]] = {}

    def __init__(self, of_process: Collection[str] = ()) -> None:
        self._of_process = of_process
        self._began_ns = time.time_ns()
        self._exported: dict[_SeriesKey, tuple[float, int]] = {}  # a series' total, and its time
        self._before = dict(self._exported_here)

    @classmethod
    def forget(cls) -> None:
        """Begin anew, as a forked child does."""
        cls._exported_here.clear()

    def point(self, key: _SeriesKey, total: float, now_ns: int) -> tuple[float, int]:
        """Return the value of a series' next point, and the time at which that begins."""
        # `_before` has what earlier providers exported of the process's counters.
        exported_before = self._before.pop(key, 0)
        known, known_ns = self._exported.get(key, (exported_before, self._began_ns))
        self._exported[key] = total, now_ns
        if key[0] in self._of_process:
            self._exported_here[key] = total
        # The Collector adds up deltas only if each begins at the very moment at which the one before
        # ended.
        delta = total - known if total >= known else total
        return delta, known_ns


_SeriesKey = tuple[str, tuple[tuple[str, Any], ...]]
"""The name of a metric, and the attributes of a series of it, in one order."""
reset_in_child(SumDeltas.forget)


class ObservedMessages:
    """Shows what an instrument reads when metrics are collected.

    The attributes of one series come in one order. One thread at a time.

    Args:
        callbacks: Give what it shows.
        sums: Makes points of totals. None: it is a gauge.
        only_grows: It is a counter.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        description: str,
        callbacks: Sequence[Observe],
        sums: CumulativeSums | SumDeltas | None = None,
        *,
        only_grows: bool = False,
    ) -> None:
        self._name = name
        self._unit = unit
        self._description = description
        self._callbacks = callbacks
        self._sums = sums
        self._only_grows = only_grows

    def fill(self, metrics: Any, now_ns: int) -> None:
        """Add the metric, if it shows anything."""
        options = CallbackOptions()
        observed: list[Observation] = []
        for callback in self._callbacks:
            observed += callback(options)
        if not observed:
            return
        metric = metrics.add(name=self._name, description=self._description, unit=self._unit)
        if self._sums is None:
            points = metric.gauge.data_points
        else:
            metric.sum.aggregation_temporality = self._sums.temporality
            metric.sum.is_monotonic = self._only_grows
            points = metric.sum.data_points
        for observation in observed:
            value = observation.value
            attributes = observation.attributes or {}
            point = points.add(time_unix_nano=now_ns)
            if self._sums is not None:
                key = self._name, tuple(attributes.items())
                value, point.start_time_unix_nano = self._sums.point(key, value, now_ns)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            fill_attributes(point.attributes, attributes)


@dataclass(slots=True)
class _Point:
    """Holds the measurements with one set of attributes.

    `exemplars` has, by bucket, the newest measurement that may be an exemplar: its amount, its time
    and its span context.
    """

    counts: list[int]
    start_ns: int
    sum: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    exemplars: dict[int, tuple[float, int, SpanContext]] = field(default_factory=dict)


class HistogramMessages:
    """A histogram. The attributes of one point come in one order. Any thread.

    Attributes:
        is_delta: It says what was added since the last collection, and is not cumulative.
    """

    def __init__(
        self, name: str, unit: str, description: str, boundaries: Sequence[float], exemplars: str
    ) -> None:
        self._name = name
        self._unit = unit
        self._description = description
        self._boundaries = boundaries
        self._exemplars = exemplars
        self.is_delta = False
        self._began_ns = time.time_ns()
        # of the deltas before, by series
        self._ended_ns: dict[tuple[tuple[str, Any], ...], int] = {}
        self._points: dict[tuple[tuple[str, Any], ...], _Point] = {}
        self._lock = threading.Lock()

    def record(
        self,
        amount: float,
        attributes: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> None:
        if not 0 <= amount < math.inf:  # negative, infinite or NaN
            return
        now_ns = time.time_ns()
        bucket = bisect_left(self._boundaries, amount)
        span_context = _span_context_of(context)
        key = tuple(attributes.items()) if attributes else ()
        with self._lock:
            point = self._points.get(key)
            if point is None:
                # The Collector adds up what begins at the very moment at which the point before ended.
                began_ns = self._ended_ns.get(key, self._began_ns) if self.is_delta else now_ns
                point = self._points[key] = _Point([0] * (len(self._boundaries) + 1), began_ns)
            point.counts[bucket] += 1
            point.sum += amount
            if amount < point.least:
                point.least = amount
            if amount > point.most:
                point.most = amount
            if self._exemplars == "trace_based":
                is_exemplar = span_context.trace_flags.sampled
            else:
                is_exemplar = self._exemplars == "always_on"
            if is_exemplar:
                point.exemplars[bucket] = amount, now_ns, span_context

    def fill(self, metrics: Any, now_ns: int) -> None:
        """Add the metric if there is a measurement.

        Its exemplars are then cleared, and of a delta its points too.
        """
        with self._lock:
            if not self._points:
                return
            metric = metrics.add(name=self._name, description=self._description, unit=self._unit)
            temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            if self.is_delta:
                temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            metric.histogram.aggregation_temporality = temporality
            for key, point in self._points.items():
                message = metric.histogram.data_points.add(
                    start_time_unix_nano=point.start_ns,
                    time_unix_nano=now_ns,
                    count=sum(point.counts),
                    sum=point.sum,
                    bucket_counts=point.counts,
                    explicit_bounds=self._boundaries,
                    min=point.least,
                    max=point.most,
                )
                fill_attributes(message.attributes, dict(key))
                for _, (amount, at_ns, span_context) in sorted(point.exemplars.items()):
                    exemplar = message.exemplars.add(time_unix_nano=at_ns, as_double=amount)
                    if span_context.is_valid:
                        exemplar.trace_id = span_context.trace_id.to_bytes(16)
                        exemplar.span_id = span_context.span_id.to_bytes(8)
                point.exemplars.clear()
            if self.is_delta:
                self._ended_ns.update(dict.fromkeys(self._points, now_ns))
                self._points.clear()


_last: tuple[Context, SpanContext] = Context(), trace.INVALID_SPAN_CONTEXT


def _span_context_of(context: Context | None) -> SpanContext:
    """Return the context's span context.

    An empty context means the current one, as in the API. Called on any thread.

    The last result is cached, because the telemetry of one response has the same context.
    """
    global _last
    if not context:
        return trace.get_current_span(get_current()).get_span_context()
    known_context, span_context = _last
    if known_context is not context:
        span_context = trace.get_current_span(context).get_span_context()
        _last = context, span_context
    return span_context


def _flags_of(span_context: SpanContext | None) -> int:
    return _IS_REMOTE if span_context is not None and span_context.is_remote else _HAS_REMOTE


def size_of(attributes: Mapping[str, Any]) -> int:
    """Estimate how much memory a span or an event with these attributes takes, in bytes."""
    return _ITEM_BYTES + values_bytes(attributes)


def values_bytes(attributes: Mapping[str, Any]) -> int:
    """Return how much memory the values of attributes take. Their names are shared."""
    values = attributes.values()
    if ATOMS.issuperset(map(type, values)):  # nearly always, and three times as fast
        return sum([value.__sizeof__() for value in values])
    return sum(map(kept_bytes, values))


def _add(attributes: dict[str, Any], more: Mapping[str, Any], most: int | None) -> int:
    """Add attributes as the SDK does: a key that is set again moves to the end.

    Return how many of the oldest the limit removed.
    """
    if most is None or len(attributes) + len(more) <= most:
        for name in attributes.keys() & more.keys():
            del attributes[name]
        attributes.update(more)
        return 0
    dropped = 0
    for name, value in more.items():
        attributes.pop(name, None)
        if len(attributes) >= most:
            dropped += 1
            if not most:  # a limit of 0: the new attribute itself is dropped
                continue
            del attributes[next(iter(attributes))]
        attributes[name] = value
    return dropped


def fill_attributes(pairs: Any, attributes: Mapping[str, Any], longest: int | None = None) -> None:
    """Add each attribute that has a message. The SDK's encoder also leaves out the others."""
    add = pairs.add
    for name, value in attributes.items():
        pair = add()
        try:
            pair.key = name
            kind = type(value)
            if kind is str:
                pair.value.string_value = value if longest is None else value[:longest]
            elif kind is float:
                pair.value.double_value = value
            else:
                _fill_value(pair.value, value, longest)
        except (TypeError, ValueError) as error:  # half a character, a number of more than 64 bits
            del pairs[-1]
            log.warning("attribute_left_out", part=name, error_type=type(error).__name__)


_FIELDS: Final = (
    (bool, "bool_value"),  # before numbers, which it is too
    (int, "int_value"),
    (float, "double_value"),
    (bytes, "bytes_value"),
)


def _fill_value(message: common_pb2.AnyValue, value: object, longest: int | None) -> None:
    if isinstance(value, str):
        message.string_value = value if longest is None else value[:longest]
        return
    for kind, field_name in _FIELDS:
        if isinstance(value, kind):
            setattr(message, field_name, value)
            return
    if isinstance(value, tuple | list):
        message.array_value.SetInParent()
        for item in value:
            _fill_value(message.array_value.values.add(), item, longest)
    elif isinstance(value, Mapping):
        message.kvlist_value.SetInParent()
        for name, item in value.items():
            pair = message.kvlist_value.values.add(key=str(name))
            _fill_value(pair.value, item, longest)
    elif value is not None:
        raise TypeError
