"""Checks the results of evaluators: those of third-party evaluators may be invalid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from agenteval_otel.capture.text import clean
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, find_criterion
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.models.results import no_score_reason
from agenteval_otel.models.scoring import label_of, normalize, off_scale, passed_of
from agenteval_otel.models.scoring.probability import independent, known


def criteria_of(evaluator: Evaluator, declared: frozenset[str], results: object) -> set[str]:
    """Return the names of the criteria that the results are for.

    An evaluator that declares criteria may return no others. One that declares none may return any.
    """
    if not isinstance(results, list) or not all(
        isinstance(result, EvaluationResult) for result in results
    ):
        raise EvaluationError("expected a list of EvaluationResult", error_type="invalid_result")
    names = {result.criterion_name for result in results}
    if len(names) < len(results) and not evaluator.repeats:
        raise EvaluationError("two results for one criterion", error_type="invalid_result")
    if declared and not names <= declared:
        raise EvaluationError(
            "a result for a criterion that it does not declare", error_type="invalid_result"
        )
    return names


def corrections(result: EvaluationResult, criteria: Sequence[EvaluationCriteria]) -> dict[str, Any]:
    """Return the fields of a result that have to change.

    A value that is not a score makes the result a failure.
    """
    fields = result.__dict__
    wrong: dict[str, Any] = {}
    for name in _WORDS:
        word = fields[name]
        is_clean = not word or (len(word) <= 64 and word.isascii() and "\0" not in word)
        if not is_clean:
            wrong[name] = clean(word, 64)
    if result.status != "scored":
        if fields["skip_reason"] is not None:
            wrong["reason_code"] = no_score_reason(fields["skip_reason"])
        return wrong | _NO_SCORE  # a failed or skipped result has no score, whatever it says
    for name in ("score", "normalized"):
        if type(fields[name]) not in _PLAIN:
            wrong[name] = _plain_of(fields[name])
    score = wrong.get("score", fields["score"])
    normalized = wrong.get("normalized", fields["normalized"])
    if not _is_score(score):
        wrong |= {**_NO_SCORE, "error": "no finite score", "error_type": "invalid_score"}
    elif normalized is None:
        wrong |= _worked_out(result, score, criteria)
    elif not 0.0 <= normalized <= 1.0:
        wrong["normalized"] = None
    return wrong


def facts_of(result: EvaluationResult, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the runner sets in a result, such as its times and its probability.

    The probability is multiplied by that of the evaluator, if it scores only a share of what it
    is given.
    """
    probability_given_sampled: object = result.probability_given_sampled  # of any type: user code
    if probability_given_sampled == 1.0 or "probability" not in facts:
        return facts
    probability = independent(facts["probability"], known(probability_given_sampled))
    return facts | {"probability": probability}


def _worked_out(
    result: EvaluationResult, score: Any, criteria: Sequence[EvaluationCriteria]
) -> dict[str, Any]:
    """Return the normalized form, verdict, label, threshold and objective of a result's bare score.

    Fields that the result has already are left out. A score off the criterion's scale makes the
    result a failure.
    """
    criterion = find_criterion(criteria, result.criterion_name)
    if criterion is None:
        return {}
    passed = passed_of(score, criterion) if result.passed is None else result.passed
    label = label_of(score, passed)
    normalized = normalize(score, criterion)
    if normalized is None:
        wrong = off_scale(score, criterion)
        if wrong:
            return {**_NO_SCORE, "error": wrong, "error_type": "invalid_score"}
    derived = {
        "normalized": normalized,
        "passed": passed,
        "label": None if label is None else clean(label, 64),
        "threshold": criterion.threshold,
        "objective": criterion.objective,
    }
    return {
        name: value
        for name, value in derived.items()
        if value is not None and getattr(result, name) is None
    }


_NO_SCORE: dict[str, Any] = dict.fromkeys(("score", "normalized", "label", "passed"))
_WORDS = ("label", "reason_code", "error_type")
_PLAIN = frozenset({bool, int, float, str, type(None)})
_MAKES_PLAIN: dict[type[Any], Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
}


def _plain_of(value: object) -> Any:
    """Return the value that a subclass of a number or of text holds.

    Methods of the subclass itself are not called.
    """
    for base, make_plain in _MAKES_PLAIN.items():
        if isinstance(value, base):
            return make_plain(value)
    return value


def _is_score(value: object) -> bool:
    if isinstance(value, int | float):
        try:
            return math.isfinite(value)
        except OverflowError:  # a whole number beyond every float
            return False
    return isinstance(value, str)
