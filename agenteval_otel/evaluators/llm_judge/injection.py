"""Signs that a text speaks to the judge, and answers that no judge should be asked about.

The phrases are English. A sign proves nothing: it marks results whose judge may have been influenced.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

InjectionSign = Literal["order", "addresses_judge", "names_score", "answer_form", "turn_marks", "hidden_text"]
INJECTION_SIGNS: tuple[str, ...] = get_args(InjectionSign)

_SIGNS: tuple[tuple[InjectionSign, re.Pattern[str]], ...] = (
    ("order", re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
        r"\b(?:previous|prior|above|earlier|preceding|all|any|your|the|these|system|rubric|criteria)\b.{0,30}"
        r"\b(?:instruction|prompt|rule|rubric|criteri|guideline|direction|context|message)"
        r"|\bnew instructions?\s*:|\bend of (?:the )?(?:data|prompt|instructions|case|answer)\b",
        re.IGNORECASE,
    )),
    ("addresses_judge", re.compile(
        r"\b(?:dear|attention|hey|note to|message (?:to|for)|instructions? (?:to|for)|as|you are) "
        r"(?:the |an? |any |all |our )?(?:ai |llm |automated |impartial |expert )?"
        r"(?:judges?|graders?|evaluators?|raters?|assessors?|reviewers?|scorers?)\b"
        r"|\b(?:judge|grader|evaluator|rater|assessor)s?\b.{0,30}\b(?:must|should|please|has to|have to|shall)\b",
        re.IGNORECASE,
    )),
    ("names_score", re.compile(
        r"\b(?:give|assign|award|return|output|rate|score|grade|respond with|answer with|mark)\b.{0,60}"
        r"\b(?:(?:score|rating|grade|mark)s? (?:of|as|to|is)|(?:full|maximum|max|top|highest|perfect|best|passing)"
        r" (?:score|rating|grade|mark|point)s?|10 ?/ ?10|5 ?/ ?5|100 ?/ ?100|10 out of 10|5 out of 5)"
        r"|\b(?:deserves|merits|earns|worth) (?:an? |the )?(?:full|maximum|top|highest|perfect|10|5|score|rating)\b",
        re.IGNORECASE,
    )),
    ("answer_form", re.compile(
        r"[\"'](?:score|verdict|rating)[\"']\s*:|^\W{0,4}(?:score|verdict|final score|rating)\s*[:=]\s*(?:\d|pass|true)"
        r"|<(?:/?(?:s\d|score|verdict|rating|evaluation|system|instructions?))>|\[\[\s*(?:\d{1,3}|[ABC])\s*\]\]|DATA-[0-9a-f]",
        re.IGNORECASE | re.MULTILINE,
    )),
    ("turn_marks", re.compile(
        r"<[|\uff5c]|</?(?:s|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>|^(?:Human|Assistant|System):\s",
        re.IGNORECASE | re.MULTILINE,
    )),
    # Orders of direction, tags, and what is invisible in a row; one joiner or mark of direction is ordinary writing.
    ("hidden_text", re.compile(
        "[\u202d\u202e\U000e0001-\U000e007f\U000e0100-\U000e01ef]|[\u200b-\u200f\u2060-\u2064\ufeff]{3}|[\ufe00-\ufe0f]{3}"
    )),
)  # fmt: skip

# What a text has to hold, in lower case, for the sign's pattern to be worth a search: most hold none of it.
_WORDS: dict[InjectionSign, tuple[str, ...]] = {
    "order": ("ignore", "disregard", "forget", "override", "bypass", "new instruction", "end of "),
    "addresses_judge": ("judge", "grader", "evaluator", "rater", "assessor", "reviewer", "scorer"),
    "names_score": ("score", "rating", "grade", "mark", "point", "deserves", "merits", "earns", "worth", "10", "5"),
    "answer_form": ("score", "verdict", "rating", "<", "[[", "data-"),
    "turn_marks": ("<", "inst]", "human:", "assistant:", "system:"),
}

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_LOOKED_AT = 2048
# Openings that are no answer by themselves. Each character has one place in the pattern: no text takes long.
_OPENING = re.compile(
    r"[\W_]{0,8}[^\W_]+(?:['\u2019][^\W_]*)?(?:[ \t][^\W_]+(?:['\u2019][^\W_]*)?){0,4}[ \t]?[:\uff1a][\s\W_]{0,8}"
    r"|[\W_]{0,8}(?:let['\u2019]?s|let us|i will|i'll|we)\b[^.\n]{0,60}\bstep by step\b[\s\W_]{0,8}",
    re.IGNORECASE,
)
_ONE_CHARACTER = re.compile(r"\s*(\S)(?:\s*\1){7,}\s*")
_SPEAKING_SYMBOLS = frozenset({"So", "Sc", "Sm"})


def injection_signs(texts: Iterable[str]) -> tuple[InjectionSign, ...]:
    """The signs that any of the texts shows, in the order of `INJECTION_SIGNS`."""
    pairs = [(text, text.lower()) for text in texts]
    return tuple(
        sign for sign, pattern in _SIGNS
        if any(_may_show(sign, text, lower) and pattern.search(text) for text, lower in pairs)
    )  # fmt: skip


def _may_show(sign: InjectionSign, text: str, lower: str) -> bool:
    if sign == "hidden_text":
        return not text.isascii()
    return any(phrase in lower for phrase in _WORDS[sign])


def no_answer(text: str) -> str | None:
    """Why a text is no answer that could be judged (``empty answer``, ``degenerate answer``); None where it is one.

    Degenerate is what has neither letter nor digit nor a symbol that says something, one character over and over, and
    a bare opening (``Solution:``): judges have taken such for right answers.
    """
    if not text.strip():
        return "empty answer"
    if _LETTER_OR_DIGIT.search(text) is None:
        head = text[:_LOOKED_AT]
        if any(unicodedata.category(char) in _SPEAKING_SYMBOLS and char != "\u2800" for char in head):
            return None
        visible = any(unicodedata.category(char)[0] in "PSM" and char != "\u2800" for char in head)
        return "degenerate answer" if visible else "empty answer"
    head = text[:_LOOKED_AT]
    if len(text) <= _LOOKED_AT and _OPENING.fullmatch(text):
        return "degenerate answer"
    return "degenerate answer" if _ONE_CHARACTER.fullmatch(head) else None
