"""Scoring: scales, normalization to [0, 1], verdicts, labels, and the strategies of the overall
score.
"""

from agenteval_otel.scoring.aggregation import Aggregation, Scored, WeightedMean, overall_score
from agenteval_otel.scoring.scales import (
    AgentDockCriteria,
    check_criteria,
    label_of,
    normalize,
    off_scale,
    passed_of,
)

__all__ = [
    "AgentDockCriteria", "Aggregation", "Scored", "WeightedMean", "check_criteria", "label_of", "normalize",
    "off_scale", "overall_score", "passed_of",
]  # fmt: skip
