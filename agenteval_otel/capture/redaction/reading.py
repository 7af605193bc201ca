r"""Reading: one plain form of a text, in which each kind is searched once, however it was written.

A card number with en dashes, ``jane%40mail.example`` in an address and ``\u0022password\u0022``
in a string of JSON are the same to a reader, so they are the same to the patterns. `PlainText` says
where each stretch of the plain form stands in the text as it was.
"""

from __future__ import annotations

import functools
import unicodedata
from bisect import bisect_right
from html import unescape
from typing import Final, NamedTuple

from agenteval_otel.runtime.reentrancy import sign_of_life
from agenteval_otel.runtime.text import lazily

# Layers of encoding that are taken off: JSON in an address in JSON.
_MAX_LAYERS: Final = 3
_SHORT_CHARS: Final = 128
MANY: Final = 256
"""How many places of a text are looked at between two signs of life."""

_DASHES: Final = "\u02d7\u058a\u1806\u2010-\u2015\u2043\u2212"
_SPACES: Final = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_FORMS: Final = "\ufe50-\ufe6b\uff01-\uff5e"  # full-width and small
# The first of the ten digits of each other writing (category Nd of Unicode 15).
_ZEROS: Final = (
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50,
    0xED0, 0xF20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40,
    0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
)  # fmt: skip
_NUMERALS: Final = "".join(f"{chr(zero)}-{chr(zero + 9)}" for zero in _ZEROS)
# What is not seen: soft hyphens, joiners, marks of direction, selectors, fillers.
_UNSEEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
)
# The full stop of Chinese and Japanese is the dot of a domain between letters and digits alone.
_STOP: Final = r"(?<=[A-Za-z0-9])[\u3002\uff61](?=[A-Za-z0-9])"
# Beyond the 16 bits within which `re` finds a character of a set at once: digits of rare writings,
# the letters and digits of mathematics, tags.
_RARE: Final = "\U000104a0-\U0001ecff\U0001fbf0-\U0001fbf9"
_RARE_UNSEEN: Final = "\U000e0000-\U000e01ef"

_HEXADECIMAL: Final = "[0-9A-Fa-f]"
_BYTE: Final = f"%(?:25){{0,8}}{_HEXADECIMAL}{{2}}"
_ENCODED: Final = lazily(
    rf"[{_DASHES}{_SPACES}{_FORMS}{_NUMERALS}{_RARE}]++|{_STOP}|[{_UNSEEN}{_RARE_UNSEEN}]++"
    rf"|%(?={_HEXADECIMAL}{{2}})(?:25){{0,8}}(?:[2-7]{_HEXADECIMAL}|0[9AaDd]"
    rf"|[CDcd]{_HEXADECIMAL}{_BYTE}|[Ee]{_HEXADECIMAL}(?:{_BYTE}){{2}}|[Ff][0-4](?:{_BYTE}){{3}})"
    rf"|\\++(?:u{_HEXADECIMAL}{{4}}|U0000{_HEXADECIMAL}{{4}}|x[0-7]{_HEXADECIMAL}|[nrt/]|)"
    rf"|&(?:\#[0-9]{{1,6}}|\#[xX]{_HEXADECIMAL}{{1,6}}|[A-Za-z]{{2,8}});"
)
_SIGNS: Final = "%&\\"
_FIRST: Final = rf"%&\\{_DASHES}{_SPACES}{_FORMS}{_NUMERALS}{_UNSEEN}\u3002\uff61"
_PLACE: Final = lazily(f"[{_FIRST}]")
_RARE_CHAR: Final = lazily(f"[{_RARE}{_RARE_UNSEEN}]")
_ANY_PLACE: Final = lazily(f"[{_FIRST}{_RARE}{_RARE_UNSEEN}]")
_PERCENT: Final = lazily(f"%(?:25)*(?={_HEXADECIMAL}{{2}})")
_DASH: Final = lazily(f"[{_DASHES}\ufe58\ufe63\uff0d]")
_UNSEEN_CHAR: Final = lazily(f"[{_UNSEEN}{_RARE_UNSEEN}]")


class _Replaced(NamedTuple):
    """A stretch of the text, and where its plain form begins and ends."""

    start: int
    end: int
    plain_start: int
    plain_end: int


