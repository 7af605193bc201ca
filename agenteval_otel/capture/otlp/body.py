"""Bodies of OTLP requests, decoded within limits.

What a few bytes say may take gigabytes once it is decoded.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import re
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import decoded_bytes, parsed_bytes
from agenteval_otel.runtime.text import without_duplicates

T = TypeVar("T")
TRACES: Final = 1
LOGS: Final = 2
"""What a request has, as the journal writes it."""
PATIENCE_S: Final = 7.0
"""How long a client may take for the head of a request, again for its body, and again to read the
reply.
"""
NO_ROOM: Final = "no room: try again later"
_PIECE_BYTES: Final = 256 * 1024
PACKINGS: Final = {"gzip": 31, "deflate": 15}
"""The compressions that are read, each with the window's size for zlib and the header expected."""
_MAX_DEPTH: Final = 100
SPAN_BYTES: Final = 1_536
"""Approximate memory of a span or event without its texts and attributes."""
_ATTRIBUTE_BYTES: Final = 96  # in a dictionary, without its texts
_VALUE_BYTES: Final = 48  # in a list
# about what an empty message takes in memory, and for each of its fields
_MESSAGE_BYTES: Final = 48
_FIELD_BYTES: Final = 8
_WIDEST: Final = 4  # bytes of a character in memory
_SHORT_BYTES: Final = 32  # of a text that is not looked at
_SHORT_TEXT_BYTES: Final = 128
_READ_BYTES: Final = 32  # for a field that is there: it also takes time
_FIXED_BYTES: Final = {1: 8, 5: 4}  # of a value, by its wire type
_JSON_OBJECT_BYTES: Final = 250
_JSON_ITEM_BYTES: Final = 150
_SMALL: Final = 512 * 1024  # bodies that cannot take much memory, whatever they hold
_MAX_JSON_VALUES: Final = 50_000  # of bodies other than OTLP's
_MAX_JSON_DEPTH: Final = 64
_JSON_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""The texts of a JSON body. One that does not end reaches to the end of the body: so each byte is
looked at once, whatever the body holds."""
REFUSAL_CHARS: Final = 4_000
"""The most of a refusal's text that is sent: it may quote what the request holds."""
_HEX_IDS: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


