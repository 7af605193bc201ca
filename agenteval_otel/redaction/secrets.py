"""Secrets: keys and tokens by their fixed forms, and values by the name before them; all in linear
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agenteval_otel.redaction.scan import Finding, Scan
from agenteval_otel.runtime.text import lazily

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
_GOOGLE: Final = lazily(r"(AIza[\w-]{30,64}+)", re.ASCII)
_JWT: Final = lazily(r"(eyJ[\w-]{6,8192}+(?:\.[\w-]{0,16384}+){1,4}+)|eyJ[\w-]{0,8192}+", re.ASCII)
_PEM: Final = lazily(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = lazily(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY: Final = lazily(
    r"(?:\s{0,4}[A-Za-z-]{3,20}: [^\n]{1,80}\n){0,4}(?:[\s\\nr]{0,8}[A-Za-z0-9+/=]{16,128}+){0,1024}+"
    r"(?:[\s\\nr]{0,8}[A-Za-z0-9+/]{1,15}={1,2})?"
)
_PEM_MAX: Final = 64 * 1024
_USERINFO: Final = lazily(r"://((?!\[SECRET\]@)[^\s/\"'<>\\]{1,512})@")
_BEARER: Final = lazily(
    r"(?i:bearer)[\s:]{1,4}((?=[^\s]{0,40}[0-9]|[^\s]{20}|(?:sk|pk|key|tok)[_-])[\w.~+/=-]{8,8192}+)",
    re.ASCII,
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
}
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


# Literals, in raw or in folded text, with the patterns that match from there; group 1 is the
# secret.
_BY_LITERAL: Final = (
    (b"AIza", False, _GOOGLE),
    (b"eyJ", False, _JWT),
    (b"://", False, _USERINFO),
    (b"bearer ", True, _BEARER),
    (b"authorization", True, _AUTHORIZATION),
    (b"cookie", True, _COOKIE),
)


def find_secrets(scan: Scan) -> Iterator[Finding]:
    yield from _tokens(scan, _DASHED, _DASHED_TOKEN)
    yield from _tokens(scan, _SCORED, _SCORED_TOKEN)
    yield from _aws_keys(scan)
    yield from _private_keys(scan)
    for literal, is_folded, pattern in _BY_LITERAL:
        for match in _matches(scan.text, scan.places(literal, folded=is_folded), pattern):
            if match[1] is not None:
                yield Finding(*match.span(1), SECRET)
    for name, pattern in _ASSIGNMENTS.items():
        yield from _assigned(scan, name, pattern)


def _matches(text: str, places: Iterator[int], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The matches at these places; what one has read is not read again (`done`, here and below):
    linear time.
    """
    done = 0
    for at in places:
        match = pattern.match(text, at) if at >= done else None
        if match is not None:
            done = match.end()
            yield match


def _tokens(scan: Scan, heads: re.Pattern[bytes], pattern: re.Pattern[str]) -> Iterator[Finding]:
    """Tokens by the last character of their prefix: the longest prefix that fits, whatever stands
    before it.
    """
    text, done = scan.text, 0
    for at in scan.matches(heads):
        for start in range(max(done, at - 7), at):
            match = pattern.match(text, start)
            if match is None or match.end() <= at:
                continue
            before = text[start - 1 : start]
            if match[0].startswith("sk-") and before.isascii() and before.isalnum():
                continue  # risk-..., task-...
            done = match.end()
            yield Finding(start, done, SECRET)
            break


def _aws_keys(scan: Scan) -> Iterator[Finding]:
    """Key ids, and the secret keys near them: forty characters that would say nothing by
    themselves.
    """
    for match in _matches(scan.text, scan.matches(_AWS_HEAD), _AWS_ID):
        yield Finding(*match.span(), SECRET)
        for key in _AWS_KEY.finditer(scan.text, max(0, match.start() - 256), match.end() + 256):
            yield Finding(*key.span(), SECRET)


def _private_keys(scan: Scan) -> Iterator[Finding]:
    """Private keys up to their end; without one, as far as it looks like a key."""
    text, done = scan.text, 0
    for at in scan.places(b"-----BEGIN"):
        head = _PEM.match(text, at) if at >= done else None
        if head is not None:
            tail = text.find("-----END ", head.end(), head.end() + _PEM_MAX)
            end = _PEM_END.match(text, tail) if tail >= 0 else None
            body = end or _PEM_BODY.match(text, head.end())
            done = body.end() if body else head.end()
            yield Finding(at, done, SECRET)


def _assigned(scan: Scan, name: bytes, pattern: re.Pattern[str]) -> Iterator[Finding]:
    text, done = scan.text, 0
    for at in scan.places(name, folded=True):
        if at < done or (name == b"key" and not _KEY_OF.search(text, max(0, at - 12), at)):
            continue
        match = pattern.match(text, at)
        if match is None:
            continue
        group = str(match.lastgroup)  # of the value, which stands after the sign
        value = match[group]
        if _NO_VALUE.match(value) or (name != b"pass" and _PLAIN_NUMBER.match(value)):
            continue
        spoken = (
            group == "word" and match["sign"] == ":" and text[match.start("word") - 1].isspace()
        )
        if spoken and name in (b"secret", b"token", b"key") and _WORD_OF_PROSE.match(value):
            continue  # "The secret: patience."
        done = match.end(group)
        yield Finding(match.start(group), done, SECRET)
