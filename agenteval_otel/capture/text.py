"""Text made safe for evaluators and exporters: capped, sanitised, and got from any object without harm.

Runs on the pool's thread. One lone surrogate in an event name or body loses a whole batch in the OTLP exporter, so
every string passes `sanitise` before it reaches the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agenteval_otel.errors import CaptureError

__all__ = ["CAP_CHARS", "cap", "clean", "plain", "sanitise", "to_text"]

CAP_CHARS = 256 * 1024
_MAX_DEPTH = 32
_MAX_ITEMS = 10_000


def cap(text: str, limit: int = CAP_CHARS) -> str:
    """At most `limit` characters: three quarters of the head, one quarter of the tail, and a marker that says so."""
    if type(text) is not str:
        text = str.__str__(text)  # text of the host's own class: what it holds, by none of its methods
    if len(text) <= limit:
        return text
    marker = f"\n[... {len(text) - limit} characters left out ...]\n"
    head = limit * 3 // 4
    return text[:head] + marker + text[len(text) - (limit - head) :]


def sanitise(text: str) -> str:
    """Lone surrogates become U+FFFD and NUL is removed; other text comes back as the same object."""
    if "\0" in text:
        text = text.replace("\0", "")
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
    """The text of any object: strings as they are, JSON for plain data, `str` for the rest; always capped and clean.

    Cycles, depth and size are bounded, and nothing is iterated that is not a list, tuple, set or mapping.

    Raises:
        CaptureError: The object's own methods raised.
    """
    if value is None:
        return ""
    try:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, bytes | bytearray):
            return clean(bytes(value[: CAP_CHARS * 4]).decode("utf-8", "replace"))
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return clean(json.dumps(plain(value), ensure_ascii=False))
        return clean(str(value))
    except Exception as error:
        raise CaptureError(f"no text from {type(value).__name__}: {type(error).__name__}") from error


def plain(value: Any) -> Any:
    """A copy of any value as plain JSON data: bounded in depth, items and characters, cycles cut, text clean.

    Raises:
        CaptureError: The object's own methods raised.
    """
    try:
        return _Copy().of(value, _MAX_DEPTH, frozenset())
    except Exception as error:
        raise CaptureError(f"no plain data from {type(value).__name__}: {type(error).__name__}") from error


class _Copy:
    """One bounded copy: what it may still take of items and characters."""

    def __init__(self) -> None:
        self._items, self._chars = _MAX_ITEMS, 2 * CAP_CHARS

    def of(self, value: Any, depth: int, above: frozenset[int]) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value if not isinstance(value, int) or abs(value) < 1 << 64 else "[large number]"
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if depth == 0 or id(value) in above:
                return "[...]"
            return self._container(value, depth - 1, above | {id(value)})
        return self._text(value if isinstance(value, str) else str(value))

    def _container(self, value: Any, depth: int, above: frozenset[int]) -> Any:
        if isinstance(value, Mapping):
            pairs = self._some(value.items())
            return {clean(str(key), 256): self.of(item, depth, above) for key, item in pairs}
        return [self.of(item, depth, above) for item in self._some(value)]

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
