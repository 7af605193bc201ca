"""Judges: models that judge an answer.

A judge returns one JSON object or raises a `JudgeError`. It never guesses a score, never outlives
its deadline, and never shows its key. Importing this package loads no vendor. `Judge.prepare` does.
"""

from __future__ import annotations

from agenteval_otel.evaluators.judges.answers import JudgeRequest, Verdict, parse_answer
from agenteval_otel.evaluators.judges.anthropic import AnthropicJudge
from agenteval_otel.evaluators.judges.base import Judge
from agenteval_otel.evaluators.judges.breaker import BreakerSettings
from agenteval_otel.evaluators.judges.budget import SpendLimits
from agenteval_otel.evaluators.judges.cache import CacheSettings
from agenteval_otel.evaluators.judges.hosted import OpenAICompatibleJudge, OpenAIJudge
from agenteval_otel.models.judge_calls import JudgeUsage

__all__ = [
    "AnthropicJudge",
    "BreakerSettings",
    "CacheSettings",
    "Judge",
    "JudgeRequest",
    "JudgeUsage",
    "OpenAICompatibleJudge",
    "OpenAIJudge",
    "SpendLimits",
    "Verdict",
    "parse_answer",
]
