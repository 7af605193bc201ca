"""The built-in redactor: what it takes out, what it leaves alone, own patterns, and that it is
stable and linear.
"""

from __future__ import annotations

import random
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.redaction import PatternRedactor, Redactor
from agenteval_otel.redaction.redactor import KINDS, load_redactors
from agenteval_otel.testing.checks import check_component

REDACTOR = PatternRedactor()
LETTERS = string.ascii_uppercase
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
    "The bus drops you off at 05394 3133 Archwood Avenue",
]  # fmt: skip


@pytest.mark.parametrize(("text", "redacted"), FOUND)
def test_what_is_personal_or_secret_is_replaced(text: str, redacted: str) -> None:
    """Each kind in its usual forms becomes its marker; what stands around it stays."""
    assert REDACTOR.redact(text) == redacted


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    """Ids, dates, amounts, versions and prose come back as the same object."""
    assert REDACTOR.redact(text) is text


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
        "://",
        "+",
        "(",
        "x",
    ]
)


@settings(max_examples=400, deadline=None)
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
    "aa00 ", "4111 1111 ", "123-45-6789 ", "1111.1111.", "\uff11 ",
]  # fmt: skip


@pytest.mark.parametrize("unit", AWKWARD)
def test_its_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    """Text made to be hard takes about four times as long when it is four times as long."""

    def cost(size: int) -> float:
        text = (unit * size)[:size]
        taken = []
        for _ in range(3):
            began = time.thread_time()
            REDACTOR.findings(text)
            taken.append(time.thread_time() - began)
        return min(taken)

    assert cost(128 * 1024) < 4 * 4 * max(cost(32 * 1024), 0.002)


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
