"""A span as it was read: OTLP and the SDK give the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from agenteval_otel.capture.spans.span import (
    ReadSpan,
    event_of_log,
    plain_attributes,
    plain_value,
    span_of_sdk,
    spans_of_otlp,
)
from agenteval_otel.mappers import read_trace
from agenteval_otel.semconv import AGENT_NAME
from tests.capture.support import ANSWER, CALLING
from tests.capture.test_pydantic_ai import with_agent


@pytest.fixture
def ended() -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("a.library", "1.2")
    values: dict[str, Any] = {
        "text": "é",
        "empty": "",
        "flag": False,
        "count": 0,
        "ratio": 0.5,
        "list": ["a", "b"],
    }
    with (
        tracer.start_as_current_span("outer"),
        tracer.start_as_current_span("inner", kind=SpanKind.CLIENT) as inner,
    ):
        inner.set_attributes(values)
        inner.add_event("seen", {"at": "once"})
        inner.set_status(Status(StatusCode.ERROR, "broke"))
    return list(exporter.get_finished_spans())


def shown(span: ReadSpan) -> dict[str, Any]:
    """Its fields, sequences as lists: the SDK has tuples."""
    plain = {field.name: getattr(span, field.name) for field in fields(span)}
    events = [(event.name, event.time_ns, dict(event.attributes)) for event in span.events]
    attributes = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in span.attributes.items()
    }
    return {
        **plain,
        "attributes": attributes,
        "events": events,
        "resource": dict(span.resource),
        "flags": 1,
    }


def test_otlp_and_the_sdk_give_the_same_span(ended: list[ReadableSpan]) -> None:
    """Ids, times, attributes of every kind, events, status, scope and resource."""
    from_otlp = list(spans_of_otlp(encode_spans(ended).resource_spans))
    assert [shown(span) for span in from_otlp] == [shown(span_of_sdk(span)) for span in ended]
    inner, outer = from_otlp
    assert (inner.parent_id, outer.parent_id) == (outer.span_id, None)
    assert (inner.is_error, inner.status_message, inner.kind) == (True, "broke", 3)
    assert inner.attributes["empty"] == ""
    assert inner.attributes["count"] == 0
    assert inner.attributes["flag"] is False
    assert inner.resource is outer.resource


@pytest.fixture
def instrumented() -> Iterator[InMemorySpanExporter]:
    """What Pydantic AI exports."""
    from pydantic_ai import Agent  # not at collection: it takes a second
    from pydantic_ai.models.instrumented import InstrumentationSettings

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    yield exporter
    Agent.instrument_all(False)


def test_spans_in_this_process_give_the_same_answer_as_those_that_were_sent(
    instrumented: InMemorySpanExporter,
) -> None:
    """Of Pydantic AI, from the SDK's processor and through OTLP."""
    with_agent((CALLING, ANSWER), lambda agent: agent.run("How is the weather?"), name="weather")
    ended = instrumented.get_finished_spans()
    [in_process] = read_trace(map(span_of_sdk, ended)).answers
    [sent] = read_trace(spans_of_otlp(encode_spans(ended).resource_spans)).answers
    assert in_process.input == sent.input
    assert in_process.input.response == "It is sunny."
    assert [call.result for call in in_process.input.tool_calls or ()] == ["sunny in Kyōto"]


def test_values_of_every_kind_become_plain() -> None:
    """Maps and lists in one another, bytes as text, an empty value as None; nesting ends at 32
    levels.
    """
    nested = AnyValue(
        kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(bytes_value=b"\xff"))])
    )
    listed = AnyValue(
        array_value=ArrayValue(values=[nested, AnyValue(), AnyValue(double_value=0.0)])
    )
    assert plain_value(listed) == [{"k": "\ufffd"}, None, 0.0]
    assert plain_attributes(
        [KeyValue(key="a", value=AnyValue(int_value=1)), KeyValue(key="a")]
    ) == {"a": None}
    deep = AnyValue(string_value="end")
    for _ in range(40):
        deep = AnyValue(array_value=ArrayValue(values=[deep]))
    assert "end" not in str(plain_value(deep))


def test_a_log_record_becomes_an_event() -> None:
    """Its name is a field, in older libraries an attribute."""
    body = AnyValue(string_value="text")
    new = event_of_log(LogRecord(event_name="gen_ai.choice", time_unix_nano=5, body=body))
    assert (new.name, new.time_ns, new.body) == ("gen_ai.choice", 5, "text")
    name = KeyValue(key="event.name", value=AnyValue(string_value="gen_ai.choice"))
    old = event_of_log(LogRecord(attributes=[name], observed_time_unix_nano=7))
    assert (old.name, old.time_ns, old.body) == ("gen_ai.choice", 7, None)


def test_no_name_from_outside_is_interned() -> None:
    """What Python 3.12 interns is kept to the end of the process: names of attributes, of values in
    them, and of events are ordinary strings. Those of the conventions are shared.
    """
    name = "".join(("a.name.", "that.is", ".nowhere.else"))
    inner = AnyValue(
        kvlist_value=KeyValueList(values=[KeyValue(key=f"{name}.in", value=AnyValue(int_value=1))])
    )
    pairs = [KeyValue(key=name, value=inner), KeyValue(key="gen_ai.agent.name")]
    record = event_of_log(LogRecord(attributes=pairs, event_name=f"{name}.event"))
    (outer, known), (nested,) = record.attributes, record.attributes[name]
    assert known is AGENT_NAME
    for text in (outer, nested, record.name):
        again = text[:3] + text[3:]
        assert sys.intern(again) is again, f"{text} is interned"
