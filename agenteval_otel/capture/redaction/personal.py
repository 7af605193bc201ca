"""Personal data: addresses, cards, accounts, social security and telephone numbers.

Addresses are those of e-mail and IP. Cards are payment cards, accounts are bank accounts, and
social security is that of the US.

Check digits decide where they exist. A telephone number needs an international or common national
form, or a word before it such as ``phone:``. Other numbers stay, as ids and dates do.
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Iterator, Sequence, Set
from typing import Final

from agenteval_otel.capture.redaction.scan import Finding, Scan
from agenteval_otel.runtime.text import lazily

# After the sign: a line end where an address was broken, or the spaces of ``jane @ mail.example``.
_DOMAIN: Final = lazily(
    r"@(?:\r?\n| )?(?:(?:[^\W_](?:[^\W_]|-(?!\.)){0,62}+\.){1,8}([^\W\d_]{2,24}+|xn--[a-z0-9-]{2,58}+)(?![\w@])"
    r"|\[[0-9A-Fa-f:.]{7,45}+\]|localhost(?![\w.-]))",
    re.IGNORECASE,
)
# Read from right to left. Pictures are names too.
_LOCAL: Final = lazily(
    r"[\w+%-](?:[\w+%.-]|'(?=\w)){0,63}+|\"[^\"\n@]{1,62}+\"|[\u2600-\u27bf\U0001f300-\U0001faff]{1,8}+"
)
# Alone or behind a word for mail: sentences have such a sign too ("live @ twitch.example").
_SPACED_LOCAL: Final = lazily(
    r"(?i)(?:(?:\A|[\n:<(\[=|>\"'])\s?|mail[a-z]{0,4}(?: address)?(?: (?:is|at|to|me|us|him|her|them))? )"
    r"(?P<name>[\w+%-][\w+%.-]{0,63}) \Z"
)
_FILES: Final = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "py"})
# Outside of ASCII, a byte of a scan is a question mark.
_AT: Final = lazily(
    rb"@(?:(?<=[\w+%\"?-]@)(?=[A-Za-z0-9?][A-Za-z0-9?-]{0,62}+\.|\[|localhost|\r?\n[A-Za-z0-9?])"
    rb"|(?<= @)(?= [A-Za-z0-9?]))"
)

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4: Final = lazily(rf"{_OCTET}(?:\.{_OCTET}){{3}}(?![\w]|\.[0-9])")
_VERSION: Final = lazily(
    r"(?i)(?:version|release|build|ver\.?|v\.|python|node|java|ruby|php|perl|kernel|driver|firmware|==|>=)[\s:=\"']{0,3}\Z"
)
_COLONS: Final = lazily(rb":(?=:|(?:[0-9A-Fa-f]{1,4}:){6})")
_HEXADECIMAL: Final = lazily(r"[0-9A-Fa-f:]{0,39}+")
_IPV6_RIGHT: Final = lazily(r":[0-9A-Fa-f:]{1,4096}+(?:(?:\.[0-9]{1,3}){3})?")


# Whole addresses from left to right, for texts that are full of them.
_LISTED: Final = lazily(
    r"(?<![^\s<(\[,;])[\w+%-][\w+%.-]{0,62}@(?:[a-z0-9](?:[a-z0-9]|-(?!\.)){0,62}+\.){1,8}(?!(?:png|jpe?g|gif|svg|webp|css|js|py)\b)"
    r"[a-z]{2,24}+(?![\w@.-])",
    re.IGNORECASE,
)
_LISTED_EVERY: Final = 64
_LISTED_LEAST: Final = 4096


def without_listed_emails(text: str) -> str:
    """Replace the addresses in lists, in a text that is full of them.

    It takes a fifth of the time of `find_emails`, which finds the others.
    """
    if len(text) < _LISTED_LEAST or text.count("@") * _LISTED_EVERY < len(text):
        return text
    return _LISTED.sub("[EMAIL]", text)


def find_emails(scan: Scan) -> Iterator[Finding]:
    text = scan.text
    for at in scan.matches(_AT):
        domain = _DOMAIN.match(text, at)
        if domain is None or (domain[1] or "").lower() in _FILES:
            continue
        if text[at - 1] == " ":
            spaced = _SPACED_LOCAL.search(text, max(0, at - 96), at)
            start = at if spaced is None else spaced.start("name")
        else:
            local = _LOCAL.match(text[max(0, at - 64) : at][::-1])
            start = at if local is None else at - local.end()
        if start < at:
            yield Finding(start, domain.end(), "[EMAIL]")


def _ipv4_at(text: str, at: int) -> Finding | None:
    match = _IPV4.match(text, at)
    if match is None or (at > 0 and (text[at - 1].isalnum() or text[at - 1] in "._")):
        return None
    is_version = _VERSION.search(text, max(0, at - 12), at)
    return None if is_version else Finding(at, match.end(), "[IP]")


def find_ipv6(scan: Scan) -> Iterator[Finding]:
    """Find the IPv6 addresses of the text, compressed or not.

    What only looks like one (``a::b``) is left alone.
    """
    text = scan.text
    done = 0
    for at in scan.matches(_COLONS):
        if at < done:
            continue
        right = _IPV6_RIGHT.match(text, at)
        left = _HEXADECIMAL.match(text[max(0, at - 39) : at][::-1])
        if right is None or left is None:
            continue
        start = at - left.end()
        done = right.end()
        end = done - (right[0].endswith(":") and not right[0].endswith("::"))
        if _is_ipv6(text, start, end):
            yield Finding(start, end, "[IP]")


def _is_ipv6(text: str, start: int, end: int) -> bool:
    around = (text[start - 1 : start] if start else "") + text[end : end + 1]
    address = text[start:end]
    if any(char.isalnum() or char == "_" for char in around) or not 4 <= len(address) <= 45:
        return False
    try:
        socket.inet_pton(socket.AF_INET6, address)  # fifteen times as fast as `ipaddress`
    except OSError:
        return False
    return any(char.isdigit() for char in address)


# In folded text: a group of digits begins, and six digits or four short groups follow; no date of
# a log line does.
_NUMBER: Final = lazily(
    rb"0(?<= 0)(?!000 00 00(?: 00 00 00)?(?! ?0))"
    rb"(?=(?: {0,3}+0){6}|0{0,2}+(?: 0{1,3}+){3}|0 00 00(?!0))"
)
_SIXTEEN: Final = b"0" * 16
# In raw text, from there: what begins some kind by its first digits; other numbers need a word.
_SHAPE: Final = lazily(
    rb"[0-9]{1,3}\.[0-9]{1,3}\.|[0-9]{12}|[0-9]{4}[^A-Za-z0-9]{1,5}[0-9]{4}|[0-9]{3}-[0-9]{2}-[0-9]{4}|0"
    rb"|(?:1.{0,2})?\(?[2-9][0-9]{2}[^A-Za-z0-9]|[2-9][0-9]{9}x|[0-9],\s?[0-9],\s?[0-9],"
)
_AFTER_NUMBER: Final = lazily(rb"[0-9][ .,/-]{1,2}\Z")
_ACCOUNT: Final = lazily(rb"00(?:(?<= [a-z][a-z]00)|(?<= iban[a-z][a-z]00))(?=(?: ?[a-z0]){11})")

_GAP: Final = "[ +-]"
_GROUPS: Final = lazily(
    rf"(?:[0-9]{{12,19}}+(?![0-9])|[0-9]{{4}}(?:\.[0-9]{{4}}){{3}}(?!\.?[0-9])|[0-9]{{4}}(?:{_GAP}[0-9]{{4,6}}+){{2}}(?:{_GAP}[0-9]{{1,7}}+){{0,2}}+(?![0-9]))"
)
# Groups that are joined in another way, and single digits in a list: of an issuer's prefix alone.
_ODD_GROUPS: Final = lazily(
    r"(?:[0-9]{16}|[0-9]{4}(?:[^A-Za-z0-9]{1,5}[0-9]{4}){3}|[0-9]{4}[^A-Za-z0-9]{1,5}[0-9]{6}[^A-Za-z0-9]{1,5}[0-9]{5}"
    r"|[0-9](?:,\s?[0-9]){14,15})(?![A-Za-z0-9]|[^A-Za-z0-9]{1,5}[0-9])"
)
_AFTER_GROUP: Final = lazily(r"[0-9][^A-Za-z0-9]{1,5}\Z")
_ISSUED: Final = lazily(
    r"(?:4[0-9]{3}|5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720|6011|64[4-9][0-9]|65[0-9]{2}|62[0-9]{2}"
    r"|352[89]|35[3-8][0-9])[0-9]{12}\Z|3[47][0-9]{13}\Z"
)
_JOINED: Final = lazily(r"[0-9][./-]")  # the rest of a date
_DIGITS: Final = lazily(r"[0-9]+")
_CARD_WORD: Final = lazily(
    r"(?i)(?:\b(?:card|cc|credit|debit|visa|mastercard|maestro|amex|karte\w*|kreditkarte\w*|carte|tarjeta|kort\w*)\b[^0-9\n]{0,24})\Z"
)
_IN_FOURS: Final = lazily(r"(?:[A-Za-z0-9]{4}[^A-Za-z0-9])+[A-Za-z0-9]{1,4}\Z")
_GAPS: Final = lazily(r"[^A-Za-z0-9]")
_VALUES: Final = str.maketrans({chr(55 + value): str(value) for value in range(10, 36)})
_LEAST_DIGITS: Final = 8
_COUNTRIES: Final = {
    15: "NO",
    16: "BE",
    18: "DK FO FI GL NL SD FK",
    19: "MK SI",
    20: "AT BA EE KZ XK LT LU MN",
    21: "HR LV LI CH",
    22: "BG CR DE GE IE ME RS GB VA BH",
    23: "GI IL TL AE IQ OM SO",
    24: "AD CZ MD PK RO SA SK ES SE TN VG",
    25: "PT ST LY AO CV GW MZ",
    26: "IS TR DZ IR",
    27: "FR GR IT MR MC SM BI DJ CF CG CM GA GQ KM MG TD",
    28: "AL AZ BY CY DO SV GT HU LB NI PL BF BJ CI HN MA ML NE SN TG",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Countries by the length of their account numbers."""
