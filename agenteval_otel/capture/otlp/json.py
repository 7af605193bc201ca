"""Spans of OTLP in JSON, read without protobuf's own parser, which takes twenty times as long.

Only the form that exporters and the Collector write is read: camel case, hexadecimal ids, whole
numbers as text. Any other form that the parser accepts raises here. The caller then uses the
parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agenteval_otel.capture.spans.span import (
    ERROR_STATUS,
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    SAMPLED,
    ReadEvent,
    ReadSpan,
)

_DROPPED: Final = {"droppedAttributesCount"}
_GROUP: Final = {"resource", "scopeSpans", "schemaUrl"}
_RESOURCE: Final = {"attributes"} | _DROPPED
_SCOPE_SPANS: Final = {"scope", "spans", "schemaUrl"}
_SCOPE: Final = {"name", "version", "attributes"} | _DROPPED
_SPAN: Final = {
    "traceId",
    "spanId",
    "parentSpanId",
    "name",
    "kind",
    "startTimeUnixNano",
    "endTimeUnixNano",
    "attributes",
    "events",
    "status",
    "traceState",
    "flags",
    "links",
    "droppedEventsCount",
    "droppedLinksCount",
} | _DROPPED
_EVENT: Final = {"name", "timeUnixNano", "attributes"} | _DROPPED
_STATUS: Final = {"code", "message"}
_NONE: Final[Mapping[str, Any]] = {}
_BITS: Final = 64


def spans_of_json(groups: Any) -> Iterator[ReadSpan]:
    """Yield the spans of the value of ``resourceSpans``, as `spans_of_otlp` reads them.

    Raises for any other form.
    """
    for group in groups:
        resource = _checked(group.get("resource", _NONE), _RESOURCE)
        shared = _attributes(resource.get("attributes", ()))
        for scope_spans in _checked(group, _GROUP).get("scopeSpans", ()):
            scope = _checked(scope_spans.get("scope", _NONE), _SCOPE)
            name = _text(scope.get("name", ""))
            version = _text(scope.get("version", ""))
            for span in _checked(scope_spans, _SCOPE_SPANS).get("spans", ()):
                yield _span(_checked(span, _SPAN), shared, name, version)


def _span(
    span: Mapping[str, Any], resource: Mapping[str, Any], scope: str, version: str
) -> ReadSpan:
    get = span.get
    parent = get("parentSpanId")
    events = []
    for event in get("events", ()):
        attributes = _checked(event, _EVENT).get("attributes", ())
        events.append(
            ReadEvent(
                _text(event.get("name", "")),
                _whole(event.get("timeUnixNano", 0)),
                _attributes(attributes),
            )
        )
    status = _checked(get("status", _NONE), _STATUS)
    return ReadSpan(
        _id(span["traceId"], 32),
        _id(span["spanId"], 16),
        _id(parent, 16) if parent else None,
        _text(get("name", "")),
        _whole(get("kind", 0), 31),
        _whole(get("startTimeUnixNano", 0)),
        _whole(get("endTimeUnixNano", 0)),
        _attributes(get("attributes", ())),
        events or (),
        _whole(status.get("code", 0), 31) == ERROR_STATUS,
        _text(status.get("message", "")),
        scope,
        version,
        resource,
        _text(get("traceState", "")),
        _whole(get("flags", 0), 32) & 0xFF | SAMPLED,
    )


def _checked(value: Any, names: set[str]) -> Any:
    """Return the object if it has no other names than these. Raise `ValueError` if it has."""
    if not value.keys() <= names:
        raise ValueError
    return value


def _attributes(pairs: Any) -> dict[str, Any]:
    if len(pairs) > MAX_ATTRIBUTES:
        raise ValueError
    return {_text(pair["key"]): _value(pair["value"], MAX_DEPTH) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    [(kind, item)] = value.items()
    if kind == "stringValue":
        return _text(item)
    if kind == "intValue":
        return _whole(item, 63, -(1 << 63))
    if kind == "boolValue" and type(item) is bool:
        return item
    if kind == "doubleValue" and type(item) is float:
        return item
    if kind == "arrayValue" and depth:
        return [_value(part, depth - 1) for part in _items(item)]
    if kind == "kvlistValue" and depth:
        return {_text(pair["key"]): _value(pair["value"], depth - 1) for pair in _items(item)}
    raise ValueError


def _items(value: Any) -> Any:
    [(name, items)] = value.items()
    if name != "values" or len(items) > MAX_ATTRIBUTES:
        raise ValueError
    return items


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError
    value.encode()  # half of a surrogate pair is no text
    return value


def _id(value: Any, digits: int) -> int:
    if len(_text(value)) != digits or not value.isalnum():
        raise ValueError
    return int.from_bytes(bytes.fromhex(value))


def _whole(value: object, bits: int = _BITS, least: int = 0) -> int:
    if type(value) is str and not value.removeprefix("-").isdecimal():
        raise ValueError
    number = int(value) if type(value) is str else value
    if type(number) is not int or not least <= number < 1 << bits:
        raise ValueError
    return number
