"""Metrics that you have already, as evaluators: autoevals' scorers, and the shape of DeepEval's
metrics.

uv run python examples/10_wrapped_evaluator.py
"""

import copy
import json
from types import SimpleNamespace
from typing import Any

import autoevals
from pydantic import Field

from agenteval_otel import EvaluationInput, Score, annotate, configure, flush, monitor
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.storage import ConsoleStorageProvider


class Autoevals(CriterionEvaluator, type="Autoevals"):
    """A scorer of autoevals against the ground truth, chosen by its name: 0 worst to 1 best."""

    scorer: str  # a name and not an object, so that a settings file can choose it

    def score(self, evaluation_input: EvaluationInput) -> Score:
        text, expected = evaluation_input.response_text, evaluation_input.ground_truth
        if expected is None:
            raise EvaluationSkipped("no ground truth")
        output = text if isinstance(expected, str) else json.loads(text)
        found = getattr(autoevals, self.scorer)().eval(output=output, expected=expected)
        return Score(value=found.score, metadata=found.metadata)


class Measured(CriterionEvaluator, type="Measured"):
    """A metric with DeepEval's shape: `measure(test_case)`, then `score`, `reason` and
    `is_successful()`.
    """

    metric: Any = Field(exclude=True)  # an object, so configuration in code only

    def score(self, evaluation_input: EvaluationInput) -> Score:
        metric = copy.copy(self.metric)  # it keeps its findings in itself, and calls may overlap
        # DeepEval: an LLMTestCase of the same names; and `async def`, `a_measure` for metrics that
        # ask a model.
        case = SimpleNamespace(
            input=evaluation_input.prompt, actual_output=evaluation_input.response_text
        )
        metric.measure(case)
        return Score(value=metric.score, passed=metric.is_successful(), reasoning=metric.reason)


class Brevity:
    """Stands in for a metric of DeepEval's, so that this runs without it: leave it out."""

    def measure(self, test_case: Any) -> None:
        self.score = min(1.0, 20 / max(1, len(test_case.actual_output)))
        self.reason = f"{len(test_case.actual_output)} characters"

    def is_successful(self) -> bool:
        return self.score >= 0.5


edit_distance = Autoevals(criterion_name="edit_distance", scorer="Levenshtein", threshold=0.8)
fields = Autoevals(criterion_name="fields", scorer="JSONDiff", threshold=1)
brevity = Measured(criterion_name="brevity", metric=Brevity())
configure(sample_rate=1.0, storage=[ConsoleStorageProvider()])


@monitor(agent="capital", evaluators=[edit_distance, brevity])
def capital(country: str) -> str:
    # without one, edit_distance is skipped, not zero
    annotate(ground_truth={"France": "Paris"}.get(country))
    return "Pariss"


@monitor(agent="order", evaluators=[fields])
def order(text: str) -> dict[str, Any]:
    annotate(ground_truth={"item": "tea", "count": 2})
    return {"item": "tea", "count": 3}


capital("France")
capital("Atlantis")
order("Two teas, please.")
flush(5.0)
