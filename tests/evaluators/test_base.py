"""The contract of evaluators."""

from __future__ import annotations

import pytest

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from tests.evaluators.support import result_of
from tests.testing.doubles import Fixed, Thinking


def test_results_are_signed_and_labelled() -> None:
    """A result carries normalized score, label, threshold and who found it."""
    result = result_of(Fixed(value=0.8, threshold=0.7))
    assert (result.normalized, result.label, result.passed, result.threshold) == (
        0.8,
        "pass",
        True,
        0.7,
    )
    assert (result.evaluator_type, result.evaluator_id) == ("Fixed", "Fixed:fixed")
    assert result.evaluator_version == Fixed(value=0.8, threshold=0.7).fingerprint


def test_execution_follows_the_kind_of_function() -> None:
    """An evaluator that does not say is taken to be slow: ``async`` when it is async, else
    ``thread``.
    """
    assert Fixed().resolved_execution == "thread"
    assert Thinking().resolved_execution == "async"
    assert (result_of(Thinking()).score, result_of(Thinking()).calls_model) == (0.75, True)


def test_what_is_not_implemented_says_so() -> None:
    """A bare contract names what is missing; and a criterion needs a name that can be read."""
    with pytest.raises(EvaluationError, match="does not implement score"):
        result_of(CriterionEvaluator(criterion_name="c"))
    with pytest.raises(EvaluationError, match="does not implement evaluate"):
        result_of(Evaluator(), criteria=[])
    with pytest.raises(ConfigurationError):
        Fixed(criterion_name=" ")


@pytest.mark.parametrize(
    ("base", "name", "message"),
    [
        (
            CriterionEvaluator,
            "score",
            r"Wrong\.score: expected def score\(self, evaluation_input\), .* takes \(self\)",
        ),
        (
            Evaluator,
            "evaluate",
            r"Wrong\.evaluate: expected def evaluate\(self, evaluation_input, criteria\)",
        ),
    ],
)
def test_a_class_with_another_signature_is_refused(
    base: type[Evaluator], name: str, message: str
) -> None:
    """Where it is defined, not with its first answer."""
    with pytest.raises(ConfigurationError, match=message):
        type("Wrong", (base,), {name: lambda self: True})
