"""JavaScript's regular expressions, as AgentDock's files have them, rewritten into the syntax of `runtime.patterns`.

Not rewritten: halves of surrogate pairs, line ends other than ``\\n`` for ``^ $`` with the flag ``m``, and letters that
equal ASCII ones only without regard to case (such as the Kelvin sign).
"""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = "\\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_HEX: Final = "[0-9a-fA-F]"
_TOKENS: Final = re.compile(
    rf"(?s)\\u(?P<high>[dD][89abAB]{_HEX}{{2}})\\u(?P<low>[dD][c-fC-F]{_HEX}{{2}})"
    rf"|\\(?:u\{{(?P<long>{_HEX}{{1,6}})\}}|u(?P<unit>{_HEX}{{4}})|x(?P<byte>{_HEX}{{2}}))|\\c(?P<control>[A-Za-z])"
    r"|\\k<(?P<name>\w+)>|(?P<property>\\[pP]\{[\w=]+\})|\\(?P<escape>.)"
    r"|\((?P<group>\?(?:[:=!]|<[=!]|<(?P<named>\w+)>)?)|(?P<all>\[\^\])|(?P<none>\[\])"
    r"|(?P<possessive>(?:[*+?]|\{\d+,?\d*\})\+)|(?P<brace>\{(?!\d+,?\d*\}))|(?P<sign>[.\[\]])"
)


def python_pattern(pattern: str, flags: str) -> tuple[str, str]:
    """The pattern and its flags in our syntax; ``d g u`` change nothing, ``y`` becomes a border.

    Raises:
        ValueError: Flags or groups that JavaScript does not have, or the flag ``v``.
    """
    if set(flags) - set("dgimsuy") or len(set(flags)) != len(flags):
        raise ValueError(f"flags {flags!r} are not valid; expected each of d g i m s u y at most once")
    source = _Rewriter(flags, has_names="(?<" in pattern).rewrite(pattern)
    return rf"\A(?:{source})" if "y" in flags else source, "".join(flag for flag in "ims" if flag in flags)


class _Rewriter:
    def __init__(self, flags: str, *, has_names: bool) -> None:
        self._flags, self._has_names, self._in_set = flags, has_names, False

    def rewrite(self, pattern: str) -> str:
        return _TOKENS.sub(self._write, pattern)

    def _write(self, token: re.Match[str]) -> str:
        text = token[0]
        if token["high"]:
            return chr(0x10000 + (int(token["high"], 16) - 0xD800) * 1024 + int(token["low"], 16) - 0xDC00)
        digits = token["unit"] or token["byte"] or (token["long"] if "u" in self._flags else None)
        if digits:
            return _literal(int(digits, 16))
        if token["control"]:
            return _literal(ord(token["control"]) % 32)
        if token["name"] and self._has_names:
            return f"(?P={token['name']})"
        if token["property"] and "u" in self._flags:
            return text
        if text.startswith("\\"):
            return self._escape(text[1], text[2:])
        if self._in_set:
            self._in_set = not text.endswith("]")
            return text
        return self._syntax(token, text)

    def _syntax(self, token: re.Match[str], text: str) -> str:
        if token["possessive"] or token["group"] == "?":
            raise ValueError(f"not a regular expression: nothing like {text!r} in JavaScript")
        if token["named"]:
            return f"(?P<{token['named']}>"
        if token["all"] or token["none"]:
            return r"[\s\S]" if token["all"] else "(?!)"
        if token["sign"] == ".":
            return text if "s" in self._flags else "[^\n\r\u2028\u2029]"
        self._in_set = text == "["
        return "\\{" if token["brace"] else text

    def _escape(self, char: str, rest: str) -> str:
        if char == "0":
            return "\\x00" + rest
        if char == "s":
            return (_SPACE if self._in_set else f"[{_SPACE}]") + rest
        if char == "S" and not self._in_set:
            return f"[^{_SPACE}]{rest}"
        if char == "b" and self._in_set:
            return "\\x08" + rest
        return (f"\\{char}" if char in "123456789dDwWsSbBtnrfv" else re.escape(char)) + rest


def _literal(point: int) -> str:
    return re.escape(chr(point)) if point <= 0x10FFFF else ""
