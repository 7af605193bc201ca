r"""JavaScript's regular expressions, rewritten into the syntax of `runtime.patterns`.

AgentDock's files have them. Not rewritten: surrogates in sets, ``\c``, ``[]`` and ``[^]``, braces
that are no quantifier, and line ends other than ``\n`` for ``^ $`` with the flag ``m``.
"""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = "\\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
# ``\\A`` and ``\\Z`` are letters in JavaScript and ends of the text in Python.
_ESCAPES: Final = {"S": f"[^{_SPACE}]", "A": "A", "Z": "Z"}
_HEX: Final = "[0-9a-fA-F]"
_TOKENS: Final = re.compile(
    rf"(?s)\\(?:u\{{(?P<long>{_HEX}{{1,5}})\}}|u(?P<unit>{_HEX}{{4}})|k<(?P<name>\w+)>|(?P<escape>.))"
    r"|\(\?<(?P<group>\w+)>|(?P<sign>[.\[\]])"
)

_PAIR: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _character(pair: re.Match[str]) -> str:
    high, low = (int(digits, 16) for digits in pair.groups())
    code = 0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00
    return f"\\u{{{code:x}}}"


def _literal(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError(
            "a surrogate alone, or in a set, is not supported: write \\u{...} with the flag u"
        )
    return re.escape(chr(code))


def _is_set_after(sign: str, in_set: bool) -> bool:
    """Tell whether what follows ``.``, ``[`` or ``]`` is inside a set."""
    if sign == "[":
        return True
    return in_set and sign != "]"


def python_pattern(pattern: str, flags: str) -> tuple[str, str]:
    """Return the pattern and its flags in our syntax.

    The flags ``d``, ``g`` and ``u`` change nothing. The flag ``y`` becomes a border at the start.

    Raises:
        ValueError: A flag that JavaScript does not have, a flag given twice, or the flag ``v``.
    """
    if set(flags) - set("dgimsuy") or len(set(flags)) != len(flags):
        raise ValueError(
            f"flags {flags!r} are not valid. Expected each of d g i m s u y at most once"
        )
    in_set = False

    def rewrite(token: re.Match[str]) -> str:
        nonlocal in_set
        text = token[0]
        digits = token["long"] or token["unit"]
        if digits:
            return _literal(int(digits, 16))
        if token["name"]:
            return f"(?P={token['name']})"
        if token["group"] and not in_set:
            return f"(?P<{token['group']}>"
        if token["escape"] == "s":
            return _SPACE if in_set else f"[{_SPACE}]"
        if token["escape"] in _ESCAPES and not in_set:
            return _ESCAPES[token["escape"]]
        if text == "." and not in_set:
            return text if "s" in flags else "[^\n\r\u2028\u2029]"
        if token["sign"]:
            in_set = _is_set_after(text, in_set)
        return text

    with_code_points = _PAIR.sub(_character, pattern)
    source = _TOKENS.sub(rewrite, with_code_points)
    source = rf"\A(?:{source})" if "y" in flags else source
    return source, "".join(flag for flag in "ims" if flag in flags)
