"""Text into words, and which words turn the next one round: our own way, and the original's to the letter.

Both take time linear in the text.
"""

from __future__ import annotations

import re

from agenteval_otel.evaluators.whitespace import WHITESPACE
from agenteval_otel.runtime.text import composed

__all__ = ["NEGATORS", "ORIGINAL_NEGATORS", "original_tokens", "tokens"]

_ORIGINAL_WORDS = "not non cant can't dont don't doesnt doesn't wont won't isnt isn't"
# The original asks a JavaScript object, which has this word from its ancestors.
ORIGINAL_NEGATORS = frozenset([*_ORIGINAL_WORDS.split(), "constructor"])
_VERBS = "are could did does do had has have is must need should was were wo would ca ai"
NEGATORS = frozenset(
    [*_ORIGINAL_WORDS.split(), "cannot", "never"]
    + [f"{verb}n{apostrophe}t" for verb in _VERBS.split() for apostrophe in ("", "'")]
)

_SEPARATORS = str.maketrans({code: " " for code in range(128) if not chr(code).isalnum() and chr(code) not in "'-"})
_EDGES = {"'": (" '", "' ", "''", "'-"), "-": (" -", "- ", "--", "-'")}
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
# A word of any script, or one emoji; skin tones, variation selectors and joiners are neither.
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001f3fa\U0001f400-\U0001faff]")
_APOSTROPHES = ("\u2019", "\u2018", "\u02bc", "\uff07")

_ORIGINAL_PUNCTUATION = '.,/#!?$%^&*;:{}=_`"~()\n'
_TO_SPACES = str.maketrans(dict.fromkeys(_ORIGINAL_PUNCTUATION, " "))
_PUNCTUATION = re.compile(f"[{re.escape(_ORIGINAL_PUNCTUATION)}]")
# Where Python's split and a split at single spaces would differ.
_OTHER_SPACE = re.compile(f"[{WHITESPACE.replace(' ', '')}\x1c-\x1f\x85]")
_RUN = re.compile(f"[{WHITESPACE}]{{2,}}")


def tokens(text: str) -> list[str]:
    """Lower-cased words, and each emoji by itself.

    Apostrophes and hyphens inside of a word belong to it, typographic apostrophes are straight ones, and letters are
    composed (NFC); all else separates words.
    """
    text = text.lower()
    if text.isascii():
        spaced = f" {text.translate(_SEPARATORS)} "
        for mark, edges in _EDGES.items():
            # Only where an apostrophe or a hyphen is no part of a word it takes more than a split.
            if mark in text and any(map(spaced.__contains__, edges)):
                return _ASCII_WORD.findall(text)
        return spaced.split()
    for apostrophe in _APOSTROPHES:
        text = text.replace(apostrophe, "'")
    return _WORD.findall(composed(text))


def original_tokens(text: str) -> list[str]:
    """What the original splits text into: at spaces, line ends, some punctuation and runs of whitespace.

    One tab or no-break space joins two words; brackets and both kinds of apostrophe stay; an emoji has to stand alone,
    without a variation selector. Text without words gives one empty token, or none.
    """
    text = text.lower()
    text = text.translate(_TO_SPACES) if text.isascii() else _PUNCTUATION.sub(" ", text)
    if _OTHER_SPACE.search(text) is None:
        return text.split()
    return _RUN.sub(" ", text).strip(WHITESPACE).split(" ")
