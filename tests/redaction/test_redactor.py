"""The built-in redactor: what it takes out, what it leaves alone, own patterns, and that it is
stable and linear.
"""

from __future__ import annotations

import json
import random
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.capture.redaction.redactor import KINDS, load_redactors
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.redaction import PatternRedactor, Redactor
from agenteval_otel.testing.checks import check_component

REDACTOR = PatternRedactor()
LETTERS = string.ascii_uppercase
WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
FULL_WIDTH, ARABIC = (
    {48 + digit: zero + digit for digit in range(10)} for zero in (0xFF10, 0x0660)
)
# Put together here, so that no scanner takes this file for a leak.
AWS_ID, AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
GITHUB = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
JWT = (
    "eyJhbGciOiJIUzI1NiJ9"
    + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0"
    + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)
PEM = (
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"
)

CUT_PEM = "-----BEGIN PRIVATE " + "KEY-----\n" + "MIIEvQIBADANBgkq\n" * 5 + "hkiG9w0="

FOUND = [
    # secrets
    (f"id {AWS_ID}, key {AWS_KEY}.", "id [SECRET], key [SECRET]."),
    (f"aws_secret_access_key = {AWS_KEY}", "aws_secret_access_key = [SECRET]"),
    ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "[SECRET]"),
    (f"export TOKEN={GITHUB};", "export TOKEN=[SECRET];"),
    (f"({GITHUB})", "([SECRET])"),
    ("github_" + "pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789", "[SECRET]"),
    ("glpat-" + "ABCDEFGHIJKLMNOPQRST", "[SECRET]"),
    ("xoxb-" + "1234567890-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", "[SECRET]"),
    ("sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "[SECRET]"),
    ("sk-" + "ant-api03-AbCdEfGh1234567890-_abcdefghijk", "[SECRET]"),
    ("sk-" + "proj-AbCdEfGh1234567890abcdefghijklmnop", "[SECRET]"),
    ("hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH", "[SECRET]"),
    ("npm_" + "abcdefghijklmnopqrstuvwxyz0123456789", "[SECRET]"),
    ("pypi-" + "AgEIcHlwaS5vcmcCJDU2YjUyNWIx", "[SECRET]"),
    (f"jwt={JWT}", "jwt=[SECRET]"),
    (f"key:\n{PEM}\nend", "key:\n[SECRET]\nend"),
    (f"{CUT_PEM} and more", "[SECRET] and more"),
    (CUT_PEM.replace("\n", "\\n"), "[SECRET]"),
    ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [SECRET]"),
    ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [SECRET]"),
    ("password=hunter2&x=1", "password=[SECRET]&x=1"),
    ("my password is S3cret!x", "my password is [SECRET]"),
    ('{"password": "my long pass phrase"}', '{"password": "[SECRET]"}'),
    ("X-Api-Key: 0123abcd", "X-Api-Key: [SECRET]"),
    ("client_secret: 'AbC-123'", "client_secret: '[SECRET]'"),
    ("postgres://user:pass@db.internal/x", "postgres://[SECRET]/x"),
    # addresses
    ("write to john.doe+x@mail.example.co.uk.", "write to [EMAIL]."),
    ("<o'brien@example.com>", "<[EMAIL]>"),
    ("jös@bücher.example", "[EMAIL]"),
    ("email=a@b.de&y", "email=[EMAIL]&y"),
    ("from 192.168.1.1:8080", "from [IP]:8080"),
    ("ip 2001:db8::1, ok", "ip [IP], ok"),
    ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", "[IP]"),
    ("::ffff:192.0.2.128", "[IP]"),
    # cards and accounts
    ("card 4111 1111 1111 1111 exp 12/26", "card [CARD] exp 12/26"),
    ("4111-1111-1111-1111", "[CARD]"),
    ("3782 822463 10005", "[CARD]"),
    ("378282246310005", "[CARD]"),
    ("4222222222222", "[CARD]"),
    ("GB82 WEST 1234 5698 7654 32 and 4111 1111 1111 1111 99", "[IBAN] and [CARD] 99"),
    ("4111.1111.1111.1111", "[CARD]"),
    ("4111111111111111".translate(FULL_WIDTH), "[CARD]"),
    ("my card is 630427373398", "my card is [CARD]"),
    ("GB29 NWBK 6016 1331 9268 19 and", "[IBAN] and"),
    ("de89370400440532013000", "[IBAN]"),
    ("FR14 2004 1010 0505 0001 3M02 606", "[IBAN]"),
    ("DE89 37040044 0532013000", "[IBAN]"),
    ("MT84MALT011000012345MTLCAST001S", "[IBAN]"),
    # US social security
    ("Here's my SSN: 078-05-1120", "Here's my SSN: [SSN]"),
    ("is 219-09-9999.", "is [SSN]."),
    ("ssn 078051120", "ssn [SSN]"),
    ("Social Security number is 078 05 1120,", "Social Security number is [SSN],"),
    # telephones
    ("call +1 (415) 555-0132 now", "call [PHONE] now"),
    ("(415) 555-0132", "[PHONE]"),
    ("415.555.0132", "[PHONE]"),
    ("+4915112345678", "[PHONE]"),
    ("+44 20 7946 0958", "[PHONE]"),
    ("0049 171 1234567", "[PHONE]"),
    ("0171 1234567", "[PHONE]"),
    ("06 12 34 56 78", "[PHONE]"),
    ("07700900123", "[PHONE]"),
    ("345-899-3560x4587", "[PHONE]"),
    ("phone: 467 3395", "phone: [PHONE]"),
    ("call me at 78 651 450", "call me at [PHONE]"),
    ("416 60 039 office", "[PHONE] office"),
    ("at 781 1704x302-Office", "at [PHONE]-Office"),
    ("or 001-518-640-0854x3021", "or [PHONE]"),
    ("or 4155550132x3021, or", "or [PHONE], or"),
    ("0171 1234567".translate(ARABIC), "[PHONE]"),
    ("My phone number is 4155550132", "My phone number is [PHONE]"),
    ("61 51 81 office, 92 34 70-Office", "[PHONE] office, [PHONE]-Office"),
    # other writings
    ("4111\u20131111\u20131111\u20131111 and 078\u201105\u20111120", "[CARD] and [SSN]"),
    ("https://x.example/r?email=jane%40mail.example&x=1", "https://x.example/r?email=[EMAIL]&x=1"),
    ("mail=jane%252540mail.example", "mail=[EMAIL]"),
    ("card=4111%201111%201111%201111&n=1", "card=[CARD]&n=1"),
    ("jane&#64;mail.example, jane&commat;mail&#x2e;example", "[EMAIL], [EMAIL]"),
    ('{"to": "jane\\u0040mail.example\\nbob@mail.example"}', '{"to": "[EMAIL]\\n[EMAIL]"}'),
    ("ja\u00adne@\u200bma\u00adil.example", "[EMAIL]"),
    ("jane\uff20mail\uff0eexample", "[EMAIL]"),
    ("jane@mail\u3002example", "[EMAIL]"),
    ("jane @ mail.example", "[EMAIL]"),
    ('"jane doe"@mail.example and jane@[192.168.1.1]', "[EMAIL] and [EMAIL]"),
    ("my card: 4111\n1111\n1111\n1111", "my card: [CARD]"),
    ("4111 **1111** 1111 1111", "[CARD]"),
    ("\U0001d7d2" + "\U0001d7cf" * 15, "[CARD]"),
    ("IBAN de89 3704 0044 0532 0130 00", "IBAN [IBAN]"),
    ("DE89\u202f3704\u202f0044\u202f0532\u202f0130\u202f00", "[IBAN]"),
    ("DE89370400440532013000".translate(WIDE), "[IBAN]"),
    # values under a name
    ('{"password": ["hunter2", "x y"], "n": 1}', '{"password": ["[SECRET]", "[SECRET]"], "n": 1}'),
    ('{"password": {"value": "hunter2"}}', '{"password": {"value": "[SECRET]"}}'),
    (
        "{\\u0022password\\u0022:\\u0022hunter2\\u0022}",
        "{\\u0022password\\u0022:\\u0022[SECRET]\\u0022}",
    ),
    ('"{\\"password\\": \\"hun\\\\\\"ter2\\"}"', '"{\\"password\\": \\"[SECRET]\\"}"'),
    ("**Password:** hunter2", "**Password:** [SECRET]"),
    ("password -> hunter2", "password -> [SECRET]"),
    ("password: |\n  hunter2\nuser: x", "password: |\n  [SECRET]\nuser: x"),
    ("mein Passwort lautet Hunter2!", "mein Passwort lautet [SECRET]"),
    ("DB_PASS=hunter2", "DB_PASS=[SECRET]"),
    ("password=hunter%262", "password=[SECRET]"),
]