_IBAN_LENGTHS: Final[dict[str, int]] = {}
for _length, _countries in _COUNTRIES.items():
    _IBAN_LENGTHS.update(dict.fromkeys(_countries.split(), _length))


def find_numbers(scan: Scan, kinds: Set[str], taken: Sequence[Finding] = ()) -> Iterator[Finding]:
    """Find the numbers of the text, without the groups of a `taken` address or account."""
    text = scan.text
    raw = scan.raw
    done = 0
    ends = [*taken, Finding(len(text), len(text), "")]
    index = 0
    for at in scan.matches(_NUMBER, folded=True):
        while at >= ends[index].end and index < len(taken):
            index += 1
        # A raw place is one further on. No number has a colon after two digits, times of day have.
        if at < done or at >= ends[index].start or raw[at + 3 : at + 4] == b":":
            continue
        # A number right after another one has no word before it.
        if _AFTER_NUMBER.search(raw, max(0, at - 2), at + 1) and not _SHAPE.match(raw, at + 1):
            continue
        finding = _ipv4_at(text, at) if "ip" in kinds else None
        if finding is None and not _JOINED.match(text, max(0, at - 2), at):
            for kind, look in _LOOKS if text[at - 1 : at] != "+" else reversed(_LOOKS):
                if finding is None and kind in kinds:
                    finding = look(text, at)
        if finding is not None:
            done = finding.end
            yield finding


