"""Samplers: whether an answer is evaluated, and with what probability."""

from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.sampling.base import AnswerFacts, Sampler, SamplingContext
from agenteval_otel.sampling.combined import ConversationSampler, FirstOfSampler
from agenteval_otel.sampling.escalation import Escalation, ResultSampler
from agenteval_otel.sampling.ratio import RateLimitSampler, RatioSampler
from agenteval_otel.sampling.rules import (
    AgentSampler,
    AnnotationSampler,
    ErrorSampler,
    FunctionSampler,
    PatternSampler,
    RuleSampler,
    SlowSampler,
)

__all__ = [
    "AgentSampler",
    "AnnotationSampler",
    "AnswerFacts",
    "ConversationSampler",
    "ErrorSampler",
    "Escalation",
    "FirstOfSampler",
    "FunctionSampler",
    "PatternSampler",
    "RateLimitSampler",
    "RatioSampler",
    "ResultSampler",
    "RuleSampler",
    "Sampler",
    "SamplingContext",
    "SamplingDecision",
    "SlowSampler",
]
