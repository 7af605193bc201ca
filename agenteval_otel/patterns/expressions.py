"""JavaScript regular expressions, as the specification's rules write them, translated for the `regex` package.

Every construct is rewritten explicitly (nothing is passed through on trust), so that a pattern cannot reach syntax that
only `regex` knows, and letters fold as ECMAScript has it: without ``u`` never from outside ASCII into it. Patterns
match code points; the original's halves of surrogate pairs are not told apart. Searching is bounded in time and lets
other threads run meanwhile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from agenteval_otel.patterns.characters import AtomReader, Ranges, as_ranges, escaped, fold_closure, is_digits

__all__ = ["DEFAULT_LIMIT_S", "JsPattern", "check_flags", "compile_pattern"]

DEFAULT_LIMIT_S = 0.1

_LINE_END = r"\n\r\u2028\u2029"
_BOUNDARY = "(?:(?<=[A-Za-z0-9_])(?![A-Za-z0-9_])|(?<![A-Za-z0-9_])(?=[A-Za-z0-9_]))"
_NO_BOUNDARY = "(?:(?<=[A-Za-z0-9_])(?=[A-Za-z0-9_])|(?<![A-Za-z0-9_])(?![A-Za-z0-9_]))"


class JsPattern(NamedTuple):
    """A compiled pattern; `sticky` (flag ``y``) matches at the start of the text only."""

    compiled: Any
    sticky: bool

    def found(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> bool:
        """Whether the pattern occurs; other threads go on running meanwhile.

        Raises:
            TimeoutError: The search took longer than `limit_s` seconds.
        """
        look = self.compiled.match if self.sticky else self.compiled.search
        return look(text, timeout=limit_s, concurrent=True) is not None

    def spans(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> list[tuple[int, int]]:
        """Where the pattern occurs, in order and without overlaps; empty matches are left out.

        Raises:
            TimeoutError: The search took longer than `limit_s` seconds.
        """
        found = self.compiled.finditer(text, timeout=limit_s, concurrent=True)
        return [match.span() for match in found if match.end() > match.start()]


@lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str = "") -> JsPattern:
    """Compile a JavaScript pattern and its flags (``d g i m s u v y``; ``d`` and ``g`` change nothing here).

    Raises:
        ValueError: Not a pattern or not flags that JavaScript accepts, or the ``v`` flag's set operations.
    """
    check_flags(flags)
    import regex

    source = _Translator(pattern, flags).translate()
    try:
        return JsPattern(regex.compile(source, flags=regex.VERSION0), "y" in flags)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error


def check_flags(flags: str) -> None:
    """Refuse (ValueError) unknown or repeated flags, and ``u`` together with ``v``."""
    if set(flags) - set("dgimsuvy") or len(set(flags)) != len(flags) or {"u", "v"} <= set(flags):
        raise ValueError(f"flags {flags!r} are not valid; each of d g i m s u v y at most once, not both u and v")


class _Translator(AtomReader):
    """Rewrites a pattern in one pass, left to right."""

    def __init__(self, pattern: str, flags: str) -> None:
        super().__init__(pattern, flags)
        self._lines = "m" in flags
        self._dot = r"[\x00-\U0010FFFF]" if "s" in flags else f"[^{_LINE_END}]"
        self._groups, self._names = _groups_of(pattern)
        self._repeatable = False
        self._closings: list[bool] = []

    def translate(self) -> str:
        parts: list[str] = []
        while self._at < len(self._pattern):
            parts.append(self._one())
        return "".join(parts)

    def _one(self) -> str:
        char = self._pattern[self._at]
        self._at += 1
        if char in "*+?{":
            return self._quantifier(char)
        if char == "(":
            self._repeatable = False
            return self._group()
        self._repeatable = char not in "|^$"
        if char == ")" and self._closings:
            self._repeatable = self._closings.pop()
        if char in "|)":
            return char
        if char == "^":
            return f"(?<![^{_LINE_END}])" if self._lines else r"\A"
        if char == "$":
            return f"(?![^{_LINE_END}])" if self._lines else r"\Z"
        if char == ".":
            return self._dot
        if char == "[":
            return self._set()
        return self._escape() if char == "\\" else self._literal(char)

    def _literal(self, char: str) -> str:
        if self._unicode and char in "]}":
            raise ValueError(f"lone {char!r} in a pattern with the u flag")
        return self._point(ord(char))

    def _point(self, point: int) -> str:
        same = fold_closure(((point, point),), self._unicode) if self._fold else ((point, point),)
        return escaped(same) if same == ((point, point),) else f"[{escaped(same)}]"

    def _quantifier(self, char: str) -> str:
        text = char
        if char == "{":
            counted = self._counts()
            if counted is None:
                if self._unicode:
                    raise ValueError("lone '{' in a pattern with the u flag")
                self._repeatable = True
                return r"\{"
            text = counted
        if not self._repeatable:
            raise ValueError(f"nothing to repeat before {text!r}")
        self._repeatable = False
        return text + ("?" if self._eat("?") else "")

    def _counts(self) -> str | None:
        end = self._pattern.find("}", self._at)
        least, comma, most = self._pattern[self._at : max(end, self._at)].partition(",")
        if end < 0 or not is_digits(least) or (most and not is_digits(most)):
            return None
        self._at = end + 1
        if most and int(most) < int(least):
            raise ValueError("numbers out of order in {} quantifier")
        # More repetitions than any text has characters mean the same and keep the number within the engine's range.
        return "{" + str(min(int(least), 10**6)) + comma + (str(min(int(most), 10**6)) if most else "") + "}"

    def _group(self) -> str:
        for opening in ("?:", "?=", "?!", "?<=", "?<!"):
            if self._eat(opening):
                # Looking back never repeats, looking ahead only in the language's older form.
                self._closings.append(opening == "?:" or (len(opening) == 2 and not self._unicode))
                return "(" + opening
        self._closings.append(True)
        if self._eat("?<"):
            return f"(?P<g{self._names.index(self._name())}>"
        if self._eat("?"):
            raise ValueError("invalid group")
        return "("

    def _name(self) -> str:
        end = self._pattern.find(">", self._at)
        name = self._pattern[self._at : max(end, self._at)]
        if not name.replace("$", "_").isidentifier():
            raise ValueError("invalid capture group name")
        self._at = end + 1
        return name

    def _escape(self) -> str:
        char = self._peek()
        if char in ("b", "B"):
            self._at += 1
            self._repeatable = False
            return _BOUNDARY if char == "b" else _NO_BOUNDARY
        if char == "k" and (self._names or self._unicode):
            self._at += 1
            name = self._name() if self._eat("<") else ""
            if name not in self._names:
                raise ValueError("invalid named reference")
            return self._back(f"g{self._names.index(name)}")
        number = self._reference()
        if number:
            return self._back(number)
        atom = self._atom()
        if isinstance(atom, int):
            return self._point(atom)
        return self._folded_property(atom) if isinstance(atom, str) else f"[{escaped(atom)}]"

    def _back(self, group: str) -> str:
        reference = f"(?P={group})" if group.startswith("g") else f"\\g<{group}>"
        # A group that took no part matches the empty text, where `regex` would fail.
        return f"(?({group}){f'(?i:{reference})' if self._fold else reference})"

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

    def _folded_property(self, text: str) -> str:
        return f"(?i:{text})" if self._fold else text

    def _set(self) -> str:
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
        if not folded and not properties:
            return r"[\x00-\U0010FFFF]" if negated else "(?!)"
        members = f"[{'^' if negated else ''}{escaped(folded)}{properties}]"
        return self._folded_property(members) if properties else members

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