def find_glued_cards(scan: Scan) -> Iterator[Finding]:
    """Find sixteen digits behind a single letter, which are no group of their own."""
    text = scan.text
    for at in scan.places(_SIXTEEN, folded=True):
        if text[at - 1 : at].isalpha() and not text[max(0, at - 2) : max(0, at - 1)].isalnum():
            card = _odd_card_at(text, at)
            if card is not None:
                yield card


def find_ibans(scan: Scan) -> Iterator[Finding]:
    """Find the accounts of countries whose length is known.

    In small letters they are written in one piece or in groups of four, unlike prose.
    """
    text = scan.text
    for at in scan.matches(_ACCOUNT, folded=True):
        start = at - 3
        length = _IBAN_LENGTHS.get(text[start : start + 2].upper())
        match = _account_of(length).match(text, start) if length else None
        if match is None:
            continue
        whole = match[0]
        if whole != whole.upper() and len(whole) != length and not _IN_FOURS.match(whole):
            continue
        account = _GAPS.sub("", whole).upper()
        is_valid = int((account[4:] + account[:4]).translate(_VALUES)) % 97 == 1
        if is_valid and sum(map(str.isdigit, account)) > _LEAST_DIGITS:
            yield Finding(start, match.end(), "[IBAN]")


@functools.cache
def _account_of(length: int) -> re.Pattern[str]:
    return re.compile(
        rf"[A-Za-z]{{2}}[0-9]{{2}}(?:[ ./_-]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])"
    )


