"""The syntax of JavaScript patterns: text in, a tree of what it means out, or a ValueError.

Nothing is passed through on trust, so that a pattern cannot reach syntax that only an engine of ours knows. Letters are
folded here, as ECMAScript has it: without ``u`` never from outside ASCII into it. The engines' sources are written from
this tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from agenteval_otel.patterns.characters import AtomReader, Ranges, as_ranges, fold_closure, is_digits

__all__ = ["ANY", "LINE_ENDS", "Back", "Branches", "Chars", "Edge", "Group", "Node", "Repeat", "parse"]


class Chars(NamedTuple):
    """One character: within the ranges or the properties, or outside all of them."""

    ranges: Ranges
    properties: str = ""
    negated: bool = False
    folded: bool = False
    """Whether properties take letters as equal without regard to case; ranges are folded already."""


class Edge(NamedTuple):
    """A place between characters: ``^`` start, ``$`` end (of the text or a line), ``b`` a word's border, ``B`` none."""

    kind: str
    lines: bool = False


class Back(NamedTuple):
    """What a group matched, once more; the group by its number, or as ``g`` and the index of its name."""

    group: str
    folded: bool


class Group(NamedTuple):
    """Branches in parentheses; the opening as it is written, ``(?P<g0>`` for the first named one."""

    opening: str
    branches: Branches

    @property
    def looks_around(self) -> bool:
        return self.opening in ("(?=", "(?!", "(?<=", "(?<!")


class Repeat(NamedTuple):
    """A quantifier: `text` is how it is written; without `most` there is no upper bound."""

    item: Node
    text: str
    least: int
    most: int | None


Node: TypeAlias = Chars | Edge | Back | Group | Repeat
Branches: TypeAlias = tuple[tuple[Node, ...], ...]

LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
ANY = Chars((), negated=True)


def parse(pattern: str, flags: str) -> Branches:
    """The alternatives of a pattern, each a sequence of nodes.

    Raises:
        ValueError: Not a pattern that JavaScript accepts, or the ``v`` flag's set operations.
    """
    return _Parser(pattern, flags).parse()


