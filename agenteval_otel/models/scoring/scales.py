"""Scales, normalization to [0, 1], verdicts and labels: the specification's table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationCriteria, ScoreValue
from agenteval_otel.semconv import LABEL_FAIL, LABEL_PASS

BOOLEAN_SCALES = ("binary", "pass/fail")
_ENDS = {
    "binary": (0.0, 1.0),
    "pass/fail": (0.0, 1.0),
    "numeric": (0.0, 1.0),
    "likert5": (1.0, 5.0),
}
_RANGE = re.compile(r"(-?\d+)\s*(?:-|to|\u2013)\s*(-?\d+)")
BOOLEAN_WORDS = {
    "true": 1.0,
    "pass": 1.0,
    "yes": 1.0,
    "1": 1.0,
    "false": 0.0,
    "fail": 0.0,
    "no": 0.0,
    "0": 0.0,
}
# Texts with a verdict on any custom scale; for `AgentDockCriteria` only on the scale literally
# named "string".
_VERDICTS = {"true": 1.0, "pass": 1.0, "false": 0.0, "fail": 0.0}
_OF_SO_MANY = re.compile(r"\s*/\s*\d", re.ASCII)  # ``8/10`` is a number on another scale
_ANOTHER_RANGE = (
    ". Another range is declared as a scale such as '0-100', or with minimum and maximum"
)
_OFF_SCALE = re.compile(
    r"(?:EvaluationError: )?(the score [-+]?[\d.]{1,16}(?:e[-+]?\d{1,3})? lies outside of the scale"
    r" '[\w.|/-]{1,32}', which takes [-+\d.e]{1,24} to [-+\d.e]{1,24}"
    rf"(?:{re.escape(_ANOTHER_RANGE)})?)"
)
_LEADING_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)


class AgentDockCriteria(EvaluationCriteria):
    """A criterion of AgentDock's form of configuration, read as AgentDock reads it.

    The form is ``evaluatorConfigs``.

    On ``numeric`` a number above 1 up to 100 is a percentage, and a number outside of any scale
    stays out of the overall score instead of being an error.
    """

    @classmethod
    def reading(cls, criteria: Iterable[EvaluationCriteria]) -> tuple[EvaluationCriteria, ...]:
        """Return the criteria as this class."""
        return tuple(
            cls.model_construct(criterion.model_fields_set, **criterion.__dict__)
            for criterion in criteria
        )


@lru_cache(maxsize=256)
def bounds_of(scale: str) -> tuple[int, int] | None:
    """Return the ends of a scale that is named by them, such as ``0-10``.

    Return None for other scales.
    """
    match = _RANGE.fullmatch(scale.strip())
    if match is None:
        return None
    low = int(match.group(1))
    high = int(match.group(2))
    return (low, high) if low < high else None


def off_scale(score: ScoreValue | None, criterion: EvaluationCriteria) -> str | None:
    """Return the error for a number outside of the criterion's scale.

    Return None for other values, and for custom scales. Text that is a number as a whole counts
    as that number.
    """
    if isinstance(score, str):
        match = _LEADING_NUMBER.match(score)
        is_number = match is not None and not score[match.end() :].strip()
        score = float(score) if is_number else None
    if (
        not isinstance(score, int | float)
        or isinstance(score, bool)
        or isinstance(criterion, AgentDockCriteria)
    ):
        return None
    ends = _ends_of(criterion)
    if ends is None or normalize(score, criterion) is not None:
        return None
    declared = criterion.minimum is not None
    two_valued = criterion.scale in BOOLEAN_SCALES and not declared
    takes = "true, false, 1 and 0" if two_valued else f"{ends[0]:g} to {ends[1]:g}"
    hint = "" if declared else _ANOTHER_RANGE
    number = _finite(score)
    if number is not None:
        shown = f"{number:g}"
    elif isinstance(score, int):
        shown = "beyond every float"
    else:
        shown = float.__repr__(score)
    return f"the score {shown} lies outside of the scale {criterion.scale!r}, which takes {takes}{hint}"


def off_scale_in(error: str) -> str | None:
    """Return the whole of an error that says that a number lies outside of its scale.

    None for others. It is a number of up to sixteen digits, the name of a scale and our own words,
    so it may stand where content may not.
    """
    match = _OFF_SCALE.fullmatch(error)
    return None if match is None else match[1]


def wrong_threshold(criterion: EvaluationCriteria) -> str | None:
    """Return the error for a threshold outside of the scale, which decides nothing.

    Return None if it is valid.
    """
    threshold = criterion.threshold
    ends = _ends_of(criterion)
    if threshold is None or ends is None or ends[0] <= threshold <= ends[1]:
        return None
    return f"the threshold {threshold:g} lies outside of the scale {criterion.scale!r}, {ends[0]:g} to {ends[1]:g}"


def _ends_of(criterion: EvaluationCriteria) -> tuple[float, float] | None:
    if criterion.minimum is not None and criterion.maximum is not None:
        return criterion.minimum, criterion.maximum
    # AgentDock takes ``0-100`` for any word
    if criterion.scale in _ENDS or isinstance(criterion, AgentDockCriteria):
        return _ENDS.get(criterion.scale)
    return bounds_of(criterion.scale)


def normalize(score: ScoreValue | None, criterion: EvaluationCriteria) -> float | None:
    """Move a raw score to [0, 1], higher is better.

    Return None if the scale has no place for it, as for NaN.

    Booleans are 1 and 0 on every scale. A declared range (`minimum` and `maximum`, or a scale such
    as ``0-100``) maps linearly. Otherwise the scale decides. ``binary`` and ``pass/fail`` take 0
    and 1. ``likert5`` is (s - 1) / 4 for 1 to 5. ``numeric`` takes 0 to 1 as it is, and in
    AgentDock's form also numbers up to 100 as percent. Text is read as a word or as its leading
    number. On a scale of one's own it is read as ``pass``, ``true``, ``fail`` or ``false``, or as a
    number if all of it is one, from 0 to 1 if no range is declared.
    """
    if isinstance(score, str):
        return _normalize_text(score, criterion)
    if score is None:
        return None
    if isinstance(score, bool):
        return float(score)
    number = _finite(score)
    ends = _ends_of(criterion)
    if number is None:
        return None
    if criterion.minimum is None or criterion.maximum is None:
        if criterion.scale in BOOLEAN_SCALES and number not in (0.0, 1.0):
            return None
        if (
            criterion.scale == "numeric"
            and 1.0 < number <= 100.0
            and isinstance(criterion, AgentDockCriteria)
        ):
            return number / 100.0
    return None if ends is None else _normalize_range(number, *ends)


def _finite(score: int | float) -> float | None:
    try:
        number = float(score)
    except Exception:
        # A whole number beyond the largest float, or a number of the user's own class that raises.
        return None
    return number if math.isfinite(number) else None


def _normalize_range(number: float, minimum: float, maximum: float) -> float | None:
    if not minimum <= number <= maximum or minimum == maximum:
        return None
    if not math.isfinite(maximum - minimum):  # halves of the largest floats still subtract
        number = number / 2
        minimum = minimum / 2
        maximum = maximum / 2
    return (number - minimum) / (maximum - minimum)


def _normalize_text(text: str, criterion: EvaluationCriteria) -> float | None:
    if criterion.scale in BOOLEAN_SCALES:
        return BOOLEAN_WORDS.get(text.lower())
    if criterion.scale not in ("likert5", "numeric"):
        return _normalize_on_own(text, criterion)
    match = _LEADING_NUMBER.match(text)
    if match is None or _OF_SO_MANY.match(text, match.end()):
        return None
    return normalize(float(match.group(1)), criterion)


def _normalize_on_own(text: str, criterion: EvaluationCriteria) -> float | None:
    if isinstance(criterion, AgentDockCriteria):
        return _VERDICTS.get(text.lower()) if criterion.scale == "string" else None
    word = _VERDICTS.get(text.strip().lower())
    number = _number_in(text)
    if word is not None or number is None:
        return word
    return _normalize_range(number, *(_ends_of(criterion) or (0.0, 1.0)))


def _number_in(text: str) -> float | None:
    """Return the text as a number. Return None for ``2 of 3``, which is a category."""
    match = _LEADING_NUMBER.match(text)
    if match is None or text[match.end() :].strip():
        return None
    return _finite(float(match.group(1)))


def passed_of(score: ScoreValue | None, criterion: EvaluationCriteria) -> bool | None:
    """Return the verdict on a raw score.

    A boolean is the verdict itself. Otherwise the criterion's threshold (inclusive) decides,
    else a boolean form. Return None without either.
    """
    if score is None or isinstance(score, bool):
        return score
    if (
        isinstance(score, str)
        and criterion.scale not in _ENDS
        and not isinstance(criterion, AgentDockCriteria)
    ):
        number = _number_in(score)
        word = _VERDICTS.get(score.strip().lower())
        if number is None:
            return None if word is None else word == 1.0
        score = number
    if criterion.threshold is not None and not isinstance(score, str):
        return bool(score >= criterion.threshold)
    normalized = normalize(score, criterion) if criterion.scale in BOOLEAN_SCALES else None
    return None if normalized is None else normalized == 1.0


def label_of(score: ScoreValue | None, passed: bool | None) -> str | None:
    """Return ``pass`` or ``fail`` if there is a verdict.

    Otherwise return the evaluator's category if the score is text, else None.
    """
    if passed is not None:
        return LABEL_PASS if passed else LABEL_FAIL
    return score[:64] if isinstance(score, str) and score else None


def check_criteria(criteria: Sequence[EvaluationCriteria], *, path: str) -> None:
    """Refuse invalid criteria by a `ConfigurationError` with every problem.

    Not for AgentDock's form, where the first of two criteria counts and negative weights are used
    as they are.
    """
    problems: list[tuple[str | None, str]] = []
    seen: set[str] = set()
    for index, criterion in enumerate(criteria):
        where = f"{path}[{index}]"
        if not criterion.name.strip():
            problems.append((f"{where}.name", "must not be blank"))
        elif criterion.name in seen:
            problems.append((path, f"criterion {criterion.name!r} appears twice"))
        seen.add(criterion.name)
        if criterion.weight is not None and criterion.weight < 0:
            problems.append((f"{where}.weight", f"expected at least 0, found {criterion.weight:g}"))
        if criterion.objective is not None and not 0 <= criterion.objective <= 1:
            problems.append(
                (
                    f"{where}.objective",
                    f"expected a number from 0 to 1, found {criterion.objective:g}",
                )
            )
        if criterion.of_last is not None and not criterion.objective:
            fix = (
                f"such as {{name: {criterion.name}, objective: 0.95, of_last: {criterion.of_last}}}"
            )
            problems.append((f"{where}.of_last", f"needs an objective above 0 beside it, {fix}"))
        problems += [(f"{where}.{field}", wrong) for field, wrong in _wrong_range(criterion)]
    if problems:
        raise ConfigurationError.of(problems)


def _wrong_range(criterion: EvaluationCriteria) -> Iterator[tuple[str, str]]:
    low = criterion.minimum
    high = criterion.maximum
    if (low is None) != (high is None):
        yield "minimum" if low is None else "maximum", "a declared range needs both ends"
    elif low is not None and high is not None and low >= high:
        yield "maximum", f"expected more than the minimum {low:g}, found {high:g}"
    elif "scale" in criterion.model_fields_set:  # else the evaluator's criterion has the scale
        wrong = wrong_threshold(criterion)
        if wrong is not None:
            yield "threshold", wrong


RATINGS = ("Unacceptable", "Poor", "Average", "Good", "Exceptional")  # from the worst to the best


def rating_of(score: ScoreValue | None) -> str:
    """Return the word for a score on the scale from 1 to 5, rounded up.

    Above 0 up to 1 is the first word.

    Everything else is ``Inconclusive``. The word does not imply a verdict, which depends on the
    threshold.
    """
    if score is None or isinstance(score, bool | str) or not 0 < score <= len(RATINGS):
        return "Inconclusive"
    return RATINGS[math.ceil(score) - 1]
