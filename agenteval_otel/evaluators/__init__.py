"""Evaluators: an input in, a score out."""

from agenteval_otel.evaluators.base import CriterionEvaluator, Evaluator

__all__ = ["CriterionEvaluator", "Evaluator"]
