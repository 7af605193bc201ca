"""Samplers: whether an answer is evaluated, and with what probability."""

from agenteval_otel.sampling.base import AnswerFacts, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.combined import AnyOfSampler, FirstOfSampler
from agenteval_otel.sampling.conversation import ConversationSampler
from agenteval_otel.sampling.escalation import Escalation
from agenteval_otel.sampling.rate_limit import RateLimitSampler
from agenteval_otel.sampling.ratio import RatioSampler
from agenteval_otel.sampling.results import (
    DisagreementSampler,
    FailureSampler,
    LabelSampler,
    ResultSampler,
    ScoreSampler,
)
from agenteval_otel.sampling.rules import (
    AgentSampler,
    ErrorSampler,
    FunctionSampler,
    PatternSampler,
    RuleSampler,
    SlowSampler,
)
from agenteval_otel.sampling.trace import randomness_of

__all__ = [
    "AgentSampler", "AnswerFacts", "AnyOfSampler", "ConversationSampler", "DisagreementSampler", "ErrorSampler",
    "Escalation", "FailureSampler", "FirstOfSampler", "FunctionSampler", "LabelSampler", "PatternSampler",
    "RateLimitSampler", "RatioSampler", "ResultSampler", "RuleSampler", "Sampler", "SamplingContext",
    "SamplingDecision", "ScoreSampler", "SlowSampler", "randomness_of",
]  # fmt: skip
