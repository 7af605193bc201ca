"""Scanning: where in a text something may stand that is to be redacted, found fast and in slices.

Text is looked at in windows of 32 K characters, so that no single step holds the interpreter for long. Each window is
seen in two forms of one byte a character: as it is, and `folded` (letters lower-cased, digits as ``0``, everything else
a space), in which a few searches for literals find every place worth a closer look. The places do not depend on where
the windows lie: each carries enough of its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Finding", "Window", "merged", "windows"]

WINDOW: Final = 32 * 1024
_BEFORE, _AFTER = 16, 96
_FOLDED: Final = bytes(
    48 if 48 <= code <= 57 else code | 32 if 65 <= code <= 90 else code if 97 <= code <= 122 else 32
    for code in range(256)
)


class Finding(NamedTuple):
    """A stretch of text to replace, and the marker that replaces it."""

    start: int
    end: int
    marker: str


class Window:
    """A stretch of text, from `start` to `end`, ready for searching.

    Attributes:
        text: The whole text, for the closer look.
        raw: The window with its surroundings, a byte a character; outside of ASCII a question mark.
        folded: The same with classes of characters instead of characters.
    """

    __slots__ = ("_offset", "_skip", "_until", "end", "folded", "raw", "start", "text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end
        before = min(_BEFORE, start)
        # One space first: what stands at the very start of the text stands at a boundary.
        self.raw = b" " + text[start - before : end + _AFTER].encode("ascii", "replace")
        self.folded = self.raw.translate(_FOLDED)
        self._offset = start - before - 1
        self._skip, self._until = before + 1, before + 1 + end - start

    def places(self, needle: bytes, *, folded: bool = False) -> Iterator[int]:
        """Positions in the text at which the literal begins, within the window."""
        where = self.folded if folded else self.raw
        at = where.find(needle, self._skip, self._until + len(needle) - 1)
        while at >= 0:
            yield at + self._offset
            at = where.find(needle, at + 1, self._until + len(needle) - 1)

    def ends(self, needle: bytes) -> Iterator[int]:
        """Positions in the text at which a literal ends: by its last letter, where that is a rare one."""
        before, last = len(needle) - 1, needle[-1:]
        at = self.raw.find(last, self._skip, self._until)
        while at >= 0:
            if self.raw.startswith(needle, max(0, at - before)):
                yield at + self._offset
            at = self.raw.find(last, at + 1, self._until)

    def matches(self, pattern: re.Pattern[bytes], *, folded: bool = False) -> Iterator[int]:
        """Positions in the text of the last byte of each match; what is ahead of it must be looked at, not taken."""
        for match in pattern.finditer(self.folded if folded else self.raw, self._skip - 1):
            at = match.end() - 1
            if at >= self._until:
                return
            if at >= self._skip:
                yield at + self._offset


def windows(text: str) -> Iterator[Window]:
    """The windows of a text, in order; together they cover it."""
    for start in range(0, len(text), WINDOW):
        yield Window(text, start, min(start + WINDOW, len(text)))


def merged(findings: list[Finding]) -> list[Finding]:
    """The findings in order, those that overlap made one, with the marker of the one that begins first or is longer."""
    if len(findings) < 2:
        return findings
    kept: list[Finding] = []
    for finding in sorted(findings, key=lambda item: (item.start, -item.end)):
        last = kept[-1] if kept else None
        if last is not None and finding.start < last.end:
            if finding.end > last.end:
                kept[-1] = last._replace(end=finding.end)
            continue
        kept.append(finding)
    return kept
