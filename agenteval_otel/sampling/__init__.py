"""Samplers: whether an answer is evaluated, and with what probability."""

from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.rate_limit import RateLimitSampler
from agenteval_otel.sampling.ratio import RatioSampler, draw_from

__all__ = ["RateLimitSampler", "RatioSampler", "Sampler", "SamplingContext", "SamplingDecision", "draw_from"]
