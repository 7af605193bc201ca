"""Evaluators: an input in, results out. One file each; the contract is in `base`.

Importing this room puts its evaluators into the contract's registry, so that configuration finds them by ``type``.
"""

from __future__ import annotations

from agenteval_otel.evaluators.base import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.func import Func, as_evaluator
from agenteval_otel.evaluators.health import ResponseHealth
from agenteval_otel.evaluators.keywords import KeywordCoverage
from agenteval_otel.evaluators.rule_based import RuleBased

__all__ = [
    "CriterionEvaluator",
    "Evaluator",
    "Func",
    "KeywordCoverage",
    "ResponseHealth",
    "RuleBased",
    "as_evaluator",
]
