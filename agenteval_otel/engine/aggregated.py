"""`aggregate`: the results of one run put together, live and offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenteval_otel.engine.run import EvaluationRunner, RunOutcome, combined
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, RunError
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.models.value import made
from agenteval_otel.scoring import Aggregation, WeightedMean

__all__ = ["aggregate"]

_WEIGHTED_MEAN = WeightedMean()
_OF_THE_INPUT = ("agent_id", "session_id", "agent", "stream_end", "response_id", "conversation_id", "model")


def aggregate(
    evaluation_input: EvaluationInput,
    outcome: RunOutcome,
    *,
    runner: EvaluationRunner,
    started_ns: int,
    ended_ns: int,
    metadata: Mapping[str, Any] | None = None,
    storage: str = "none",
    aggregation: Aggregation | None = None,
    overall: tuple[float | None, list[RunError]] | None = None,
) -> AggregatedEvaluationResult:
    """Put the results of one run together: overall score, errors, times and the snapshot of the configuration.

    Args:
        overall: What `combined` gave, where it was asked before.
    """
    own_metadata = dict(metadata or {})
    strategy = aggregation or _WEIGHTED_MEAN
    score, run_errors = overall or combined(outcome, strategy)
    snapshot: dict[str, Any] = {
        "evaluatorTypes": list(runner.labels),
        "criteriaNames": [criterion.name for criterion in outcome.criteria],
        "storageProviderType": storage,
        "metadataKeys": list(own_metadata),
    }
    if strategy.type != _WEIGHTED_MEAN.type:
        snapshot["aggregation"] = strategy.type  # the originals know the one only
    errors = [error.model_dump(by_alias=True) for error in run_errors]
    # All of it comes from values that were validated when they were made.
    return made(AggregatedEvaluationResult, {
        **{name: getattr(evaluation_input, name) for name in _OF_THE_INPUT},
        "overall_score": score,
        "results": tuple(outcome.results),
        "timestamp": ended_ns // 1_000_000,
        "evaluation_config_snapshot": snapshot,
        "metadata": {**own_metadata, "errors": errors, "durationMs": (ended_ns - started_ns) // 1_000_000},
        "run_errors": tuple(run_errors) or None,
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        "has_ground_truth": not is_blank(evaluation_input.ground_truth),
    })  # fmt: skip
