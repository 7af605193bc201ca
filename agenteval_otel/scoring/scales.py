"""Scales, normalization to [0, 1], verdicts and labels: the specification's table.

What the table excludes has no normalized form and stays out of the overall score.
"""

from __future__ import annotations

import math
import re

from agenteval_otel.models import EvaluationCriteria, ScoreValue
from agenteval_otel.semconv import LABEL_FAIL, LABEL_PASS

__all__ = ["BOOLEAN_SCALES", "label_of", "normalize", "passed_of"]

BOOLEAN_SCALES = ("binary", "pass/fail")

_TRUE = frozenset({"true", "pass", "yes", "1"})
_FALSE = frozenset({"false", "fail", "no", "0"})
# The specification's custom scale literally named "string" takes these four words and nothing else.
_STRING_SCALE = {"true": 1.0, "pass": 1.0, "false": 0.0, "fail": 0.0}
_OF_SO_MANY = re.compile(r"\s*/\s*\d", re.ASCII)
"""``8/10`` is a number on another scale: its 8 is none on ours."""
_LEADING_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)


def normalize(score: ScoreValue | None, criterion: EvaluationCriteria) -> float | None:
    """Move a raw score to [0, 1], higher is better; None when the scale has no place for it.

    A declared range (`minimum`, `maximum`) maps linearly. Otherwise by scale: ``binary`` and ``pass/fail`` take
    booleans, 0 and 1; ``likert5`` is (s - 1) / 4 for 1 to 5; ``numeric`` takes 0 to 1 as it is and above 1 up to 100
    as a percentage. Text is read as a word or as its leading number. NaN and infinities have no normalized form.
    """
    if score is None:
        return None
    if isinstance(score, bool):
        return 1.0 if score else 0.0
    if isinstance(score, str):
        return _normalize_text(score, criterion)
    number = _finite(score)
    if number is None:
        return None
    if criterion.minimum is not None and criterion.maximum is not None:
        return _normalize_range(number, criterion.minimum, criterion.maximum)
    return _normalize_number(number, criterion.scale)


def _finite(score: int | float) -> float | None:
    try:
        number = float(score)
    except Exception:  # a whole number beyond the largest float, or a number of the user's own class that raises
        return None
    return number if math.isfinite(number) else None


def _normalize_range(number: float, minimum: float, maximum: float) -> float | None:
    if not minimum <= number <= maximum or minimum == maximum:
        return None
    if not math.isfinite(maximum - minimum):  # halves of the largest floats still subtract
        number, minimum, maximum = number / 2, minimum / 2, maximum / 2
    return (number - minimum) / (maximum - minimum)


def _normalize_number(number: float, scale: str) -> float | None:
    if scale in BOOLEAN_SCALES:
        return number if number in (0.0, 1.0) else None
    if scale == "likert5":
        return (number - 1.0) / 4.0 if 1.0 <= number <= 5.0 else None
    if scale == "numeric":
        if 0.0 <= number <= 1.0:
            return number
        return number / 100.0 if 1.0 < number <= 100.0 else None
    return None


def _normalize_text(text: str, criterion: EvaluationCriteria) -> float | None:
    if criterion.scale in BOOLEAN_SCALES:
        word = text.lower()
        return 1.0 if word in _TRUE else 0.0 if word in _FALSE else None
    if criterion.scale == "string":
        return _STRING_SCALE.get(text.lower())
    if criterion.scale in ("likert5", "numeric"):
        match = _LEADING_NUMBER.match(text)
        if match is None or _OF_SO_MANY.match(text, match.end()):
            return None
        return normalize(float(match.group(1)), criterion)
    return None


def passed_of(score: ScoreValue | None, criterion: EvaluationCriteria) -> bool | None:
    """Verdict on a raw score: by the criterion's threshold (inclusive), else by a boolean form; None without either."""
    if score is None:
        return None
    if criterion.threshold is not None and not isinstance(score, bool | str):
        return bool(score >= criterion.threshold)
    if isinstance(score, bool):
        return score
    if criterion.scale in BOOLEAN_SCALES:
        normalized = normalize(score, criterion)
        return None if normalized is None else normalized == 1.0
    return None


def label_of(score: ScoreValue | None, passed: bool | None) -> str | None:
    """``pass`` or ``fail`` where there is a verdict, the evaluator's category where the score is text, else None."""
    if passed is not None:
        return LABEL_PASS if passed else LABEL_FAIL
    return score[:64] if isinstance(score, str) and score else None
