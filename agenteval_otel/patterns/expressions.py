"""JavaScript regular expressions, as the specification's rules write them, compiled and searched.

Each pattern is searched in linear time where that is possible (see `linear`), else by the package `regex`, bounded in
time. Both let other threads run meanwhile. Patterns match code points; the original's halves of surrogate pairs are not
told apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from agenteval_otel.patterns.linear import Linear, NotLinear, linear_form
from agenteval_otel.patterns.regex_source import regex_source
from agenteval_otel.patterns.syntax import parse

__all__ = ["DEFAULT_LIMIT_S", "JsPattern", "check_flags", "compile_pattern"]

DEFAULT_LIMIT_S = 0.1


class JsPattern(NamedTuple):
    """A compiled pattern; `sticky` (flag ``y``) matches at the start of the text only.

    Attributes:
        compiled: The pattern of `regex`, for what has no linear form.
        linear: The linear form, which `found` then uses; None without one.
        obstacle: Why there is none: the construct, or what is missing.
        never_linear: Whether it is the construct: no linear engine has it.
    """

    compiled: Any
    sticky: bool
    linear: Linear | None = None
    obstacle: str | None = None
    never_linear: bool = False

    def found(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> bool:
        """Whether the pattern occurs; other threads go on running meanwhile.

        Raises:
            TimeoutError: The search took longer than `limit_s` seconds; never with a linear form.
        """
        if self.linear is not None:
            return self.linear.found(text)
        look = self.compiled.match if self.sticky else self.compiled.search
        return look(text, timeout=limit_s, concurrent=True) is not None

    def spans(self, text: str, *, limit_s: float = DEFAULT_LIMIT_S) -> list[tuple[int, int]]:
        """Where the pattern occurs, in order and without overlaps; empty matches are left out.

        Raises:
            TimeoutError: The search took longer than `limit_s` seconds.
        """
        if self.linear is not None and self.linear.gives_spans:
            return list(self.linear.spans(text, limit_s=limit_s))
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

    branches = parse(pattern, flags)
    try:
        # Also where it has a linear form: what is a pattern must not depend on what is installed.
        compiled = regex.compile(regex_source(branches), flags=regex.VERSION0)
        return JsPattern(compiled, "y" in flags, linear_form(branches, flags))
    except NotLinear as obstacle:
        return JsPattern(compiled, "y" in flags, None, str(obstacle), obstacle.by_nature)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error


def check_flags(flags: str) -> None:
    """Refuse (ValueError) unknown or repeated flags, and ``u`` together with ``v``."""
    if set(flags) - set("dgimsuvy") or len(set(flags)) != len(flags) or {"u", "v"} <= set(flags):
        raise ValueError(f"flags {flags!r} are not valid; each of d g i m s u v y at most once, not both u and v")
