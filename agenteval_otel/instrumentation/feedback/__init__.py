"""Scores that people and the application give by themselves, beside those of evaluators."""

from agenteval_otel.instrumentation.feedback.record import (
    record_feedback,
    record_ground_truth,
    record_score,
)

__all__ = ["record_feedback", "record_ground_truth", "record_score"]
