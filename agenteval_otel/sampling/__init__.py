"""Samplers: whether an answer is evaluated, and with what probability."""

from agenteval_otel.sampling.base import AnswerFacts, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.combined import AnyOfSampler, FirstOfSampler
from agenteval_otel.sampling.conversation import ConversationSampler
from agenteval_otel.sampling.rate_limit import RateLimitSampler
from agenteval_otel.sampling.ratio import RatioSampler, draw_from
from agenteval_otel.sampling.rules import (
    AgentSampler,
    ErrorSampler,
    FunctionSampler,
    PatternSampler,
    RuleSampler,
    SlowSampler,
)

__all__ = [
    "AgentSampler",
    "AnswerFacts",
    "AnyOfSampler",
    "ConversationSampler",
    "ErrorSampler",
    "FirstOfSampler",
    "FunctionSampler",
    "PatternSampler",
    "RateLimitSampler",
    "RatioSampler",
    "RuleSampler",
    "Sampler",
    "SamplingContext",
    "SamplingDecision",
    "SlowSampler",
    "draw_from",
]
