"""Text helpers.

Among them are Unicode normalization in linear time, and regular expressions that are compiled when
first used.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, AnyStr, Final, Literal, cast

_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def composed(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """Return the text in a normalization form.

    Marks beyond 30 on one character (Unicode's "stream-safe" limit) are dropped.

    Python sorts the marks of a character in quadratic time: a quarter of a megabyte of them would
    take minutes.
    """
    if text.isascii():
        return text
    shortened = _long_mark_runs().sub(r"\1", text)
    return unicodedata.normalize(form, shortened)


def sanitise(text: str) -> str:
    """Replace lone surrogates by U+FFFD and remove NUL. Other text comes back as the same object."""
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Pairs of surrogates that make up one character are put together; lone ones are replaced.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake_case, camelCase or with dots, in lower case."""
    return [word.lower() for word in _NAME_WORD.findall(name)]


def brief(text: str, limit: int) -> str:
    """Return the text in one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with columns of one width. The last column is not padded."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns[:-1]]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


@lru_cache(maxsize=1)
def _long_mark_runs() -> Any:
    import regex

    return regex.compile(r"(\p{M}{30})\p{M}+")


def lazily(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled with its first search, so that import does not pay for it."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))


class _LazyPattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Each attribute is looked up once and then kept. Two threads that race compile the same
        # pattern.
        value = getattr(re.compile(self._source, self._flags), name)
        self.__dict__[name] = value
        return value


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, for `json.loads`. Raises `ValueError` if a key comes twice."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:40]!r} appears twice")
        mapping[key] = value
    return mapping
