"""The contract of evaluators."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.evaluators.base import failure_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score

LENGTH = {"criterion": "Short", "type": "length", "max": 3}
BUILT_IN = [
    ResponseHealth(),
    RuleBased.load({"rules": [LENGTH]}),
    KeywordCoverage(criterion_name="Kw", expected_keywords=["a"]),
]


class Fixed(CriterionEvaluator):
    """Scores what it is told to."""

    criterion_name: str = "fixed"
    found: Any = None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        return self.found if isinstance(self.found, Score) else Score(value=self.found)


class Slow(CriterionEvaluator):
    criterion_name: str = "slow"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(value=0.5)


def run(evaluator: Evaluator, criteria: Sequence[EvaluationCriteria] | None = None) -> list[EvaluationResult]:
    requests = evaluator.criteria() if criteria is None else criteria
    return asyncio.run(evaluator.evaluate(EvaluationInput(response="text"), requests))


def test_results_are_signed_and_labelled() -> None:
    """A result carries normalized score, label, threshold and who found it."""
    (result,) = run(Fixed(found=0.8, threshold=0.7))
    assert (result.normalized, result.label, result.passed, result.threshold) == (0.8, "pass", True, 0.7)
    assert (result.evaluator_type, result.evaluator_id) == ("Fixed", "Fixed:fixed")
    assert result.evaluator_version == Fixed(found=0.8, threshold=0.7).fingerprint


@pytest.mark.parametrize("actual", [math.nan, math.inf, -math.inf])
def test_what_is_no_score_does_not_become_one(actual: float) -> None:
    """NaN and infinities are a failure of the evaluator."""
    with pytest.raises(EvaluationError) as caught:
        run(Fixed(found=actual))
    assert caught.value.error_type == "invalid_score"


def test_lanes_follow_the_kind_of_function() -> None:
    """An evaluator that does not say is taken to be slow: ``model`` when it is async, else ``cpu``."""
    assert Fixed(found=1).resolved_execution == "thread"
    assert Slow().resolved_execution == "async"
    (result,) = run(Slow())
    assert result.score == 0.5
    assert result.calls_model


def test_only_health_judges_calls_that_raised() -> None:
    """Evaluators are left out for calls without an answer unless they say otherwise."""
    assert ResponseHealth().evaluates_errors
    assert not BUILT_IN[1].evaluates_errors


def test_a_failure_carries_no_score() -> None:
    """What broke is said by a text and a word; the original's filler score stays apart."""
    result = failure_of(Slow(), "slow", "broke", error_type="timeout", filler=0)
    assert (result.status, result.score, result.normalized, result.filler) == ("failed", None, None, 0)
    assert (result.error, result.error_type) == ("broke", "timeout")


def test_a_blank_criterion_is_refused() -> None:
    """A criterion needs a name that can be read."""
    with pytest.raises(ConfigurationError):
        Fixed(criterion_name=" ")


def test_what_is_not_implemented_says_so() -> None:
    """A bare contract names what is missing."""
    with pytest.raises(EvaluationError, match="does not declare its criteria"):
        Evaluator().criteria()
    with pytest.raises(EvaluationError, match="does not implement score"):
        run(CriterionEvaluator(criterion_name="c"))
    with pytest.raises(EvaluationError, match="does not implement evaluate"):
        run(Evaluator(), [])
