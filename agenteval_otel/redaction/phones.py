"""Telephone numbers: international and common national forms, and what stands behind a word such as ``phone:``.

Numbers of orders, dates and plain ids have no form of their own; so a number without ``+``, without the grouping of a
telephone number and without such a word is not one.
"""

from __future__ import annotations

import re
from typing import Final

from agenteval_otel.redaction.scan import Finding
from agenteval_otel.runtime.text import lazily

__all__ = ["PHONE_KEY", "phone_at"]

_GAP: Final = "[ \u00a0\u2009\u202f.\\-\u2010\u2011/()]"
_EXTENSION: Final = r"(?:\s?(?:x|ext\.?|extension|#)\s?[0-9]{1,6})?"
_END: Final = r"(?![0-9]|[.,:/-][0-9]|[A-Za-z_%])"

_INTERNATIONAL: Final = lazily(rf"\+\s?\(?[1-9][0-9]{{0,14}}(?:{_GAP}{{1,3}}[0-9]{{1,10}}){{0,7}}")
_DOUBLE_ZERO: Final = lazily(rf"00[1-9][0-9]{{0,3}}(?:{_GAP}{{1,3}}[0-9]{{1,10}}){{1,7}}")
_NORTH_AMERICAN: Final = lazily(
    rf"(?:1{_GAP}{{1,2}})?(?:\([2-9][0-9]{{2}}\)[ .-]?|(?:(?<=\()[2-9][0-9]{{2}}\)[ .-]?)|[2-9][0-9]{{2}}[ .-])"
    rf"[0-9]{{3}}[ .-]?[0-9]{{4}}{_EXTENSION}{_END}"
)
_NATIONAL: Final = lazily(rf"0[1-9][0-9]{{0,4}}(?:{_GAP}{{1,2}}[0-9]{{2,8}}){{1,5}}{_EXTENSION}{_END}")
_NATIONAL_PLAIN: Final = lazily(rf"0[1-9][0-9]{{8,9}}{_END}")
_ANY: Final = lazily(rf"[0-9]{{1,15}}+(?:{_GAP}{{1,2}}[0-9]{{1,10}}+){{0,7}}+")
_GROUPED: Final = lazily(r"(?:1.{1,2})?[2-9][0-9]{2}[ .)-]")
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
    r"|\bmessages?\s+to|\banswering\s+(?:at|on)|\bmy\s+(?:number|cell|mobile)\s+is)\Z"
)
# What may stand between such a word and the number.
_BETWEEN: Final = " \t\n\u00a0:=\"'(\\"
_WORD_ENDS: Final = frozenset(".#№")
_PHONE_AFTER: Final = lazily(r"(?i)[\s-]{0,2}\(?(?:office|fax|mobile|cell|landline)\b")
_OTHER_BEFORE: Final = lazily(
    r"(?i)(?:\b(?:order|invoice|ticket|ref|reference|case|id|ids|sku|isbn|part|serial|tracking|version|account|policy|claim"
    r"|ssn|security|license|licence|zip|booking|confirmation|reservation|flight|parcel|row|page|room)\b|_id|#|№)"
    r"([\s_-]{0,2}(?:number|numbers|no|nr|num|code|id|#))?(?:\s+(?:is|was))?\Z"
)

PHONE_KEY: Final = lazily(rf"(?i)(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))(?:{_WORDS})(?:[\W_]?(?:number|no|nr))?\Z")
"""Names of fields whose value is a telephone number."""


def phone_at(text: str, at: int) -> Finding | None:
    """The telephone number whose first digit stands here."""
    start = at if at == 0 or text[at - 1] not in "+( " or text[at - 2 : at].isspace() else _start(text, at)
    if text[start] == "+":
        return _international(text, start)
    run = _ANY.match(text, at)
    if run is None or run.end() - at < 6 or _DATE.match(text, at) or _is_part_of_more(text, start):
        return None
    before = text[max(0, start - 48) : start].rstrip(_BETWEEN)
    is_announced = before[-1:].isalpha() or before[-1:] in _WORD_ENDS
    other = _OTHER_BEFORE.search(before) if is_announced and "\n" not in text[max(0, start - 3) : start] else None
    if other is not None and other[1]:
        return None
    if start < at or text[at] == "0" or _GROUPED.match(text, at):
        for pattern, least, most in _FORMS if other is None else _FORMS[:-1]:
            match = pattern.match(text, start) or (pattern.match(text, at) if start < at else None)
            if match is not None and least <= _digits(match[0]) <= most:
                return Finding(start, match.end(), "[PHONE]")
    return None if other else _by_word(text, start, run, is_announced and _PHONE_BEFORE.search(before) is not None)


_FORMS: Final = ((_DOUBLE_ZERO, 9, 17), (_NORTH_AMERICAN, 10, 17), (_NATIONAL, 9, 17), (_NATIONAL_PLAIN, 10, 11))


def _start(text: str, at: int) -> int:
    """With the ``+`` or the bracket that belongs to the number."""
    plus = text.rfind("+", max(0, at - 3), at)
    if plus >= 0 and not text[plus + 1 : at].strip("( "):
        return plus
    return at - 1 if text[at - 1] == "(" and ")" in text[at : at + 8] else at


def _is_part_of_more(text: str, start: int) -> bool:
    """Whether what stands before makes it a piece of an id, an amount or a decimal."""
    before = text[start - 1 : start] if start else ""
    if before == "," or text[start] == "(":
        return text[max(0, start - 2) : start].strip(",").isdigit()
    return before.isalnum() or (before != "" and before in "._/-+%$€£")


def _international(text: str, start: int) -> Finding | None:
    if start > 0 and (text[start - 1].isalnum() or text[start - 1] in "+_"):
        return None
    match = _INTERNATIONAL.match(text, start)
    if match is None:
        return None
    first = re.match(r"\+[0-9]{9,15}", match[0])
    end = start + first.end() if first else _within(match, 15)
    count = _digits(text[start:end])
    return Finding(start, _with_extension(text, end), "[PHONE]") if 8 <= count <= 15 else None


def _by_word(text: str, start: int, run: re.Match[str], is_announced: bool) -> Finding | None:
    """A number that is one only by the word before or after it."""
    if not is_announced and not _PHONE_AFTER.match(text, run.end()):
        return None
    at = run.start()
    end = _within(run, 15)
    count = _digits(text[at:end])
    if not 6 <= count <= 15 or (not is_announced and end - at == count):
        return None
    return Finding(start, _with_extension(text, end), "[PHONE]")


_EXTENDED: Final = lazily(_EXTENSION)


def _with_extension(text: str, end: int) -> int:
    match = _EXTENDED.match(text, end)
    return match.end() if match else end


def _within(match: re.Match[str], most: int) -> int:
    """The end of the last whole group of digits with which there are at most so many."""
    count, end = 0, match.start()
    for group in re.finditer(r"[0-9]+", match[0]):
        count += len(group[0])
        if count > most:
            break
        end = match.start() + group.end()
    return end


_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))


def _digits(text: str) -> int:
    return len(text) - len(text.translate(_NO_DIGITS))
