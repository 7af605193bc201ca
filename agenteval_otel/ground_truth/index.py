"""Where a question stands in a table: looked up by its words, in a time that hardly grows with the rows."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from agenteval_otel.ground_truth.words import folded, phrase_of, words_of

__all__ = ["Found", "Index", "OriginalIndex", "Prepared", "Question", "Row", "WordIndex", "module_name", "prepared"]

MAX_PARTIAL_CHARACTERS = 16_384
"""A longer text has no partial matches."""
MAX_LOOKED_AT = 2_000
"""Rows, or places in the prompt, that a partial match looks at, at most: it has a millisecond."""
MAX_PASSED = 5_000
"""Rows that it comes by on the way, those of other modules included."""
MAX_SCANNED = 20_000_000
"""Characters that the original's way goes through, rows times the length of the prompt; else it looks for equals."""


class Row(NamedTuple):
    """A row of a table, as it was written."""

    prompt: str
    answer: Any
    category: str | None = None
    module: str | None = None


class Question(NamedTuple):
    """A text and its words; none of a text that is too long for a partial match."""

    text: str
    folded: str
    words: list[str]
    phrase: str

    @classmethod
    def of(cls, text: str) -> Question:
        """The text, taken apart."""
        one = folded(text)
        words = words_of(one) if len(text) <= MAX_PARTIAL_CHARACTERS else []
        return cls(text, one, words, phrase_of(words))


class Prepared(NamedTuple):
    """A row with what it is found by, the module that it is for (None: for all), and its place in the file."""

    row: Row
    folded: str
    phrase: str
    length: int
    module: str | None
    at: int


class Found(NamedTuple):
    """A row that answers a question, and how much of the longer of the two questions the shorter one is."""

    row: Row
    share: float
    exact: bool


class Index(Protocol):
    """Finds the row for a question: among those of a module and those for all, or, without a module, among all."""

    def find(self, question: Question, module: str | None) -> Found | None: ...


def module_name(module: str | None) -> str | None:
    """The name of a module as it is compared; None where there is none."""
    return ((module or "").strip().casefold()) or None


def prepared(row: Row, at: int) -> Prepared:
    """The row with what it is found by."""
    question = Question.of(row.prompt)
    return Prepared(row, question.folded, question.phrase, len(question.words), module_name(row.module), at)


class FirstRows:
    """The first row of the file for a text, within each module: one place for all that most texts need."""

    def __init__(self) -> None:
        self._first: dict[str, Prepared] = {}
        self._of_others: dict[tuple[str, str | None], Prepared] = {}

    def add(self, text: str, one: Prepared) -> bool:
        """Whether it is the first of its module."""
        first = self._first.setdefault(text, one)
        if first.module != one.module:
            first = self._of_others.setdefault((text, one.module), one)
        return first is one

    def get(self, text: str, module: str | None) -> Prepared | None:
        """The first row for the text, of the module or for all modules; without a module, of all."""
        first = self._first.get(text)
        if first is None or _is_for(first, module):
            return first
        others = (self._of_others.get((text, name)) for name in (module, None))
        return min((one for one in others if one is not None), key=lambda one: one.at, default=None)


