"""Shadow evaluators run on trial, beside the regular ones.

Their results have criterion names of their own. Metrics, alerts, dashboards and stored rows are
keyed by the criterion's name, so they keep the two separate.
"""

from __future__ import annotations

from collections.abc import Sequence

from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.semconv import SHADOW


def declared_criteria(evaluator: Evaluator) -> tuple[EvaluationCriteria, ...]:
    """Return the criteria of an evaluator as its results have them."""
    if not evaluator.shadow:
        return evaluator.criteria()
    return tuple(
        harmless(criterion, f"{criterion.name}{SHADOW}") for criterion in evaluator.criteria()
    )


def harmless(criterion: EvaluationCriteria, name: str) -> EvaluationCriteria:
    """Return the criterion under this name, without weight, objective and `of_last`."""
    return criterion.model_copy(
        update={"name": name, "weight": 0.0, "objective": None, "of_last": None}
    )


def asked_criteria(
    criteria: Sequence[EvaluationCriteria],
) -> tuple[tuple[EvaluationCriteria, ...], ...]:
    """Return the criteria for the regular evaluators, and those for the shadow evaluators.

    Both are without the shadow suffix. A shadow evaluator gets its own version of a criterion if
    there is one, else the regular version.
    """
    present = {
        criterion.name: criterion for criterion in criteria if not criterion.name.endswith(SHADOW)
    }
    tried: dict[str, EvaluationCriteria] = {}
    for criterion in criteria:
        if criterion.name.endswith(SHADOW):
            name = criterion.name.removesuffix(SHADOW)
            tried[name] = harmless(criterion, name)
    return tuple(present.values()), tuple((present | tried).values())


def shadow_results(results: list[EvaluationResult]) -> list[EvaluationResult]:
    """Return the results of an evaluator that is tried, as they are emitted."""
    return [
        copy_with(result, {"criterion_name": f"{result.criterion_name}{SHADOW}", "shadow": True})
        for result in results
    ]
