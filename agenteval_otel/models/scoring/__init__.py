"""Scoring: scales, normalization to [0, 1], verdicts and labels."""

from agenteval_otel.models.scoring.scales import (
    AgentDockCriteria,
    check_criteria,
    label_of,
    normalize,
    off_scale,
    passed_of,
)

__all__ = [
    "AgentDockCriteria",
    "check_criteria",
    "label_of",
    "normalize",
    "off_scale",
    "passed_of",
]
