"""Objects with `type` and `evaluate(input, criteria)` and nothing else, as the specification has
evaluators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agenteval_otel import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    EvaluationRunConfig,
    Suite,
)
from agenteval_otel import run_evaluation_sync as run
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from tests.instrumentation.support import Seen
from tests.testing.doubles import Keeping

INPUT = EvaluationInput(response="Good day.", criteria=(EvaluationCriteria(name="polite"),))


class Polite:
    """Answers each criterion that it is asked for, and one more."""

    type = "Polite"

    def __init__(self, extra: Any = "greets") -> None:
        self.extra = extra

    async def evaluate(self, evaluation_input: Any, criteria: Sequence[EvaluationCriteria]) -> Any:
        if self.extra is None:
            raise RuntimeError("no dictionary")
        results: list[Any] = [
            EvaluationResult(criterion_name=criterion.name, score=True, evaluator_type=self.type)
            for criterion in criteria
        ]
        return [*results, {"criterionName": self.extra, "score": "warmly"}]


class Plain:
    type = "Plain"

    def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[Any]:
        return [{"criterionName": criterion.name, "score": 0.5} for criterion in criteria]


class Subclass(Evaluator, type="SubclassWithoutCriteria"):
    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        return [EvaluationResult(criterion_name="own", score=1, evaluator_type=self.type)]


def test_results_are_kept_whatever_their_criterion() -> None:
    """The criterion that was asked for counts in the overall score; results of other names are
    there too.
    """
    aggregated = run(INPUT, EvaluationRunConfig(evaluators=[Polite(), Subclass()]))
    assert [(r.criterion_name, r.score, r.evaluator_type) for r in aggregated.results] == [
        ("polite", True, "Polite"),
        ("greets", "warmly", "Polite"),
        ("own", 1, "SubclassWithoutCriteria"),
    ]
    assert (aggregated.overall_score, aggregated.run_errors) == (1.0, None)


def test_what_breaks_is_a_failed_result_and_a_run_error() -> None:
    """An evaluator that declares no criteria fails under its type; one that says nothing is a skip
    under its type.
    """
    aggregated = run(INPUT, EvaluationRunConfig(evaluators=[Polite(extra=None)]))
    (failed,) = aggregated.results
    assert (failed.criterion_name, failed.status, failed.error_type) == (
        "Polite",
        "failed",
        "RuntimeError",
    )
    assert aggregated.run_errors is not None
    assert "no dictionary" in aggregated.run_errors[0].message
    nothing = run(EvaluationInput(response="x"), EvaluationRunConfig(evaluators=[Plain()])).results
    assert [(r.criterion_name, r.skip_reason) for r in nothing] == [("Plain", "no result")]


def test_live_it_answers_the_criteria_of_the_settings() -> None:
    """A criteria set of the settings is asked for, and results of other names are bounded slugs."""
    kept = Keeping()
    seen = Seen(criteria=(EvaluationCriteria(name="polite", scale="numeric"),))
    for extra in ("greets", "not a slug"):
        seen.monitor(evaluators=[Polite(extra)], storage=kept)(str.upper)("a")
        seen.pipeline.flush(5)
    seen.pipeline.shutdown(5)
    assert [(r.criterion_name, r.status) for r in kept.results] == [
        ("polite", "scored"),
        ("greets", "scored"),
        ("Polite", "failed"),
    ]


def test_a_suite_takes_it_and_does_not_pass_on_nothing() -> None:
    """It answers the criteria of the input; without any result the suite has not passed."""
    assert Suite(evaluators=[Polite()]).run_sync(INPUT).scores["polite"].passed
    assert not Suite(evaluators=[Plain()]).run_sync(EvaluationInput(response="x"))


def test_another_signature_is_refused_at_start() -> None:
    """`evaluate(input)` could never be called: the message has the path and the two arguments."""

    class One:
        type = "One"

        def evaluate(self, evaluation_input: EvaluationInput) -> list[Any]:
            return []

    with pytest.raises(
        ConfigurationError, match=r"evaluators\[0\]: .*One.evaluate has to take two arguments"
    ):
        EvaluationRunConfig(evaluators=[One()])  # type: ignore[list-item]
