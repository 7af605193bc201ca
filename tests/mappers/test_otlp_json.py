"""Spans of OTLP in JSON without the parser of protobuf: what is read is what that reads, and the
rest is left to it.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.capture.otlp.body import OtlpMessages, request_of_json
from agenteval_otel.capture.otlp.json import spans_of_json
from agenteval_otel.capture.spans.span import ReadSpan, spans_of_otlp

MESSAGES = OtlpMessages("trace")
text = st.text(st.characters(codec="utf-8"), max_size=6)
whole = st.integers(0, (1 << 64) - 1).map(str)
scalar = st.one_of(
    st.builds(lambda item: {"stringValue": item}, text),
    st.builds(lambda item: {"boolValue": item}, st.booleans()),
    st.builds(lambda item: {"intValue": str(item)}, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(lambda item: {"doubleValue": item}, st.floats(allow_nan=False, allow_infinity=False)),
)
value = st.recursive(
    scalar,
    lambda parts: st.one_of(
        st.builds(lambda items: {"arrayValue": {"values": items}}, st.lists(parts, max_size=2)),
        st.builds(
            lambda items: {
                "kvlistValue": {
                    "values": [{"key": key, "value": item} for key, item in items.items()]
                }
            },
            st.dictionaries(text, parts, max_size=2),
        ),
    ),
    max_leaves=4,
)
attributes = st.lists(st.fixed_dictionaries({"key": text, "value": value}), max_size=3)
span = st.fixed_dictionaries(
    {
        "traceId": st.text("0123456789abcdefABCDEF", min_size=32, max_size=32),
        "spanId": st.text("0123456789abcdef", min_size=16, max_size=16),
    },
    optional={
        "parentSpanId": st.sampled_from(["", "00f067aa0ba902b7", "0" * 16]),
        "name": text,
        "kind": st.integers(0, 5),
        "startTimeUnixNano": whole,
        "endTimeUnixNano": whole,
        "attributes": attributes,
        "events": st.lists(
            st.fixed_dictionaries(
                {"name": text},
                optional={
                    "timeUnixNano": whole,
                    "attributes": attributes,
                    "droppedAttributesCount": st.integers(0, 9),
                },
            ),
            max_size=2,
        ),
        "status": st.fixed_dictionaries({}, optional={"code": st.integers(0, 2), "message": text}),
        "traceState": text,
        "flags": st.integers(0, (1 << 32) - 1),
        "links": st.just([]),
    },
)
group = st.fixed_dictionaries(
    {},
    optional={
        "resource": st.fixed_dictionaries({}, optional={"attributes": attributes}),
        "scopeSpans": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "scope": st.fixed_dictionaries({}, optional={"name": text, "version": text}),
                    "spans": st.lists(span, max_size=2),
                    "schemaUrl": text,
                },
            ),
            max_size=2,
        ),
    },
)


def values_of(spans: Any) -> list[Any]:
    names = ReadSpan.__slots__
    return [
        [
            [(event.name, event.time_ns, event.attributes) for event in item.events]
            if name == "events"
            else getattr(item, name)
            for name in names
        ]
        for item in spans
    ]


def parsed(groups: Any) -> list[Any]:
    return values_of(
        spans_of_otlp(
            request_of_json({"resourceSpans": copy.deepcopy(groups)}, MESSAGES).resource_spans
        )
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(group, max_size=2))
def test_what_is_read_is_what_the_parser_reads(groups: Any) -> None:
    groups = json.loads(json.dumps(groups))
    assert values_of(spans_of_json(groups)) == parsed(groups)


def spoilt(path: str, item: Any) -> Any:
    """A request with one value in another form."""
    one = {
        "traceId": "1" * 32,
        "spanId": "2" * 16,
        "status": {},
        "attributes": [{"key": "a", "value": {"intValue": "1"}}],
        "events": [{"name": "e", "timeUnixNano": "1"}],
    }
    groups: Any = [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": [one]}]}]
    *parents, name = path.split(".")
    at = {
        "group": groups[0],
        "scopeSpans": groups[0]["scopeSpans"][0],
        "span": one,
        "status": one["status"],
        "event": one["events"][0],
        "value": one["attributes"][0]["value"],
    }[parents[0]]
    at.pop("intValue", None)
    at[name] = item
    return groups


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("group.scope_spans", []),
        ("scopeSpans.unknown", 1),
        ("span.kind", "SPAN_KIND_CLIENT"),
        ("span.trace_state", "a"),
        ("span.traceId", "0x" + "1" * 30),
        ("span.traceId", "12"),
        ("span.spanId", None),
        ("span.startTimeUnixNano", "x"),
        ("span.startTimeUnixNano", str(1 << 64)),
        ("span.startTimeUnixNano", -1),
        ("span.startTimeUnixNano", 1.5),
        ("span.name", None),
        ("span.name", 7),
        ("span.name", "\ud800"),
        ("span.attributes", None),
        ("span.flags", 1 << 32),
        ("status.code", "STATUS_CODE_ERROR"),
        ("status.code", True),
        ("event.timeUnixNano", "1e3"),
        ("value.bytesValue", "AAE="),
        ("value.doubleValue", "NaN"),
        ("value.doubleValue", 1),
        ("value.boolValue", "true"),
        ("value.intValue", str(1 << 63)),
        ("value.arrayValue", {}),
        ("value.unknownValue", 1),
        ("span.events", {"a": 1}),
    ],
)
def test_another_form_is_left_to_the_parser(path: str, item: Any) -> None:
    """It raises what the caller expects; none is read as something else."""
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        list(spans_of_json(spoilt(path, item)))
