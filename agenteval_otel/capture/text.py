"""Text made safe for evaluators and exporters: capped, sanitised, and made of plain data.

Background thread only.

One lone surrogate in an event's name or body loses a whole batch in the OTLP exporter.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from agenteval_otel.capture.detached import Detached, NamedList, Unreadable
from agenteval_otel.capture.ownership import is_own, module_of
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.redaction import PatternRedactor
from agenteval_otel.runtime.text import sanitise

CAP_CHARS: Final = 256 * 1024
_MARGIN_CHARS: Final = 16 * 1024
_WORD_CHARS: Final = 128
_MARKER: Final = re.compile(r"\n\[\.\.\. [0-9]{1,12} characters left out \.\.\.\]\n")
_MARKER_CHARS: Final = 48  # at most
_BASE64: Final = ";base64,"
_DATA_URL: Final = re.compile(
    r"data:(\w{1,32})/[\w.+-]{1,64}(?:;[\w.=+-]{1,64}){0,3};base64,", re.ASCII
)
_BASE64_PIECE: Final = re.compile(r"[A-Za-z0-9+/=_%-]{0,65536}")
_LEAST_PAYLOAD: Final = 256
_KINDS: Final = {"image": "image", "audio": "audio", "video": "video"}
_MAX_DEPTH: Final = 32
_MAX_ITEMS: Final = 10_000
# Tuples, because a union of types is made anew each time that it is written in a call.
_NUMBERS: Final = (bool, int, float)
_OBJECTS: Final = (Detached, NamedList)
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)


def without_data_urls(text: str) -> str:
    """Return the text with a word such as ``[image]`` in the place of each data URL in base64.

    A person sees the picture and not its base64. Data URLs with a short payload stay: they are
    examples in code.
    """
    if _BASE64 not in text:
        return text
    parts: list[str] = []
    done = 0
    for match in _DATA_URL.finditer(text):
        begin, end = match.span()
        if begin < done:
            continue
        # In pieces: on many megabytes one match would hold up the other threads.
        while True:
            piece = _BASE64_PIECE.match(text, end)
            if piece is None or piece.end() == end:
                break
            end = piece.end()
        if end - match.end() >= _LEAST_PAYLOAD:
            parts += [text[done:begin], f"[{_KINDS.get(match[1].lower(), 'file')}]"]
            done = end
    return "".join([*parts, text[done:]])


def cap(text: str, limit: int = CAP_CHARS) -> str:
    """Keep at most `limit` characters: three quarters of the head and one quarter of the tail.

    A marker between them says so, and is not counted. A text that was cut to as many before stays
    as it is. Data URLs are left out first.

    No secret, number or address that redaction knows is cut in two: neither half would be
    recognised later.
    """
    text = without_data_urls(text)
    if len(text) <= limit or _is_cut_to(text, limit):
        return text
    near = min(_WORD_CHARS, limit // 8)
    head = _cut(text, limit * 3 // 4, near, before=True)
    tail = _cut(text, len(text) - (limit - limit * 3 // 4), near, before=False)
    return f"{text[:head]}\n[... {tail - head} characters left out ...]\n{text[tail:]}"


def _is_cut_to(text: str, limit: int) -> bool:
    if len(text) > limit + _MARKER_CHARS:
        return False
    marker = _MARKER.search(text)
    return marker is not None and len(text) - len(marker[0]) <= limit


def _cut(text: str, at: int, near: int, *, before: bool) -> int:
    """Return where to cut instead: at the edge of the word or secret at `at`.

    Less of the text is kept by that.
    """
    if not text[at - 1].isspace() and not text[at].isspace():
        if before:
            at -= len(re.search(r"(?:\s\S*|)\Z", text[at - near : at])[0])  # type: ignore[index]
        else:
            at += len(re.match(r"(?:\S*\s|)", text[at : at + near])[0])  # type: ignore[index]
    begin = max(0, at - _MARGIN_CHARS)
    for start, end, _ in _redactor().findings(text[begin : at + _MARGIN_CHARS]):
        if begin + start < at < begin + end:
            return begin + start if before else begin + end
    return at


@functools.cache
def _redactor() -> PatternRedactor:
    return PatternRedactor()


def clean(text: str, limit: int = CAP_CHARS) -> str:
    """Return the text after `cap`, then `sanitise`."""
    if len(text) <= limit and text.isascii() and "\0" not in text and _BASE64 not in text:
        return text  # nearly all: ids, names, keys
    return sanitise(cap(text, limit))


def to_text(value: object) -> str:
    """Return a detached value as clean text: JSON for data.

    Raise `CaptureError` if nothing of it can be read.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bytes):
        if len(value) > 8 * CAP_CHARS:  # the cut is far within what `clean` leaves out
            value = value[: 4 * CAP_CHARS] + value[-4 * CAP_CHARS :]
        return clean(value.decode("utf-8", "replace"))
    if isinstance(value, dict | list | tuple | Detached | Unreadable):
        return clean(json.dumps(plain(value), ensure_ascii=False))
    return clean(_text_of(value))


