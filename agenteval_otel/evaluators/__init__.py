"""Evaluators: an input in, results out. One file each; the contract is in `base`.

Importing this room puts its evaluators into the contract's registry, so that configuration finds them by ``type``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from agenteval_otel.evaluators.base import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.func import Func, as_evaluator
from agenteval_otel.evaluators.health import ResponseHealth
from agenteval_otel.evaluators.keywords import KeywordCoverage
from agenteval_otel.evaluators.llm_judge import LLMJudge
from agenteval_otel.evaluators.operational import CompletedWithin, Contains, CostWithin, ExactMatch
from agenteval_otel.evaluators.rubric import Rubric
from agenteval_otel.evaluators.rule_based import RuleBased
from agenteval_otel.evaluators.semantic import NLPAccuracy
from agenteval_otel.evaluators.sentiment import Sentiment
from agenteval_otel.evaluators.similarity import LexicalSimilarity
from agenteval_otel.evaluators.tool_usage import ToolUsage
from agenteval_otel.evaluators.tool_use import ToolUse
from agenteval_otel.evaluators.toxicity import Toxicity

__all__ = [
    "CompletedWithin",
    "Contains",
    "CostWithin",
    "CriterionEvaluator",
    "Evaluator",
    "ExactMatch",
    "Func",
    "KeywordCoverage",
    "LLMJudge",
    "LexicalSimilarity",
    "NLPAccuracy",
    "ResponseHealth",
    "Rubric",
    "RuleBased",
    "Sentiment",
    "ToolUsage",
    "ToolUse",
    "Toxicity",
    "as_evaluator",
]


def __getattr__(name: str) -> Any:
    # A suite runs evaluators, so it stands in the runner's room, above; it is looked for here, beside what it runs.
    if name in ("Suite", "SuiteResult"):
        return getattr(import_module("agenteval_otel.runner"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
