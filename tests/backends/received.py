"""What arrived at the Collector, as plain Python values: the JSON lines of its `file` exporter, decoded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Attributes = dict[str, Any]
_Json = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it arrived; ids in lower-case hexadecimal, `parent_span_id` empty for a root."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    attributes: Attributes
    resource: Attributes


@dataclass(frozen=True, slots=True)
class Log:
    """A log record as it arrived; an event is one with an `event_name`."""

    event_name: str
    trace_id: str
    span_id: str
    severity_number: int
    body: Any
    attributes: Attributes
    time_unix_nano: int
    resource: Attributes


@dataclass(frozen=True, slots=True)
class Exemplar:
    value: float
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Point:
    """One data point: `value` for gauges and sums; `count` and `bounds` for histograms."""

    attributes: Attributes
    value: float | None
    count: int
    bounds: tuple[float, ...]
    exemplars: tuple[Exemplar, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one export."""

    name: str
    unit: str
    points: tuple[Point, ...]
    resource: Attributes

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
    """Walks resource, scope, item; gives every item decoded with its resource's attributes."""
    for resource in batch.get(resources, ()):
        attributes = _attributes(resource.get("resource", {}))
        for scope in resource.get(scopes, ()):
            yield from (decode(item, attributes) for item in scope.get(items, ()))


def _span(item: _Json, resource: Attributes) -> Span:
    return Span(
        name=item.get("name", ""),
        trace_id=item["traceId"],
        span_id=item["spanId"],
        parent_span_id=item.get("parentSpanId", ""),
        attributes=_attributes(item),
        resource=resource,
    )


def _log(item: _Json, resource: Attributes) -> Log:
    return Log(
        event_name=item.get("eventName", ""),
        trace_id=item.get("traceId", ""),
        span_id=item.get("spanId", ""),
        severity_number=int(item.get("severityNumber", 0)),
        body=_value(item.get("body", {})),
        attributes=_attributes(item),
        time_unix_nano=int(item.get("timeUnixNano", 0)),
        resource=resource,
    )


def _metric(item: _Json, resource: Attributes) -> Metric:
    kinds = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
    data = next((item[kind] for kind in kinds if kind in item), {})
    points = tuple(_point(point) for point in data.get("dataPoints", ()))
    return Metric(item["name"], item.get("unit", ""), points, resource)


def _point(item: _Json) -> Point:
    return Point(
        attributes=_attributes(item),
        value=_number(item),
        count=int(item.get("count", 0)),
        bounds=tuple(float(bound) for bound in item.get("explicitBounds", ())),
        exemplars=tuple(
            Exemplar(_number(actual) or 0.0, actual.get("traceId", ""), actual.get("spanId", ""))
            for actual in item.get("exemplars", ())
        ),
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
