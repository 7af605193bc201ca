"""What an agent's answer has to be in plain terms: this text, with these parts, for so much, in so much time.

Each has a value from 0 to 1, and beside it a verdict of its own. Cost and duration are facts of the input: where nobody
knows them there is nothing to score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import CriterionEvaluator, Execution, failure_of, find_criterion, result_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score
from agenteval_otel.models.value import replaced

__all__ = ["CompletedWithin", "Contains", "CostWithin", "ExactMatch", "OperationalEvaluator"]

_SHORT_LIST = 100
_LONGEST_MS = 1e300
_SHOWN_CHARACTERS = 80


class OperationalEvaluator(CriterionEvaluator):
    """An evaluator whose `score` gives a value from 0 to 1 and a verdict that does not follow from it.

    A threshold of the criterion is used instead of that verdict; on the scales ``binary`` and ``pass/fail`` the score
    is the verdict itself. What an input has not got, or what is no number, gives a failed result.
    """

    def preferred_execution(self) -> Execution | None:
        return "inline"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """The value with the verdict; see `evaluate` for how both are used."""
        raise EvaluationError(f"{self.type} does not implement score")

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """One result; a failed one where there is nothing that could be compared."""
        criterion = find_criterion(criteria, self.criterion_name)
        if criterion is None:
            return []
        try:
            score = self.score(evaluation_input)
        except EvaluationError as error:
            return [failure_of(self, criterion.name, str(error), error_type=error.error_type, filler=0)]
        if criterion.scale in ("binary", "pass/fail"):
            score = replaced(score, {"value": bool(score.passed)})
        elif criterion.threshold is not None:
            score = replaced(score, {"passed": None})
        return [result_of(self, criterion, score)]


class ExactMatch(OperationalEvaluator, type="ExactMatch"):
    """1 for the very text that is expected, else 0: nothing is trimmed, folded or composed.

    Attributes:
        expected: The text; left out, the input's ground truth, without which the evaluation is skipped.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("different_text",)

    criterion_name: str = "exact_match"
    expected: str | None = None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Compare the answer's text. Passes where it is the same."""
        expected = self.expected if self.expected is not None else evaluation_input.text_at("groundTruth")
        if expected is None:
            has_one = evaluation_input.ground_truth is not None
            raise EvaluationSkipped("the ground truth is no text" if has_one else "no ground truth")
        text = _text_of(evaluation_input)
        if text == expected:
            return Score(value=1.0, passed=True, reasoning="the text is the expected one")
        at = _first_difference(text, expected)
        return Score(
            value=0.0, passed=False, reason_code="different_text",
            reasoning=(
                f"differs from character {at + 1} on: expected {_shown(expected[at:])}, found {_shown(text[at:])} "
                f"({len(text)} characters instead of {len(expected)})"
            ),
        )  # fmt: skip


class Contains(OperationalEvaluator, type="Contains"):
    """Fraction of the substrings that the text has, 0 to 1; it passes with all of them. Without any, 1.

    Case counts; a substring counts once for each time it is listed, and an empty one is always found.

    Attributes:
        substrings: What the text has to have.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("missing_substring",)

    criterion_name: str = "contains"
    substrings: ListOf[str]

    def preferred_execution(self) -> Execution | None:
        """``inline`` for a short list: each is looked for in the whole text."""
        return "inline" if len(self.substrings) <= _SHORT_LIST else None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Look for the substrings."""
        text = _text_of(evaluation_input)
        missing = [wanted for wanted in self.substrings if wanted not in text]
        if not missing:
            return Score(value=1.0, passed=True, reasoning=f"all {len(self.substrings)} found")
        present, wanted = len(self.substrings) - len(missing), len(self.substrings)
        shown = ", ".join(map(_shown, missing[:8])) + (", ..." if len(missing) > 8 else "")
        return Score(
            value=present / wanted, passed=False, reason_code="missing_substring",
            reasoning=f"{present} of {wanted} found; missing: {shown}",
        )  # fmt: skip


class CostWithin(OperationalEvaluator, type="CostWithin"):
    """1 for an answer that cost no more than the budget, else budget / cost: the more it is over, the nearer to 0.

    It passes within the budget, at the budget too. Skipped where nobody knows the cost (`EvaluationInput.cost`).

    Attributes:
        max_cost_usd: The budget of one answer, in USD.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("over_budget",)

    criterion_name: str = "cost_within"
    max_cost_usd: float

    @field_validator("max_cost_usd")
    @classmethod
    def _can_be_kept(cls, value: float) -> float:
        return _not_negative(value)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Compare the cost."""
        cost = evaluation_input.cost
        if cost is None:
            raise EvaluationSkipped("cost not known")
        value = share_within(cost, self.max_cost_usd)
        passed = cost <= self.max_cost_usd
        return Score(
            value=value, passed=passed, reason_code=None if passed else "over_budget",
            reasoning=f"{cost:g} USD of {self.max_cost_usd:g} USD",
        )  # fmt: skip


class CompletedWithin(OperationalEvaluator, type="CompletedWithin"):
    """1 for an answer that came within the limit, else limit / duration: the later it came, the nearer to 0.

    It passes within the limit, at the limit too. Skipped where nobody knows the duration (`EvaluationInput.duration_s`;
    of monitored calls it is measured).

    Attributes:
        limit_s: The limit in seconds; ``limit_ms`` is read too.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("too_slow",)

    criterion_name: str = "completed_within"
    limit_s: float

    @model_validator(mode="before")
    @classmethod
    def _milliseconds(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "limit_s" in data or "limitS" in data:
            return data
        name_in_ms = next((name for name in ("limit_ms", "limitMs") if name in data), None)
        if name_in_ms is None or data[name_in_ms] is None:
            return data
        limit = data[name_in_ms]
        if isinstance(limit, bool) or not isinstance(limit, int | float) or abs(limit) > _LONGEST_MS:
            raise ValueError(f"expected a number of milliseconds as {name_in_ms}")
        return {"limit_s": limit / 1000, **{name: value for name, value in data.items() if name != name_in_ms}}

    @field_validator("limit_s")
    @classmethod
    def _can_be_kept(cls, value: float) -> float:
        return _not_negative(value)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Compare the duration."""
        took_s = evaluation_input.duration_s
        if took_s is None:
            raise EvaluationSkipped("duration not known")
        value = share_within(took_s, self.limit_s)
        passed = took_s <= self.limit_s
        return Score(
            value=value, passed=passed, reason_code=None if passed else "too_slow",
            reasoning=f"{took_s:g} s of {self.limit_s:g} s",
        )  # fmt: skip


def share_within(observed: float, limit: float) -> float:
    """1 within the limit, else limit / observed, and 0 where there is no limit to speak of; never outside of 0 to 1.

    Raises:
        EvaluationError: (``invalid_value``) What was observed is no number.
    """
    if math.isnan(observed):
        raise EvaluationError("what was observed is no number (NaN)", error_type="invalid_value")
    if observed <= limit:
        return 1.0
    return limit / observed if limit > 0 else 0.0


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _text_of(evaluation_input: EvaluationInput) -> str:
    text = evaluation_input.text_at()
    if text is None:
        raise EvaluationError("no text at response", error_type="missing_text")
    return text


def _first_difference(first: str, other: str) -> int:
    """Where two texts part, by halves: a step for each character of long ones would take the loop's time."""
    low, high = 0, min(len(first), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")
