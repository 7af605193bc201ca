"""The public names of `agenteval_otel.evaluators.ground_truth`."""

from agenteval_otel.evaluators.ground_truth import (
    FileGroundTruthStore,
    GroundTruth,
    GroundTruthStore,
    SqlGroundTruthStore,
)

__all__ = [
    "FileGroundTruthStore",
    "GroundTruth",
    "GroundTruthStore",
    "SqlGroundTruthStore",
]
