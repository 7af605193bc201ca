"""Results as JSON: also those that hold what JSON has no form for."""

from __future__ import annotations

from agenteval_otel.capture.text import plain
from agenteval_otel.models import AggregatedEvaluationResult

__all__ = ["without_objects"]


def without_objects(aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
    """The result with JSON's types alone: objects of the host's described, lone surrogates replaced.

    For results that pydantic refuses to dump (`ValueError`): offline inputs may hold anything.
    """
    return AggregatedEvaluationResult.model_validate(plain(aggregated.model_dump(exclude_none=True)))
