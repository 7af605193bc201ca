"""Bodies of requests: decoded as they were meant, and refused where they mean harm."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import sys
import threading
import time
import zlib

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from agenteval_otel.capture.otlp.body import (
    BodyError,
    Decoding,
    Full,
    OtlpMessages,
    Refusal,
    Room,
    attempt,
    decoded,
    decoded_json,
    unpacked,
)
from agenteval_otel.capture.spans.span import spans_of_otlp
from tests.promises.served import add_span, new_trace_id, trace_request

MIB = 1024 * 1024
MESSAGES = OtlpMessages("trace")
ROOM = Room(80 * MIB, 128 * MIB)
"""By default, while nothing waits."""


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
def test_a_packed_body_is_unpacked_up_to_the_limit(size: int, encoding: str) -> None:
    """Exactly the limit is accepted, a byte more is not; text and noise of every size come back as
    they were.
    """
    for data in (random.Random(1).randbytes(size), b"x" * size):
        packed = PACKERS[encoding](data)
        assert unpacked(packed, encoding, size) == data
        if size:
            with pytest.raises(BodyError) as caught:
                unpacked(packed, encoding, size - 1)
            assert caught.value.status == 413
    assert unpacked(b"plain", "", 1) == b"plain"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda packed: packed[:-1],
        lambda packed: packed + b"x",
        lambda packed: packed + packed,
        lambda packed: b"",
        lambda packed: packed + b"\0" * 600_000,
        lambda packed: b"x" + packed,
        lambda packed: zlib.compress(b"x", wbits=-15),
        lambda packed: packed[:100] + bytes([packed[100] ^ 255]) + packed[101:],
    ],
)
@pytest.mark.parametrize("encoding", PACKERS)
def test_what_is_no_whole_body_is_refused(spoil: object, encoding: str) -> None:
    """Cut off, with something behind its end, damaged, or another format: 400."""
    packed = PACKERS[encoding](random.Random(1).randbytes(300_000))
    with pytest.raises(BodyError) as caught:
        unpacked(spoil(packed), encoding, MIB)  # type: ignore[operator]
    assert caught.value.status == 400


def test_a_large_request_of_an_ordinary_kind_is_accepted() -> None:
    """Eight thousand spans, or the largest request of text in any script, fit; as many spans as can
    never wait do not.
    """
    request = MESSAGES.request.FromString(trace_request(*range(1, 8_000), text="x" * 500))
    data = request.SerializeToString()
    assert len(data) > 5 * MIB
    assert decoded(data, MESSAGES, ROOM) == request
    for widest in "x漢\U0001f600":
        text = "x" * (16 * MIB - 2_000) + widest
        body = request_with(text)
        assert len(body) < 16 * MIB
        assert decoded(body, MESSAGES, ROOM).resource_spans
    with pytest.raises(BodyError):
        decoded(trace_request(*range(1, 50_000)), MESSAGES, ROOM)


def request_with(*texts: str) -> bytes:
    """A request with a span for each text."""
    request = MESSAGES.request()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number, text in enumerate(texts, 1):
        add_span(spans, number, number, attributes={"text": text})
    return request.SerializeToString()


@pytest.mark.parametrize("widest", ["x", "é", "漢", "\U0001f600"])
def test_a_request_is_refused_for_now_by_what_its_texts_take_once_decoded(widest: str) -> None:
    """A text with one emoji takes four times its bytes, and is refused where its bytes would fit."""
    text = "x" * MIB + widest
    takes = sys.getsizeof(text)
    body = request_with(text)
    assert decoded(body, MESSAGES, Room(80 * MIB, takes + len(body) + 8 * 1024)).resource_spans
    with pytest.raises(Full):
        decoded(body, MESSAGES, Room(80 * MIB, takes))


def _field(tag: bytes, content: bytes) -> bytes:
    return (
        tag
        + bytes(len(content) >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21))
        + b"\0"
        + content
    )


@pytest.mark.parametrize("tag", [b"\x12", b"\x92\0", b"\x92\x80\0"])
def test_spans_that_can_never_wait_are_refused_however_their_tags_are_written(tag: bytes) -> None:
    """A tag of one byte and one of more mean the same to the parser, and to the limit."""
    few, many = (
        _field(b"\n", _field(b"\x12", (tag + b"\0") * count)) for count in (1_000, 500_000)
    )
    assert len(decoded(few, MESSAGES, ROOM).resource_spans[0].scope_spans[0].spans) == 1_000
    with pytest.raises(BodyError) as caught:
        decoded(many, MESSAGES, ROOM)
    assert caught.value.status == 413


def test_json_is_read_as_protobuf_is() -> None:
    """With hexadecimal ids, of links and events too."""
    trace_id = new_trace_id()
    text = {
        "traceId": f"{trace_id:032x}",
        "spanId": "00000000000000ff",
        "parentSpanId": "",
        "name": "chat",
        "links": [{"traceId": f"{trace_id:032X}", "spanId": "0000000000000001"}],
        "startTimeUnixNano": "12",
        "attributes": [{"key": "a", "value": {"intValue": "7"}}],
        "unknown": 1,
        "kind": 3,
    }
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [text]}]}]}).encode()
    (span,) = spans_of_otlp(decoded_json(body, MESSAGES, ROOM).resource_spans)
    assert (span.trace_id, span.span_id, span.parent_id, span.kind) == (trace_id, 255, None, 3)
    assert (span.start_ns, span.attributes) == (12, {"a": 7})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{",
        b'{"resourceSpans": 1}',
        b'{"resourceSpans": [1]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}',
        b"\xff\xfe",
        b'{"resourceSpans": {"a": 1}}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 7}]}]}]}',
        b'{"resourceSpans":' * 10_000,
        b"9" * 10_000,
    ],
)
def test_json_that_is_no_request_is_refused(body: bytes) -> None:
    """With 400, and no word of it in the message."""
    with pytest.raises(BodyError) as caught:
        decoded_json(body, MESSAGES, ROOM)
    assert (caught.value.status, str(caught.value)) == (400, "not a request of OTLP in JSON")


def test_values_of_every_type_are_read() -> None:
    """Text, truth, numbers, bytes, nothing; and what is nested deeper than 32 levels is left out."""
    deep = AnyValue(int_value=1)
    for _ in range(40):
        outer = AnyValue()
        outer.array_value.values.append(deep)
        deep = outer
    request = MESSAGES.request()
    span = add_span(request.resource_spans.add().scope_spans.add().spans, 1, 2)
    for key, value in (
        ("text", AnyValue(string_value="x")),
        ("truth", AnyValue(bool_value=False)),
        ("int", AnyValue(int_value=-(2**63))),
        ("float", AnyValue(double_value=float("inf"))),
        ("bytes", AnyValue(bytes_value=b"\xff")),
        ("none", AnyValue()),
        ("deep", deep),
    ):
        span.attributes.add(key=key).value.CopyFrom(value)
    (read,) = spans_of_otlp(decoded(request.SerializeToString(), MESSAGES, ROOM).resource_spans)
    attributes = dict(read.attributes)
    assert repr(attributes.pop("deep")).count("[") == 32
    assert attributes == {
        "text": "x",
        "truth": False,
        "int": -(2**63),
        "float": float("inf"),
        "bytes": "\ufffd",
        "none": None,
    }


def test_a_refusal_keeps_nothing_of_the_body(caplog: pytest.LogCaptureFixture) -> None:
    """It is made of plain values, and of an unexpected error the type alone is logged."""

    def broken() -> int:
        raise ValueError("the body says hello")

    def without_room() -> int:
        raise Full

    def bad() -> int:
        raise BodyError(413, "larger")

    assert attempt(lambda: 3) == 3
    assert attempt(without_room) == Refusal(429, "no room: try again later", 2)
    assert attempt(bad) == Refusal(413, "larger")
    with caplog.at_level("WARNING"):
        refusal = attempt(broken)
    assert refusal == Refusal(500, "not taken: an error of the receiver")
    assert "ValueError" in caplog.text
    assert "hello" not in caplog.text


def test_the_oldest_body_that_waits_is_known_by_its_time() -> None:
    """Until it is taken or refused: a trace is not quiet while its spans may be in it."""
    decoding = Decoding(100)
    decoded = threading.Event()

    async def receive() -> list[float | None]:
        before = time.monotonic()
        first = asyncio.create_task(decoding.run(lambda: decoded.wait(60)))
        await asyncio.sleep(0)
        began = decoding.waits_since_s()
        second = asyncio.create_task(decoding.run(without_room))
        await asyncio.sleep(0)
        assert began is not None
        assert before <= began <= time.monotonic()
        assert decoding.waits_since_s() == began
        decoded.set()
        assert await first
        assert await second == Refusal(429, "no room: try again later", 2)
        return [began, decoding.waits_since_s()]

    def without_room() -> None:
        raise Full

    assert decoding.waits_since_s() is None
    assert asyncio.run(receive())[1] is None
    decoding.close()


def test_bodies_that_wait_are_counted_for_all_receivers() -> None:
    """Up to twice the limit of a request; what has been decoded, or refused, makes room again."""
    decoding = Decoding(100)
    with decoding.body() as first:
        assert first(100)
        with decoding.body() as second:
            assert second(60)
            assert second(40)
            assert not second(1)
        with decoding.body() as third:
            assert third(100)
    with decoding.body() as last:
        assert last(200)
