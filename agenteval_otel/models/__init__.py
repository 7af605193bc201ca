"""Frozen values: the input, the criteria, scores and results.

Their fields are snake_case in Python and camelCase in JSON.
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
