"""Composed characters (Unicode normalization) in time that grows with the text, whatever the text is."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Literal

__all__ = ["composed"]


def composed(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """The text in a normalization form; of more than 30 marks on one character those beyond are left out.

    Thirty are more than any language has (Unicode's "stream-safe" limit). Python sorts the marks of a character in
    quadratic time: a quarter of a megabyte of them, which anybody can send, would take it minutes.
    """
    return text if text.isascii() else unicodedata.normalize(form, _heaps().sub(r"\1", text))


@lru_cache(maxsize=1)
def _heaps() -> Any:
    import regex

    return regex.compile(r"(\p{M}{30})\p{M}+")
