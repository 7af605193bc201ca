"""Text in any script: its whitespace, its words, and which of many terms it contains.

Terms are searched in time linear in the text. Words of scripts that are written without spaces
(Chinese, Japanese, Thai, ...) match anywhere, as signs and emoji do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any

from agenteval_otel.runtime.text import composed

# JavaScript's, which the specification means: Python's has some more, and no byte order mark.
WHITESPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f"
    "\u3000\ufeff"
)
_WHITESPACE_RUNS = re.compile(f"[{WHITESPACE}]+")
_DIFFERENT_WHITESPACE = "\x1c\x1d\x1e\x1f\x85\ufeff"

# Thai to Myanmar; Hangul Jamo; Khmer; Tai and Balinese to Batak; Kana, Bopomofo, Han and their
# extensions; Yi; Javanese to Tai Viet; Hangul. (Korean puts spaces between phrases only: its
# particles are written onto the word.)
_SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1bff\u2e80-\u2fdf\u3005-\u3007"
    "\u3021-\u302f\u3031-\u3035\u3038-\u303c\u3040-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\uadff\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b2ff\U00020000-\U0003ffff"
)
_WORD_CHARACTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{_SPACELESS}]]"
_ASCII_TOKENS = re.compile(r"\w+|\W", re.ASCII)
_FEW = 32


def collapsed(text: str) -> str:
    """Return the text trimmed, with each run of whitespace as one space."""
    if any(map(text.__contains__, _DIFFERENT_WHITESPACE)):
        return _WHITESPACE_RUNS.sub(" ", text).strip(" ")
    return " ".join(text.split())


def folded(text: str, *, case_sensitive: bool) -> str:
    """Return the form in which text and terms are compared.

    It is composed (NFC), and lower-cased unless case counts.
    """
    return composed(text if case_sensitive else text.lower())


class Terms:
    """Holds words, phrases or signs, prepared once, and finds which of them a text contains.

    Text and terms have to be `folded`.

    With `whole_words` a term that begins or ends with a letter does not match inside a longer word.
    A few terms are searched one by one. With many, each place of the text looks up the terms that
    could begin there. Several threads may use it at once.
    """

    def __init__(self, terms: Iterable[str], *, whole_words: bool) -> None:
        self._terms = frozenset(filter(None, terms))
        self._whole_words = whole_words

    def terms_in(self, text: str) -> set[str]:
        if not self._whole_words:
            return self._parts_in(text)
        if len(self._terms) <= _FEW:
            return {term for term in self._terms if term in text and _whole(term).search(text)}
        tokens = _tokens_of(text)
        return {
            *self._terms.intersection(tokens),
            *(term for _, term in self._phrases_in(text, tokens)),
        }

    def count(self, text: str) -> int:
        """Count how often the terms occur, all taken together.

        Occurrences of one term do not overlap.
        """
        if not self._whole_words:
            return sum(map(text.count, self._terms))
        if len(self._terms) <= _FEW:
            return sum(len(_whole(term).findall(text)) for term in self._terms if term in text)
        tokens = _tokens_of(text)
        total = sum(token in self._terms for token in tokens)
        ends = dict[str, int]()
        for start, term in self._phrases_in(text, tokens):
            if start >= ends.get(term, 0):
                ends[term] = start + len(term)
                total += 1
        return total

    def _phrases_in(self, text: str, tokens: list[str]) -> Iterator[tuple[int, str]]:
        """Yield position and text of each phrase that begins and ends at token boundaries."""
        if self._phrase_lengths.keys().isdisjoint(tokens):
            return
        ends = set(accumulate(map(len, tokens)))
        start = 0
        for token in tokens:
            for length in self._phrase_lengths.get(token, ()):
                term = text[start : start + length]
                if term in self._terms and start + length in ends:
                    yield start, term
            start += len(token)

    @cached_property
    def _phrase_lengths(self) -> dict[str, set[int]]:
        """Return the lengths of the terms with several tokens, by their first token."""
        lengths: dict[str, set[int]] = {}
        for term in self._terms:
            first = _tokens_of(term)[0]
            if first != term:
                lengths.setdefault(first, set()).add(len(term))
        return lengths

    def _parts_in(self, text: str) -> set[str]:
        if len(self._terms) <= _FEW:
            return {term for term in self._terms if term in text}
        # A term without a space lies within one of the text's pieces; only terms whose start occurs
        # in one are tried.
        pieces = "\n".join(set(text.split()))
        starts = {"", *pieces}.union(map("".join, pairwise(pieces)))
        starts.update(map("".join, zip(pieces, pieces[1:], pieces[2:], strict=False)))
        matches = set[str]()
        for start in self._by_start.keys() & starts:
            for term in self._by_start[start]:
                is_one_piece = term.split() == [term]
                if term in (pieces if is_one_piece else text):
                    matches.add(term)
        return matches

    @cached_property
    def _by_start(self) -> dict[str, list[str]]:
        """Return the terms by the first characters of their first piece, at most three."""
        by_start: dict[str, list[str]] = {}
        for term in self._terms:
            first_piece = "".join(term.split()[:1])
            by_start.setdefault(first_piece[:3], []).append(term)
        return by_start


def _tokens_of(text: str) -> list[str]:
    """Cut the text into its words and, each by itself, all other characters."""
    pattern = _ASCII_TOKENS if text.isascii() else _compiled(f"{_WORD_CHARACTER}+|.")
    tokens: list[str] = pattern.findall(text)
    return tokens


@lru_cache(maxsize=1024)
def _whole(term: str) -> Any:
    """Return a pattern for the term, except inside a longer word."""
    word_character = _compiled(_WORD_CHARACTER)
    before = rf"(?<!{_WORD_CHARACTER})" if word_character.match(term) else ""
    after = rf"(?!{_WORD_CHARACTER})" if word_character.match(term[-1]) else ""
    return _compiled(before + re.escape(term) + after)


def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern, regex.V1 | regex.DOTALL)
