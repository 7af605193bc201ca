"""Samplers: whether an answer is evaluated, and with what probability.

What few settings name is imported with the first use of it.
"""

from typing import TYPE_CHECKING

from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.runtime.lazy import importing
from agenteval_otel.sampling.base import AnswerFacts, Sampler, SamplingContext
from agenteval_otel.sampling.escalation import Escalation, ResultSampler
from agenteval_otel.sampling.ratio import RateLimitSampler, RatioSampler
from agenteval_otel.sampling.rule import RuleSampler

if TYPE_CHECKING:
    from agenteval_otel.sampling.combined import ConversationSampler, FirstOfSampler
    from agenteval_otel.sampling.rules import (
        AgentSampler,
        AnnotationSampler,
        ErrorSampler,
        FunctionSampler,
        PatternSampler,
        SlowSampler,
    )

_SAMPLERS = {
    "agent": ("rules", "AgentSampler"),
    "annotation": ("rules", "AnnotationSampler"),
    "conversation": ("combined", "ConversationSampler"),
    "error": ("rules", "ErrorSampler"),
    "first_of": ("combined", "FirstOfSampler"),
    "function": ("rules", "FunctionSampler"),
    "pattern": ("rules", "PatternSampler"),
    "slow": ("rules", "SlowSampler"),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, name in _SAMPLERS.values()}
for _type, (_module, _) in _SAMPLERS.items():
    Sampler.registry.announce(f"{__name__}.{_module}", _type)
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

__getattr__ = importing(globals(), _MODULE_OF)
