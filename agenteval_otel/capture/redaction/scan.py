"""Scanning: fast searches for the places in a text where something may have to be redacted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from agenteval_otel.capture.redaction.reading import MANY
from agenteval_otel.runtime.reentrancy import sign_of_life


def _folded_byte(code: int) -> int:
    if 48 <= code <= 57:
        return 48
    if 65 <= code <= 90:
        return code | 32
    return code if 97 <= code <= 122 else 32


_FOLDED: Final = bytes(_folded_byte(code) for code in range(256))


class Finding(NamedTuple):
    """A stretch of text to replace, and the marker that replaces it."""

    start: int
    end: int
    marker: str


class Scan:
    """Holds a text, and two forms of it of one byte a character.

    A few searches in these forms find what needs a closer look. The work is bounded by the text's
    length, so it gives signs of life.

    `raw` is the text, outside of ASCII a question mark. `folded` has letters in lower case, ``0``
    for every digit and a space for everything else.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # A leading space, so that the start of the text counts as a boundary.
        self.raw = b" " + text.encode("ascii", "replace")
        self.folded = self.raw.translate(_FOLDED)

    def places(self, needle: bytes, *, folded: bool = False) -> Iterator[int]:
        """Yield the positions in the text at which the literal begins."""
        where = self.folded if folded else self.raw
        count = 0
        at = where.find(needle, 1)
        while at >= 0:
            count += 1
            if count % MANY == 0:
                sign_of_life()
            yield at - 1
            at = where.find(needle, at + 1)

    def matches(self, pattern: re.Pattern[bytes], *, folded: bool = False) -> Iterator[int]:
        """Yield the positions in the text of the last byte of each match.

        Patterns use a lookahead for what follows it.
        """
        for count, match in enumerate(pattern.finditer(self.folded if folded else self.raw), 1):
            if count % MANY == 0:
                sign_of_life()
            yield match.end() - 2


def merged(findings: list[Finding]) -> list[Finding]:
    """Return the findings in order, overlapping ones joined.

    They get the marker of the first, or of the longer of two firsts.
    """
    kept: list[Finding] = []
    for count, finding in enumerate(sorted(findings), 1):
        if count % MANY == 0:
            sign_of_life()
        last = kept[-1] if kept else None
        if last is None or finding.start >= last.end:
            kept.append(finding)
        elif finding.start == last.start:
            kept[-1] = finding  # sorted: not shorter than the one before it
        elif finding.end > last.end:
            kept[-1] = last._replace(end=finding.end)
    return kept