@dataclass
class _Open:
    """A group that is being read."""

    opening: str = ""
    branches: list[tuple[Node, ...]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    def end_branch(self) -> None:
        self.branches.append(tuple(self.items))
        self.items = []


class _Parser(AtomReader):
    """Reads a pattern in one pass, left to right; groups wait on a stack, so that nesting needs no recursion."""

    def __init__(self, pattern: str, flags: str) -> None:
        super().__init__(pattern, flags)
        self._lines = "m" in flags
        self._dot = ANY if "s" in flags else Chars(LINE_ENDS, negated=True)
        self._groups, self._names = _groups_of(pattern)
        self._stack = [_Open()]

    def parse(self) -> Branches:
        while self._at < len(self._pattern):
            self._one()
        if len(self._stack) > 1:
            raise ValueError("not a regular expression: missing )")
        self._stack[0].end_branch()
        return tuple(self._stack[0].branches)

    def _one(self) -> None:
        char = self._pattern[self._at]
        self._at += 1
        if char == "(":
            self._stack.append(_Open(self._opening()))
        elif char == ")":
            self._close()
        elif char == "|":
            self._stack[-1].end_branch()
        elif char in "*+?{":
            self._quantifier(char)
        else:
            self._stack[-1].items.append(self._single(char))

    def _single(self, char: str) -> Node:
        if char == "^" or char == "$":
            return Edge(char, self._lines)
        if char == ".":
            return self._dot
        if char == "[":
            return self._set()
        if char == "\\":
            return self._escape()
        if self._unicode and char in "]}":
            raise ValueError(f"lone {char!r} in a pattern with the u flag")
        return self._point(ord(char))

    def _point(self, point: int) -> Chars:
        ranges = ((point, point),)
        return Chars(fold_closure(ranges, self._unicode) if self._fold else ranges)

    def _quantifier(self, char: str) -> None:
        items = self._stack[-1].items
        text, least, most = char, int(char == "+"), 1 if char == "?" else None
        if char == "{":
            counted = self._counts()
            if counted is None:
                if self._unicode:
                    raise ValueError("lone '{' in a pattern with the u flag")
                items.append(Chars(((123, 123),)))
                return
            text, least, most = counted
        if not items or not self._is_repeatable(items[-1]):
            raise ValueError(f"nothing to repeat before {text!r}")
        items[-1] = Repeat(items[-1], text + ("?" if self._eat("?") else ""), least, most)

    def _is_repeatable(self, item: Node) -> bool:
        if isinstance(item, Group) and item.looks_around:
            # Looking back never repeats, looking ahead only in the language's older form.
            return not item.opening.startswith("(?<") and not self._unicode
        return not isinstance(item, Edge | Repeat)

    def _counts(self) -> tuple[str, int, int | None] | None:
        end = self._pattern.find("}", self._at)
        least, comma, most = self._pattern[self._at : max(end, self._at)].partition(",")
        if end < 0 or not is_digits(least) or (most and not is_digits(most)):
            return None
        self._at = end + 1
        if most and int(most) < int(least):
            raise ValueError("numbers out of order in {} quantifier")
        # More repetitions than any text has characters mean the same and keep the number within the engines' range.
        low, high = min(int(least), 10**6), min(int(most), 10**6) if most else None
        text = "{" + str(low) + comma + ("" if high is None else str(high)) + "}"
        return text, low, high if comma else low

    def _opening(self) -> str:
        for opening in ("?:", "?=", "?!", "?<=", "?<!"):
            if self._eat(opening):
                return "(" + opening
        if self._eat("?<"):
            return f"(?P<g{self._names.index(self._name())}>"
        if self._eat("?"):
            raise ValueError("invalid group")
        return "("

    def _close(self) -> None:
        if len(self._stack) == 1:
            raise ValueError("not a regular expression: unmatched )")
        done = self._stack.pop()
        done.end_branch()
        self._stack[-1].items.append(Group(done.opening, tuple(done.branches)))

    def _name(self) -> str:
        end = self._pattern.find(">", self._at)
        name = self._pattern[self._at : max(end, self._at)]
        if not name.replace("$", "_").isidentifier():
            raise ValueError("invalid capture group name")
        self._at = end + 1
        return name

    def _escape(self) -> Node:
        char = self._peek()
        if char == "b" or char == "B":
            self._at += 1
            return Edge(char)
        if char == "k" and (self._names or self._unicode):
            self._at += 1
            name = self._name() if self._eat("<") else ""
            if name not in self._names:
                raise ValueError("invalid named reference")
            return Back(f"g{self._names.index(name)}", self._fold)
        number = self._reference()
        if number:
            return Back(number, self._fold)
        atom = self._atom()
        if isinstance(atom, int):
            return self._point(atom)
        return Chars((), atom, folded=self._fold) if isinstance(atom, str) else Chars(atom)

    def _reference(self) -> str:
        end = self._at
        while is_digits(self._pattern[end : end + 1]):
            end += 1
        digits = self._pattern[self._at : end]
        if not digits or digits.startswith("0"):
            return ""
        if int(digits[:6]) <= self._groups and len(digits) <= 6:
            self._at = end
            return digits
        if self._unicode:
            raise ValueError("invalid escape: no such group")
        return ""

    def _set(self) -> Chars:
        negated, self._inside = self._eat("^"), True
        ranges: list[tuple[int, int]] = []
        properties = ""
        while not self._eat("]"):
            first = self._member()
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                ranges_of, more = self._span(first)
            else:
                ranges_of, more = as_ranges(first)
            ranges += ranges_of
            properties += more
        self._inside = False
        folded = fold_closure(tuple(ranges), self._unicode) if self._fold else tuple(ranges)
        return Chars(folded, properties, negated, self._fold)

    def _span(self, first: int | Ranges | str) -> tuple[Ranges, str]:
        self._at += 1
        last = self._member()
        if isinstance(first, int) and isinstance(last, int):
            if last < first:
                raise ValueError("range out of order in character class")
            return ((first, last),), ""
        if self._unicode:
            raise ValueError("invalid character class")
        parts = [as_ranges(first), as_ranges(last)]
        return (*parts[0][0], (45, 45), *parts[1][0]), parts[0][1] + parts[1][1]

    def _member(self) -> int | Ranges | str:
        char = self._peek()
        if not char:
            raise ValueError("unterminated character class")
        pair = self._pattern[self._at : self._at + 2]
        if self._sets and (char in "[(){}/|" or pair in ("--", "&&", "\\q")):
            raise ValueError("set operations of the v flag are not supported")
        self._at += 1
        if char != "\\":
            return ord(char)
        if self._eat("b"):
            return 8
        return self._atom()


def _groups_of(pattern: str) -> tuple[int, list[str]]:
    """How many groups capture, and the names of those that have one: references may stand before their group."""
    count, names, inside, at = 0, [], False, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
        elif char == "(":
            named = pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!")
            count += named or not pattern.startswith("(?", at)
            if named:
                names.append(pattern[at + 3 : max(pattern.find(">", at), at + 3)])
        at += 1
    if len(set(names)) != len(names):
        raise ValueError("duplicate capture group name")
    return count, names