class WordIndex:
    """Finds the same question first, else the nearest one of those that stand in the other as whole words.

    Nearest is the one with the larger share; of equal ones a row that stands in the prompt, the first of those, and
    else the first in the file.

    Args:
        rows: In the order of the file.
        min_words: Words that the two must have in common, one after another.
        min_share: What the shorter of the two must be of the longer, in words.
        steadily: Wraps what takes long to go through, so that it can pause in between.
    """

    def __init__(
        self,
        rows: Sequence[Prepared],
        *,
        min_words: int,
        min_share: float,
        steadily: Callable[[Iterable[Prepared]], Iterable[Prepared]] = iter,
    ) -> None:
        self._min_words, self._min_share = min_words, min_share
        self._same, self._by_phrase = FirstRows(), FirstRows()
        # By its first words: how long the rows are that begin with them, the longest first.
        self._lengths: dict[str, list[int]] = {}
        # By word: where the rows that hold it are among those in order of length.
        self._holding: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        found: list[Prepared] = []
        for one in steadily(rows):
            self._same.add(one.folded, one)
            if one.length >= min_words and self._by_phrase.add(one.phrase, one):
                found.append(one)
                lengths = self._lengths.setdefault(_beginning(one.phrase, min_words), [])
                if one.length not in lengths:
                    lengths.append(one.length)
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        self._rows = sorted(found, key=lambda one: one.length)
        self._counts = array("I", (one.length for one in self._rows))
        self._modules = [one.module for one in self._rows]
        for at, one in enumerate(steadily(self._rows)):
            for word in set(one.phrase.split()):
                self._holding[word].append(at)

    def find(self, question: Question, module: str | None) -> Found | None:
        """The row for the question."""
        same = self._same.get(question.folded, module)
        if same is not None:
            return Found(same.row, 1.0, exact=True)
        count = len(question.words)
        if count < self._min_words or not self._rows:
            return None
        inside, around = self._row_inside(question, module), self._row_around(question, module)
        shares = (inside.length / count if inside else 0.0), (count / around.length if around else 0.0)
        nearest = inside if shares[0] >= shares[1] else around
        return None if nearest is None else Found(nearest.row, max(shares), exact=False)

    def _row_inside(self, question: Question, module: str | None) -> Prepared | None:
        """The longest row whose words stand in the question."""
        phrase, count = question.phrase, len(question.words)
        shortest = max(self._min_words, math.ceil(self._min_share * count))
        if shortest > self._counts[-1]:
            return None
        starts = _starts(question.words)
        best: Prepared | None = None
        looked_at = 0
        for at in range(count - shortest + 1):
            for length in self._lengths.get(phrase[starts[at] : starts[at + self._min_words] + 1], ()):
                if length < shortest or (best is not None and length <= best.length) or looked_at >= MAX_LOOKED_AT:
                    break
                if at + length <= count:
                    looked_at += 1
                    best = self._by_phrase.get(phrase[starts[at] : starts[at + length] + 1], module) or best
        return best

    def _row_around(self, question: Question, module: str | None) -> Prepared | None:
        """The shortest row in whose words the question stands."""
        phrase, count = question.phrase, len(question.words)
        if count > self._counts[-1]:
            return None
        longest = int(count / self._min_share)
        held = [self._holding.get(word) for word in question.words[:longest]]
        rarest = min((one for one in held if one is not None), key=len, default=None)
        if rarest is None or None in held:
            return None
        begin = bisect_left(rarest, bisect_left(self._counts, count))
        looked_at = 0
        end = bisect_left(rarest, bisect_right(self._counts, longest), begin)
        modules, fits = self._modules, (module, None)
        for at in rarest[begin : min(end, begin + MAX_PASSED)]:
            if module is None or modules[at] in fits:
                if phrase in self._rows[at].phrase:
                    return self._rows[at]
                looked_at += 1
                if looked_at >= MAX_LOOKED_AT:
                    break
        return None


class OriginalIndex:
    """Finds rows as the original does: ignoring case and nothing else, the first that holds the prompt or stands in it.

    Looks at every row, and for long prompts in large tables only for an equal one.
    """

    def __init__(self, rows: Sequence[Prepared]) -> None:
        self._rows = [(_upper(one.row.prompt), one) for one in rows]
        self._same = FirstRows()
        for text, one in self._rows:
            self._same.add(text, one)

    def find(self, question: Question, module: str | None) -> Found | None:
        """The row for the question."""
        text = _upper(question.text)
        same = self._same.get(text, module)
        if same is not None:
            return Found(same.row, 1.0, exact=True)
        for other, one in self._rows if len(text) * len(self._rows) <= MAX_SCANNED else ():
            if _is_for(one, module) and (text in other or other in text):
                shorter, longer = sorted(max(1, len(words_of(either))) for either in (question.folded, one.folded))
                return Found(one.row, shorter / longer, exact=False)
        return None


def _is_for(one: Prepared, module: str | None) -> bool:
    return module is None or one.module is None or one.module == module


def _upper(text: str) -> str:
    """Each character in upper case by itself, and none that is not ASCII becomes ASCII: .NET's ordinal comparison."""
    upper = text.upper()
    if len(upper) == len(text) and not ("\u0131" in text or "\u017f" in text):
        return upper
    return "".join([one if len(one := char.upper()) == 1 and not one < "\x80" <= char else char for char in text])


def _beginning(phrase: str, words: int) -> str:
    end = 0
    for _ in range(words):
        end = phrase.index(" ", end + 1)
    return phrase[: end + 1]


def _starts(words: list[str]) -> list[int]:
    """Where the space before each word is in their phrase, and the one after the last."""
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    return starts
