"""Finds the row of a table that answers a question.

The time hardly grows with the number of rows.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from operator import attrgetter
from typing import Literal, NamedTuple

from agenteval_otel.evaluators.ground_truth.base import GroundTruth
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.runtime.text import composed, lazily

_MAX_PARTIAL_CHARACTERS = 16_384  # a longer prompt finds only the same question
# rows, or stretches of the prompt, that a partial match looks at: about a millisecond
_MAX_CANDIDATES = 5_000
# rows times characters of the prompt that ``matching: original`` looks at
_MAX_SCANNED = 20_000_000
# Scripts without spaces between words: each character counts as a word.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = lazily(r"[a-z0-9]+")
_WORD = lazily(f"[{_SPACELESS}]|[^\\W_{_SPACELESS}]+")


class TableRow(NamedTuple):
    """Holds a row of a table, as it was written."""

    prompt: str
    answer: object
    category: str | None = None
    module: str | None = None


class NormalizedQuery(NamedTuple):
    """Holds a text as it is compared, and its words.

    The text is composed (NFC) and case folded, with each run of whitespace as one space. The phrase
    has a space around each word. A text that is too long for a partial match has no words.
    """

    text: str
    words: list[str]
    phrase: str

    @classmethod
    def of(cls, text: str) -> NormalizedQuery:
        normalized = _normalized(text)
        words = _words_of(normalized) if len(text) <= _MAX_PARTIAL_CHARACTERS else []
        return cls(normalized, words, f" {' '.join(words)} ")


class _Entry(NamedTuple):
    """Holds a row with the forms by which it is found.

    Attributes:
        phrase: The prompt's words with a space around each. For `SubstringIndex` the prompt in upper
            case.
        length: How many words the phrase has. 0 for `SubstringIndex`.
        module: The module as it is compared. None for a row that every module has.
    """

    row: TableRow
    phrase: str
    length: int
    module: str | None

    def applies_to(self, module: str | None) -> bool:
        return module is None or self.module is None or self.module == module


# the row, how it was found, and its share: the shorter number of words by the longer one, 0 to 1
_Match = tuple[_Entry | None, Literal["exact", "partial"], float]
# the first row of each module for a text, in the order of the file
_Firsts = dict[str, tuple[_Entry, ...]]


class QuestionIndex:
    """Holds rows, and finds the one that answers a prompt.

    It is immutable, and any thread may use it.

    The same question comes first. Otherwise the nearest row counts that the prompt contains, or
    that contains the prompt, as whole words: the one with the largest share. Of equal shares a row
    inside the prompt wins, then the first one.
    """

    def __init__(
        self, rows: Iterable[TableRow], *, min_words: int = 1, min_share: float = 1.0
    ) -> None:
        self.rows = tuple(rows)
        self._min_words = min_words
        self._min_share = min_share
        self._modules = {_module_key(row.module) for row in self.rows} - {None}
        self._same: _Firsts = {}
        self._entries = [self._entry(row) for row in self.rows]
        self._build()

    def of_module(self, module: str) -> tuple[TableRow, ...]:
        """Return the rows of a module, in the order of the file.

        The case of the module's name is ignored.
        """
        wanted = _module_key(module)
        return tuple(row for row in self.rows if row.module and _module_key(row.module) == wanted)

    def find(self, prompt: str | None, module: str | None = None) -> GroundTruth | None:
        """Return the answer to a prompt, or None if there is none.

        The module's rows and those without a module are searched. If the module has no rows, all
        rows are searched.
        """
        if not prompt or not prompt.strip():
            return None
        name = _module_key(module)
        searched_module = name if name in self._modules else None
        entry, match, share = self._match(prompt, searched_module)
        if entry is None or is_blank(entry.row.answer):
            return None
        return GroundTruth(**entry.row._asdict(), match=match, share=share)

    def _entry(self, row: TableRow) -> _Entry:
        query = NormalizedQuery.of(row.prompt)
        entry = _Entry(row, query.phrase, len(query.words), _module_key(row.module))
        _add(self._same, query.text, entry)
        return entry

    def _build(self) -> None:
        self._by_phrase: _Firsts = {}
        # By word: the positions, in order of length, of the rows that contain it.
        self._positions: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        long_enough = [entry for entry in self._entries if entry.length >= self._min_words]
        distinct = [entry for entry in long_enough if _add(self._by_phrase, entry.phrase, entry)]
        self._entries = sorted(distinct, key=attrgetter("length"))
        self._lengths = sorted({entry.length for entry in self._entries}, reverse=True)
        for position, entry in enumerate(self._entries):
            for word in set(entry.phrase.split()):
                self._positions[word].append(position)

    def _match(self, prompt: str, module: str | None) -> _Match:
        query = NormalizedQuery.of(prompt)
        same = _first(self._same, query.text, module)
        if same is not None:
            return same, "exact", 1.0
        count = len(query.words)
        if count < self._min_words:
            return None, "partial", 0.0
        inside = self._inside(query, module)
        around = self._around(query, module)
        share_inside = inside.length / count if inside else 0.0
        share_around = count / around.length if around else 0.0
        if share_inside >= share_around:
            return inside, "partial", share_inside
        return around, "partial", share_around

    def _inside(self, query: NormalizedQuery, module: str | None) -> _Entry | None:
        """Return the longest row that the prompt contains, or None."""
        for stretch in islice(self._stretches(query), _MAX_CANDIDATES):
            entry = _first(self._by_phrase, stretch, module)
            if entry is not None:
                return entry
        return None

    def _stretches(self, query: NormalizedQuery) -> Iterator[str]:
        """Yield the parts of the prompt that may be the phrase of a row, the longest first."""
        count = len(query.words)
        shortest = max(self._min_words, math.ceil(self._min_share * count))
        # Where the space before each word is, and the one after the last.
        starts = [0, *accumulate(len(word) + 1 for word in query.words)]
        for length in self._lengths:
            if shortest <= length <= count:
                for at in range(count - length + 1):
                    yield query.phrase[starts[at] : starts[at + length] + 1]

    def _around(self, query: NormalizedQuery, module: str | None) -> _Entry | None:
        """Return the shortest row that contains the prompt, or None.

        Only the rows of the prompt's rarest word are searched.
        """
        count = len(query.words)
        if not all(word in self._positions for word in query.words):
            return None
        rarest = min((self._positions[word] for word in query.words), key=len)
        begin = bisect_left(rarest, count, key=lambda position: self._entries[position].length)
        for position in rarest[begin : begin + _MAX_CANDIDATES]:
            entry = self._entries[position]
            if entry.length > int(count / self._min_share):
                break
            if query.phrase in entry.phrase and entry.applies_to(module):
                return entry
        return None


class SubstringIndex(QuestionIndex):
    """Finds what the Partnership Agent finds.

    That is the first row of the file that contains the prompt or is contained in it, ignoring only
    case.
    """

    def _entry(self, row: TableRow) -> _Entry:
        upper = _upper(row.prompt)
        entry = _Entry(row, upper, 0, _module_key(row.module))
        _add(self._same, upper, entry)
        return entry

    def _build(self) -> None:
        """Build nothing: every row is looked at."""

    def _match(self, prompt: str, module: str | None) -> _Match:
        text = _upper(prompt)
        same = _first(self._same, text, module)
        if same is not None:
            return same, "exact", 1.0
        if len(text) * len(self._entries) > _MAX_SCANNED:
            return None, "partial", 0.0
        for entry in self._entries:
            if entry.applies_to(module) and (text in entry.phrase or entry.phrase in text):
                counts = (_count_words(prompt), _count_words(entry.row.prompt))
                return entry, "partial", min(counts) / max(counts)
        return None, "partial", 0.0


def _normalized(text: str) -> str:
    if text.isascii():
        return " ".join(text.lower().split())
    return composed(" ".join(composed(text).casefold().split()))


def _words_of(text: str) -> list[str]:
    words: list[str] = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    return words


def _count_words(text: str) -> int:
    """Count the words of a text. A text without words counts as one."""
    return max(1, len(_words_of(_normalized(text))))


def _module_key(module: str | None) -> str | None:
    return (module or "").strip().casefold() or None


def _add(firsts: _Firsts, text: str, entry: _Entry) -> bool:
    """Add the entry if it is the first row of its module for this text. Tell whether it is."""
    known = firsts.get(text, ())
    is_first = all(other.module != entry.module for other in known)
    if is_first:
        firsts[text] = (*known, entry)
    return is_first


def _first(firsts: _Firsts, text: str, module: str | None) -> _Entry | None:
    for entry in firsts.get(text, ()):
        if entry.applies_to(module):
            return entry
    return None


def _upper(text: str) -> str:
    """Return each character in upper case by itself, as .NET's ordinal comparison does.

    No other character becomes ASCII.
    """
    upper = text.upper()
    if len(upper) == len(text) and not ("\u0131" in text or "\u017f" in text):
        return upper
    return "".join(map(_upper_character, text))


def _upper_character(char: str) -> str:
    upper = char.upper()
    becomes_ascii = upper < "\x80" <= char
    return char if len(upper) != 1 or becomes_ascii else upper
