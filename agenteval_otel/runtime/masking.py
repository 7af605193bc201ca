"""Masking keeps our own secrets out of everything that is shown.

The secrets are keys in settings, variables and addresses.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"
_MAX_DEPTH = 64  # twice as deep as settings may be nested
_SHORTEST = 4  # characters of a secret that `mask_known` masks: a shorter one is in many words
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LAST = frozenset(
    {
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "authorization",
        "credential",
        "credentials",
        "cookie",
        "apikey",
        "headers",
        "salt",
    }
)
_BEFORE_KEY = frozenset(
    {"api", "private", "access", "secret", "signing", "auth", "license", "sampling"}
)
# Greedy up to the last @: a password may hold slashes and an @ of its own.
_USER = re.compile(r"(?<=://)[^\s'\"<>]*@")
_PARAMETER = re.compile(
    r"(?i)([?&;][\w.-]*(?:api[_-]?key|token|secret|password|passwd|signature|\bsig|credential)[\w.-]*=)[^&;#\s'\"]+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
# A value that is nothing but an address or a credential; a pattern or a sentence that contains one
# is not changed.
_WHOLE = re.compile(r"(?i)(?:[a-z][\w+.-]*://\S+|(?:bearer|basic)\s+\S+)")


def is_secret(name: str) -> bool:
    """Tell whether a field, header or variable of this name or path holds a secret.

    ``max_tokens`` does not. ``apiKey`` and ``sampling.key`` do.
    """
    snake_case = _CAMEL.sub("_", name).lower()
    words = [part for part in re.split(r"[^a-z0-9]+", snake_case) if part]
    if not words:
        return False
    if words[-1] in _LAST:
        return True
    return len(words) > 1 and words[-1] == "key" and words[-2] in _BEFORE_KEY


def mask(value: object, name: str = "") -> Any:
    """Return the value with its secrets masked and its containers copied.

    If `name`, or a key within the value, is that of a secret, all below it is masked. Keys, empty
    values and booleans stay. Other text is changed only if all of it is an address or a credential.
    """
    return _mask(value, is_secret(name), 0)


def _mask(value: Any, secret: bool, depth: int) -> Any:
    if depth >= _MAX_DEPTH:
        return MASK
    if isinstance(value, Mapping):
        return {
            key: _mask(item, secret or is_secret(str(key)), depth + 1)
            for key, item in value.items()
        }
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_mask(item, secret, depth + 1) for item in value)
    if secret:
        is_shown = value is None or value in ("", b"") or isinstance(value, bool)
        return value if is_shown else MASK
    if type(value) is str and _WHOLE.fullmatch(value):
        return mask_text(value)
    return value


def mask_text(text: str) -> str:
    """Mask the users of a text's addresses, their secret parameters and what follows ``Bearer``."""
    if "://" in text:
        text = _USER.sub(f"{MASK}@", text)
        text = _PARAMETER.sub(rf"\1{MASK}", text)
    return _SCHEME.sub(rf"\1 {MASK}", text)


def mask_known(text: str, secrets: Iterable[str]) -> str:
    """Mask the given secrets wherever they are in the text, and what `mask_text` masks."""
    long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST}
    for secret in sorted(long_enough, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return mask_text(text)


def message_of(error: BaseException) -> str:
    """Return an error in words: its class, and its text without the secrets of addresses.

    Never raises.
    """
    try:
        text = mask_text(str(error))
    except Exception:
        text = "(its message could not be read)"
    return f"{type(error).__name__}: {text}"


def printable(text: str) -> str:
    """Return text for a line of a terminal.

    Invisible characters (controls, line ends, directions) become ``?``.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def split_address(address: str) -> tuple[str, str | None]:
    """Return an address without its user part, and that part as a header's value.

    The header is ``authorization``. The value is None if the address had no user part.

    Libraries differ in what they do with ``http://user:password@host``: one sends it, one takes it
    for the host's name.
    """
    scheme, separator, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not separator or not at:
        return address, None
    credentials = b64encode(unquote(user).encode()).decode()
    return f"{scheme}://{host}{slash}{path}", f"Basic {credentials}"
