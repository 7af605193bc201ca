"""Ground truth: the reference answers that responses are compared with."""

from agenteval_otel.evaluators.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.evaluators.ground_truth.file_store import FileGroundTruthStore
from agenteval_otel.evaluators.ground_truth.sql_store import SqlGroundTruthStore

__all__ = ["FileGroundTruthStore", "GroundTruth", "GroundTruthStore", "SqlGroundTruthStore"]
