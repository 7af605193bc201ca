"""Patterns in the syntax of RE2, where RE2 gives exactly the answers that JavaScript gives, and soon.

What is left out, as `NotLinear`:

- looking around and references to groups, which no engine searches in linear time;
- with the flag ``m``, the edge of a line in the middle: RE2 knows one line end, JavaScript four. Where nothing else
  is matched before (or after) the edge, the line end beside it is matched instead;
- no border of a word (``\\B``) where a match may be empty: RE2 sees the places inside of a character, too;
- what may cost too much. Linear is a step for each character and each place where the pattern may be at once. RE2 keeps
  that to one step a character, except where crafted text brings about ever new combinations of places: `_MAX_COST`
  holds this to some 0.15 s for the longest text there is.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache

from agenteval_otel.patterns.characters import Ranges, escaped
from agenteval_otel.patterns.regex_source import regex_chars
from agenteval_otel.patterns.syntax import LINE_ENDS, Back, Branches, Chars, Edge, Node, Repeat

__all__ = ["NotLinear", "Re2Writer", "cost_of"]

# About 0.7 ms each for 256 KiB; one character of the text against one range of characters is four of them.
_MAX_COST = 192
_PLACE, _MOST_RANGES = 3, 6
_FEW_POINTS = 4
_FORM = "\\x{{{:X}}}"
_LAST = 0x10FFFF


class NotLinear(Exception):
    """Why a pattern cannot be searched in linear time here: the construct, or what is missing.

    Attributes:
        by_nature: Whether no linear engine could; else it is a matter of what is installed, or of size.
    """

    def __init__(self, obstacle: str, *, by_nature: bool = False) -> None:
        super().__init__(obstacle)
        self.by_nature = by_nature


class Re2Writer:
    """Writes a parsed pattern down.

    Attributes:
        gives_spans: Whether RE2's matches are in the same places, too; known when `source` was written.
    """

    def __init__(self, branches: Branches, *, sticky: bool) -> None:
        self._branches, self._sticky = branches, sticky
        self.gives_spans = not _may_be_empty(branches)

    def source(self) -> str:
        """The pattern's source.

        Raises:
            NotLinear: RE2 cannot express it, or not exactly, or it may cost too much.
            RecursionError: It is nested beyond all reason.
        """
        source = self._alternatives(self._branches, True, True)
        if cost_of(self._branches) > _MAX_COST:
            raise NotLinear("too many repetitions of characters with many choices")
        return source

    def _alternatives(self, branches: Branches, first: bool, last: bool) -> str:
        return "|".join(self._sequence(branch, first, last) for branch in branches)

    def _sequence(self, branch: tuple[Node, ...], first: bool, last: bool) -> str:
        end = len(branch) - 1
        return "".join(self._node(node, first and at == 0, last and at == end) for at, node in enumerate(branch))

    def _node(self, node: Node, first: bool, last: bool) -> str:
        """One node; `first` and `last` say whether nothing at all is matched before it and after it."""
        if isinstance(node, Chars):
            return _chars(node)
        if isinstance(node, Edge):
            return self._edge(node, first, last)
        if isinstance(node, Back):
            raise NotLinear("a reference to a group", by_nature=True)
        if isinstance(node, Repeat):
            if _may_be_empty(((node.item,),)):
                self.gives_spans = False  # engines differ in when they leave a turn that matched nothing
            return self._node(node.item, False, False) + node.text
        if node.looks_around:
            raise NotLinear(f"looking around, {node.opening}...)", by_nature=True)
        return f"(?:{self._alternatives(node.branches, first, last)})"

    def _edge(self, edge: Edge, first: bool, last: bool) -> str:
        if edge.kind == "b":
            return r"\b"
        if edge.kind == "B":
            if _may_be_empty(self._branches):
                raise NotLinear(r"\B in a pattern that may match nothing")
            return r"\B"
        text = r"\A" if edge.kind == "^" else r"\z"
        if not edge.lines:
            return text
        if not (first if edge.kind == "^" else last):
            raise NotLinear(f"{edge.kind} in the middle, with the flag m")
        self.gives_spans = False
        if edge.kind == "^" and self._sticky:
            return text
        return f"(?:{text}|[{escaped(LINE_ENDS, _FORM)}])"


def cost_of(branches: Branches, *, repeated: bool = False) -> int:
    """What a character of the text may cost at worst: the places where the pattern can be at once, with their ranges.

    Words cost nothing, because few places of a word fit what was read last. Neither do their letters in two cases.
    """
    return sum(_cost(node, repeated) for branch in branches for node in branch)


def _cost(node: Node, repeated: bool) -> int:
    if isinstance(node, Chars):
        points = sum(high - low + 1 for low, high in node.ranges)
        if not (repeated or node.negated or node.properties) and points <= _FEW_POINTS:
            return 0
        return _PLACE + (_MOST_RANGES if node.properties else min(len(node.ranges) + node.negated, _MOST_RANGES))
    if isinstance(node, Repeat):
        times = max(node.least, 1) if node.most is None else node.most
        return times * _cost(node.item, repeated or node.most is None or node.most > 1)
    return 0 if isinstance(node, Edge | Back) else cost_of(node.branches, repeated=repeated)


def _may_be_empty(branches: Branches) -> bool:
    """Whether a match may hold no character, borders and edges left aside."""
    return any(all(map(_is_skipped, branch)) for branch in branches)


def _is_skipped(node: Node) -> bool:
    if isinstance(node, Repeat):
        return node.least == 0 or _is_skipped(node.item)
    return not isinstance(node, Chars) and (isinstance(node, Edge | Back) or _may_be_empty(node.branches))


def _chars(chars: Chars) -> str:
    if chars.properties:
        chars = Chars(_ranges_of(chars))
    if not chars.ranges:
        return "(?s:.)" if chars.negated else rf"[^{escaped(((0, _LAST),), _FORM)}]"
    return f"[{'^' if chars.negated else ''}{escaped(chars.ranges, _FORM)}]"


@lru_cache(maxsize=64)
def _ranges_of(chars: Chars) -> Ranges:
    """What properties stand for, as the other engine's tables have it: RE2's may be of another year."""
    import regex

    every = array("I", range(_LAST + 1)).tobytes().decode(f"utf-32-{sys.byteorder[0]}e", "surrogatepass")
    return tuple((start, end - 1) for start, end in (m.span() for m in regex.finditer(f"{regex_chars(chars)}+", every)))
