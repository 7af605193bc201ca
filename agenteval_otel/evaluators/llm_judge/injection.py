"""Signs that a text speaks to the judge, and answers that no judge should be asked about.

The phrases are English. A sign proves nothing: it marks results whose judge may have been influenced.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Each sign; what a text has to hold, in lower case, for a search to be worth it (most hold none of it); its pattern.
_SIGNS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("order", ("ignore", "disregard", "forget", "override", "bypass", "new instruction", "end of "), re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
        r"\b(?:previous|prior|above|earlier|preceding|all|any|your|the|these|system|rubric|criteria)\b.{0,30}"
        r"\b(?:instruction|prompt|rule|rubric|criteri|guideline|direction|context|message)"
        r"|\bnew instructions?\s*:|\bend of (?:the )?(?:data|prompt|instructions|case|answer)\b",
        re.IGNORECASE,
    )),
    ("addresses_judge", ("judge", "grader", "evaluator", "rater", "assessor", "reviewer", "scorer"), re.compile(
        r"\b(?:dear|attention|hey|note to|message (?:to|for)|instructions? (?:to|for)|as|you are) "
        r"(?:the |an? |any |all |our )?(?:ai |llm |automated |impartial |expert )?"
        r"(?:judges?|graders?|evaluators?|raters?|assessors?|reviewers?|scorers?)\b"
        r"|\b(?:judge|grader|evaluator|rater|assessor)s?\b.{0,30}\b(?:must|should|please|has to|have to|shall)\b",
        re.IGNORECASE,
    )),
    ("names_score", (
        "score", "rating", "grade", "mark", "point", "deserves", "merits", "earns", "worth", "10", "5",
    ), re.compile(
        r"\b(?:give|assign|award|return|output|rate|score|grade|respond with|answer with|mark)\b.{0,60}"
        r"\b(?:(?:score|rating|grade|mark)s? (?:of|as|to|is)|(?:full|maximum|max|top|highest|perfect|best|passing)"
        r" (?:score|rating|grade|mark|point)s?|10 ?/ ?10|5 ?/ ?5|100 ?/ ?100|10 out of 10|5 out of 5)"
        r"|\b(?:deserves|merits|earns|worth) (?:an? |the )?(?:full|maximum|top|highest|perfect|10|5|score|rating)\b",
        re.IGNORECASE,
    )),
    ("answer_form", ("score", "verdict", "rating", "<", "[[", "data-"), re.compile(
        r"[\"'](?:score|verdict|rating)[\"']\s*:|^\W{0,4}(?:score|verdict|final score|rating)\s*[:=]\s*(?:\d|pass|true)"
        r"|<(?:/?(?:s\d|score|verdict|rating|evaluation|system|instructions?))>|\[\[\s*(?:\d{1,3}|[ABC])\s*\]\]|DATA-[0-9a-f]",
        re.IGNORECASE | re.MULTILINE,
    )),
    ("turn_marks", ("<", "inst]", "human:", "assistant:", "system:"), re.compile(
        r"<[|\uff5c]|</?(?:s|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>|^(?:Human|Assistant|System):\s",
        re.IGNORECASE | re.MULTILINE,
    )),
    # Orders of direction, tags, and what is invisible in a row; one joiner or mark of direction is ordinary writing.
    ("hidden_text", ("",), re.compile(
        "[\u202d\u202e\U000e0001-\U000e007f\U000e0100-\U000e01ef]|[\u200b-\u200f\u2060-\u2064\ufeff]{3}|[\ufe00-\ufe0f]{3}"
    )),
)  # fmt: skip

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


def injection_signs(texts: Iterable[str]) -> tuple[str, ...]:
    """The signs that any of the texts shows, such as ``order`` or ``names_score``, in a fixed order."""
    pairs = [(text, text.lower()) for text in texts]
    return tuple(
        sign for sign, phrases, pattern in _SIGNS
        if any(any(map(lower.__contains__, phrases)) and pattern.search(text) for text, lower in pairs)
    )  # fmt: skip


def no_answer(text: str) -> str | None:
    """Why a text is no answer that could be judged (``empty answer``, ``degenerate answer``); None where it is one.

    Degenerate is what has neither letter nor digit nor a symbol that says something, one character over and over, and
    a bare opening (``Solution:``): judges have taken such for right answers.
    """
    if not text.strip():
        return "empty answer"
    head = text[:_LOOKED_AT]
    if _LETTER_OR_DIGIT.search(text) is None:
        kinds = {unicodedata.category(char) for char in head if char != "\u2800"}
        if kinds & _SPEAKING_SYMBOLS:
            return None
        return "degenerate answer" if any(kind[0] in "PSM" for kind in kinds) else "empty answer"
    if (len(text) <= _LOOKED_AT and _OPENING.fullmatch(text)) or _ONE_CHARACTER.fullmatch(head):
        return "degenerate answer"
    return None
