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
    attributes: Attributes
    resource: Attributes


@dataclass(frozen=True, slots=True)
class Point:
    """One data point: `value` for gauges and sums; `count` for histograms."""

    attributes: Attributes
    value: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one export."""

    name: str
    points: tuple[Point, ...]
    resource: Attributes


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
        name=item.get("name", ""), trace_id=item["traceId"], span_id=item["spanId"],
        parent_span_id=item.get("parentSpanId", ""), attributes=_attributes(item), resource=resource,
    )  # fmt: skip


def _log(item: _Json, resource: Attributes) -> Log:
    return Log(
        event_name=item.get("eventName", ""), trace_id=item.get("traceId", ""), span_id=item.get("spanId", ""),
        attributes=_attributes(item), resource=resource,
    )  # fmt: skip


def _metric(item: _Json, resource: Attributes) -> Metric:
    kinds = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
    data = next((item[kind] for kind in kinds if kind in item), {})
    points = tuple(_point(point) for point in data.get("dataPoints", ()))
    return Metric(item["name"], points, resource)


def _point(item: _Json) -> Point:
    number = item.get("asDouble", item.get("asInt"))  # integers travel as text
    return Point(_attributes(item), None if number is None else float(number), int(item.get("count", 0)))


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
