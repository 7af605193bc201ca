"""Words in text of any script: where they end, and which of many terms a text holds.

A word goes on as long as letters, marks, digits and underscores do. Scripts that are written without spaces (Chinese,
Japanese, Thai, ...) have no such ends, so their words, like signs and emoji, count wherever they stand. Text and terms
are taken as they are: put both into one form with `folded` before.

Nothing here takes longer than the text is long for each of the few ways in which it is looked at, however many terms
there are.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from agenteval_otel.runtime.text import composed

__all__ = ["Terms", "folded", "has_word"]

# Thai to Myanmar; Hangul Jamo; Khmer; Tai and Balinese to Batak; Kana, Bopomofo, Han and their extensions; Yi; Javanese
# to Tai Viet; Hangul. (Korean puts spaces between phrases only: its particles are written onto the word.)
_SPACELESS = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1950, 0x1AAF), (0x1B00, 0x1BFF),
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x302F), (0x3031, 0x3035), (0x3038, 0x303C), (0x3040, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA960, 0xAADF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC),
    (0x1B000, 0x1B2FF), (0x20000, 0x3FFFF),
)  # fmt: skip
_STARTS = tuple(low for low, _ in _SPACELESS)
_RUN = re.compile(r"\w+")
_TRIES = 64
_FEW = 32
_FEW_INSIDE = 128
_LONG = 200
_GRAM = 3


def folded(text: str, *, case_sensitive: bool) -> str:
    """The form in which text and terms are compared: composed (NFC), and lower-cased unless case counts."""
    text = text if case_sensitive else text.lower()
    return composed(text)


def has_word(text: str, word: str) -> bool:
    """Whether `word` occurs in `text` and no letter, mark, digit or underscore of a spaced script goes on beside it.

    Linear in the text.
    """
    stands = _stands(text, word, tries=_TRIES)
    # A text made to hold the word inside of others over and over: look at its words, once, instead.
    return word in _Whole((word,)).terms_in(text) if stands is None else stands


class Terms:
    """Many terms, made ready once, and which of them a text holds.

    May be used by several threads at once.

    Args:
        terms: Words, phrases or signs; an empty one is never found.
        whole_words: A term that begins or ends with a letter does not count inside of a longer word.
    """

    def __init__(self, terms: Iterable[str], *, whole_words: bool) -> None:
        self._terms = tuple(dict.fromkeys(term for term in terms if term))
        self._whole = whole_words

    def __repr__(self) -> str:
        return f"<Terms {len(self._terms)}{' whole words' if self._whole else ''}>"

    def __len__(self) -> int:
        return len(self._terms)

    def terms_in(self, text: str) -> set[str]:
        """The terms that occur in the text."""
        if not self._whole:
            return self._parts.terms_in(text)
        return self._tried(text) if len(self._terms) <= _FEW else self._words.terms_in(text)

    def count(self, text: str) -> int:
        """How often the terms occur, all of them taken together.

        Occurrences of one term do not overlap; a term inside of another counts for itself.
        """
        return self._words.count(text) if self._whole else sum(map(text.count, self._terms))

    def _tried(self, text: str) -> set[str]:
        terms = set()
        for term in self._terms:
            stands = _stands(text, term, tries=_TRIES)
            if stands is None:
                return self._words.terms_in(text)
            if stands:
                terms.add(term)
        return terms

    @cached_property
    def _words(self) -> _Whole:
        return _Whole(self._terms)

    @cached_property
    def _parts(self) -> _Inside:
        return _Inside(self._terms)


class _Whole:
    """Terms by the words that they are made of: a text is cut into its words once, and these are looked up."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._single: set[str] = set()
        self._phrases: dict[str, tuple[str, int]] = {}
        self._long: list[str] = []
        self._bare: list[str] = []
        for term in terms:
            runs = [match.span() for match in _RUN.finditer(_shadow(term))]
            if not runs:
                self._bare.append(term)
            elif runs[0] == (0, len(term)):
                self._single.add(term)
            else:
                self._add_phrase(term, *max(runs, key=lambda run: run[1] - run[0]))
        self._inside = _Inside(self._bare)

    def _add_phrase(self, term: str, start: int, end: int) -> None:
        # Found by its longest word, which is one of the text's, too, wherever the phrase stands on its own.
        if len(term) > _LONG:
            self._long.append(term)
            return
        self._phrases[term] = term[start:end], start

    def terms_in(self, text: str) -> set[str]:
        shadow = _shadow(text)
        words = set(_words_of(text, shadow))
        terms = self._single & words
        terms.update(term for term, _ in self._phrases_of(text, shadow, words))
        terms.update(term for term in self._long if _stands(text, term, tries=-1))
        return terms | self._inside.terms_in(text)

    def count(self, text: str) -> int:
        """How often they occur, all together."""
        shadow = _shadow(text)
        words = _words_of(text, shadow)
        total = sum(map(self._single.__contains__, words)) + sum(map(text.count, self._bare))
        total += sum(_times(text, term) for term in self._long)
        ends: dict[str, int] = {}
        for term, start in self._phrases_of(text, shadow, words):
            if start >= ends.get(term, 0):
                ends[term] = start + len(term)
                total += 1
        return total

    @cached_property
    def _shapes(self) -> dict[str, set[tuple[int, int]]]:
        return _shapes_of(self._phrases.items())

    def _phrases_of(self, text: str, shadow: str, words: Iterable[str]) -> Iterator[tuple[str, int]]:
        shapes = self._shapes
        if shapes.keys().isdisjoint(words):
            return
        if len(self._phrases) <= _FEW_INSIDE:
            # A text may repeat a word of many phrases over and over: only those that are there at all are tried.
            shapes = _shapes_of(item for item in self._phrases.items() if item[0] in text)
        for match in _RUN.finditer(shadow) if shapes else ():
            at = match.start()
            for before, length in shapes.get(text[at : match.end()], ()):
                start = at - before
                term = text[start : start + length] if start >= 0 else ""
                if term in self._phrases and _is_apart(text, start, start + length):
                    yield term, start


