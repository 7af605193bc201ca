"""When two questions are the same, and which words a question is made of."""

from __future__ import annotations

import re

from agenteval_otel.runtime.text import composed

__all__ = ["folded", "phrase_of", "words_of"]

# Scripts without spaces between words: there each character counts as one.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = re.compile(f"[{_SPACELESS}]|[^\\W_{_SPACELESS}]+")


def folded(text: str) -> str:
    """The text as it is compared as a whole: composed (NFC), case folded, each run of whitespace one space."""
    if text.isascii():
        return " ".join(text.lower().split())
    return composed(" ".join(composed(text).casefold().split()))


def words_of(text: str) -> list[str]:
    """The words of a folded text: runs of letters and digits."""
    found: list[str] = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    return found


def phrase_of(words: list[str]) -> str:
    """The words with a space before and after each: one phrase stands in another if it does as text."""
    return f" {' '.join(words)} "