LEFT_ALONE = [
    "order 12345678 shipped on 2024-05-12 at 12:30:45", "order number 1234567890, invoice 2024-000123",
    "id 550e8400-e29b-41d4-a716-446655440000", "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
    "chatcmpl-9xY2mK8s0dQ3LrT7vWbNcPq1 msg_01XFDUDYJgAACzvnptvVoYEL", "at 1716381234567 and 1716381234567890123",
    "version 1.2.3.4 and v10.0.19045.1, python 3.11.7", "1,234,567.89 EUR, 1 234 567 in all, 1.500.000",
    "max_tokens=1024, input_tokens: 3000, total_tokens=12345678", "The key: patience. The secret: practice.",
    "primary key: id", "std::vector<int> a::b Foo::bar", "@property, @Override, image@2x.png",
    "risk-assessment-framework-for-teams task-123456789012345678", "MAC 00:1a:2b:3c:4d:5e",
    "ISBN 978-3-16-148410-0", "01.02.2024 10:30 and 05/12/2023 12", "pass: 3 fail: 2", "bearer of good news",
    "sha 3f786850e387550fdab836ed7e6dc881de23001b", "0 1 2 3 4 5 6 7 8 9 10 11 12", "52.520008, 13.404954",
    "https://example.com/path?x=1&y=2 http://localhost:8080/a", 'password: none, api_key=os.environ["X"]',
    "4111 1111 1111 1112", "GB28 NWBK 6016 1331 9268 19", "account 12345678, policy 1234-5678", "",
    "Your booking AM96XC covers one bag and a window seat on both legs.", "XX82 WEST 1234 5698 7654 32",
    "IMEI 490154203237518", "Python 3.11.4.1 and torch==1.2.3.4", "Invoice no. 0712345678", "part number 123-45-6789",
    "000-12-3456, 666-12-3456, 912-34-5678, 123-00-4567, 123-45-0000", "123 45 6789 and 123456789",
    "The bus drops you off at 05394 3133 Archwood Avenue", "1844\u20131846, pages 12\u201345 \u2014 2019\u20132024",
    "we are live @ twitch.example", "npm i lodash@latest", "100% of 50%", "C:\\new\\table\\u0041pp",
    "R&amp;D &copy; 2024",
    "4111\n1111\n1111\n1111\n1111", "2019\n2020\n2021\n2022", "[4, 1, 3, 5, 2, 9]", "0xC0A80101",
    # placeholders and code
    'password = os.environ["X"]', "api_key=YOUR_API_KEY", "token: <token>", "secret=${SECRET}", 'api_key = "sk-..."',
    "password = getpass.getpass()", 'token = response.json()["token"]', "self.password = password",
    "--password=$PASSWORD",
    "connect(user=user, password=db_password)", 'f"Authorization: Bearer {API_KEY}"',
    "Authorization: Bearer YOUR_ACCESS_TOKEN",
    "const password = req.body.password;", 'if password == "secret":', '"token": "{{token}}"', "password=****",
    "Password: Use a strong one with signs", "your password is incorrect!", "sk-your-api-key-goes-here",
    "xoxb-your-token-here",
    "ghp_xxxxxxxxxxxxxxxxxxxx", "sk-learn-based-classifiers", "postgres://${USER}:${PASS}@db/x",
    '"token": "Hello", "logprob": -0.3',
    '{"password": {"type": "string", "description": "The password of the user"}}',
    '"input_token_details": {"cache_read": 0}',
    "String password = scanner.nextLine();", '"password": "your_password"', 'document.cookie = "theme=dark"',
    "password: str",
]  # fmt: skip

