"""Ground truth: the reference answers that responses are compared with."""

from agenteval_otel.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.ground_truth.file_store import FileGroundTruthStore

__all__ = ["FileGroundTruthStore", "GroundTruth", "GroundTruthStore"]