_SSN: Final = lazily(
    r"(?!000|666|9)[0-9]{3}([ -]?)(?!00)[0-9]{2}\1(?!0000)[0-9]{4}(?![\w-]|\.[0-9])"
)
_SSN_BEFORE: Final = lazily(r"(?i)(?:(?<![a-z])ssn(?![a-z])|social[\s_-]?security)[^0-9\n]{0,24}\Z")


_LETTER: Final = lazily(r"[A-Za-z#\u2116]")


def _ssn_at(text: str, at: int) -> Finding | None:
    """Find a number of US social security: in its hyphens, or behind its name."""
    match = _SSN.match(text, at)
    if match is None or _is_part_of_more(text, at):
        return None
    before = text[max(0, at - 48) : at]
    is_announced = _LETTER.search(before, max(0, len(before) - 26)) is not None
    if not is_announced or _SSN_BEFORE.search(before) is None:
        other = _OTHER_BEFORE.search(before.rstrip(_BETWEEN)) if is_announced else None
        if match[1] != "-" or (other is not None and other[1]):
            return None
    return Finding(at, match.end(), "[SSN]")


def _card_at(text: str, at: int) -> Finding | None:
    before = text[at - 1 : at] if at else ""
    if before in ("", ".", ",") and text[max(0, at - 2) : max(0, at - 1)].isdigit():
        return None
    match = _GROUPS.match(text, at)
    if match is None:
        return _odd_card_at(text, at)
    digits = "".join(_DIGITS.findall(match[0]))
    for group in reversed(list(_DIGITS.finditer(text, at, match.end()))):
        is_grouped = group.end() - at > len(digits)
        is_possible = 12 <= len(digits) <= 19 and _luhn(digits)
        if is_possible and _is_card(text, at, digits, grouped=is_grouped):
            return Finding(at, group.end(), "[CARD]")
        digits = digits[: len(digits) - len(group[0])]
    return None


def _odd_card_at(text: str, at: int) -> Finding | None:
    """Find a card in groups that lines, commas or stars keep apart, or behind a letter.

    Only of a known issuer: columns of numbers have a valid check digit by chance.
    """
    match = _ODD_GROUPS.match(text, at)
    if match is None or _AFTER_GROUP.search(text, max(0, at - 6), at):
        return None
    digits = "".join(_DIGITS.findall(match[0]))
    is_card = _ISSUED.match(digits) is not None and _luhn(digits)
    return Finding(at, match.end(), "[CARD]") if is_card else None


_OF_15_DIGITS: Final = ("34", "37", "1800", "2131")


def _is_card(text: str, start: int, digits: str, *, grouped: bool) -> bool:
    if len(digits) == 15:  # as the numbers of telephones, which have the same check digit
        is_clear = digits.startswith(_OF_15_DIGITS)
    elif len(digits) >= 13 and digits[0] not in "01":
        return len(digits) != 13 or not digits.startswith(("978", "979"))  # numbers of books
    else:
        is_clear = len(digits) > 12 and grouped
    return is_clear or _CARD_WORD.search(text, max(0, start - 40), start) is not None


_DOUBLED: Final = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))


def _luhn(digits: str) -> bool:
    values = digits.encode()
    singles = values[-1::-2]
    sum_of_singles = sum(singles) - 48 * len(singles)
    sum_of_doubled = sum(values[-2::-2].translate(_DOUBLED))
    return (sum_of_singles + sum_of_doubled) % 10 == 0


_PHONE_GAP: Final = "[ .\\-/()]"
_EXTENSION: Final = r"(?:\s?(?:x|ext\.?|extension|#)\s?[0-9]{1,6})?"
_END: Final = r"(?![0-9]|[.,:/-][0-9]|[A-Za-z_%])"

