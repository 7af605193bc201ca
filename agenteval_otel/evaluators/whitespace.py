"""Whitespace as the specification means it: JavaScript's, where Python's has some more and no byte order mark."""

from __future__ import annotations

import re

__all__ = ["WHITESPACE", "collapsed"]

WHITESPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f"
    "\u3000\ufeff"
)
_RUNS = re.compile(f"[{WHITESPACE}]+")
_DIFFERENT = "\x1c\x1d\x1e\x1f\x85\ufeff"
# Without any of these, ASCII text is as it should be but at its ends; what is most often there stands first.
_IRREGULAR = ("\n", "  ", "\t", "\r", "\v", "\f")


def collapsed(text: str) -> str:
    """The text trimmed, each run of whitespace one space."""
    if text.isascii() and not any(map(text.__contains__, _IRREGULAR)):
        return text.strip(" ")
    if any(map(text.__contains__, _DIFFERENT)):
        return _RUNS.sub(" ", text).strip(" ")
    return " ".join(text.split())
