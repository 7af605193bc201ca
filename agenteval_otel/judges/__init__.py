"""Judges: models that are asked to judge an answer, met here and nowhere else.

`base` holds the contract and the values that are exchanged; `hosted` what providers have in common, with one module for
each; `given` takes other people's objects; `answers` reads what a model wrote. Runs on the event loop of async
evaluators. A judge gives one JSON object or a `JudgeError` that says which way it failed; it never guesses, never
outlives its deadline, and never shows its key. Importing this room loads no vendor; the first question does.
"""

from __future__ import annotations

from agenteval_otel.judges.adapter import CallableJudge, as_judge
from agenteval_otel.judges.answers import parse_answer
from agenteval_otel.judges.anthropic import AnthropicJudge
from agenteval_otel.judges.base import ERROR_TYPES, Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.judges.breaker import BreakerSettings
from agenteval_otel.judges.cache import CacheSettings
from agenteval_otel.judges.guarded import Guarded
from agenteval_otel.judges.openai_compatible import OpenAICompatibleJudge
from agenteval_otel.judges.spend import SpendLimits

__all__ = [
    "ERROR_TYPES",
    "AnthropicJudge",
    "BreakerSettings",
    "CacheSettings",
    "CallableJudge",
    "Guarded",
    "Judge",
    "JudgeRequest",
    "JudgeUsage",
    "OpenAICompatibleJudge",
    "SpendLimits",
    "Verdict",
    "as_judge",
    "parse_answer",
]
