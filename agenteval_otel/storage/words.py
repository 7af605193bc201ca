"""The words of stored answers, by which the list of answers is searched, whichever place has them.

A word is a run of letters and digits without accents and capitals. Languages that write no spaces
have no such runs: of these every character is a word, and every two that stand beside each other.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

_MOST_CHARS: Final = 20_000  # of one text
_MOST_WORD_CHARS: Final = 64
_MOST_LINE_CHARS: Final = 100_000
_MOST_WANTED: Final = 20
_MOST_WANTED_CHARS: Final = 400
_SHORTEST_BEGINNING: Final = 3
_TAG: Final = "§"
_WORD: Final = re.compile(
    "[^\\W_]+|[\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"  # or one emoji
)
# Thai, Lao, Burmese, Khmer, kana, Han. Korean has spaces, but endings that cling to its words.
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)


class WantedWord(NamedTuple):
    """Holds a word to look for. With `is_beginning` longer words that begin with it match too."""

    text: str
    is_beginning: bool

    def is_in(self, words: AbstractSet[str]) -> bool:
        """Tell whether an answer with these words has it."""
        if self.text in words:
            return True
        return self.is_beginning and any(word.startswith(self.text) for word in words)


def wanted_words(text: str) -> list[WantedWord]:
    """Return the words of what a reader typed, at most 20. All else in it means nothing.

    Words of at least three letters also match longer words: ``refund`` matches ``refunded``. A
    number matches itself alone.
    """
    wanted: dict[str, WantedWord] = {}
    for part in _parts_of(text[:_MOST_WANTED_CHARS]):
        if _UNSPACED.match(part):
            for word in _pairs_of(part) or [part]:
                wanted[word] = WantedWord(word, is_beginning=False)
        else:
            word = part[:_MOST_WORD_CHARS]
            is_beginning = word.isalpha() and len(word) >= _SHORTEST_BEGINNING
            wanted[word] = WantedWord(word, is_beginning)
    return list(wanted.values())[:_MOST_WANTED]


def tag_word(name: str, value: str) -> WantedWord:
    """Return the word that stands for a tag. No text has it: it begins with no letter."""
    digest = hashlib.blake2b(f"{name}\0{value}".encode("utf-8", "replace"), digest_size=8)
    return WantedWord(f"{_TAG}{digest.hexdigest()}", is_beginning=False)


def words_of_tags(tags: Mapping[str, Any]) -> set[str]:
    return {tag_word(str(name), str(value)).text for name, value in tags.items()}


def words_of_input(fields: Mapping[str, Any]) -> set[str]:
    """Return the words of a stored input: of its prompt, its answer and the turns before.

    `fields` is the input in JSON's types by the names of its fields.
    """
    words: set[str] = set()
    for value in (fields.get("prompt"), fields.get("response")):
        for text in _texts_in(value):
            words |= words_of(text)
    turns = fields.get("conversation")
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, Mapping):
            words |= words_of_input(turn)
    return words


def line_of(words: AbstractSet[str]) -> str:
    """Return the words in one line, tags first, else sorted: 100,000 characters of them at most."""
    line = " ".join(sorted(words, key=lambda word: (not word.startswith(_TAG), word)))
    if len(line) <= _MOST_LINE_CHARS:
        return line
    return line[:_MOST_LINE_CHARS].rpartition(" ")[0]


def words_of(text: str) -> set[str]:
    """Return the words of the first 20,000 characters of a text."""
    words: set[str] = set()
    for part in set(_parts_of(text[:_MOST_CHARS])):
        if _UNSPACED.match(part):
            words.update(part)
            words.update(_pairs_of(part))
        else:
            words.add(part[:_MOST_WORD_CHARS])
    return words


def places_of(text: str, wanted: Sequence[WantedWord]) -> list[tuple[int, int]]:
    """Return where the wanted words stand in a text, from where to where, in order."""
    exact = {word.text for word in wanted}
    beginnings = tuple(word.text for word in wanted if word.is_beginning)
    places: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        at = match.start()
        for part in filter(None, _UNSPACED.split(match[0])):
            if _UNSPACED.match(part):
                places += _places_in_run(part, exact, at)
            else:
                folded = _folded(part)
                if folded in exact or folded.startswith(beginnings or ("\0",)):
                    places.append((at, at + len(part)))
            at += len(part)
    return places


def _places_in_run(run: str, exact: AbstractSet[str], at: int) -> Iterator[tuple[int, int]]:
    """Yield where words of one or two characters stand, without what an earlier place covers."""
    covered = 0
    for begin in range(len(run)):
        for end in (begin + 2, begin + 1):
            if end > covered and run[begin:end] in exact:
                yield at + max(begin, covered), at + min(end, len(run))
                covered = end
                break


def _parts_of(text: str) -> list[str]:
    """Return the runs of letters of one kind, and each emoji, in their order."""
    words: list[str] = _WORD.findall(_folded(text))
    if text.isascii():
        return words
    parts: list[str] = []
    for word in words:
        parts += filter(None, _UNSPACED.split(word))
    return parts


def _pairs_of(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _folded(text: str) -> str:
    """Return the text without capitals, accents and other forms of the same character."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    kept = "".join(char for char in apart if not unicodedata.category(char).startswith("M"))
    return unicodedata.normalize("NFKC", kept)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts within a value of JSON. Names of its fields are none of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
