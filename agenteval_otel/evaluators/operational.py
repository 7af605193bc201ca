"""Operational checks: the exact text, substrings, cost and duration.

Each gives a value from 0 to 1 and a verdict.
"""

from __future__ import annotations

import math
from operator import itemgetter
from os.path import commonprefix
from typing import Literal

from pydantic import Field

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import (
    SHORT_LIST,
    BuiltInEvaluator,
    reference_texts,
    text_at,
)
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score
from agenteval_otel.models.inputs import NO_GROUND_TRUTH
from agenteval_otel.models.scoring import AgentDockCriteria
from agenteval_otel.models.value import copy_with

_SHOWN_CHARACTERS = 80
_IMPOSSIBLE = math.inf
"""In the place of a value where what was observed is below 0."""


class OperationalEvaluator(BuiltInEvaluator):
    """Gives a value from 0 to 1, and a verdict that does not follow from the value.

    A threshold replaces the verdict. On the scales ``binary`` and ``pass/fail`` the score is the
    verdict itself.
    """

    def preferred_execution(self) -> Execution | None:
        return "inline"

    def _adjusted(self, score: Score, criterion: EvaluationCriteria) -> Score:
        if score.value == _IMPOSSIBLE:
            # it passes with AgentDock and GoGrid configurations
            if not isinstance(criterion, AgentDockCriteria):
                raise EvaluationError(f"{score.reasoning}: below 0", error_type="invalid_value")
            score = copy_with(score, {"value": 1.0})
        if criterion.scale in ("binary", "pass/fail"):
            return copy_with(score, {"value": bool(score.passed)})
        return score if criterion.threshold is None else copy_with(score, {"passed": None})


class ExactMatch(OperationalEvaluator, type="ExactMatch"):
    """Scores 1 if the text equals the expected one, else 0.

    The texts are not trimmed, case folded or normalized (Unicode).

    Attributes:
        expected: The expected text. When left out, it is the input's ground truth, and inputs
            without a ground truth are skipped. If the ground truth has several texts, one has to
            match.
    """

    criterion_name: str = "exact_match"
    expected: str | None = None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        several = (
            reference_texts(evaluation_input, "groundTruth")
            if self.expected is None
            else [self.expected]
        )
        if not several:
            has_one = evaluation_input.ground_truth is not None
            raise EvaluationSkipped("the ground truth is no text" if has_one else NO_GROUND_TRUTH)
        text = text_at(evaluation_input, "response")
        if text in several:
            return Score(value=1.0, passed=True, reasoning="the text is the expected one")
        # The reference that begins most like the text shows best what is different.
        compared = [(_common(text, reference), reference) for reference in several]
        at, expected = max(compared, key=itemgetter(0))
        others = ", and no other reference matches either" if len(several) > 1 else ""
        difference = f"expected {_shown(expected[at:])}, found {_shown(text[at:])}"
        lengths = f"{len(text)} characters instead of {len(expected)}"
        return Score(
            value=0.0,
            passed=False,
            reason_code="different_text",
            reasoning=f"differs from character {at + 1} on: {difference} ({lengths}){others}",
        )


class Contains(OperationalEvaluator, type="Contains"):
    """Scores the fraction of the substrings that the text has, 0 to 1.

    It passes with all of them. Without substrings the score is 1.

    Case counts. A substring counts once for each time it is listed, and an empty one is always
    found.

    Attributes:
        substrings: What the text has to have.
        mode: ``all`` as above. With ``any`` one of them is enough, and the score is 0 or 1.
    """

    criterion_name: str = "contains"
    substrings: ListOf[str]
    mode: Literal["all", "any"] = "all"

    def preferred_execution(self) -> Execution | None:
        return "inline" if len(self.substrings) <= SHORT_LIST else None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        text = text_at(evaluation_input, "response")
        total = len(self.substrings)
        missing = [substring for substring in self.substrings if substring not in text]
        if not missing:
            return Score(value=1.0, passed=True, reasoning=f"all {total} found")
        present = total - len(missing)
        if self.mode == "any" and present:
            return Score(value=1.0, passed=True, reasoning=f"{present} of {total} found")
        shown = ", ".join(map(_shown, missing[:8]))
        if len(missing) > 8:
            shown += ", ..."
        reasoning = f"{present} of {total} found, missing: {shown}"
        return Score(
            value=present / total,  # in mode `any` it is 0 here
            passed=False,
            reason_code="missing_substring",
            reasoning=reasoning,
        )


class CostWithin(OperationalEvaluator, type="CostWithin"):
    """Scores 1 for an answer that cost no more than the budget, else budget / cost.

    The more the cost is over the budget, the nearer the score is to 0. It passes within the budget,
    at the budget too. Skipped if the cost is unknown (`EvaluationInput.cost`).

    Attributes:
        max_cost_usd: The budget of one answer, in USD.
    """

    criterion_name: str = "cost_within"
    max_cost_usd: float = Field(ge=0)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.cost is None:
            raise EvaluationSkipped("cost not known")
        return _score_within(
            evaluation_input.cost, self.max_cost_usd, unit="USD", reason_code="over_budget"
        )


class CompletedWithin(OperationalEvaluator, type="CompletedWithin"):
    """Scores 1 for an answer that came within the limit, else limit / duration.

    The later the answer came, the nearer the score is to 0. It passes within the limit, at the
    limit too. Skipped if the duration is unknown (`EvaluationInput.duration_s`). The duration of
    monitored calls is measured.

    Attributes:
        limit_s: The limit in seconds.
    """

    criterion_name: str = "completed_within"
    limit_s: float = Field(ge=0)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.duration_s is None:
            raise EvaluationSkipped("duration not known")
        return _score_within(
            evaluation_input.duration_s, self.limit_s, unit="s", reason_code="too_slow"
        )


def _score_within(observed: float, limit: float, *, unit: str, reason_code: str) -> Score:
    if math.isnan(observed):
        raise EvaluationError("what was observed is no number (NaN)", error_type="invalid_value")
    reasoning = f"{observed:g} {unit} of {limit:g} {unit}"
    if observed < 0:
        return Score(value=_IMPOSSIBLE, passed=True, reasoning=reasoning)
    if observed <= limit:
        return Score(value=1.0, passed=True, reasoning=reasoning)
    return Score(value=limit / observed, passed=False, reason_code=reason_code, reasoning=reasoning)


def _common(first: str, second: str) -> int:
    """Count the characters at the start of both texts that are equal."""
    return len(commonprefix((first, second)))  # noqa: RUF071 - characters are meant


def _shown(text: str) -> str:
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return repr(text)
