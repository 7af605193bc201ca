r"""Users' regular expressions.

RE2 searches them in linear time if it can, otherwise `regex` does within a time limit.

The syntax is Python's. ``\d \w \s \b`` know ASCII only, and ``$`` without the flag ``m``
matches at the very end only: RE2 reads them so, for `regex` they are written out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from agenteval_otel.runtime.fork import reset_in_child

DEFAULT_LIMIT_S = 0.1
# Memory that RE2 may use for one pattern and what it remembers of the text; crafted text can fill
# it.
_MEMORY_BYTES = 2 * 1024 * 1024
# Of patterns with counted repetitions. RE2 takes one step for each character; on crafted text, up
# to one for each of these as well: 300 of them take some 0.15 s on the longest text there is (256
# KiB).
_MAX_INSTRUCTIONS = 300

_TOKENS = re.compile(
    r"(?s)(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\\[pPNx]\{[^}]*\}|(?P<escape>\\.)|\{(?P<least>\d*)(?P<most>,?\d*)\}"
    r"|(?P<look>\(\?<?[=!])|(?P<reference>\(\?P=|\(\?\()|(?P<sign>[{$])"
)
_CODE_POINTS = re.compile(r"(?s)\\(?:u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|.)")
# The engines read flags in the middle, and `$` under an inline m, in different ways.
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_INLINE_FLAGS = re.compile(r"(?<!^)\(\?[a-zA-Z]+\)|\(\?[a-zA-Z]*m")
_WORD = "0-9A-Za-z_"
_EDGE = "(?-i:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))"
_FOR_REGEX = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": f"(?-i:[{_WORD}])",
    r"\W": f"(?-i:[^{_WORD}])",
    r"\s": r"[\t-\r ]",
    r"\S": r"[^\t-\r ]",
    r"\b": _EDGE.format(_WORD, "!", "="),
    r"\B": _EDGE.format(_WORD, "=", "!"),
    "$": r"\Z",
}
_FOR_REGEX_SETS = {
    r"\d": "0-9",
    r"\D": r"\x00-/:-\U0010FFFF",
    r"\w": _WORD,
    r"\W": r"\x00-/:-@\[-\^`{-\U0010FFFF",
    r"\s": r"\t-\r ",
    r"\S": r"\x00-\x08\x0e-\x1f!-\U0010FFFF",
}
# With the flag i the long s and the kelvin sign stand for s and k. In a set \W must not have them.
_FOR_REGEX_SETS_WITHOUT_CASE = {
    **_FOR_REGEX_SETS,
    r"\W": r"\x00-/:-@\[-\^`{-\u017e\u0180-\u2129\u212b-\U0010FFFF",
}
# RE2's space lacks the vertical tab, and with the flag i its \w has the long s and the kelvin sign.
_FOR_RE2 = {
    r"\w": r"(?-i:\w)",
    r"\W": r"(?-i:\W)",
    r"\s": r"[\s\x0b]",
    r"\S": r"[^\s\x0b]",
    r"\Z": r"\z",
}
_FOR_RE2_SETS = {r"\s": r"\s\x0b", r"\S": r"\x00-\x08\x0e-\x1f!-\x{10FFFF}"}


class Pattern(NamedTuple):
    """A compiled pattern: the `source` for RE2, and the `backtracking` one of `regex`.

    `obstacle` says why RE2 cannot search it, `never_linear` whether no linear engine could.
    """

    source: str
    backtracking: Any
    obstacle: str | None
    never_linear: bool

    @property
    def is_linear(self) -> bool:
        return self.obstacle is None

    def occurs_in(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> bool:
        """Tell whether the pattern occurs in the text.

        Raise TimeoutError after `limit_s`, never if the pattern is linear.
        """
        if self.obstacle is None:
            return _automaton(self.source).search(text.encode("utf-8", "surrogatepass")) is not None
        return self.backtracking.search(text, timeout=limit_s, concurrent=True) is not None

    def spans(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> list[tuple[int, int]]:
        """Return where the pattern occurs, in order, without overlaps and empty matches.

        Raise TimeoutError after `limit_s`.
        """
        if self.obstacle is None and not self.occurs_in(text):
            return []
        matches = self.backtracking.finditer(text, timeout=limit_s, concurrent=True)
        return [match.span() for match in matches if match.end() > match.start()]


@lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str = "") -> Pattern:
    """Compile a pattern.

    Raise ValueError for text that is no pattern, or for flags other than ``i``, ``m`` and
    ``s``.
    """
    check_flags(flags)
    import regex

    ends_at_lines = "m" in flags or _INLINE_FLAGS.search(pattern) is not None
    prefix = f"(?{flags})" if flags else ""
    sets_for_regex = _FOR_REGEX_SETS
    if _IGNORES_CASE.search(prefix + pattern):
        sets_for_regex = _FOR_REGEX_SETS_WITHOUT_CASE

    try:
        for_regex = prefix + _rewritten(
            pattern, _FOR_REGEX, sets_for_regex, ends_at_lines=ends_at_lines
        )
        backtracking = regex.compile(for_regex, regex.VERSION0)
    except (regex.error, OverflowError, RecursionError, ValueError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    source = prefix + _rewritten(pattern, _FOR_RE2, _FOR_RE2_SETS, ends_at_lines=True)
    never = _never_linear(pattern)
    obstacle = never or _re2_obstacle(source, pattern)
    return Pattern(source, backtracking, obstacle, never_linear=never is not None)


def check_pattern(pattern: str | None) -> str | None:
    """Return the pattern. Raise ValueError if it does not compile."""
    if pattern is not None:
        compile_pattern(pattern)
    return pattern


def check_flags(flags: str) -> str:
    """Return the flags.

    Raise ValueError for flags other than ``i``, ``m`` and ``s``, or for one given twice.
    """
    if set(flags) - set("ims") or len(set(flags)) != len(flags):
        raise ValueError("expected each of i, m and s at most once")
    return flags


def _rewritten(
    pattern: str, escapes: dict[str, str], in_sets: dict[str, str], *, ends_at_lines: bool
) -> str:
    """Return the pattern for one engine. What only that engine would take for syntax is escaped.

    With `ends_at_lines`, ``$`` matches at the end of every line and stays as it is.
    """

    def write(token: re.Match[str]) -> str:
        text = token[0]
        if token["set"]:
            members = {"[": r"\[", **in_sets}
            written = re.sub(
                r"(?s)\\.|\[", lambda member: members.get(member[0], member[0]), text[1:]
            )
            return f"[{written}"
        if token["escape"]:
            return escapes.get(text, text)
        if token["least"] is not None:
            if text == "{}":
                return r"\{\}"
            least = token["least"] or "0"
            return "{" + least + token["most"] + "}"
        if token["sign"]:
            if text == "{":
                return r"\{"
            return text if ends_at_lines else escapes.get(text, text)
        return text

    return _TOKENS.sub(write, _CODE_POINTS.sub(_character, pattern))


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    if not digits:
        return escape[0]
    return re.escape(chr(int(digits, 16)))


def _never_linear(pattern: str) -> str | None:
    for token in _TOKENS.finditer(pattern):
        if token["look"]:
            return f"looking around, {token[0]}...)"
        is_group_escape = token["escape"] and token[0][1] in "123456789g"
        if token["reference"] or is_group_escape:
            return "a reference to a group"
    return None


def _re2_obstacle(source: str, pattern: str) -> str | None:
    if _re2() is None:
        return "the extra re2 is not installed"
    tokens = list(_TOKENS.finditer(pattern))
    if any(token["escape"] == r"\B" for token in tokens):
        return r"\B"  # RE2 looks inside of characters, too
    if _INLINE_FLAGS.search(pattern):
        return "flags inside of the pattern"
    try:
        size = _automaton(source).programsize
    except ValueError as error:
        return str(error)
    counted = any(token["least"] is not None for token in tokens)
    return "too many repetitions" if counted and size > _MAX_INSTRUCTIONS else None


@lru_cache(maxsize=1)
def _re2() -> Any:
    """Return the module `re2` if it is Google's.

    Other modules of that name go back to `re`. Return None without it.
    """
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(getattr(re2, "Options", None), "NAMES") else None


@lru_cache(maxsize=512)
def _automaton(source: str) -> Any:
    engine = _re2()
    options = engine.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    try:
        return engine.compile(source, options)
    except engine.error as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ValueError(f"RE2: {reason}") from None


@reset_in_child
def _forget_automata() -> None:
    # A thread may have been inside of a pattern at the fork: its locks stay closed in the child.
    _automaton.cache_clear()
    if _re2.cache_info().currsize and _re2() is not None:
        _re2().purge()
