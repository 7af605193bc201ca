"""Secrets: keys and tokens by their fixed forms, and values by the name that they are given to.

Everything is bounded in length and matched without going back, at places that a search for literals found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from agenteval_otel.redaction.scan import Finding, Window
from agenteval_otel.runtime.text import lazily

__all__ = ["SECRET", "TELLING_KEY", "find_secrets"]

SECRET: Final = "[SECRET]"
"""The marker that stands for a secret."""

_DASHED: Final = lazily(
    rb"-(?:(?<=sk-)|(?<=glpat-)|(?<=gldt-)|(?<=glrt-)|(?<=xox[a-z]-)|(?<=xapp-)|(?<=pypi-)|(?<=GOCSPX-)|(?<=pplx-))"
    rb"(?=[A-Za-z0-9][\w-]{9})"
)
_SCORED: Final = lazily(
    rb"_(?:(?<=gh[opsur]_)|(?<=github_)|(?<=[rsp]k_)|(?<=hf_)|(?<=npm_)|(?<=whsec_)|(?<=gsk_)|(?<=dop_))"
    rb"(?=[A-Za-z0-9]\w{13})"
)
_DASHED_TOKEN: Final = lazily(
    r"sk-[\w-]{16,512}+|gl(?:pat|dt|rt)-[\w.-]{16,512}+|xox[a-z]-[\w-]{10,512}+|xapp-[\w-]{10,512}+"
    r"|pypi-[\w-]{16,512}+|GOCSPX-[\w-]{16,128}+|pplx-[\w-]{16,128}+",
    re.ASCII,
)
_SCORED_TOKEN: Final = lazily(
    r"gh[opsur]_[A-Za-z0-9]{16,255}+|github_pat_\w{16,255}+|[rsp]k_(?:live|test|prod)_\w{8,255}+|hf_[A-Za-z0-9]{16,128}+"
    r"|npm_[A-Za-z0-9]{16,128}+|whsec_[\w+/=]{16,128}+|gsk_\w{16,128}+|dop_v1_\w{16,128}+",
    re.ASCII,
)
_AWS_HEAD: Final = lazily(rb"A(?=[KS]IA[A-Z0-9]{16})")
_AWS_ID: Final = lazily(r"A[KS]IA[A-Z0-9]{16,64}+")
_AWS_KEY: Final = lazily(r"(?<![\w/+=])(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![\w/+=])", re.ASCII)
_GOOGLE: Final = lazily(r"AIza[\w-]{30,64}+", re.ASCII)
_JWT_HEAD: Final = lazily(r"[\w-]{1,8192}+", re.ASCII)
_JWT: Final = lazily(r"eyJ[\w-]{6,8192}+(?:\.[\w-]{0,16384}+){1,4}+", re.ASCII)
_PEM: Final = lazily(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = lazily(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY: Final = lazily(
    r"(?:\s{0,4}[A-Za-z-]{3,20}: [^\n]{1,80}\n){0,4}(?:[\s\\nr]{0,8}[A-Za-z0-9+/=]{16,128}+){0,1024}+"
    r"(?:[\s\\nr]{0,8}[A-Za-z0-9+/]{1,15}={1,2})?"
)
_PEM_MAX: Final = 64 * 1024
_USERINFO: Final = lazily(r"://((?!\[SECRET\]@)[^\s/\"'<>\\]{1,512})@")
_BEARER_HEAD: Final = lazily(rb"b(?=earer )")
_BEARER: Final = lazily(
    r"(?i:bearer)[\s:]{1,4}((?=[^\s]{0,40}[0-9]|[^\s]{20}|(?:sk|pk|key|tok)[_-])[\w.~+/=-]{8,8192}+)", re.ASCII
)
_SCHEME: Final = r"(?:(?i:basic|bearer|digest|token|apikey)\s{1,4})"
_AUTHORIZATION: Final = lazily(
    rf"(?i:authorization)[\"'\]\\]{{0,3}}\s{{0,4}}[:=]\s{{0,4}}[\"'\\]{{0,2}}(?:{_SCHEME})?(?!{_SCHEME})"
    r"([^\s\"',;\[\\]{6,8192}+)"
)

# What a cookie's header holds: names and values, all of them, because any may be the session's.
_COOKIE: Final = lazily(
    r"(?i:cookie)[\"'\]\\]{0,3}\s{0,4}[:,=]\s{0,4}b?[\"'\\]{0,2}((?:[\w.-]{1,64}+=[^\s;,\"'\\]{1,4096}+(?:;\s?)?){1,64}+)"
)

# A name that is given a value; the value is quoted (then all of it) or one word.
_VALUE: Final = (
    r"(?:\\?\"(?P<double>(?:[^\"\\\n]|\\(?!\")[^\n]){1,1024}+)|'(?P<single>[^'\n]{1,1024}+)"
    r"|(?P<word>[^\s\"',;&<>\[\](){}]{3,1024}+))"
)
_GIVEN: Final = r"[\w.-]{0,24}?[\"'\]\\]{0,3}\s{0,4}(?P<sign>:=|=>|==?|:)\s{0,4}" + _VALUE
_SAID: Final = r"\s{1,3}(?i:is|was)\s{1,3}(?P<said>(?=\S{0,40}[0-9!$%&*#])[^\s\"',;]{4,128}+)"
_ASSIGNMENTS: Final = {
    b"pass": lazily(rf"(?i:pass(?:word|wort|wd|phrase|code))(?:{_SAID}|{_GIVEN})"),
    b"pwd": lazily(rf"(?i:pwd){_GIVEN}"),
    b"secret": lazily(rf"(?i:secret)(?!s\b){_GIVEN}"),
    b"token": lazily(rf"(?i:token)(?!s\b|s_|iz){_GIVEN}"),
    b"key": lazily(rf"(?i:key)(?!s\b|word){_GIVEN}"),
}  # fmt: skip
_KEY_OF: Final = lazily(
    r"(?i)(?:api|access|secret|private|auth|account|signing|encryption|master|client|storage|service|shared|license|rsa|ssh)"
    r"[\s_.-]?\Z"
)
_NO_VALUE: Final = lazily(
    r"(?i)(?:none|null|nil|true|false|undefined|required|optional|str|string|bytes|int|empty|missing|invalid|expired"
    r"|\*+|x{3,}|\.{3}|-+|\$.*|%.*|(?:os|process|env|config|settings|self)\..*|\[[A-Z_ ]+\]?)\Z"
)
_PLAIN_NUMBER: Final = lazily(r"[0-9.]{1,7}\Z")
_WORD_OF_PROSE: Final = lazily(r"[^\W\d_]+[.!?]?\Z")

TELLING_KEY: Final = lazily(
    r"(?i)pass(?:word|wort|wd|phrase|code)|pwd|secret|token(?!s)|(?:api|access|private|auth|signing|encryption)[\s_.-]?key"
    r"|authorization|credential|cookie"
)
"""Names of fields whose value is a secret by the name alone."""


def find_secrets(window: Window) -> Iterator[Finding]:
    """The secrets that begin in the window."""
    text = window.text
    for places, look in _looks(window):
        done = 0
        for at in places:
            # A look tells how far it read, found or not: nobody reads the same stretch a thousand times.
            if at >= done:
                done, findings = look(text, at)
                yield from findings


_Look = Callable[[str, int], tuple[int, Sequence[Finding]]]


def _looks(window: Window) -> Iterator[tuple[Iterator[int], _Look]]:
    """Where to look, and how: each kind by what a fast search can find of it."""
    yield window.matches(_DASHED), _dashed
    yield window.matches(_SCORED), _scored
    yield window.matches(_AWS_HEAD), _aws
    yield window.ends(b"AIz"), _google
    yield window.ends(b"eyJ"), _jwt
    yield window.places(b"-----BEGIN"), _pem
    yield window.places(b"://"), _userinfo
    for needle, pattern in _ASSIGNMENTS.items():
        yield window.places(needle, folded=True), partial(_assigned, needle, pattern)
    yield window.matches(_BEARER_HEAD, folded=True), _bearer
    yield window.places(b"authorization", folded=True), _authorization
    yield window.places(b"cookie", folded=True), _cookie


def _dashed(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _token(_DASHED_TOKEN, text, at, 7)


def _scored(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _token(_SCORED_TOKEN, text, at, 6)


def _token(pattern: re.Pattern[str], text: str, at: int, prefix: int) -> tuple[int, Sequence[Finding]]:
    """A token whose prefix ends at `at`: the longest prefix that fits, with nothing asked of what stands before it."""
    for start in range(max(0, at - prefix), at):
        match = pattern.match(text, start)
        if match is not None and match.end() > at:
            before = text[start - 1 : start]
            if match[0].startswith("sk-") and before.isascii() and before.isalnum():
                continue  # risk-..., task-...
            return match.end(), (Finding(start, match.end(), SECRET),)
    return at + 1, ()


def _google(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _whole(_GOOGLE.match(text, at - 2), at)


def _jwt(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    match = _JWT.match(text, at - 2)
    if match is None:
        run = _JWT_HEAD.match(text, at)
        return (run.end() if run else at + 1), ()
    return _whole(match, at)


def _whole(match: re.Match[str] | None, at: int) -> tuple[int, Sequence[Finding]]:
    return (match.end(), (Finding(match.start(), match.end(), SECRET),)) if match else (at + 1, ())


def _aws(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    """A key id, and the secret key near it: forty characters that would say nothing by themselves."""
    match = _AWS_ID.match(text, at)
    if match is None:
        return at + 1, ()
    near = _AWS_KEY.finditer(text, max(0, at - 256), min(len(text), match.end() + 256))
    keys = (Finding(key.start(), key.end(), SECRET) for key in near)
    return match.end(), (Finding(at, match.end(), SECRET), *keys)


def _pem(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    """A private key up to its end; without one, as far as it looks like a key."""
    head = _PEM.match(text, at)
    if head is None:
        return at + 1, ()
    tail = text.find("-----END ", head.end(), head.end() + _PEM_MAX)
    end = _PEM_END.match(text, tail) if tail >= 0 else None
    body = end or _PEM_BODY.match(text, head.end())
    last = body.end() if body else head.end()
    return last, (Finding(at, last, SECRET),)


def _userinfo(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _group(_USERINFO.match(text, at), at)


def _bearer(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _group(_BEARER.match(text, at), at)


def _authorization(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _group(_AUTHORIZATION.match(text, at), at)


def _cookie(text: str, at: int) -> tuple[int, Sequence[Finding]]:
    return _group(_COOKIE.match(text, at), at)


def _group(match: re.Match[str] | None, at: int) -> tuple[int, Sequence[Finding]]:
    return (match.end(), (Finding(match.start(1), match.end(1), SECRET),)) if match else (at + 1, ())


def _assigned(needle: bytes, pattern: re.Pattern[str], text: str, at: int) -> tuple[int, Sequence[Finding]]:
    if needle == b"key" and not _KEY_OF.search(text, max(0, at - 12), at):
        return at + 1, ()
    match = pattern.match(text, at)
    if match is None:
        return at + 1, ()
    group = next(name for name in ("said", "double", "single", "word") if match.groupdict().get(name) is not None)
    value = match[group]
    if _NO_VALUE.match(value) or (needle != b"pass" and _PLAIN_NUMBER.match(value)):
        return at + 1, ()
    spoken = group == "word" and match["sign"] == ":" and text[match.start("word") - 1].isspace()
    if spoken and needle in (b"secret", b"token", b"key") and _WORD_OF_PROSE.match(value):
        return at + 1, ()  # "The secret: patience."
    return match.end(group), (Finding(match.start(group), match.end(group), SECRET),)
