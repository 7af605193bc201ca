"""What arrived at the Collector, as plain Python values: the JSON lines of its `file` exporter, decoded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Attributes = dict[str, Any]
_Json = Mapping[str, Any]
T = TypeVar("T")

_STATUS = {0: "UNSET", 1: "OK", 2: "ERROR"}
_SPAN_KIND = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}
_METRIC_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_TEMPORALITY = {1: "delta", 2: "cumulative"}


@dataclass(frozen=True, slots=True)
class Link:
    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it arrived; ids in lower-case hexadecimal, `parent_span_id` empty for a root."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: str
    status: str
    status_message: str
    attributes: Attributes
    links: tuple[Link, ...]
    start_ns: int
    end_ns: int
    resource: Attributes
    scope: str
    scope_version: str


@dataclass(frozen=True, slots=True)
class Log:
    """A log record as it arrived; an event is one with an `event_name`. `severity` is its text, often left empty."""

    event_name: str
    trace_id: str
    span_id: str
    severity: str
    severity_number: int
    body: Any
    attributes: Attributes
    time_unix_nano: int
    resource: Attributes
    scope: str
    scope_version: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    value: float
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Point:
    """One data point: `value` for gauges and sums; `count`, `sum`, `bucket_counts`, `bounds` for histograms."""

    attributes: Attributes
    value: float | None
    count: int
    sum: float | None
    bucket_counts: tuple[int, ...]
    bounds: tuple[float, ...]
    exemplars: tuple[Exemplar, ...]
    start_ns: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one export; `kind` is `gauge`, `sum` or `histogram`, `temporality` empty for a gauge."""

    name: str
    unit: str
    kind: str
    temporality: str
    monotonic: bool
    points: tuple[Point, ...]
    resource: Attributes
    scope: str
    scope_version: str

    def point(self, attributes: Attributes) -> Point | None:
        """The first point that carries at least these attributes."""
        wanted = attributes.items()
        return next((point for point in self.points if all(pair in point.attributes.items() for pair in wanted)), None)


@dataclass(slots=True)
class Received:
    spans: list[Span] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)

    def add(self, batch: _Json) -> None:
        """Takes in one decoded JSON line of the `file` exporter."""
        self.spans.extend(_each(batch, "resourceSpans", "scopeSpans", "spans", _span))
        self.logs.extend(_each(batch, "resourceLogs", "scopeLogs", "logRecords", _log))
        self.metrics.extend(_each(batch, "resourceMetrics", "scopeMetrics", "metrics", _metric))


def _each(batch: _Json, resources: str, scopes: str, items: str, decode: Callable[..., T]) -> Iterator[T]:
    """Walks resource, scope, item; gives every item decoded with its origin."""
    for resource in batch.get(resources, ()):
        resource_attributes = _attributes(resource.get("resource", {}))
        for scope in resource.get(scopes, ()):
            named = scope.get("scope", {})
            origin = {
                "resource": resource_attributes,
                "scope": named.get("name", ""),
                "scope_version": named.get("version", ""),
            }
            for item in scope.get(items, ()):
                yield decode(item, origin)


def _span(item: _Json, origin: dict[str, Any]) -> Span:
    status = item.get("status", {})
    return Span(
        name=item.get("name", ""),
        trace_id=item["traceId"],
        span_id=item["spanId"],
        parent_span_id=item.get("parentSpanId", ""),
        kind=_SPAN_KIND.get(item.get("kind", 0), "UNSPECIFIED"),
        status=_STATUS[status.get("code", 0)],
        status_message=status.get("message", ""),
        attributes=_attributes(item),
        links=tuple(
            Link(trace_id=link["traceId"], span_id=link["spanId"], attributes=_attributes(link))
            for link in item.get("links", ())
        ),
        start_ns=int(item.get("startTimeUnixNano", 0)),
        end_ns=int(item.get("endTimeUnixNano", 0)),
        **origin,
    )


def _log(item: _Json, origin: dict[str, Any]) -> Log:
    return Log(
        event_name=item.get("eventName", ""),
        trace_id=item.get("traceId", ""),
        span_id=item.get("spanId", ""),
        severity=item.get("severityText", ""),
        severity_number=int(item.get("severityNumber", 0)),
        body=_value(item.get("body", {})),
        attributes=_attributes(item),
        time_unix_nano=int(item.get("timeUnixNano", 0)),
        **origin,
    )


def _metric(item: _Json, origin: dict[str, Any]) -> Metric:
    kind = next((kind for kind in _METRIC_KINDS if kind in item), "")
    data = item.get(kind, {})
    return Metric(
        name=item["name"],
        unit=item.get("unit", ""),
        kind=kind,
        temporality=_TEMPORALITY.get(data.get("aggregationTemporality", 0), ""),
        monotonic=data.get("isMonotonic", False),
        points=tuple(_point(point) for point in data.get("dataPoints", ())),
        **origin,
    )


def _point(item: _Json) -> Point:
    return Point(
        attributes=_attributes(item),
        value=_number(item),
        count=int(item.get("count", 0)),
        sum=float(item["sum"]) if "sum" in item else None,
        bucket_counts=tuple(int(count) for count in item.get("bucketCounts", ())),
        bounds=tuple(float(bound) for bound in item.get("explicitBounds", ())),
        exemplars=tuple(
            Exemplar(
                value=_number(exemplar) or 0.0, trace_id=exemplar.get("traceId", ""), span_id=exemplar.get("spanId", "")
            )
            for exemplar in item.get("exemplars", ())
        ),
        start_ns=int(item.get("startTimeUnixNano", 0)),
        time_ns=int(item.get("timeUnixNano", 0)),
    )


def _number(item: _Json) -> float | None:
    """The value of a point or an exemplar; integers travel as text."""
    if "asDouble" in item:
        return float(item["asDouble"])
    return int(item["asInt"]) if "asInt" in item else None


def _attributes(item: _Json) -> Attributes:
    return {pair["key"]: _value(pair.get("value", {})) for pair in item.get("attributes", ())}


_DECODE: dict[str, Callable[[Any], Any]] = {
    "stringValue": str,
    "boolValue": bool,
    "intValue": int,
    "doubleValue": float,
    "bytesValue": base64.b64decode,
    "arrayValue": lambda array: [_value(item) for item in array.get("values", ())],
    "kvlistValue": lambda pairs: {pair["key"]: _value(pair.get("value", {})) for pair in pairs.get("values", ())},
}


def _value(wrapped: _Json) -> Any:
    """An OTLP `AnyValue` as a Python value; an empty one is None."""
    return next((_DECODE[kind](value) for kind, value in wrapped.items()), None)
