"""Text made safe for evaluators and exporters: capped, sanitised, and got from any object without harm.

Runs on the pool's thread. One lone surrogate in an event name or body loses a whole batch in the OTLP exporter, so
every string passes `sanitise` before it reaches the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agenteval_otel.errors import CaptureError

__all__ = ["CAP_CHARS", "cap", "clean", "sanitise", "to_text"]

CAP_CHARS = 256 * 1024
_MAX_DEPTH = 32
_MAX_KEYS = 1_000


def cap(text: str, limit: int = CAP_CHARS) -> str:
    """At most `limit` characters: three quarters of the head, one quarter of the tail, and a marker that says so."""
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
    if isinstance(value, str):
        return clean(value)
    try:
        if isinstance(value, bytes | bytearray):
            return clean(bytes(value[: CAP_CHARS * 4]).decode("utf-8", "replace"))
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return clean(json.dumps(_plain(value, _MAX_DEPTH, set()), ensure_ascii=False))
        return clean(str(value))
    except Exception as error:
        raise CaptureError(f"no text from {type(value).__name__}: {type(error).__name__}") from error


def _plain(value: Any, depth: int, above: set[int]) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value if not isinstance(value, int) or abs(value) < 1 << 64 else "[large number]"
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth == 0 or id(value) in above:
            return "[...]"
        above = above | {id(value)}
        if isinstance(value, Mapping):
            items = list(value.items())[:_MAX_KEYS]
            return {clean(str(key), 256): _plain(item, depth - 1, above) for key, item in items}
        return [_plain(item, depth - 1, above) for item in list(value)[:_MAX_KEYS]]
    return clean(str(value))
