"""Secrets: keys and tokens by their fixed forms, and values by the name before them.

All of them are found in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agenteval_otel.capture.redaction.placeholders import (
    begins_sentence,
    is_expression,
    is_identifier,
    is_invented,
    is_name,
    is_one_word,
    is_placeholder,
)
from agenteval_otel.capture.redaction.scan import Finding, Scan
from agenteval_otel.runtime.text import lazily

SECRET: Final = "[SECRET]"
"""The marker that stands for a secret."""

_WORD: Final = r"[\w-]"
_LETTERS: Final = "[A-Za-z0-9]"
_HEX: Final = "[0-9a-f]"
_ANY_HEX: Final = "[0-9A-Fa-f]"
_END: Final = r"(?![A-Za-z0-9])"

# Keys and tokens of vendors: the prefix, whose last character is what is searched for, and what
# follows. A form of one length ends there; the others have the least that the vendor issues.
_TOKENS: Final = (
    ("sk-", rf"{_WORD}{{16,512}}+"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse, Helicone
    *((f"gl{kind}-", r"[\w.-]{16,512}+") for kind in
      ("pat", "dt", "rt", "ft", "cbt", "ptt", "imt", "agent", "ffct", "soat", "oas")),  # GitLab
    *((f"xox{kind}-", rf"{_WORD}{{10,512}}+") for kind in "abcdeoprs"),  # Slack
    ("xapp-", rf"{_WORD}{{10,512}}+"),
    ("pypi-", rf"{_WORD}{{16,512}}+"),
    ("GOCSPX-", rf"{_WORD}{{16,128}}+"),  # Google's clients
    ("pplx-", rf"{_WORD}{{16,128}}+"),  # Perplexity
    ("xai-", rf"{_LETTERS}{{40,128}}+"),
    ("nvapi-", rf"{_WORD}{{40,128}}+"),  # NVIDIA
    ("tvly-", rf"(?:dev-|prod-)?{_LETTERS}{{20,64}}+"),  # Tavily
    ("csk-", rf"{_LETTERS}{{40,64}}+"),  # Cerebras
    ("fc-", rf"{_HEX}{{32}}{_END}"),  # Firecrawl
    ("PMAK-", rf"{_HEX}{{24}}-{_HEX}{{34}}"),  # Postman
    ("key-", rf"{_HEX}{{32}}{_END}"),  # Mailgun
    ("xkeysib-", rf"{_HEX}{{64}}-{_LETTERS}{{16}}"),  # Brevo
    ("pul-", rf"{_HEX}{{40}}{_END}"),  # Pulumi
    ("NRAK-", r"[A-Z0-9]{27}"),  # New Relic
    ("HRKU-", rf"{_WORD}{{36,64}}+"),  # Heroku
    ("sq0atp-", rf"{_WORD}{{22,64}}+"),  # Square
    ("sq0csp-", rf"{_WORD}{{40,64}}+"),
    ("AGE-SECRET-KEY-", r"1[A-Z0-9]{58}"),
    ("tskey-", rf"[a-z]{{3,12}}-{_WORD}{{16,128}}+"),  # Tailscale
    ("CFPAT-", rf"{_WORD}{{43}}"),  # Contentful
    ("pat-", rf"(?:na1|eu1)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"),  # HubSpot
    ("FLWSECK-", rf"{_LETTERS}{{20,64}}+(?:-X)?"),  # Flutterwave
    *((f"gh{kind}_", rf"{_LETTERS}{{16,255}}+") for kind in "opsur"),  # GitHub
    ("github_pat_", r"\w{16,255}+"),
    *((f"{kind}_", r"(?:live|test|prod)_\w{8,255}+") for kind in ("pk", "rk", "rzp", "cal", "duffel", "shippo")),
    ("sk_", rf"(?:live|test|prod)_\w{{8,255}}+|{_HEX}{{48}}{_END}"),  # Stripe, Clerk, ElevenLabs
    ("hf_", rf"{_LETTERS}{{16,128}}+"),  # Hugging Face
    ("api_org_", rf"{_LETTERS}{{34}}"),
    ("npm_", rf"{_LETTERS}{{16,128}}+"),
    ("whsec_", r"[\w+/=]{16,128}+"),  # Stripe, Svix
    ("gsk_", r"\w{16,128}+"),  # Groq
    *((f"{kind}_v1_", r"\w{16,128}+") for kind in ("dop", "doo", "dor", "tgp", "wandb")),  # DigitalOcean, Together
    *((f"shp{kind}_", rf"{_ANY_HEX}{{32,64}}+") for kind in ("at", "ca", "pa", "ss", "tka", "ua")),  # Shopify
    ("r8_", rf"{_LETTERS}{{37,40}}{_END}"),  # Replicate
    ("fw_", rf"{_LETTERS}{{22,40}}{_END}"),  # Fireworks
    ("re_", rf"{_LETTERS}{{8,9}}_{_LETTERS}{{22,26}}{_END}"),  # Resend
    ("pcsk_", rf"{_LETTERS}{{5,8}}_{_LETTERS}{{50,80}}+"),  # Pinecone
    ("jina_", rf"{_WORD}{{40,80}}+"),
    ("e2b_", rf"{_HEX}{{40}}{_END}"),
    ("lsv2_", rf"(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}"),  # LangSmith
    ("lin_api_", rf"{_LETTERS}{{40}}"),  # Linear
    ("lin_oauth_", rf"{_HEX}{{64}}"),
    ("ntn_", rf"{_LETTERS}{{43,50}}+"),  # Notion
    ("secret_", rf"{_LETTERS}{{43}}{_END}"),
    ("figd_", rf"{_WORD}{{36,64}}+"),  # Figma
    ("dckr_pat_", rf"{_WORD}{{24,40}}+"),  # Docker
    ("dckr_oat_", rf"{_WORD}{{24,40}}+"),
    ("sntrys_", r"[\w+/=]{40,512}+"),  # Sentry
    ("sntryu_", rf"{_HEX}{{64}}"),
    ("glsa_", rf"{_LETTERS}{{32}}_{_ANY_HEX}{{8}}"),  # Grafana
    ("glc_", r"[A-Za-z0-9+/]{32,400}+={0,3}"),
    ("sbp_", rf"{_HEX}{{40}}"),  # Supabase
    ("sb_secret_", rf"{_WORD}{{20,64}}+"),
    *((f"pscale_{kind}_", r"[\w=.-]{32,64}+") for kind in ("tkn", "pw", "oauth")),  # PlanetScale
    *((f"vc{kind}_", rf"{_LETTERS}{{24,80}}+") for kind in "pciark"),  # Vercel
    ("rnd_", rf"{_LETTERS}{{28,40}}{_END}"),  # Render
    ("napi_", rf"{_LETTERS}{{40,80}}+"),  # Neon
    ("fo1_", rf"{_WORD}{{43}}"),  # Fly
    ("fm1r_", r"[A-Za-z0-9+/]{80,1024}+={0,3}"),
    ("fm2_", r"[A-Za-z0-9+/]{80,1024}+={0,3}"),
    ("ops_", r"eyJ[A-Za-z0-9+/=_-]{100,2048}+"),  # 1Password
    ("rubygems_", rf"{_HEX}{{48}}"),
    ("CLOJARS_", rf"{_LETTERS}{{60}}"),
    ("tfp_", rf"{_WORD}{{40,80}}+"),  # Typeform
    ("bkua_", rf"{_HEX}{{40}}"),  # Buildkite
    ("CCIPAT_", rf"{_LETTERS}{{22}}_{_HEX}{{40}}"),  # CircleCI
    ("phx_", rf"{_LETTERS}{{40,64}}+"),  # PostHog
    ("rdme_", r"[a-z0-9]{70}"),  # ReadMe
    ("pnu_", rf"{_LETTERS}{{36}}"),  # Prefect
    ("sgp_", rf"(?:{_ANY_HEX}{{16}}_|local_)?{_ANY_HEX}{{40}}"),  # Sourcegraph
    ("hvs.", rf"{_WORD}{{24,256}}+"),  # HashiCorp Vault
    ("hvb.", rf"{_WORD}{{24,512}}+"),
    ("hvr.", rf"{_WORD}{{24,512}}+"),
    ("SG.", rf"{_WORD}{{16,32}}\.{_WORD}{{32,64}}+"),  # SendGrid
    ("ya29.", rf"{_WORD}{{20,1024}}+"),  # Google's access tokens
    ("atlasv1.", r"[\w=-]{60,80}+"),  # HashiCorp Terraform
    ("dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),  # Dynatrace
    *((f"dp.{kind}.", r"[A-Za-z0-9_.]{40,64}+") for kind in ("pt", "st", "ct", "sa", "scim", "audit")),  # Doppler
    ("sl.u.", rf"{_WORD}{{80,2048}}+"),  # Dropbox
)  # fmt: skip
# Up to this length a prefix counts at the start of a word alone: risk-..., half_...
_SHORT_PREFIX: Final = 3
_FORMS: Final = {prefix: lazily(form, re.ASCII) for prefix, form in _TOKENS}
_PREFIXES: Final = {
    sign: sorted((prefix for prefix in _FORMS if prefix[-1] == sign), key=len, reverse=True)
    for sign in "-_."
}


def _heads(sign: str, follows: str, other: str = "(?!)") -> re.Pattern[bytes]:
    """Return the places of a sign with enough of a word behind it and a prefix before it."""
    behind = "|".join(f"(?<={re.escape(prefix)})" for prefix in _PREFIXES[sign])
    return lazily(rf"{re.escape(sign)}(?:(?={follows})(?:{behind})|{other})".encode())


_HEADS: Final = {
    "-": _heads("-", r"[A-Za-z0-9][\w-]{9}"),
    "_": _heads("_", r"[A-Za-z0-9][\w+/-]{12}"),
    ".": _heads(".", r"[\w-]{16}", r"(?=[\w-]{6}\.[\w-]{27})"),  # the tokens of Discord's bots
}

# Keys that are found by an A: one search for all of them.
_A_HEAD: Final = lazily(
    rb"A(?:(?=[KS]IA[A-Z0-9]{16}|(?:BIA|CCA)[A-Z2-7]{16}|Iza[\w-]{30}|T[AC]TT3|TBB[A-Za-z0-9]{28}|KCp[A-Za-z0-9]{60}"
    rb"|BSK[A-Za-z0-9+/]{80}|KID[A-Za-z0-9]{32})|(?<=:A)(?=A[\w-]{32})|(?<=LTA)(?=I[A-Za-z0-9]{12}))"
)
_AWS_ID: Final = lazily(r"A(?:[KS]IA[A-Z0-9]{16,64}+|(?:BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9]))")
# Google, Atlassian, Bitbucket, JFrog, Bedrock, Tencent; Alibaba's and Telegram's begin before it.
_A_TOKEN: Final = lazily(
    r"AIza[\w-]{30,64}+|AT[AC]TT3[\w=-]{40,512}+|ATBB[A-Za-z0-9]{28,40}+|AKCp[A-Za-z0-9]{60,80}+|ABSK[A-Za-z0-9+/]{80,280}+={0,2}"
    r"|AKID[A-Za-z0-9]{32}|(?<=LT)AI[A-Za-z0-9]{12,24}+|(?<=[0-9]:)AA[\w-]{32,64}+",
    re.ASCII,
)
_BEFORE_A: Final = lazily(r"TL|:[0-9]{8,10}(?![0-9])")
_AWS_KEY: Final = lazily(r"(?<![\w/+=])(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![\w/+=])", re.ASCII)
_DATABRICKS: Final = lazily(r"(dapi[0-9a-f]{32})")
_JWT: Final = lazily(r"(eyJ[\w-]{6,8192}+(?:\.[\w-]{0,16384}+){1,4}+)|eyJ[\w-]{0,8192}+", re.ASCII)
_SIGNATURE: Final = lazily(r"(?i:sig(?:nature)?)=([\w%+/=~-]{24,1024}+)", re.ASCII)
# Web hooks of Slack, Discord and Teams.
_HOOK: Final = lazily(
    r"hook(?:s\.slack\.com/(?:services|workflows|triggers)/|(?<=/api/webhook)s/(?=[0-9]{15,22}/)|\.office\.com/(?=webhook))"
    r"([\w@/-]{20,400}+)",
    re.ASCII,
)
# Found by their middle, their first part backwards: Azure's clients, Discord's bots.
_AZURE: Final = lazily(r"~[\w.~-]{31,36}+", re.ASCII)
_AZURE_HEAD: Final = lazily(r"Q[0-9][\w~.]{3}(?!\w)", re.ASCII)
_DISCORD: Final = lazily(r"\.[\w-]{6}\.[\w-]{27,40}+", re.ASCII)
_DISCORD_ID: Final = lazily(r"[\w-]{23,27}[MNO](?!\w)", re.ASCII)
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
    r"(?i:cookie)(?:[\"'\]\\]{1,3}\s{0,4},|[\"'\]\\]{0,3}\s{0,4}[:=])\s{0,4}b?[\"'\\]{0,2}((?:[\w.-]{1,64}+=[^\s;,\"'\\]{1,4096}+(?:;\s?)?){1,64}+)"
)

# A name that is given a value: what follows the name, up to the value.
_IS: Final = r"\s{1,3}(?i:is|was|ist|war|lautet|est|es|era)"
_TAIL: Final = r"(?P<tail>(?:[\w.]|-(?!>)){0,24}+)(?P<close>\\{0,64}+[\"']|[*`]{1,3})?\]?"
_GIVEN: Final = (
    rf"(?:{_IS}(?=\s{{0,2}}[:=]))?(?P<before>\s{{0,4}})(?P<sign>:=|=>|->|\u2192|={{1,3}}|:(?!:))\s{{0,4}}+"
    r"(?:[*_`]{1,3}\s{0,4}+)?"
)
_SAID: Final = rf"{_IS}\s{{1,3}}[\"'`\u201c\u2018]?(?P<said>(?=\S{{0,40}}(?:[0-9]|[!$%&*#]\w))[^\s\"',;]{{4,128}}+)"
_ASSIGNMENTS: Final = {
    b"pass": r"(?i:pass(?:word|wort|wd|phrase|code)|(?<=[a-z]_)pass(?=[\"']?\s{0,2}[:=])|(?<=mot de )passe)",
    b"pwd": r"(?i:pwd)",
    b"secret": r"(?i:secret)(?!s\b)",
    b"token": r"(?i:token)(?!s\b|s_|iz)",
    b"key": r"(?i:key)(?!s\b|word)",
}
_NAMED: Final = {
    name: lazily(rf"{pattern}{_TAIL}(?:{_SAID}|{_GIVEN})") for name, pattern in _ASSIGNMENTS.items()
}
_CODE_NAMES: Final = (b"secret", b"token", b"key")
_KEY_OF: Final = lazily(
    r"(?i)(?:api|access|secret|private|auth|account|signing|encryption|master|client|storage|service|shared|license|rsa|ssh)"
    r"[\s_.-]?\Z"
)
# Names that speak about a secret, and do not hold it.
_ABOUT: Final = lazily(
    r"(?:\A|[\W_]|(?<=[a-z])(?=[A-Z]))(?i:len|length|count|type|name|field|input|reset|policy|hint|label|prompt|error|message|strength"
    r"|rules?|min|max|expir\w*|ur[il]|endpoint|path|file|regex|pattern|format|ids|usage|limit|budget|details|version|manager|generator"
    r"|validator|attempts?|required|changed?|updated?|logprobs?|env|state|range)\Z"
)
_OPENED: Final = lazily(r"[bBfFrRuU]{0,2}(?P<depth>\\{0,64}+)(?P<quote>[\"'\u201c\u2018])")
_CLOSING: Final = {"\u201c": "\u201d", "\u2018": "\u2019"}
_ENDS: Final = {
    quote: lazily(rf"(?<!\\)\\*+{quote}|\n") for quote in ('"', "'", "\u201d", "\u2019")
}
_WORD_VALUE: Final = lazily(r"(?:[^\s\"',;&<>\[\](){}\\]|\\(?![nrt\"'])){3,1024}+")
_BLOCK: Final = lazily(r"[|>][+-]?[ \t]*\r?\n[ \t]{1,16}(?P<value>[^\n]{1,1024}+)")
_PLAIN_NUMBER: Final = lazily(r"[0-9.]{1,7}\Z")
_INSIDE: Final = lazily(
    r"\[[A-Z][A-Z0-9_-]{0,31}\]|(?P<open>[\[{])|(?P<shut>[\]}])|(?P<depth>\\{0,64}+)(?P<quote>[\"'])|(?P<bare>[^\s,:\[\]{}\"'\\]{3,128}+)(?!\s{0,4}:)"
)
_COLON: Final = lazily(r"\\{0,64}+[\"']\s{0,4}:")
SCHEMA_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array"})
"""Types of JSON Schema: an object that has one under ``type`` describes a value."""
SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
"""Names that only a JSON Schema has."""
_MAX_QUOTED: Final = 8192
_MAX_INSIDE: Final = 4096

TELLING_KEY: Final = lazily(
    r"(?i)pass(?:word|wort|wd|phrase|code)|pwd|secret|token(?!s)|(?:api|access|private|auth|signing|encryption)[\s_.-]?key"
    r"|authorization|credential|cookie"
)
"""Names of fields whose value is a secret by the name alone."""


# Literals, in raw or in folded text, with the patterns that match from there; group 1 is the
# secret.
_BY_LITERAL: Final = (
    (b"dapi", False, _DATABRICKS),
    (b"eyJ", False, _JWT),
    (b"sig", True, _SIGNATURE),
    (b"hook", False, _HOOK),
    (b"://", False, _USERINFO),
    (b"bearer ", True, _BEARER),
    (b"authorization", True, _AUTHORIZATION),
    (b"cookie", True, _COOKIE),
)


def has_token_prefix(text: str) -> bool:
    """Tell whether it begins as a vendor's token does."""
    return text.startswith(tuple(_FORMS))


