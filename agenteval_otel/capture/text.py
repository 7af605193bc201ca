"""Text made safe for evaluators and exporters: capped, sanitised, and got from any object without harm.

Runs on the pool's thread. One lone surrogate in an event name or body loses a whole batch in the OTLP exporter, so
every string passes `sanitise` before it reaches the SDK.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from agenteval_otel.capture.values import Detached, Unreadable
from agenteval_otel.errors import CaptureError
from agenteval_otel.redaction.redactor import PatternRedactor

__all__ = ["CAP_CHARS", "PlainCopy", "cap", "clean", "model_fields", "plain", "sanitise", "to_text"]

CAP_CHARS = 256 * 1024
_MARGIN_CHARS = 16 * 1024
_WORD_CHARS = 128
_MAX_DEPTH = 32
_MAX_ITEMS = 10_000


def cap(text: str, limit: int = CAP_CHARS) -> str:
    """At most `limit` characters: three quarters of the head, one quarter of the tail, and a marker that says so.

    No secret, number or address that redaction knows is cut in two, of which no half would be known again: the cut
    moves to before it, or after it. Neither is a word where there is a space near.
    """
    if type(text) is not str:
        text = str.__str__(text)  # text of the host's own class: what it holds, by none of its methods
    if len(text) <= limit:
        return text
    head = _cut(text, limit * 3 // 4, limit, backwards=True)
    tail = _cut(text, len(text) - (limit - limit * 3 // 4), limit, backwards=False)
    return f"{text[:head]}\n[... {tail - head} characters left out ...]\n{text[tail:]}"


def _cut(text: str, at: int, limit: int, *, backwards: bool) -> int:
    """Where to cut instead: at the edge of what stands across, on the side that leaves less of the text."""
    near = min(_WORD_CHARS, limit // 8)
    cut = at
    if not text[at - 1].isspace() and not text[at].isspace():
        beside = text[at - near : at] if backwards else text[at : at + near]
        space = re.search(r"\s\S*\Z" if backwards else r"\s", beside)
        if space is not None:
            cut = at - near + space.start() if backwards else at + space.end()
    begin = max(0, cut - _MARGIN_CHARS)
    for start, end, _ in _whole().findings(text[begin : cut + _MARGIN_CHARS]):
        if begin + start < cut < begin + end:
            cut = begin + start if backwards else begin + end
    return cut


@functools.cache
def _whole() -> PatternRedactor:
    return PatternRedactor()


def sanitise(text: str) -> str:
    """Lone surrogates become U+FFFD and NUL is removed; other text comes back as the same object."""
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Pairs of surrogates that make up one character are put together; lone ones are replaced.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(text: str, limit: int = CAP_CHARS) -> str:
    """`cap`, then `sanitise`."""
    return sanitise(cap(text, limit))


def to_text(value: Any) -> str:
    """The text of any object: strings as they are, JSON for data and models, `str` for the rest; capped and clean.

    Cycles, depth and size are bounded, and nothing is iterated that is not a list, tuple, set or mapping.

    Raises:
        CaptureError: The object's own methods raised.
    """
    if value is None:
        return ""
    _must_be_readable(value)
    try:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, bytes | bytearray):
            return clean(_decoded(value))
        if isinstance(value, Mapping | list | tuple | set | frozenset) or model_fields(value) is not None:
            return clean(json.dumps(plain(value), ensure_ascii=False))
        return clean(str(value))
    except Exception as error:
        raise CaptureError(f"no text from {type(value).__name__}: {type(error).__name__}") from error


def _decoded(value: bytes | bytearray) -> str:
    """The text of bytes; of very many the first megabyte, cut as `cap` cuts."""
    most = CAP_CHARS * 4
    text = bytes(value[: most + _MARGIN_CHARS]).decode("utf-8", "replace")
    return text if len(value) <= most else text[: _cut(text, max(1, len(text) - _MARGIN_CHARS), most, backwards=True)]


def plain(value: Any) -> Any:
    """A copy of any value as plain JSON data: bounded in depth, items and characters, cycles cut, text clean.

    Raises:
        CaptureError: The object's own methods raised.
    """
    _must_be_readable(value)
    try:
        return PlainCopy().take(value)
    except Exception as error:
        raise CaptureError(f"no plain data from {type(value).__name__}: {type(error).__name__}") from error


def _must_be_readable(value: Any) -> None:
    if type(value) is Unreadable:
        raise CaptureError(f"no text from {value.type_name}: {value.reason}")


def model_fields(value: Any) -> dict[str, Any] | None:
    """What an object of plain data holds in its public fields, a detached one too; None for every other object."""
    kind = type(value)
    if kind is Detached:
        return value.fields if value.type.is_data else None
    named = kind.__dict__.get("__pydantic_fields__") or getattr(kind, "__dataclass_fields__", None)
    if type(named) is not dict:
        return None
    fields: dict[str, Any] = {}
    for name in named:
        try:
            fields[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return fields


class PlainCopy:
    """A bounded copy, of one value or of several together: what it may still take of items and characters."""

    def __init__(self) -> None:
        self._items, self._chars = _MAX_ITEMS, 2 * CAP_CHARS

    def take(self, value: Any) -> Any:
        """A copy of the value. Raises whatever its own methods raise."""
        return self._of(value, _MAX_DEPTH, frozenset())

    def _of(self, value: Any, depth: int, above: frozenset[int]) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value if not isinstance(value, int) or abs(value) < 1 << 64 else "[large number]"
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if depth == 0 or id(value) in above:
                return "[...]"
            return self._container(value, depth - 1, above | {id(value)})
        fields = value.fields if type(value) is Detached else model_fields(value)
        if fields is not None:
            if depth == 0 or id(value) in above:
                return "[...]"
            return self._container(fields, depth - 1, above | {id(value)})
        if isinstance(value, bytes | bytearray):
            value = value[:CAP_CHARS]
        return self._text(value if isinstance(value, str) else str(value))

    def _container(self, value: Any, depth: int, above: frozenset[int]) -> Any:
        if isinstance(value, Mapping):
            pairs = self._some(value.items())
            return {clean(str(key), 256): self._of(item, depth, above) for key, item in pairs}
        return [self._of(item, depth, above) for item in self._some(value)]

    def _some(self, items: Any) -> Any:
        for item in items:
            if self._items <= 0:
                return
            self._items -= 1
            yield item

    def _text(self, text: str) -> str:
        text = clean(text, max(64, self._chars))
        self._chars -= len(text)
        return text
