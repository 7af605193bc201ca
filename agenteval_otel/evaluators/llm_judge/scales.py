"""How a judge is asked on a scale, and how its score is read: strictly, so that nothing else becomes a score."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError
from agenteval_otel.models import EvaluationCriteria, ScoreValue
from agenteval_otel.scoring.scales import BOOLEAN_SCALES, bounds_of

_TRUE = frozenset({"true", "pass", "yes", "1"})
_FALSE = frozenset({"false", "fail", "no", "0"})
_LISTED_LEVELS = 21
_LONGEST_WORD = 64


class AnswerScale(NamedTuple):
    """A scale as a judge meets it: the JSON Schema of the score, its description, and how the score is read.

    `read` raises `EvaluationError`: ``malformed_answer`` for what is no score, ``out_of_range`` for one beyond the
    scale.
    """

    schema: dict[str, Any]
    wording: str
    read: Callable[[Any], ScoreValue]


def bounds_of_levels(levels: Mapping[str, str]) -> tuple[int, int] | None:
    """The lowest and the highest level, where all of them are whole numbers."""
    numbers = [int(level) for level in levels if re.fullmatch(r"-?\d{1,9}", level)]
    return (min(numbers), max(numbers)) if len(numbers) == len(levels) > 1 else None


def answer_scale(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> AnswerScale:
    """The scale of a criterion: its described levels, a declared range, or what the scale's name means."""
    if criterion.scale in BOOLEAN_SCALES:
        return AnswerScale({"type": "boolean"}, "true (it passes) or false (it does not)", _truth)
    if criterion.scale == "likert5":
        return _whole(1, 5)
    bounds = bounds_of_levels(levels)
    if levels and bounds is None:
        return _words(list(levels))
    bounds = bounds or bounds_of(criterion.scale)
    if bounds is not None:
        return _whole(*bounds)
    if criterion.minimum is not None and criterion.maximum is not None:
        return _between(criterion.minimum, criterion.maximum)
    if criterion.scale == "numeric":
        return _between(0.0, 1.0)
    words = [name.strip() for name in criterion.scale.split("|")]
    if len(words) > 1 and all(words):
        return _words(words)
    return AnswerScale({"type": "string"}, f'a word or a few on the scale "{criterion.scale}"', _short_text)


def agentdock_scale(criterion: EvaluationCriteria) -> AnswerScale:
    """The scale as AgentDock asks and reads it: any number, any text; 1 is not a boolean."""
    if criterion.scale in BOOLEAN_SCALES or criterion.scale == "likert5":
        return answer_scale(criterion, {})
    if criterion.scale == "numeric":
        return AnswerScale({"type": "number"}, "a number", _number)
    return AnswerScale({"type": "string"}, "text", _text)


def _whole(low: int, high: int) -> AnswerScale:
    schema: dict[str, Any] = {"type": "integer"}
    if high - low < _LISTED_LEVELS:
        schema["enum"] = list(range(low, high + 1))

    def read(value: Any) -> int:
        number = _number_between(value, low, high)
        if number != int(number):
            raise EvaluationError(f"the score {number:g} is not a whole number", error_type="out_of_range")
        return int(number)

    return AnswerScale(schema, f"a whole number from {low} (worst) to {high} (best)", read)


def _between(low: float, high: float) -> AnswerScale:
    wording = f"a number from {low:g} (worst) to {high:g} (best)"
    return AnswerScale({"type": "number"}, wording, lambda value: _number_between(value, low, high))


def _words(words: list[str]) -> AnswerScale:
    by_form = {name.lower(): name for name in words}

    def read(value: Any) -> str:
        name = by_form.get(_text(value).strip().lower())
        if name is None:
            raise EvaluationError("the score is none of the levels", error_type="out_of_range")
        return name

    return AnswerScale({"type": "string", "enum": words}, "one of " + ", ".join(f'"{name}"' for name in words), read)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise EvaluationError("the score is neither true nor false", error_type="malformed_answer")


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError("the score is no number", error_type="malformed_answer")
    try:
        if math.isfinite(value):
            return value
    except OverflowError:  # a whole number beyond every float
        pass
    raise EvaluationError("the score is no finite number", error_type="out_of_range")


def _number_between(value: Any, low: float, high: float) -> int | float:
    number = _number(value)
    if not low <= number <= high:
        raise EvaluationError(
            f"the score is not from {low:g} to {high:g}: {str(number)[:20]}", error_type="out_of_range"
        )
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationError("the score is no text", error_type="malformed_answer")
    return value


def _short_text(value: Any) -> str:
    text = _text(value).strip()
    if not text:
        raise EvaluationError("the score is empty", error_type="malformed_answer")
    if len(text) > _LONGEST_WORD:
        raise EvaluationError(f"the score is longer than {_LONGEST_WORD} characters", error_type="out_of_range")
    return text


TEN = _whole(0, 10)
"""GoGrid's scale."""