class PlainText:
    """The plain form of a text, and where its parts come from.

    Attributes:
        text: The plain form. It is the same object where nothing is encoded.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._layers: list[tuple[list[int], list[_Replaced]]] = []
        while len(self._layers) < _MAX_LAYERS and self._take_off_layer():
            pass

    def __repr__(self) -> str:
        return f"<Reading layers={len(self._layers)}>"

    @property
    def differs(self) -> bool:
        return bool(self._layers)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the stretch of the original text that this stretch of the plain form is made of."""
        for starts, replaced in reversed(self._layers):
            start, _ = _origin(starts, replaced, start)
            _, end = _origin(starts, replaced, end - 1)
        return start, end

    def _take_off_layer(self) -> bool:
        """Replace what is encoded by what it stands for. Return whether another layer may follow."""
        text = self.text
        is_ascii = text.isascii()
        if is_ascii and "%" not in text and "\\" not in text and "&" not in text:
            return False
        is_rare = not is_ascii and _RARE_CHAR.search(text) is not None
        place = (_ANY_PLACE if is_rare else _PLACE).search
        parts: list[str] = []
        replaced: list[_Replaced] = []
        done = 0
        length = 0
        is_decoded = False
        spot = place(text)
        count = 0
        while spot is not None:
            count += 1
            if count % MANY == 0:
                sign_of_life()
            start = spot.start()
            match = _ENCODED.match(text, start)
            encoded = spot[0] if match is None else match[0]
            end = start + len(encoded)
            spot = place(text, end)
            plain = _plain_form(encoded) if len(encoded) <= _SHORT_CHARS else _folded_run(encoded)
            if match is None or plain == encoded:
                continue
            parts += (text[done:start], plain)
            length += start - done
            if len(plain) != len(encoded):  # else the places stay as they are
                replaced.append(_Replaced(start, end, length, length + len(plain)))
                is_decoded = True
            length += len(plain)
            done = end
        if not parts:
            return False
        parts.append(text[done:])
        self.text = "".join(parts)
        self._layers.append(([item.plain_start for item in replaced], replaced))
        return is_decoded  # what was taken off may have held another layer


def _origin(starts: list[int], replaced: list[_Replaced], at: int) -> tuple[int, int]:
    """Return where a character of the plain form begins and ends in the text before it."""
    index = bisect_right(starts, at) - 1
    if index < 0:
        return at, at + 1
    last = replaced[index]
    if at < last.plain_end:
        return last.start, last.end
    start = last.end + at - last.plain_end
    return start, start + 1


@functools.lru_cache(maxsize=4096)  # the same few signs are encoded again and again
def _plain_form(encoded: str) -> str:
    """Return the characters that a stretch stands for, or the stretch if it is not encoded."""
    first = encoded[0]
    if len(encoded) == 1 and first in _SIGNS:
        return encoded
    if first == "%":
        return _of_bytes(encoded)
    if first == "&":
        plain = unescape(encoded)
        return plain if len(plain) == 1 else encoded
    return _of_escape(encoded) if first == "\\" else _folded_run(encoded)


def _folded_run(run: str) -> str:
    return "" if _UNSEEN_CHAR.match(run) else "".join(map(_folded, run))


@functools.lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    """Return the ASCII character that another one is a form of, else the character itself."""
    if _DASH.match(char):
        return "-"
    if char in "\u3002\uff61":
        return "."
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    plain = unicodedata.normalize("NFKC", char)
    if plain.isspace():
        return " "
    return plain if len(plain) == 1 and plain.isascii() else char


def _of_bytes(encoded: str) -> str:
    try:
        return bytes.fromhex(_PERCENT.sub("", encoded)).decode()
    except UnicodeDecodeError:
        return encoded


def _of_escape(encoded: str) -> str:
    """Decode an escape of JSON or of a string in code.

    A quote keeps its backslashes, which tell how deep it stands. The end of a line becomes a
    carriage return, so that it differs from those of the text itself.
    """
    name = encoded.lstrip("\\")
    if not name:
        return encoded
    if name in ("n", "r", "t"):
        return "\r"
    if name == "/":
        return "/"
    code = int(name[1:], 16)
    char = chr(code)
    if char == "\\" or 0xD800 <= code < 0xE000:  # half of a character has no plain form
        return encoded
    return encoded[: -len(name)] + char if char in "\"'" else char
