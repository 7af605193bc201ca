"""Frozen values that travel the route: the input, the criteria, scores and results.

Python names are snake_case; the JSON form is the specification's camelCase, accepted and written by alias. Values are
built on the pool's thread (never on the caller's) or offline, and are never changed afterwards.
"""

from agenteval_otel.models.inputs import (
    EvaluationCriteria,
    EvaluationInput,
    MemoryStats,
    Message,
    StreamEnd,
    ToolCall,
    Usage,
)
from agenteval_otel.models.results import (
    AggregatedEvaluationResult,
    EvaluationResult,
    RunError,
    Score,
    ScoreLike,
    ScoreValue,
    SpanReference,
)

__all__ = [
    "AggregatedEvaluationResult",
    "EvaluationCriteria",
    "EvaluationInput",
    "EvaluationResult",
    "MemoryStats",
    "Message",
    "RunError",
    "Score",
    "ScoreLike",
    "ScoreValue",
    "SpanReference",
    "StreamEnd",
    "ToolCall",
    "Usage",
]
