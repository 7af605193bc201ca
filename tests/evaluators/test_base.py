"""The contract of evaluators."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.models import EvaluationInput, Score
from tests.evaluators.support import result_of


class Fixed(CriterionEvaluator):
    """Scores what it is told to."""

    criterion_name: str = "fixed"
    found: Any = None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(value=self.found)


class Slow(CriterionEvaluator):
    criterion_name: str = "slow"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(value=0.5)


def test_results_are_signed_and_labelled() -> None:
    """A result carries normalized score, label, threshold and who found it."""
    result = result_of(Fixed(found=0.8, threshold=0.7))
    assert (result.normalized, result.label, result.passed, result.threshold) == (0.8, "pass", True, 0.7)
    assert (result.evaluator_type, result.evaluator_id) == ("Fixed", "Fixed:fixed")
    assert result.evaluator_version == Fixed(found=0.8, threshold=0.7).fingerprint


def test_execution_follows_the_kind_of_function() -> None:
    """An evaluator that does not say is taken to be slow: ``async`` when it is async, else ``thread``."""
    assert Fixed(found=1).resolved_execution == "thread"
    assert Slow().resolved_execution == "async"
    assert (result_of(Slow()).score, result_of(Slow()).calls_model) == (0.5, True)


def test_what_is_not_implemented_says_so() -> None:
    """A bare contract names what is missing; and a criterion needs a name that can be read."""
    with pytest.raises(EvaluationError, match="does not declare its criteria"):
        Evaluator().criteria()
    with pytest.raises(EvaluationError, match="does not implement score"):
        result_of(CriterionEvaluator(criterion_name="c"))
    with pytest.raises(EvaluationError, match="does not implement evaluate"):
        result_of(Evaluator(), criteria=[])
    with pytest.raises(ConfigurationError):
        Fixed(criterion_name=" ")