class BodyError(Exception):
    """Refuses a body. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Full(Exception):
    """There is no room: the sender may try again after `retry_after_s`."""

    status = 429
    retry_after_s = 2


class Unavailable(Full):
    """A part fails that may recover, such as a disk: the sender may try again."""

    status = 503


class Refusal(NamedTuple):
    """Says why a request is not taken: an HTTP status with a message.

    With `retry_after_s` the request may be sent again.
    """

    status: int
    message: str
    retry_after_s: int | None = None


def attempt(work: Callable[[], T]) -> T | Refusal:
    """Return what the work gives, or why it was refused, as plain values.

    An exception would keep frames, with the body in them.
    """
    try:
        return work()
    except BodyError as error:
        return Refusal(error.status, str(error))
    except Full as full:
        return Refusal(full.status, str(full) or NO_ROOM, full.retry_after_s)
    except Exception as error:
        log.warning("request_failed", part="receiver", error_type=type(error).__name__)
        return Refusal(500, "not taken: an error of the receiver")


class Decoding:
    """Holds the bodies that have come and are not decoded yet, of all receivers.

    Used on their event loop alone.
    """

    def __init__(self, max_request_bytes: int) -> None:
        # One at a time, because each may take its full size, and on one thread, which uses the same
        # memory again.
        self._thread = ThreadPoolExecutor(1, "agenteval-decoding")
        self._left_bytes = 2 * max_request_bytes
        self._waiting: dict[object, float] = {}

    async def run(self, work: Callable[[], T]) -> T | Refusal:
        """Run `attempt` on the work, after what came before."""
        key = object()
        self._waiting[key] = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, attempt, work)
        finally:
            del self._waiting[key]

    def waits_since_s(self) -> float | None:
        """Return when the oldest body came that is not taken yet. Any thread."""
        return min(self._waiting.copy().values(), default=None)

    def close(self) -> None:
        """End the thread, once it has done what waits. Does not block."""
        self._thread.shutdown(wait=False)

    @contextlib.contextmanager
    def body(self) -> Iterator[Callable[[int], bool]]:
        """Count a body's memory during the block.

        The function adds bytes and returns False if there is no room.
        """
        size_bytes = 0

        def add(count: int) -> bool:
            nonlocal size_bytes
            size_bytes += count
            self._left_bytes -= count
            return self._left_bytes >= 0

        try:
            yield add
        finally:
            self._left_bytes += size_bytes


class OtlpMessages:
    """Gives the request and response messages of one signal, ``trace`` or ``logs``.

    Creating one imports them.
    """

    def __init__(self, package: str) -> None:
        module = import_module(f"opentelemetry.proto.collector.{package}.v1.{package}_service_pb2")
        name = package.capitalize()
        self.request = getattr(module, f"Export{name}ServiceRequest")
        self.response = getattr(module, f"Export{name}ServiceResponse")
        self.rejected = "rejected_spans" if package == "trace" else "rejected_log_records"
        self.json = import_module("google.protobuf.json_format")

    def answer(self, rejected: int, message: str) -> Any:
        """Return the response, with a partial success if some were rejected."""
        response = self.response()
        if rejected:
            setattr(response.partial_success, self.rejected, rejected)
            response.partial_success.error_message = message
        return response


def unpacked(body: bytes | bytearray, encoding: str, max_bytes: int) -> bytes | bytearray:
    """Return the body without its compression.

    Raise `BodyError` for more than `max_bytes`, whatever it claims to be.
    """
    window = PACKINGS.get(encoding)
    if window is None:
        return body
    decoder = zlib.decompressobj(window)
    data = bytearray()
    view = memoryview(body)
    for at in range(0, len(view), _PIECE_BYTES):  # in pieces: grown at once it takes twice its size
        piece: memoryview | bytes = view[at : at + _PIECE_BYTES]
        while piece and not decoder.eof:
            try:
                data += decoder.decompress(piece, _PIECE_BYTES)
            except zlib.error:
                raise BodyError(400, f"not {encoding}") from None
            if len(data) > max_bytes:
                raise BodyError(413, f"larger than {max_bytes:,} bytes after decompression")
            piece = decoder.unconsumed_tail
    if not decoder.eof or decoder.unused_data or at + _PIECE_BYTES < len(view):
        raise BodyError(400, f"{encoding}: incomplete, or something behind its end")
    return data


class Room(NamedTuple):
    """How much memory a request may take once it is decoded: ever, and now."""

    most_bytes: int
    free_bytes: int

    def check(self, size_bytes: int) -> None:
        """Raise an error for a request that takes too much memory.

        Raise `BodyError` for one that can never be taken, `Full` for one that cannot be taken now.
        """
        if size_bytes > self.most_bytes:
            raise BodyError(413, f"takes more than {self.most_bytes:,} bytes of memory")
        if size_bytes > self.free_bytes:
            raise Full


def decoded(data: bytes | bytearray, messages: OtlpMessages, room: Room) -> Any:
    """Return the request in a protobuf body.

    Raise `BodyError` if it is not one, or takes too much memory, and `Full` if it takes more
    than there is now.
    """
    descriptor = messages.request.DESCRIPTOR
    if len(data) > _SMALL and _most_memory_of(data, descriptor) > min(room):
        room.check(_memory_of(data, descriptor, room.most_bytes))
    try:
        return messages.request.FromString(data)
    except Exception:
        raise BodyError(400, "not a request of OTLP") from None


def decoded_json(data: bytes | bytearray, messages: OtlpMessages, room: Room) -> Any:
    """Return the request in a JSON body, in which ids are hexadecimal. Raises as `decoded` does."""
    if len(data) > _SMALL:
        objects = data.count(b"{") + data.count(b"[")
        size_bytes = _JSON_OBJECT_BYTES * objects + _JSON_ITEM_BYTES * data.count(b",")
        # The body as one text, then each of its texts.
        room.check(size_bytes + decoded_bytes(data) + parsed_bytes(data))
    try:
        return request_of_json(json.loads(data), messages)
    except BodyError:
        raise
    except Exception:  # RecursionError among them
        raise BodyError(400, "not a request of OTLP in JSON") from None


def strict_json(data: bytes | bytearray) -> tuple[str, Any]:
    """Return a body's text and its value in JSON.

    Raises:
        BodyError: It is no JSON, says a key twice, has a number or half of a character that JSON
            cannot carry, is nested too deeply, or has too many values.
    """
    # Most bodies are below the limit whatever their texts hold, which is faster to tell.
    if _values_in(data) > _MAX_JSON_VALUES:
        without_texts = _JSON_TEXTS.sub(b"", data)
        if _values_in(without_texts) > _MAX_JSON_VALUES:
            raise BodyError(413, f"more than {_MAX_JSON_VALUES:,} values")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(400, f"not UTF-8, from byte {error.start:,} on") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=without_duplicates,
            parse_constant=_refused_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise BodyError(400, f"nested deeper than {_MAX_JSON_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BodyError(400, f"not JSON: {error.msg}, {where}") from None
    except ValueError as error:  # raised above, or for a number with thousands of digits
        raise BodyError(400, f"not JSON: {str(error)[:200]}") from None
    _check_depth(value)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        raise BodyError(400, "a text holds half of a character (a lone surrogate)") from None
    return text, value


def _values_in(data: bytes | bytearray) -> int:
    """Return about how many values a JSON body has, if its texts hold no commas and brackets."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(_MAX_JSON_DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return
        level = inner
    raise BodyError(400, f"nested deeper than {_MAX_JSON_DEPTH} levels")


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def request_of_json(value: object, messages: OtlpMessages) -> Any:
    """Return the request of a parsed JSON value.

    An error of the parser or of a malformed value is raised as it is.
    """
    for item in _with_ids(value):
        for name in _HEX_IDS:
            if item.get(name):
                item[name] = base64.b64encode(bytes.fromhex(item[name])).decode()
    return messages.json.ParseDict(
        value, messages.request(), ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH
    )