_INTERNATIONAL: Final = lazily(
    rf"\+\s?\(?[1-9][0-9]{{0,14}}(?:{_PHONE_GAP}{{1,3}}[0-9]{{1,10}}){{0,7}}"
)
_DOUBLE_ZERO: Final = lazily(
    rf"00[1-9][0-9]{{0,3}}(?:{_PHONE_GAP}{{1,3}}[0-9]{{1,10}}){{1,7}}{_EXTENSION}"
)
_NORTH_AMERICAN: Final = lazily(
    rf"(?:1{_PHONE_GAP}{{1,2}})?(?:\([2-9][0-9]{{2}}\)[ .-]?|(?:(?<=\()[2-9][0-9]{{2}}\)[ .-]?)|[2-9][0-9]{{2}}[ .-])"
    rf"[0-9]{{3}}[ .-]?[0-9]{{4}}{_EXTENSION}{_END}"
)
_NATIONAL: Final = lazily(
    rf"0[1-9][0-9]{{0,4}}(?:{_PHONE_GAP}{{1,2}}[0-9]{{2,8}}){{1,5}}{_EXTENSION}{_END}"
)
_NATIONAL_PLAIN: Final = lazily(rf"0[1-9][0-9]{{8,9}}{_END}")
_NUMBER_RUN: Final = lazily(rf"[0-9]{{1,15}}+(?:{_PHONE_GAP}{{1,2}}[0-9]{{1,10}}+){{0,7}}+")
_WITH_EXTENSION: Final = lazily(rf"[2-9][0-9]{{9}}x[0-9]{{2,6}}{_END}")
_GROUPED: Final = lazily(r"(?:1.{1,2})?[2-9][0-9]{2}(?:[ .)-]|[0-9]{7}x)")
_STREET_AFTER: Final = lazily(
    r" (?:[A-Z][\w'.-]{0,30} ){1,3}"
    r"(?i:street|st|avenue|ave|road|rd|l(?:ane|n)|drive|dr|boulevard|blvd|court|way|place)\b"
)
# Dates, and numbers of social security.
_DATE: Final = lazily(
    r"(?:[0-9]{1,2}[./-][0-9]{1,2}[./-](?:[0-9]{4}|[0-9]{2})|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}|[0-9]{3}-[0-9]{2}-[0-9]{4})"
    r"(?![0-9]|[./-][0-9])"
)

_WORDS: Final = (
    r"phones?|telephone|telefono?|teléfono|téléphone|telefoon|telefon|tel|tél|mobile?|mob|móvil|handy|cell(?:ular)?"
    r"|fax|desk|office|landline|whatsapp|sms|hotline|helpline|rufnummer|telefonnummer|handynummer"
)
_PHONE_BEFORE: Final = lazily(
    rf"(?i)(?:\b(?:{_WORDS})(?:[\s_-]{{0,2}}(?:number|no|nr|num|#))?\.?(?:\s+(?:is|was|at|on|to|under))?"
    r"|\b(?:call|calling|reach|dial|ring|text|contact)(?:\s+(?:me|us|him|her|them|you|back)){0,2}(?:\s+(?:at|on|under|back))?"
    r"|\bmessages?\s+to|\banswering\s+(?:at|on)|\bmy\s+(?:(?:number|cell|mobile)\s+is|registered))\Z"
)
# What may stand between such a word and the number.
_BETWEEN: Final = " \t\n\r:=\"'(\\"
_WORD_ENDS: Final = frozenset(".#№")
_PHONE_AFTER: Final = lazily(
    rf"(?i){_EXTENSION}[\s-]{{0,2}}\(?(?:office|fax|mobile|cell|landline)\b"
)
_OTHER_BEFORE: Final = lazily(
    r"(?i)(?:\b(?:order|invoice|ticket|ref|reference|case|id|ids|sku|isbn|part|serial|tracking|version|account|policy|claim"
    r"|ssn|security|license|licence|zip|booking|confirmation|reservation|flight|parcel|row|page|room)\b|_id|#|№)"
    r"([\s_-]{0,2}(?:number|numbers|no|nr|num|code|id|#)\.?)?(?:\s+(?:is|was))?\Z"
)

NUMBER_KEY: Final = lazily(
    rf"(?i)(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))(?:{_WORDS}|ssn|social[\W_]?security)(?:[\W_]?(?:number|no|nr))?\Z"
)
"""Names of fields whose value is a telephone number, or one of US social security."""


