"""Comparison of evaluated answers.

It compares two versions, two runs, two arms of an experiment, or two evaluators.
"""

from agenteval_otel.offline.comparison.answers import (
    Answer,
    ComparedSource,
    Filters,
    answer_of_result,
    arms_of,
)
from agenteval_otel.offline.comparison.compare import Comparison, Options, compare, shadow_sides

__all__ = [
    "Answer",
    "ComparedSource",
    "Comparison",
    "Filters",
    "Options",
    "answer_of_result",
    "arms_of",
    "compare",
    "shadow_sides",
]