def find_secrets(scan: Scan) -> Iterator[Finding]:
    for sign, heads in _HEADS.items():
        yield from _tokens(scan, sign, heads)
    yield from _a_keys(scan)
    yield from _private_keys(scan)
    yield from _azure_secrets(scan)
    for literal, is_folded, pattern in _BY_LITERAL:
        if literal not in (scan.folded if is_folded else scan.raw):
            continue  # nearly always; half the price of asking for the places
        for match in _matches(scan.text, scan.places(literal, folded=is_folded), pattern):
            if match[1] is not None and not _stands_for_one(pattern, match[1]):
                yield Finding(*match.span(1), SECRET)
    for name, pattern in _NAMED.items():
        if name in scan.folded:
            yield from _assigned(scan, name, pattern)


def _stands_for_one(pattern: re.Pattern[str], value: str) -> bool:
    """Tell whether a template or code stands where a header or an address has its secret."""
    if pattern is _COOKIE:
        return not any(char.isdigit() for char in value)
    if pattern is _USERINFO:
        password = value.rpartition(":")[2]
        return is_placeholder(password) or is_name(password)
    if pattern in (_BEARER, _AUTHORIZATION):
        word = value.rstrip("`.*:)")
        is_call = "(" in word and is_expression(word.partition("(")[0], "(", assigned=True)
        return is_call or is_placeholder(word) or is_identifier(word) or is_name(word)
    return False