def _with_ids(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the spans, their links and the log records of a request."""
    for resources, scopes, records in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for resource in value.get(resources) or ():
            for scope in resource.get(scopes) or ():
                for record in scope.get(records) or ():
                    yield record
                    yield from record.get("links") or ()


def _most_memory_of(data: bytes | bytearray, descriptor: Any) -> int:
    """Return the most that `_memory_of` may say, in a tenth of its time.

    Each byte that may begin a message counts as one, and each two bytes as a field.
    """
    size_bytes = len(data) * (1 + _WIDEST + _READ_BYTES // 2) + _fields_of(descriptor)[0]
    for tags, message_bytes in _classes_of(descriptor):
        size_bytes += message_bytes * (len(data) - len(data.translate(None, tags)))
    return size_bytes


@cache
def _classes_of(descriptor: Any) -> list[tuple[bytes, int]]:
    """Return the bytes that may begin small messages, and those that may begin others.

    Both have the memory of their largest message beside them.
    """
    sizes: dict[int, int] = {}
    waiting = [descriptor]
    known = {descriptor}
    for message in waiting:  # grows
        for number, child in _fields_of(message)[1].items():
            first = (number << 3 | 2) & 0x7F
            for tag in (first, first | 0x80):  # more bytes may follow
                sizes[tag] = max(sizes.get(tag, 0), _fields_of(child)[0])
            waiting += {child} - known
            known.add(child)
    small = {tag: size for tag, size in sizes.items() if size < SPAN_BYTES}
    others = {tag: size for tag, size in sizes.items() if size >= SPAN_BYTES}
    return [(bytes(tags), max(tags.values())) for tags in (small, others) if tags]


def _memory_of(data: bytes | bytearray, descriptor: Any, most_bytes: int) -> int:
    """Return about how much memory the messages in a body take, and what is read of them.

    No message is made for it. Stops above `most_bytes`.

    Costs a third of a microsecond for each field. A body that is no protobuf takes nothing: the
    parser says what is wrong with it.
    """
    size_bytes, fields = _fields_of(descriptor)
    at = 0
    end = len(data)
    above: list[tuple[int, Any]] = []  # the ends and fields of the messages around this one
    try:
        while size_bytes <= most_bytes:
            while at >= end:
                if not above:
                    return size_bytes
                end, fields = above.pop()
            tag, at = _varint(data, at)
            kind = tag & 7
            size_bytes += _READ_BYTES
            if kind == 2:
                length, at = _varint(data, at)
                child = fields.get(tag >> 3)
                if child is None:
                    # A text: in the message as it came, and as Python keeps it.
                    if length <= _SHORT_BYTES:
                        size_bytes += _SHORT_TEXT_BYTES
                    else:
                        size_bytes += length + decoded_bytes(data[at : at + length])
                    at += length
                    continue
                if len(above) > _MAX_DEPTH or at + length > end:
                    return 0
                above.append((end, fields))
                message_bytes, fields = _fields_of(child)
                size_bytes += message_bytes
                end = at + length
            elif kind in (0, 1, 5):
                at = _varint(data, at)[1] if kind == 0 else at + _FIXED_BYTES[kind]
            else:  # a group, whose fields the parser would read; OTLP has none
                return most_bytes + 1
    except IndexError:
        return 0
    return size_bytes


_READ_AS: Final = {
    "Span": SPAN_BYTES,
    "Event": SPAN_BYTES,
    "LogRecord": SPAN_BYTES,
    "KeyValue": _ATTRIBUTE_BYTES,
    "AnyValue": _VALUE_BYTES,
}
"""What the messages take once they are read, beside themselves."""


@cache
def _fields_of(descriptor: Any) -> tuple[int, dict[int, Any]]:
    """Return about what a message takes in memory, and its fields' messages by their number."""
    children = {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None
    }
    size_bytes = _MESSAGE_BYTES + _FIELD_BYTES * len(descriptor.fields)
    return size_bytes + _READ_AS.get(descriptor.name, 0), children


def _varint(view: bytes | bytearray, at: int) -> tuple[int, int]:
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, at + 1
        shift += 7