def _phone_at(text: str, at: int) -> Finding | None:
    start = at
    if at > 0 and text[at - 1] in "+( " and not text[at - 2 : at].isspace():
        start = _phone_start(text, at)
    if text[start] == "+":
        return _international(text, start)
    run = _NUMBER_RUN.match(text, at)
    if run is None or run.end() - at < 6 or _DATE.match(text, at) or _is_part_of_more(text, start):
        return None
    before = text[max(0, start - 48) : start].rstrip(_BETWEEN)
    is_announced = before[-1:].isalpha() or before[-1:] in _WORD_ENDS
    is_in_line = "\n" not in text[max(0, start - 3) : start]
    other = _OTHER_BEFORE.search(before) if is_announced and is_in_line else None
    if other is not None and other[1]:
        return None
    if start < at or text[at] == "0" or _GROUPED.match(text, at):
        match = _phone_of_form(
            text, start, at, _PHONE_FORMS if other is None else _PHONE_FORMS[:-1]
        )
        if match is not None:
            is_street = _STREET_AFTER.match(text, match.end()) is not None
            return None if is_street else Finding(start, match.end(), "[PHONE]")
    if other is not None:
        return None
    is_named = is_announced and _PHONE_BEFORE.search(before) is not None
    return _by_word(text, start, run, is_named)


def _phone_of_form(
    text: str, start: int, at: int, forms: Sequence[tuple[re.Pattern[str], int, int]]
) -> re.Match[str] | None:
    """Return the first match, from `start` or `at`, whose number of digits its form allows."""
    for pattern, least, most in forms:
        match = pattern.match(text, start)
        if match is None and start < at:
            match = pattern.match(text, at)
        if match is not None and least <= _digit_count(match[0]) <= most:
            return match
    return None


_PHONE_FORMS: Final = (
    (_DOUBLE_ZERO, 9, 17),
    (_NORTH_AMERICAN, 10, 17),
    (_WITH_EXTENSION, 12, 16),
    (_NATIONAL, 9, 17),
    (_NATIONAL_PLAIN, 10, 11),
)


def _phone_start(text: str, at: int) -> int:
    """Return where the number begins, with the ``+`` or the bracket that belongs to it."""
    plus = text.rfind("+", max(0, at - 3), at)
    if plus >= 0 and not text[plus + 1 : at].strip("( "):
        return plus
    return at - 1 if text[at - 1] == "(" and ")" in text[at : at + 8] else at


def _is_part_of_more(text: str, start: int) -> bool:
    """Tell whether what is before it makes it a piece of an id, an amount or a decimal."""
    before = text[start - 1 : start] if start else ""
    if before == "," or text[start] == "(":
        return text[max(0, start - 2) : start].strip(",").isdigit()
    return before.isalnum() or (before != "" and before in "._/-+%$€£")


_IN_ONE: Final = lazily(r"\+[0-9]{9,15}")


def _international(text: str, start: int) -> Finding | None:
    match = _INTERNATIONAL.match(text, start)
    if match is None or (start > 0 and (text[start - 1].isalnum() or text[start - 1] in "+_")):
        return None
    in_one = _IN_ONE.match(match[0])
    end = start + in_one.end() if in_one else _within(match, 15)
    return _extended(text, start, end) if 8 <= _digit_count(text[start:end]) <= 15 else None


def _by_word(text: str, start: int, run: re.Match[str], is_announced: bool) -> Finding | None:
    """Find a number that is one only by the word before or after it."""
    if not is_announced and not _PHONE_AFTER.match(text, run.end()):
        return None
    at = run.start()
    end = _within(run, 15)
    count = _digit_count(text[at:end])
    is_number = 6 <= count <= 15 and (is_announced or end - at > count or count == 10)
    return _extended(text, start, end) if is_number else None


_EXTENDED: Final = lazily(_EXTENSION)


def _extended(text: str, start: int, end: int) -> Finding:
    """Return the number, with the extension that follows it."""
    match = _EXTENDED.match(text, end)
    return Finding(start, match.end() if match else end, "[PHONE]")


def _within(match: re.Match[str], most: int) -> int:
    """Return the end of the last whole group of digits with which there are at most so many."""
    count = 0
    end = match.start()
    for group in _DIGITS.finditer(match[0]):
        count += len(group[0])
        if count > most:
            break
        end = match.start() + group.end()
    return end


def _digit_count(text: str) -> int:
    return sum(map(len, _DIGITS.findall(text)))


_LOOKS: Final = (("ssn", _ssn_at), ("card", _card_at), ("phone", _phone_at))
