"""The case that a judge reads: the fields of an input, shortened.

It also finds what is missing, what is unusable, and what speaks to the judge.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, WithJsonSchema

from agenteval_otel.capture.text import plain
from agenteval_otel.evaluators.judges.prompt import CaseText, shortened, without_hidden
from agenteval_otel.evaluators.tools.calls import DEFINITIONS, tool_definitions
from agenteval_otel.models import EvaluationInput, Message
from agenteval_otel.models.inputs import conversation_fields
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.text import composed

CaseField = Literal[
    "question",
    "response",
    "ground_truth",
    "context",
    "history",
    "tool_calls",
    "tool_results",
    "tool_definitions",
]
FIELDS: tuple[str, ...] = get_args(CaseField)
"""The fields of an input that a judge may need, which are the words of the option ``needs``."""


def _known(value: str) -> str:
    for field in value.split("|"):
        if field not in FIELDS:
            raise ValueError(
                f"{field!r} is no field of a case. Known: {', '.join(FIELDS)}, and a|b for the first that "
                f"there is"
            )
    return value


_FIELD = "|".join(FIELDS)
CaseFields = Annotated[
    str,
    AfterValidator(_known),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(FIELDS)},
                {"type": "string", "pattern": rf"^({_FIELD})(\|({_FIELD}))+$"},
            ]
        }
    ),
]
"""A field, or several of which the first that is there counts: ``context|ground_truth``."""

_DEEPEST = 8
_LEAST_OF_AN_ENTRY = 100
_OVERLAP = 500
_PER_TURN = 100  # what JSON adds to its texts


def value_of(evaluation_input: EvaluationInput, field: str) -> Any:
    """Return the input's value of a field (``context.key`` too), or None if it is missing.

    The value is text if there is one, else plain data.
    """
    if field in ("response", "ground_truth") or field.startswith("context."):
        text = evaluation_input.text_at(field)
        return text if text is not None else evaluation_input.value_at(field)
    if field == "tool_definitions":
        return tool_definitions(evaluation_input)
    context = evaluation_input.context
    has_material = bool(context and set(context) - set(DEFINITIONS))
    calls = evaluation_input.tool_calls or ()
    with_result = [call for call in calls if call.result is not None]
    values: dict[str, Any] = {
        "question": evaluation_input.prompt,
        "context": context if has_material else None,
        "history": evaluation_input.message_history,
        "tool_calls": calls,
        "tool_results": [{"name": call.name, "result": call.result} for call in with_result],
    }
    return values.get(field) or None


def case_of(
    evaluation_input: EvaluationInput, fields: Iterable[tuple[str, str]], *, limit: int
) -> dict[str, CaseText]:
    """Return the fields that the input has, each at most about `limit` characters long.

    Each of `fields` is the judge's name and the input's. Data that is longer as JSON is shortened
    as text, and tool calls are shortened each for itself.
    """
    case: dict[str, CaseText] = {}
    for name, field in fields:
        value = value_of(evaluation_input, field)
        if value is not None:
            case[name] = _limited(value, limit, by_entry=field == "tool_calls")
    return case


def missing_of(evaluation_input: EvaluationInput, needs: Iterable[str]) -> str | None:
    """Return why the input cannot be judged, or None if all fields are there.

    The reason is the first missing field, with alternatives behind a colon.
    """
    for needed in needs:
        fields = needed.split("|")
        if not any(_is_there(evaluation_input, field) for field in fields):
            first, *others = (field.replace("_", " ") for field in fields)
            reason = f"no {first}"
            if others:
                reason += ": nor " + ", nor ".join(others)
            return reason
    return None


def fields_shown(evaluation_input: EvaluationInput, wanted: Sequence[str]) -> list[str]:
    """Return the wanted fields in the order of `FIELDS`.

    Of alternatives it is the first that the input has, or the first of all if it has none.
    """
    shown = {_first_present(evaluation_input, alternatives.split("|")) for alternatives in wanted}
    return [field for field in FIELDS if field in shown]


def _first_present(evaluation_input: EvaluationInput, fields: Sequence[str]) -> str:
    for field in fields:
        if _is_there(evaluation_input, field):
            return field
    return fields[0]


def _is_there(evaluation_input: EvaluationInput, field: str) -> bool:
    value = value_of(evaluation_input, field)
    # An empty answer has its own skip reason.
    return _has_content(value) or (field == "response" and isinstance(value, str))


def _has_content(value: object, depth: int = 0) -> bool:
    """Tell whether it is or contains a text that is not blank, a number or a boolean.

    Below eight levels every value but None and blank text counts.
    """
    if isinstance(value, str):
        return bool(value.strip())
    if depth < _DEEPEST and isinstance(value, Mapping | list | tuple):
        members = value.values() if isinstance(value, Mapping) else value
        return any(_has_content(member, depth + 1) for member in members)
    return value is not None


def windows_of(text: str, limit: int, *, most: int) -> list[str]:
    """Return the whole text in overlapping windows, evenly spread.

    A text longer than `most` windows is shown with gaps.
    """
    overlap = min(_OVERLAP, limit // 4)
    number = min(most, math.ceil((len(text) - overlap) / (limit - overlap)))
    last_start = len(text) - limit
    starts = [round(index * last_start / max(1, number - 1)) for index in range(number)]
    return [text[start : start + limit] for start in starts]


def conversation_windows(
    evaluation_input: EvaluationInput, limit: int, *, most: int
) -> list[EvaluationInput]:
    """Return a conversation in windows of its turns, each of about `limit` characters.

    Each window begins with the last turn of the window before. The system's messages are put before
    each. Of more than `most` windows some are left out, evenly.
    """
    turns = evaluation_input.conversation or []
    starts = [0]
    size = 0
    for number, turn in enumerate(turns):
        length = len(turn.prompt or "") + len(turn.response_text) + _PER_TURN
        if size + length > limit and number > starts[-1]:
            starts.append(number)
            size = 0
        size += length
    ends = [*starts[1:], len(turns)]
    spans = [(max(0, start - 1), end) for start, end in zip(starts, ends, strict=True)]
    if len(spans) == 1:
        return [evaluation_input]
    last = len(spans) - 1
    chosen = sorted({round(index * last / (most - 1)) for index in range(most)})
    system = [
        message
        for message in turns[0].message_history or ()
        if message.role in ("system", "developer")
    ]
    return [_window(evaluation_input, turns[slice(*spans[index])], system) for index in chosen]


def _window(
    evaluation_input: EvaluationInput, turns: Sequence[EvaluationInput], system: list[Message]
) -> EvaluationInput:
    first, *others = turns
    parts = [copy_with(first, {"message_history": system or None}), *others]
    fields = conversation_fields(parts)
    shown = {
        name: fields.get(name) for name in ("prompt", "response", "message_history", "tool_calls")
    }
    return copy_with(evaluation_input, {**shown, "conversation": parts})


def _limited(value: object, limit: int, *, by_entry: bool) -> CaseText:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, list | tuple):
        value = [
            item.model_dump(by_alias=True, exclude_none=True)
            if isinstance(item, BaseModel)
            else item
            for item in value
        ]
    data = plain(value)
    whole = _within(data, limit)
    if by_entry and isinstance(whole.text, str) and len(data) * _LEAST_OF_AN_ENTRY <= limit:
        entries = [_within(entry, limit // len(data)) for entry in data]
        left_out = sum(entry.left_out for entry in entries)
        return CaseText([entry.text for entry in entries], left_out)
    return whole


def _within(data: object, limit: int) -> CaseText:
    """Return the data as it is, or as text if it is too long or not JSON (NaN, an infinity).

    The text is shortened to about `limit` characters.
    """
    text = json.dumps(data, ensure_ascii=False)
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        return shortened(text, limit)
    return CaseText(data) if len(text) <= limit else shortened(text, limit)


_HIDDEN_TEXT = "hidden_text"
# English signs (no proof) that a text addresses the judge: name, lower-case phrases (one has to
# occur before the pattern is searched), and pattern.
_SIGNS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        "order",
        ("ignore", "disregard", "forget", "override", "bypass", "new instruction", "end of "),
        re.compile(
            r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
            r"\b(?:previous|prior|above|earlier|preceding|all|any|your|the|these|system|rubric|criteria)\b.{0,30}"
            r"\b(?:instruction|prompt|rule|rubric|criteri|guideline|direction|context|message)"
            r"|\bnew instructions?\s*:|\bend of (?:the )?(?:data|prompt|instructions|case|answer)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "addresses_judge",
        ("judge", "grader", "evaluator", "rater", "assessor", "reviewer", "scorer"),
        re.compile(
            r"\b(?:dear|attention|hey|note to|message (?:to|for)|instructions? (?:to|for)|as|you are) "
            r"(?:the |an? |any |all |our )?(?:ai |llm |automated |impartial |expert )?"
            r"(?:judges?|graders?|evaluators?|raters?|assessors?|reviewers?|scorers?)\b"
            r"|\b(?:judge|grader|evaluator|rater|assessor)s?\b.{0,30}\b(?:must|should|please|has to|have to|shall)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "names_score",
        (
            "score",
            "rating",
            "grade",
            "mark",
            "point",
            "deserves",
            "merits",
            "earns",
            "worth",
            "10",
            "5",
        ),
        re.compile(
            r"\b(?:give|assign|award|return|output|rate|score|grade|respond with|answer with|mark)\b.{0,60}"
            r"\b(?:(?:score|rating|grade|mark)s? (?:of|as|to|is)|(?:full|maximum|max|top|highest|perfect|best|passing)"
            r" (?:score|rating|grade|mark|point)s?|10 ?/ ?10|5 ?/ ?5|100 ?/ ?100|10 out of 10|5 out of 5)"
            r"|\b(?:deserves|merits|earns|worth) (?:an? |the )?"
            r"(?:full|maximum|top|highest|perfect|10|5|score|rating)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "answer_form",
        ("score", "verdict", "rating", "<", "[[", "data-"),
        re.compile(
            r"[\"'](?:score|verdict|rating)[\"']\s*:"
            r"|^\W{0,4}(?:score|verdict|final score|rating)\s*[:=]\s*(?:\d|pass|true)"
            r"|<(?:/?(?:s\d|score|verdict|rating|evaluation|system|instructions?))>|\[\[\s*(?:\d{1,3}|[ABC])\s*\]\]|DATA-[0-9a-f]",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    (
        "turn_marks",
        ("<", "inst]", "human:", "assistant:", "system:"),
        re.compile(
            r"<[|\uff5c]|</?(?:s|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>|^(?:Human|Assistant|System):\s",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    # Orders of direction, tags, and what is invisible in a row; one joiner or mark of direction is
    # ordinary writing.
    (
        _HIDDEN_TEXT,
        ("",),
        re.compile(
            "[\u202d\u202e\U000e0001-\U000e007f\U000e0100-\U000e01ef]|[\u200b-\u200f\u2060-\u2064\ufeff]{3}|[\ufe00-\ufe0f]{3}"
        ),
    ),
)

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_LOOKED_AT = 2048
# Openings that are no answer by themselves. Each character has one place in the pattern: no text
# takes long.
_OPENING = re.compile(
    r"[\W_]{0,8}[^\W_]+(?:['\u2019][^\W_]*)?(?:[ \t][^\W_]+(?:['\u2019][^\W_]*)?){0,4}[ \t]?[:\uff1a][\s\W_]{0,8}"
    r"|[\W_]{0,8}(?:let['\u2019]?s|let us|i will|i'll|we)\b[^.\n]{0,60}\bstep by step\b[\s\W_]{0,8}",
    re.IGNORECASE,
)
_ONE_CHARACTER = re.compile(r"\s*(\S)(?:\s*\1){7,}\s*")
_SPEAKING_SYMBOLS = frozenset({"So", "Sc", "Sm"})


def injection_signs(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the signs that any of the texts shows, such as ``order`` or ``names_score``.

    Their order is fixed. Phrases are looked for in the text in compatibility form (full-width
    letters are letters) without what is invisible.
    """
    forms: list[tuple[str, str, str]] = []
    for text in texts:
        shown = text if text.isascii() else without_hidden(composed(text, "NFKC"))
        forms.append((text, shown, shown.lower()))
    signs: list[str] = []
    for sign, phrases, pattern in _SIGNS:
        for text, shown, lower in forms:
            has_phrase = any(map(lower.__contains__, phrases))
            if has_phrase and pattern.search(text if sign == _HIDDEN_TEXT else shown):
                signs.append(sign)
                break
    return tuple(signs)


def no_answer(text: str) -> str | None:
    """Return why a text is no answer that could be judged, or None if it is one.

    The reason is ``empty answer`` or ``degenerate answer``. Texts without a letter, digit or
    meaningful symbol, a single repeated character, and a bare opening (``Solution:``) are
    degenerate: judges have rated such answers as correct.
    """
    if not text.strip():
        return "empty answer"
    head = text[:_LOOKED_AT]
    if _LETTER_OR_DIGIT.search(text) is None:
        kinds = {unicodedata.category(char) for char in head if char != "\u2800"}
        if kinds & _SPEAKING_SYMBOLS:
            return None
        return "degenerate answer" if any(kind[0] in "PSM" for kind in kinds) else "empty answer"
    is_bare_opening = len(text) <= _LOOKED_AT and _OPENING.fullmatch(text)
    if is_bare_opening or _ONE_CHARACTER.fullmatch(head):
        return "degenerate answer"
    return None
