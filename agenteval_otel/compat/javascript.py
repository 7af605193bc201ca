"""JavaScript's regular expressions, as AgentDock's files have them, rewritten into the syntax of `runtime.patterns`.

Not rewritten: surrogate pairs, ``\\c``, ``[]`` and ``[^]``, braces that are no quantifier, and line ends other than
``\\n`` for ``^ $`` with the flag ``m``.
"""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = "\\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_HEX: Final = "[0-9a-fA-F]"
_TOKENS: Final = re.compile(
    rf"(?s)\\(?:u\{{(?P<long>{_HEX}{{1,5}})\}}|u(?P<unit>{_HEX}{{4}})|k<(?P<name>\w+)>|(?P<escape>.))"
    r"|\(\?<(?P<group>\w+)>|(?P<sign>[.\[\]])"
)


def python_pattern(pattern: str, flags: str) -> tuple[str, str]:
    """The pattern and its flags in our syntax; ``d g u`` change nothing, ``y`` becomes a border.

    Raises:
        ValueError: Flags that JavaScript does not have, or the flag ``v``.
    """
    if set(flags) - set("dgimsuy") or len(set(flags)) != len(flags):
        raise ValueError(f"flags {flags!r} are not valid; expected each of d g i m s u y at most once")
    in_set = False

    def rewrite(token: re.Match[str]) -> str:
        nonlocal in_set
        text = token[0]
        if digits := token["long"] or token["unit"]:
            return re.escape(chr(int(digits, 16)))
        if token["name"]:
            return f"(?P={token['name']})"
        if token["group"] and not in_set:
            return f"(?P<{token['group']}>"
        if token["escape"] == "s":
            return _SPACE if in_set else f"[{_SPACE}]"
        if token["escape"] == "S" and not in_set:
            return f"[^{_SPACE}]"
        if text == "." and not in_set:
            return text if "s" in flags else "[^\n\r\u2028\u2029]"
        if token["sign"]:
            in_set = text == "[" or (in_set and text != "]")
        return text

    source = _TOKENS.sub(rewrite, pattern)
    return rf"\A(?:{source})" if "y" in flags else source, "".join(flag for flag in "ims" if flag in flags)