def _shapes_of(phrases: Iterable[tuple[str, tuple[str, int]]]) -> dict[str, set[tuple[int, int]]]:
    """By their longest words, how phrases lie around them: how much stands before, how long they are."""
    shapes: dict[str, set[tuple[int, int]]] = {}
    for term, (word, before) in phrases:
        shapes.setdefault(word, set()).add((before, len(term)))
    return shapes


class _Inside:
    """Terms that count wherever they stand.

    With many of them few are looked for: those of which every three characters in a row are somewhere in the text. And
    what has no space inside is looked for in the different pieces between the text's spaces.
    """

    def __init__(self, terms: Iterable[str]) -> None:
        self._terms = tuple(terms)
        self._spaced: list[str] = []
        self._short: dict[int, set[str]] = {}
        self._by_start: dict[str, list[str]] = {}
        for term in self._terms:
            if term.split() != [term]:
                self._spaced.append(term)
            elif len(term) < _GRAM:
                self._short.setdefault(len(term), set()).add(term)
            else:
                self._by_start.setdefault(term[:_GRAM], []).append(term)

    def terms_in(self, text: str) -> set[str]:
        if len(self._terms) <= _FEW_INSIDE:
            return {term for term in self._terms if term in text}
        matches = {term for term in self._spaced if term in text}
        pieces = "\n".join(set(text.split()))
        for size, terms in self._short.items():
            matches |= terms & _grams(pieces, size)
        grams = _grams(pieces, _GRAM)
        for start in self._by_start.keys() & grams:
            matches.update(term for term in self._by_start[start] if _may_hold(grams, term) and term in pieces)
        return matches


def _grams(text: str, size: int) -> set[str]:
    return set(map("".join, zip(*(text[start:] for start in range(size)), strict=False)))


def _may_hold(grams: set[str], term: str) -> bool:
    return all(term[at : at + _GRAM] in grams for at in range(len(term) - _GRAM + 1))


def _words_of(text: str, shadow: str) -> list[str]:
    if shadow is text:
        return _RUN.findall(text)
    return [text[match.start() : match.end()] for match in _RUN.finditer(shadow)]


def _times(text: str, word: str) -> int:
    times, at = 0, text.find(word)
    while at >= 0:
        apart = _is_apart(text, at, at + len(word))
        times += apart
        at = text.find(word, at + (len(word) if apart else 1))
    return times


def _stands(text: str, word: str, *, tries: int) -> bool | None:
    """Whether the word stands alone somewhere; None after so many places where it does not."""
    if len(word) <= _GRAM and text.isascii():
        return _alone(word).search(text) is not None
    at = text.find(word)
    while at >= 0:
        if _is_apart(text, at, at + len(word)):
            return True
        tries -= 1
        if not tries:
            return None
        at = text.find(word, at + 1)
    return False


@lru_cache(maxsize=1024)
def _alone(word: str) -> re.Pattern[str]:
    """What finds a short word in ASCII text as `_is_apart` says: it stands inside of many others, so in C."""
    before = rf"(?<!\w{re.escape(word)})" if word and _joins(word[0]) else ""
    after = r"(?!\w)" if word and _joins(word[-1]) else ""
    # The word first: the engine leaps to where it stands.
    return re.compile(re.escape(word) + before + after, re.ASCII)


def _is_apart(text: str, start: int, end: int) -> bool:
    """Whether what stands there is no part of a longer word."""
    if start == end:
        return True
    if start and _joins(text[start]) and _joins(text[start - 1]):
        return False
    return not (end < len(text) and _joins(text[end - 1]) and _joins(text[end]))


def _joins(char: str) -> bool:
    """Whether a character beside a word would make it a part of a longer one."""
    if char.isascii():
        return char.isalnum() or char == "_"
    if not (char.isalnum() or unicodedata.category(char)[0] == "M"):
        return False
    at = bisect_right(_STARTS, ord(char))
    return at == 0 or ord(char) > _SPACELESS[at - 1][1]


def _shadow(text: str) -> str:
    r"""The text, or a copy of the same length, in which ``\w`` is what `_joins`."""
    if text.isascii():
        return text
    others = [char for char in set(text) if not char.isascii() and char.isalnum() != _joins(char)]
    return text.translate({ord(char): " " if char.isalnum() else "_" for char in others}) if others else text