MIXED = "aB3" * 40
HEX = "0a1b2c3d" * 20
TOKENS = [
    "shpat_" + HEX[:32], "shpss_" + HEX[:32], "hvs." + MIXED[:95], "xai-" + MIXED[:80],
    "SG." + MIXED[:22] + "." + MIXED[:43], "sk-" + "ant-api03-" + MIXED[:93],
    "sk-" + "or-v1-" + HEX[:64], "gsk_" + MIXED[:52], "nvapi-" + MIXED[:64], "r8_" + MIXED[:37],
    "tvly-dev-" + MIXED[:32], "pcsk_" + "aB3cD_" + MIXED[:60], "lsv2_pt_" + HEX[:32] + "_" + HEX[:10],
    "lin_api_" + MIXED[:40], "ntn_" + MIXED[:46], "dckr_pat_" + MIXED[:27],
    "glsa_" + MIXED[:32] + "_" + HEX[:8], "sbp_" + HEX[:40], "PMAK-" + HEX[:24] + "-" + HEX[:34],
    "dop_v1_" + HEX[:64],
    "xkeysib-" + HEX[:64] + "-" + MIXED[:16], "ya29." + MIXED[:60], "dp.pt." + MIXED[:43],
    "ATATT3" + MIXED[:90], "LTAI" + MIXED[:20], "dapi" + HEX[:32], "abc8" + "Q~" + MIXED[:34],
    "123456789:AA" + MIXED[:33], "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE." + MIXED[:38],
    "re_" + MIXED[:8] + "_" + MIXED[:24], "vcp_" + MIXED[:56], "figd_" + MIXED[:40],
    "glrt-" + MIXED[:20], "xapp-1-" + MIXED[:30], "sk_" + HEX[:48], "rubygems_" + HEX[:48],
]  # fmt: skip
ADDRESSES = [
    ("https://hooks.slack.com/services/", "T00000000/B00000000/" + "X" * 24),
    ("https://discord.com/api/webhooks/", "123456789012345678/" + MIXED[:68]),
    ("https://a.blob.core.windows.net/c?sv=1&sig=", "abc%2F" + MIXED[:36] + "%3D"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Signature=", HEX[:64]),
]


@pytest.mark.parametrize(("text", "redacted"), FOUND)
def test_what_is_personal_or_secret_is_replaced(text: str, redacted: str) -> None:
    """Each kind in its usual forms becomes its marker; what stands around it stays."""
    assert REDACTOR.redact(text) == redacted


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    """Ids, dates, amounts, versions and prose come back as the same object."""
    assert REDACTOR.redact(text) is text


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_of_vendors_are_known_by_their_form(token: str) -> None:
    """Alone, in a sentence, in JSON and in an address; as words with such a prefix they stay."""
    assert REDACTOR.redact(token) == "[SECRET]"
    assert REDACTOR.redact(f"it is {token}, ok") == "it is [SECRET], ok"
    assert token not in REDACTOR.redact(f'{{"value": "{token}"}} https://x.example/{token}?a=1')
    assert REDACTOR.redact(f"see {token[:12]} there") == f"see {token[:12]} there"


@pytest.mark.parametrize(("address", "secret"), ADDRESSES)
def test_secrets_of_addresses_are_replaced_there(address: str, secret: str) -> None:
    """Of a web hook or a signed address what grants access goes, the rest stays."""
    assert REDACTOR.redact(f"see {address}{secret} there") == f"see {address}[SECRET] there"


def test_no_more_than_what_was_found_is_replaced() -> None:
    """What is encoded around a finding stays as it was written, to the character."""
    text = "\u200b%41&amp;\\n\uff21 {} \u2013\u00ad\\u0041%20\u0661"
    assert REDACTOR.redact(text.format("jane%40mail.example")) == text.format("[EMAIL]")
    assert REDACTOR.redact(text.format("-")) is not None
    assert REDACTOR.redact(text.format("-")) == text.format("-")


def test_a_list_of_addresses_is_redacted_as_each_of_them() -> None:
    """A long text that is full of addresses gives what its lines give one by one."""
    lines = [
        f"name{number}@mail.example, jörg@x.example;user:a$b@h.example" for number in range(400)
    ]
    assert REDACTOR.redact("\n".join(lines)) == "\n".join(map(REDACTOR.redact, lines))


def test_ids_in_prose_are_no_accounts() -> None:
    """Of ids that look like the beginning of an account, whatever country they name, none is one,
    in long texts too.
    """
    generator = random.Random(11)
    ids = [
        "".join(map(generator.choice, (LETTERS, LETTERS, "123456789", string.digits, *tails)))
        for tails in ((LETTERS, LETTERS), (), (string.digits, string.digits))
        for _ in range(2_000)
    ]
    before = "Please wait a moment while I look this up for you. " * 12
    texts = [
        f"{before}Your booking {code} covers one bag and a window seat on both legs."
        for code in ids
    ]
    assert [text for text in texts if "[IBAN]" in REDACTOR.redact(text)] == []


def test_each_kind_can_be_chosen() -> None:
    """A redactor of one kind replaces that kind only; with no kinds it replaces nothing."""
    text = f"{GITHUB} a@b.example 4111111111111111 +1 415 555 0132 GB29NWBK60161331926819 10.1.2.3 078-05-1120"
    markers = ["[SECRET]", "[EMAIL]", "[CARD]", "[PHONE]", "[IBAN]", "[IP]", "[SSN]"]
    for kind, marker in zip(KINDS, markers, strict=True):
        redacted = PatternRedactor(kinds=(kind,)).redact(text)
        assert [item for item in markers if item in redacted] == [marker]
    assert PatternRedactor(kinds=()).redact(text) is text


def test_own_patterns_have_their_own_marker() -> None:
    """A pattern gives the marker of its name, beside the built-in kinds, and never bites into a
    marker.
    """
    redactor = PatternRedactor(patterns={"customer": "C-[0-9]{6}", "loud": "[A-Z]{4,}"})
    redacted = redactor.redact("C-123456 wrote a@b.example LOUDLY")
    assert redacted == "[CUSTOMER] wrote [EMAIL] [LOUD]"
    assert redactor.redact(redacted) is redacted
    biting = PatternRedactor(kinds=(), patterns={"customer": "C-[0-9]{6}|[A-Z]\\]"})
    assert biting.redact("[EMAIL]" * 99 + "C-123456 " * 99) == "[EMAIL]" * 99 + "[CUSTOMER] " * 99


@pytest.mark.parametrize(
    ("fields", "actual"),
    [
        ({"patterns": {"a": "("}}, "not a regular expression"),
        ({"patterns": {"a": "x*"}}, "matches the empty text"),
        ({"patterns": {"a b": "x"}}, "must be a letter"),
        ({"kinds": ["names"]}, "'secrets'"),
        ({"limit_s": 0}, "more than 0"),
        ({"kind": "email"}, "kinds"),
    ],
)
def test_what_cannot_be_used_is_refused_at_start(fields: dict[str, Any], actual: str) -> None:
    """A wrong pattern, name or kind is a configuration error that says what is expected."""
    with pytest.raises(ConfigurationError, match=actual.replace("(", r"\(")):
        PatternRedactor.load(fields)


def test_a_pattern_that_takes_too_long_is_stopped() -> None:
    """A pattern that goes back and forth without end raises in time instead of holding anybody up."""
    redactor = PatternRedactor(kinds=(), patterns={"bad": "(?=a)(?:a|aa)+$"}, limit_s=0.05)
    with pytest.raises(TimeoutError):
        redactor.redact("a" * 60 + "!")


def test_redactors_are_components() -> None:
    """They are chosen by type, come back from their dump, and lists are loaded with the path of
    what is wrong.
    """
    check_component(PatternRedactor(patterns={"customer": "C-[0-9]{6}"}), Redactor)
    assert load_redactors(None, path="redaction") == (REDACTOR,)
    assert load_redactors([], path="redaction") == ()
    assert (
        load_redactors({"type": "patterns", "kinds": ["email"]}, path="redaction")[0].redact(
            "a@b.de"
        )
        == "[EMAIL]"
    )
    with pytest.raises(ConfigurationError, match=r"redaction\[1\].*pattern"):
        load_redactors([REDACTOR, {"type": "pattern"}], path="redaction")
    with pytest.raises(ConfigurationError, match="list of redactors"):
        load_redactors(7, path="redaction")


PIECES = st.sampled_from(
    [text for text, _ in FOUND]
    + [
        "password",
        "api_key",
        "=",
        ": ",
        '"',
        "'",
        " ",
        "\n",
        "@",
        "::",
        "12",
        "345",
        "-",
        ".",
        "phone ",
        "[EMAIL]",
        "[",
        "]",
        "é",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "order ",
        "%40",
        "\\",
        "\\u0040",
        "\\n",
        "&#64;",
        "\u200b",
        "\u2013",
        "\uff11",
        "{",
        "}",
        "://",
        "+",
        "(",
        "x",
    ]
)


CARRIERS = {
    "percent": lambda text: "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in text),
    "escapes": lambda text: "".join(f"\\u{ord(c):04X}" for c in text),
    "entities": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "unseen": "\u2060".join,
    "wide": lambda text: text.translate(WIDE),
    "JSON": lambda text: json.dumps(json.dumps(text)).strip('"\\'),
}
KEPT_WHOLE = [
    AWS_ID,
    GITHUB,
    "jane@mail.example",
    "4111111111111111",
    "DE89370400440532013000",
    TOKENS[0],
    TOKENS[2],
]


@settings(deadline=None)
@given(
    st.sampled_from(KEPT_WHOLE),
    st.sampled_from(sorted(CARRIERS)),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
)
def test_no_carrier_brings_a_secret_out(secret: str, name: str, before: str, after: str) -> None:
    """Whatever stands around it, a secret is not left in the way it was written, nor plain."""
    carried = CARRIERS[name](secret)
    redacted = REDACTOR.redact(f"{before} {carried} {after}")
    assert carried not in redacted
    assert secret not in redacted


@settings(max_examples=250, deadline=None)
@given(
    st.lists(PIECES, max_size=9).map("".join)
    | st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF))
)
def test_redacting_again_changes_nothing(text: str) -> None:
    """However the pieces stand together, and in any text, a second time finds nothing that the
    first one left.
    """
    redacted = REDACTOR.redact(text)
    assert REDACTOR.redact(redacted) == redacted