def plain(value: object) -> Any:
    """Return a copy as JSON data, without cycles and with clean text.

    It is bounded in depth, items and characters. Raise `CaptureError` if nothing of the value can
    be read.
    """
    refuse_unreadable(value)
    return PlainCopy().take(value)


def refuse_unreadable(value: object) -> None:
    """Raise `CaptureError` for a value of which nothing could be read."""
    if type(value) is Unreadable:
        raise CaptureError(f"no text from {value.type_name}: {value.problem}", reason=value.reason)


def own_json(value: object, handler: Callable[..., Any] | None) -> str:
    """Return the JSON of the handler's own data.

    An object of another library within it is replaced by the name of its class: no user saw its
    fields.

    Args:
        value: A detached mapping, list or object.
        handler: The function that gave or took it. None if none is known.

    Raises:
        CaptureError: It is an object of another library, or holds such objects and no text beside
            them, or is no plain data.
    """
    if type(value) is Detached and not value.is_data:
        raise CaptureError(
            f"no text from {value.type_name}: it is no plain data and has no field of a known name",
            reason="unreadable_object",
        )
    module = None if handler is None else module_of(handler)
    copy = PlainCopy(lambda inner: is_own(inner.module, module))
    data = copy.take(value)
    if copy.foreign is not None and not copy.has_text:
        raise CaptureError(
            f"no text from {copy.foreign}: it is an object of another library, without a text in a "
            "field of a known name",
            reason="foreign_object",
        )
    return clean(json.dumps(data, ensure_ascii=False))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        raise CaptureError(
            f"no text from {type(value).__name__}: {type(error).__name__}",
            reason="unreadable_object",
        ) from error


class PlainCopy:
    """Copies one or several values, with one limit on items and characters for all of them.

    Args:
        is_own: Tells of an object whether it is the handler's own. Of others only the class is
            named. None copies all objects.

    Attributes:
        foreign: The class of the first object of another library.
        has_text: Whether a text of the handler's own was copied.
    """

    def __init__(self, is_own: Callable[[Detached | NamedList], bool] | None = None) -> None:
        self._items = _MAX_ITEMS
        self._chars = 2 * CAP_CHARS
        self._is_own = is_own
        self.foreign: str | None = None
        self.has_text = False

    def take(
        self, value: object, depth: int = _MAX_DEPTH, above: frozenset[int] = frozenset()
    ) -> Any:
        """Return a copy of the value. `above` are the ids of the containers that it lies in."""
        if type(value) is str:
            text = clean(value, max(64, self._chars))
            self._chars -= len(text)
            self.has_text = True
            return text
        if value is None or isinstance(value, _NUMBERS):
            return value if not isinstance(value, int) or abs(value) < 1 << 64 else "[large number]"
        if isinstance(value, _OBJECTS):
            if self._is_own is not None and not self._is_own(value):
                self.foreign = self.foreign or value.type_name
                return f"[{clean(value.type_name, 128)}]"
            value = value.fields if isinstance(value, Detached) else value
        if not isinstance(value, _CONTAINERS):
            if isinstance(value, bytes | bytearray):
                value = value[:CAP_CHARS]
            text = value if isinstance(value, str) else _text_of(value)
            text = clean(text, max(64, self._chars))
            self._chars -= len(text)
            return text
        if depth == 0 or id(value) in above:
            return "[...]"
        depth -= 1
        above |= {id(value)}
        if isinstance(value, dict):
            pairs = self._within_limit(value.items())
            return {clean(_text_of(key), 256): self.take(item, depth, above) for key, item in pairs}
        return [self.take(item, depth, above) for item in self._within_limit(value)]

    def _within_limit(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self._items <= 0:
                return
            self._items -= 1
            yield item
