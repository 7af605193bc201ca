"""Searching in time linear in the text, whatever the text: words as they stand, and RE2 for patterns.

RE2 is met here and nowhere else, imported with the first pattern that is not a word, and an extra: without it only
words are linear. It searches UTF-8, in which lone surrogates are encoded like any character, and lets other threads run
meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from agenteval_otel.patterns.re2_source import NotLinear, Re2Writer
from agenteval_otel.patterns.syntax import Branches, Chars, Node

__all__ = ["Automaton", "Linear", "NotLinear", "Words", "linear_form"]

# For one pattern and what it remembers of the text; crafted text can fill it.
_MEMORY_BYTES = 2 * 1024 * 1024


class Words(NamedTuple):
    """Words, as they stand, of which one must occur; with `sticky` at the start of the text."""

    words: tuple[str, ...]
    sticky: bool

    @property
    def gives_spans(self) -> bool:
        return len(self.words) == 1

    def found(self, text: str) -> bool:
        """Whether one of the words occurs."""
        return text.startswith(self.words) if self.sticky else any(word in text for word in self.words)

    def spans(self, text: str, *, limit_s: float) -> Iterator[tuple[int, int]]:
        """Where the only word occurs, in order and without overlaps."""
        (word,) = self.words
        at = text.find(word) if word else -1
        while at >= 0:
            yield at, at + len(word)
            at = text.find(word, at + len(word))


class Automaton:
    """A pattern of RE2.

    Args:
        source: In RE2's syntax.
        sticky: Matches at the start of the text only.
        gives_spans: Whether the places of its matches are JavaScript's, too.

    Raises:
        NotLinear: RE2 refuses it, by its size.
    """

    def __init__(self, source: str, *, sticky: bool, gives_spans: bool) -> None:
        self._source, self._sticky, self.gives_spans = source, sticky, gives_spans
        self._compiled, self._pid = _compiled(source), os.getpid()

    def __repr__(self) -> str:
        return f"<Automaton {self._source!r}>"

    def found(self, text: str) -> bool:
        """Whether the pattern occurs."""
        compiled = self._of_this_process()
        look = compiled.match if self._sticky else compiled.search
        return look(text.encode("utf-8", "surrogatepass")) is not None

    def spans(self, text: str, *, limit_s: float) -> Iterator[tuple[int, int]]:
        """Where the pattern occurs, in order and without overlaps.

        One search is linear; as many as there are matches need not be, so the limit holds between them.

        Raises:
            TimeoutError: They took longer than `limit_s` seconds.
        """
        data = text.encode("utf-8", "surrogatepass")
        give_up = time.monotonic() + limit_s
        byte = char = 0
        for match in self._of_this_process().finditer(data):
            if time.monotonic() > give_up:
                raise TimeoutError(f"no end within {limit_s:g} s")
            start, end = match.span()
            first = char + _length(data[byte:start])
            byte, char = end, first + _length(data[start:end])
            yield first, char

    def _of_this_process(self) -> Any:
        if self._pid != os.getpid():
            # The fork may have come while a thread was inside of the pattern: nobody would open its locks here.
            _engine().purge()
            self._compiled, self._pid = _compiled(self._source), os.getpid()
        return self._compiled


Linear: TypeAlias = Words | Automaton


def linear_form(branches: Branches, flags: str) -> Linear:
    """The parsed pattern in its linear form.

    Raises:
        NotLinear: It has none, or none here.
    """
    sticky = "y" in flags
    words = _words_of(branches)
    if words is not None and (len(words) == 1 or _engine() is None):
        return Words(words, sticky)
    writer = Re2Writer(branches, sticky=sticky)
    source = writer.source()
    if _engine() is None:
        raise NotLinear("the extra re2 is not installed")
    return Automaton(source, sticky=sticky, gives_spans=writer.gives_spans)


def _words_of(branches: Branches) -> tuple[str, ...] | None:
    words = []
    for branch in branches:
        points = [_point_of(node) for node in branch]
        if None in points:
            return None
        words.append("".join(chr(point) for point in points if point is not None))
    return tuple(words)


def _point_of(node: Node) -> int | None:
    if not isinstance(node, Chars) or node.negated or node.properties or len(node.ranges) != 1:
        return None
    ((low, high),) = node.ranges
    return low if low == high else None


def _length(data: bytes) -> int:
    return len(data) if data.isascii() else len(data.decode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1)
def _engine() -> Any:
    """The module `re2`, if it is Google's: others of that name give up or go back to `re`. None without it."""
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(getattr(re2, "Options", None), "NAMES") else None


def _compiled(source: str) -> Any:
    engine = _engine()
    options = engine.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MEMORY_BYTES
    try:
        return engine.compile(source, options)
    except engine.error:
        raise NotLinear("too large for the linear engine") from None
