"""What arrived at the Collector, as plain Python values: the JSON lines of its `file` exporter,
decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Attributes = dict[str, Any]
_Json = Mapping[str, Any]


class Record(NamedTuple):
    """A span or a log record as it arrived; ids in lower-case hexadecimal, `parent_span_id` empty
    for a root.

    `name` is that of a span or an event.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    attributes: Attributes
    resource: Attributes


class Point(NamedTuple):
    """One data point: `value` for gauges and sums; `count` for histograms."""

    attributes: Attributes
    value: float | None
    count: int


class Metric(NamedTuple):
    """One metric of one export."""

    name: str
    points: list[Point]
    resource: Attributes


class Received:
    def __init__(self) -> None:
        self.spans: list[Record] = []
        self.logs: list[Record] = []
        self.metrics: list[Metric] = []

    def add(self, batch: _Json) -> None:
        """Takes in one decoded JSON line of the `file` exporter."""
        self.spans += [
            _record(*item) for item in _each(batch, "resourceSpans", "scopeSpans", "spans")
        ]
        self.logs += [
            _record(*item) for item in _each(batch, "resourceLogs", "scopeLogs", "logRecords")
        ]
        self.metrics += [
            _metric(*item) for item in _each(batch, "resourceMetrics", "scopeMetrics", "metrics")
        ]


def _each(
    batch: _Json, resources: str, scopes: str, items: str
) -> Iterator[tuple[_Json, Attributes]]:
    """Every item with its resource's attributes."""
    for resource in batch.get(resources, ()):
        attributes = _attributes(resource.get("resource", {}))
        for scope in resource.get(scopes, ()):
            yield from ((item, attributes) for item in scope.get(items, ()))


def _record(item: _Json, resource: Attributes) -> Record:
    name = item.get("name") or item.get("eventName", "")
    ids = (item.get(key, "") for key in ("traceId", "spanId", "parentSpanId"))
    return Record(name, *ids, attributes=_attributes(item), resource=resource)


def _metric(item: _Json, resource: Attributes) -> Metric:
    kinds = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
    data = next((item[kind] for kind in kinds if kind in item), {})
    return Metric(item["name"], [_point(point) for point in data.get("dataPoints", ())], resource)


def _point(item: _Json) -> Point:
    number = item.get("asDouble", item.get("asInt"))  # integers travel as text
    return Point(
        _attributes(item), None if number is None else float(number), int(item.get("count", 0))
    )


def _attributes(item: _Json) -> Attributes:
    return {pair["key"]: _value(pair.get("value", {})) for pair in item.get("attributes", ())}


_DECODE: dict[str, Callable[[Any], Any]] = {
    "stringValue": str,
    "boolValue": bool,
    "intValue": int,
    "doubleValue": float,
    "bytesValue": base64.b64decode,
    "arrayValue": lambda array: [_value(item) for item in array.get("values", ())],
    "kvlistValue": lambda pairs: {
        pair["key"]: _value(pair.get("value", {})) for pair in pairs.get("values", ())
    },
}


def _value(wrapped: _Json) -> Any:
    """An OTLP `AnyValue` as a Python value; an empty one is None."""
    return next((_DECODE[kind](value) for kind, value in wrapped.items()), None)
