"""Stored text for a page.

It is plain text, cut to a maximum length, with invisible characters made visible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from agenteval_otel.storage.words import WantedWord, places_of

MAX_SHOWN: Final = 20_000
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)


class Shown(NamedTuple):
    """Holds a text for a page.

    Attributes:
        note: What was cut.
    """

    text: str
    note: str = ""


def visible(text: str) -> str:
    """Return the text with control characters as pictures of them.

    Marks that change the direction of text are replaced by their numbers.
    """
    return _INVISIBLE.sub(lambda match: _picture(ord(match[0])), text.replace("\r\n", "\n"))


def shown(value: object, limit: int = MAX_SHOWN) -> Shown:
    """Return a value in words: text as it stands, everything else as JSON.

    The text is cut after `limit` characters, with a note.
    """
    if isinstance(value, str):
        text = value
    elif value is None:
        text = ""
    else:
        text = _json(value)
    if len(text) <= limit:
        return Shown(visible(text))
    return Shown(visible(text[:limit]), f"cut: the first {limit:,} of {len(text):,} characters")


def brief(text: str, limit: int = 140) -> str:
    """Return the beginning of a text in one line."""
    line = visible(" ".join(text[: 4 * limit].split()))
    if len(line) > limit or len(text) > 4 * limit:
        return f"{line[: limit - 1]}…"
    return line


def duration_text(seconds: float) -> str:
    """Return a duration in words: ``40 µs``, ``12 ms``, ``2.4 s``, ``1 min 15 s``."""
    if 0 < seconds < 0.0000995:
        return f"{seconds * 1e6:.0f} \N{MICRO SIGN}s"
    if seconds < 0.9995:
        milliseconds = seconds * 1000
        return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def marked(text: str, wanted: Sequence[WantedWord]) -> list[tuple[str, bool]]:
    """Return the text in parts, and of each whether it is one of the wanted words."""
    parts = []
    end = 0
    for begin, word_end in places_of(text, wanted):
        parts += [(text[end:begin], False), (text[begin:word_end], True)]
        end = word_end
    parts.append((text[end:], False))
    return [part for part in parts if part[0]]


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except RecursionError:
        return "(nested too deeply to be shown)"
