"""Characters of JavaScript patterns: escapes, classes and the letters that are equal without regard to case.

The lower half of `expressions`: what a single atom of a pattern stands for, as code points and ranges of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["AtomReader", "Ranges", "as_ranges", "complement", "escaped", "fold_closure", "is_digits"]

Ranges = tuple[tuple[int, int], ...]

_LAST = sys.maxunicode
_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = (
    (9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")


class AtomReader:
    """Reads a pattern from left to right; `_at` is the next character to read."""

    def __init__(self, pattern: str, flags: str) -> None:
        self._pattern, self._at = pattern, 0
        self._unicode = "u" in flags or "v" in flags
        self._sets = "v" in flags
        self._fold = "i" in flags
        self._inside = False

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _eat(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _atom(self) -> int | Ranges | str:
        """What stands after a backslash: a code point, a class, or (as text) a property."""
        char = self._peek()
        if not char:
            raise ValueError("\\ at end of pattern")
        self._at += 1
        shorthand = {"d": _DIGIT, "w": _WORD, "s": _SPACE}.get(char.lower())
        if shorthand:
            if self._fold and self._unicode and char in "wW":
                shorthand = fold_closure(shorthand, True)
            return shorthand if char.islower() else complement(shorthand)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "pP" and self._unicode:
            return self._property(char)
        if char in "xu":
            return self._hexadecimal(char)
        if char == "c":
            return self._control()
        return self._octal(char) if is_digits(char) else self._identity(char)

    def _identity(self, char: str) -> int:
        if self._unicode and char not in _SYNTAX and not (self._inside and char == "-"):
            raise ValueError(f"invalid escape \\{char}")
        return ord(char)

    def _octal(self, char: str) -> int:
        if self._unicode and (char != "0" or is_digits(self._peek())):
            raise ValueError("invalid decimal escape")
        digits = char
        while digits[0] < "8" and self._peek() in tuple("01234567") and int(digits + self._peek(), 8) < 256:
            digits += self._peek()
            self._at += 1
        return int(digits, 8) if digits[0] < "8" else ord(char)

    def _control(self) -> int:
        letter = self._peek()
        if letter.isascii() and letter.isalpha():
            self._at += 1
            return ord(letter) % 32
        if self._unicode:
            raise ValueError("invalid unicode escape")
        self._at -= 1  # a lone \c is a backslash followed by the letter
        return 92

    def _hexadecimal(self, kind: str) -> int:
        if kind == "u" and self._unicode and self._eat("{"):
            end = self._pattern.find("}", self._at)
            digits = self._pattern[self._at : max(end, self._at)]
            self._at = end + 1
            if not _is_hex(digits) or int(digits, 16) > _LAST:
                raise ValueError("invalid unicode escape")
            return int(digits, 16)
        point = self._hex(4 if kind == "u" else 2)
        if point is None:
            if self._unicode:
                raise ValueError("invalid hexadecimal escape")
            return ord(kind)
        return self._low_half(point) if 0xD800 <= point < 0xDC00 else point

    def _low_half(self, high: int) -> int:
        mark = self._at
        low = self._hex(4) if self._eat("\\u") else None
        if low is not None and 0xDC00 <= low < 0xE000:
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        self._at = mark
        return high

    def _hex(self, count: int) -> int | None:
        digits = self._pattern[self._at : self._at + count]
        if len(digits) != count or not _is_hex(digits):
            return None
        self._at += count
        return int(digits, 16)

    def _property(self, kind: str) -> str:
        end = self._pattern.find("}", self._at)
        if not self._eat("{") or end < 0:
            raise ValueError("invalid property name")
        name = self._pattern[self._at : end]
        self._at = end + 1
        if not name.replace("=", "_", 1).isidentifier() or not name.isascii():
            raise ValueError("invalid property name")
        return f"\\{kind}{{{name}}}"


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_hex(text: str) -> bool:
    return bool(text) and all(char in "0123456789abcdefABCDEF" for char in text)


def escaped(ranges: Ranges, form: str = "\\U{:08X}") -> str:
    """The ranges as the inside of a class; `form` is how the engine writes a code point."""
    ends = ((_char(low, form), _char(high, form)) for low, high in ranges)
    return "".join(low if low == high else f"{low}-{high}" for low, high in ends)


def _char(point: int, form: str) -> str:
    return chr(point) if point < 128 and chr(point).isalnum() else form.format(point)


def as_ranges(item: int | Ranges | str) -> tuple[Ranges, str]:
    if isinstance(item, str):
        return (), item
    return (((item, item),) if isinstance(item, int) else item), ""


def complement(ranges: Ranges) -> Ranges:
    """Everything else."""
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    return (*gaps, (start, _LAST)) if start <= _LAST else tuple(gaps)


def fold_closure(ranges: Ranges, unicode: bool) -> Ranges:
    """The ranges with every character that JavaScript takes as equal to one of theirs under the ``i`` flag."""
    if not unicode and all(high < 128 for _, high in ranges):
        letters = (chr(point) for low, high in ranges for point in range(low, high + 1) if chr(point).isalpha())
        extra: Iterable[int] = (ord(letter.swapcase()) for letter in letters)
    else:
        table = _equivalents(unicode)
        extra = (same for point in table if any(low <= point <= high for low, high in ranges) for same in table[point])
    return ranges + tuple((point, point) for point in sorted(set(extra)) if not _covers(ranges, point))


def _covers(ranges: Ranges, point: int) -> bool:
    return any(low <= point <= high for low, high in ranges)


@lru_cache(maxsize=2)
def _equivalents(unicode: bool) -> dict[int, tuple[int, ...]]:
    classes: dict[str, list[int]] = {}
    # Letters with case end well below U+1F000; without the u flag only single UTF-16 units fold.
    for point in range(0x1F000 if unicode else 0x10000):
        classes.setdefault(_simple_fold(chr(point)) if unicode else _upper(chr(point)), []).append(point)
    return {point: tuple(same) for same in classes.values() if len(same) > 1 for point in same}


def _upper(char: str) -> str:
    upper = char.upper()
    return char if len(upper) != 1 or (ord(char) > 127 and ord(upper) < 128) else upper


def _simple_fold(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1:
            return folded
    return char
