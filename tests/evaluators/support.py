"""What the tests of evaluators share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult


def results_of(
    evaluator: Evaluator,
    response: Any = "",
    *,
    criteria: Sequence[EvaluationCriteria] | None = None,
    **fields: Any,
) -> list[EvaluationResult]:
    """The results for an input, of the evaluator's own criteria if no others are named."""
    evaluation_input = EvaluationInput.model_validate({"response": response, **fields})
    return asyncio.run(
        evaluator.evaluate(evaluation_input, evaluator.criteria() if criteria is None else criteria)
    )


def result_of(evaluator: Evaluator, response: Any = "", **fields: Any) -> EvaluationResult:
    """The only result for an input."""
    (result,) = results_of(evaluator, response, **fields)
    return result