AWKWARD = [
    "@", "a@a.b ", "1", "1 ", "0 ", "(1", "123.45 678.90 ", "-", "_", ":", "a:", "eyJ", "sk-", "AKIA", "password=",
    "-----BEGIN PRIVATE KEY-----", "api_key ", "+1 ", "GB29 ", "://a", "bearer ", "0a:", '"password": "', "4111 ",
    "aa00 ", "4111 1111 ", "123-45-6789 ", "1111.1111.", "\uff11 ", "%25", "%40a.b ", "\\", "\\\"", "\\u0040",
    "&amp;", "\u200b",
    '{"password": [', '"token": {"a": ', 'password: "\\" ', "x@", "hvs.", "1,", "\u2013", "password is ",
]  # fmt: skip


@pytest.mark.parametrize("unit", AWKWARD)
def test_its_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    """Text made to be hard takes about eight times as long when it is eight times as long.

    A time that grew with the square would be 64 times as long.
    """

    def cost(size: int) -> float:
        text = (unit * size)[:size]
        taken = []
        for _ in range(2):
            began = time.thread_time()
            REDACTOR.findings(text)
            taken.append(time.thread_time() - began)
        return min(taken)

    assert cost(32 * 1024) < 4 * 8 * max(cost(4 * 1024), 0.001)


def test_random_ids_are_left_alone() -> None:
    """Of ten thousand ids as services make them hardly any is taken for something else, of models'
    responses none.
    """
    generator = random.Random(7)
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ids = [
        prefix + "".join(generator.choices(letters, k=24))
        for prefix in ("msg_", "chatcmpl-", "run_", "") * 2_500
    ]
    changed = [identifier for identifier in ids if REDACTOR.redact(identifier) != identifier]
    assert len(changed) <= 5
    assert not [
        identifier for identifier in changed if identifier.startswith(("msg_", "chatcmpl-"))
    ]
    assert REDACTOR.redact("chatcmpl-4111111111111111") == "chatcmpl-4111111111111111"
    assert REDACTOR.redact("msg_01XFDUDYJgAACzvn ada@example.org") == "msg_01XFDUDYJgAACzvn [EMAIL]"