def _matches(text: str, places: Iterator[int], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches at these places, in linear time.

    What one match has read is not read again (`done`, here and below).
    """
    done = 0
    for at in places:
        match = pattern.match(text, at) if at >= done else None
        if match is not None:
            done = match.end()
            yield match


def _tokens(scan: Scan, sign: str, heads: re.Pattern[bytes]) -> Iterator[Finding]:
    """Find tokens by the sign that ends their prefix: the longest prefix followed by its form."""
    text = scan.text
    done = 0
    for at in scan.matches(heads):
        if at < done:
            continue
        finding = _around(text, at, _DISCORD, _DISCORD_ID) if sign == "." else None
        if finding is not None:
            done = finding.end
            yield finding
            continue
        for prefix in _PREFIXES[sign]:
            start = at + 1 - len(prefix)
            if start < done or not text.startswith(prefix, start):
                continue
            before = text[start - 1 : start] if start else ""
            if len(prefix) <= _SHORT_PREFIX and before.isascii() and before.isalnum():
                continue  # risk-..., half_...
            match = _FORMS[prefix].match(text, at + 1)
            if match is not None and not is_invented(match[0]):
                done = match.end()
                yield Finding(start, done, SECRET)
                break


def _around(
    text: str, at: int, pattern: re.Pattern[str], reversed_head: re.Pattern[str]
) -> Finding | None:
    """Find a token by what stands in its middle. Its first part is read backwards."""
    match = pattern.match(text, at)
    if match is None:
        return None
    head = reversed_head.match(text[max(0, at - 32) : at][::-1])
    return None if head is None else Finding(at - head.end(), match.end(), SECRET)


def _azure_secrets(scan: Scan) -> Iterator[Finding]:
    done = 0
    for at in scan.places(b"~"):
        finding = _around(scan.text, at, _AZURE, _AZURE_HEAD) if at >= done else None
        if finding is not None:
            done = finding.end
            yield finding


def _a_keys(scan: Scan) -> Iterator[Finding]:
    """Find the keys with an A in their fixed part.

    Near an id of AWS, forty characters are its secret key. They say nothing by themselves.
    """
    text = scan.text
    done = 0
    for at in scan.matches(_A_HEAD):
        if at < done:
            continue
        aws = _AWS_ID.match(text, at)
        match = aws or _A_TOKEN.match(text, at)
        if match is None:
            continue
        before = None if aws else _BEFORE_A.match(text[max(0, at - 11) : at][::-1])
        done = match.end()
        yield Finding(at - (before.end() if before else 0), done, SECRET)
        if aws is not None:
            for key in _AWS_KEY.finditer(text, max(0, at - 256), done + 256):
                yield Finding(*key.span(), SECRET)


def _private_keys(scan: Scan) -> Iterator[Finding]:
    """Find private keys up to their end. A key without an end goes as far as it looks like a key."""
    text = scan.text
    done = 0
    tail = -1
    for at in scan.places(b"-----BEGIN"):
        head = _PEM.match(text, at) if at >= done else None
        if head is not None:
            if tail < head.end():  # else it is the next one for this beginning too
                next_end = text.find("-----END ", head.end())
                tail = len(text) if next_end < 0 else next_end
            is_near = tail < head.end() + _PEM_MAX
            end = _PEM_END.match(text, tail) if is_near else None
            body = end or _PEM_BODY.match(text, head.end())
            done = body.end() if body else head.end()
            yield Finding(at, done, SECRET)


def _assigned(scan: Scan, name: bytes, pattern: re.Pattern[str]) -> Iterator[Finding]:
    """Find the values that are given to names of secrets, by a sign or in words."""
    text = scan.text
    done = 0
    for at in scan.places(name, folded=True):
        if at < done or (name == b"key" and not _KEY_OF.search(text, max(0, at - 12), at)):
            continue
        match = pattern.match(text, at)
        if match is None:
            continue
        if match["said"] is not None:
            values = [] if is_placeholder(match["said"]) else [match.span("said")]
            done = match.end()
        elif _ABOUT.search(match["tail"]):
            continue
        else:
            done, values = _values(text, name, match)
        for start, end in values:
            yield Finding(start, end, SECRET)


def _values(text: str, name: bytes, match: re.Match[str]) -> tuple[int, list[tuple[int, int]]]:
    """Return up to where the text was read, and the stretches of it that are secret."""
    at = match.end()
    # A name in quotes with a colon is data; without them it may be code.
    is_data = match["sign"] == ":" and (match["close"] or "")[-1:] in ("'", '"')
    opened = _OPENED.match(text, at)
    if opened is not None:
        start = opened.end()
        end = _quoted_end(text, start, opened["quote"], len(opened["depth"]))
        return end, [(start, end)] if _is_secret(text[start:end], name, is_data=is_data) else []
    if text[at : at + 1] in ("[", "{"):
        return _values_inside(text, at) if is_data and not match["tail"] else (at, [])
    block = _BLOCK.match(text, at)
    if block is not None:
        is_template = is_placeholder(block["value"])
        return block.end(), [] if is_template else [block.span("value")]
    word = _WORD_VALUE.match(text, at)
    if word is None or not _is_secret_word(text, name, match, word[0], word.end()):
        return at, []
    return word.end(), [(at, at + len(word[0].rstrip("*`")))]


def _is_secret(value: str, name: bytes, *, is_data: bool) -> bool:
    """Tell whether a value in quotes is secret."""
    if not value or is_placeholder(value):
        return False
    if not is_data and value[0] in " ,)];}":
        return False  # the quotes end a text: input("Password: ")
    if name == b"token" and is_one_word(value):
        return False  # of a model's output
    return is_data or not is_name(value)


def _is_secret_word(text: str, name: bytes, match: re.Match[str], word: str, end: int) -> bool:
    """Tell whether a word without quotes is secret."""
    sign = match["sign"]
    is_spaced = bool(match["before"]) or text[match.end() - 1].isspace()
    after = text[end : end + 1]
    if is_placeholder(word) or sign in ("==", "==="):
        return False
    if is_expression(word, after, assigned=sign != ":" and is_spaced):
        return False
    if name in _CODE_NAMES:
        if _PLAIN_NUMBER.match(word) or is_identifier(word):
            return False
        return not (sign == ":" and is_spaced and is_one_word(word))  # "The secret: patience."
    return not (sign == ":" and is_spaced and begins_sentence(word, text[end : end + 2]))


def _quoted_end(text: str, start: int, quote: str, depth: int) -> int:
    """Return where a text in quotes ends that stands `depth` backslashes deep.

    In JSON in JSON, quotes inside of the text have more backslashes.
    """
    limit = start + _MAX_QUOTED
    for match in _ENDS[_CLOSING.get(quote, quote)].finditer(text, start, limit):
        slashes = match.end() - match.start() - 1
        if match[0] == "\n" or slashes < depth:
            return match.start()
        if (slashes - depth) % (2 * (depth + 1)) == 0:
            return match.end() - 1 - depth
    return min(limit, len(text))


def _values_inside(text: str, at: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the values of a list or an object under a secret's name, none of a JSON Schema."""
    limit = min(len(text), at + _MAX_INSIDE)
    values: list[tuple[int, int]] = []
    key = ""
    level = 0
    is_schema = False
    while at < limit:
        match = _INSIDE.search(text, at, limit)
        if match is None:
            break
        at = match.end()
        if match["open"]:
            level += 1
        elif match["shut"]:
            level -= 1
            if level == 0:
                break
        elif match["quote"]:
            start = at
            at = _quoted_end(text, start, match["quote"], len(match["depth"]))
            value = text[start:at]
            colon = _COLON.match(text, at)
            if colon is not None:
                key = value
                is_schema = is_schema or key in SCHEMA_KEYS
            else:
                is_schema = is_schema or (key == "type" and value in SCHEMA_TYPES)
                if value and not is_placeholder(value):
                    values.append((start, at))
            at += len(match["depth"]) + 1
        elif match["bare"] and not is_placeholder(match["bare"]):
            values.append(match.span("bare"))
    return at, [] if is_schema else values
