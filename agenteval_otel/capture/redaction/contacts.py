"""Addresses: e-mail, IPv4 and IPv6."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from agenteval_otel.capture.redaction.scan import Finding, Window
from agenteval_otel.runtime.text import lazily

__all__ = ["find_emails", "find_ipv6", "ipv4_at"]

_DOMAIN: Final = lazily(
    r"@(?:[^\W_](?:[^\W_]|-(?!\.)){0,62}+\.){1,8}([^\W\d_]{2,24}+|xn--[a-z0-9-]{2,58}+)(?![\w@])", re.IGNORECASE
)
# Read from right to left.
_LOCAL: Final = lazily(r"[\w+%-](?:[\w+%.-]|'(?=\w)){0,63}+")
_FILES: Final = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "py"})
_AT: Final = lazily(rb"@(?=[^\x00-\x2f])")

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4: Final = lazily(rf"{_OCTET}(?:\.{_OCTET}){{3}}(?![\w]|\.[0-9])")
_VERSION: Final = lazily(r"(?i)(?:version|release|build|ver\.?|v\.)[\s:=\"']{0,3}\Z")
_COLONS: Final = lazily(rb":(?=:|(?:[0-9A-Fa-f]{1,4}:){6})")
_HEXADECIMAL: Final = lazily(r"[0-9A-Fa-f:]{0,39}+")
_IPV6_RIGHT: Final = lazily(r":[0-9A-Fa-f:]{1,4096}+(?:(?:\.[0-9]{1,3}){3})?")


def find_emails(window: Window) -> Iterator[Finding]:
    """The e-mail addresses whose ``@`` lies in the window."""
    text = window.text
    for at in window.matches(_AT):
        domain = _DOMAIN.match(text, at)
        if domain is None or domain[1].lower() in _FILES:
            continue
        local = _LOCAL.match(text[max(0, at - 64) : at][::-1])
        if local is not None:
            yield Finding(at - local.end(), domain.end(), "[EMAIL]")


def ipv4_at(text: str, at: int) -> Finding | None:
    """The IPv4 address that begins here; numbers of versions are left alone."""
    match = _IPV4.match(text, at)
    if match is None or (at > 0 and (text[at - 1].isalnum() or text[at - 1] in "._")):
        return None
    if _VERSION.search(text, max(0, at - 12), at):
        return None
    return Finding(at, match.end(), "[IP]")


def find_ipv6(window: Window) -> Iterator[Finding]:
    """The IPv6 addresses of the window, compressed or not; what only looks like one (``a::b``) is left alone."""
    text, done = window.text, 0
    for at in window.matches(_COLONS):
        if at < done:
            continue
        right = _IPV6_RIGHT.match(text, at)
        left = _HEXADECIMAL.match(text[max(0, at - 39) : at][::-1])
        if right is None or left is None:
            continue
        start, done = at - left.end(), right.end()
        end = done - (right[0].endswith(":") and not right[0].endswith("::"))
        if end - start <= 45 and _is_ipv6(text[start:end]) and _stands_alone(text, start, end):
            yield Finding(start, end, "[IP]")


def _stands_alone(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    return not (before.isalnum() or before == "_" or after.isalnum() or after == "_")


def _is_ipv6(text: str) -> bool:
    if not any(char.isdigit() for char in text) or len(text) < 4:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
