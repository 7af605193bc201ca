"""Contract of samplers: whether an answer is evaluated, and with what probability.

`decide` runs on the caller's thread before the handler is called: it must not block, and what it raises is counted,
never passed on. A draw is a number that belongs to the response (made from its trace id), so that smaller ratios nest
inside larger ones and every process decides alike.
"""

from __future__ import annotations

from typing import NamedTuple

from agenteval_otel.components import Component
from agenteval_otel.semconv import NOT_SAMPLED

__all__ = ["DRAW_RANGE", "Sampler", "SamplingContext", "SamplingDecision", "bound_of"]

DRAW_RANGE = 1 << 64


class SamplingContext(NamedTuple):
    """What is known before the handler runs: the agent's name and the draw, uniform in [0, 2^64)."""

    agent: str
    draw: int


class SamplingDecision(NamedTuple):
    """Whether, how likely, why.

    Attributes:
        sampled: Evaluate this response.
        probability: Inclusion probability relative to the responses that this process saw; None when unknown.
        reason: A short word for the telemetry.
        outcome: How the call is counted when it is not sampled.
    """

    sampled: bool
    probability: float | None
    reason: str
    outcome: str = NOT_SAMPLED


class Sampler(Component, contract="sampler"):
    """Decides which responses are evaluated. Implement `decide`."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        """Decide on the caller's thread; must return at once."""
        raise NotImplementedError


def bound_of(ratio: float) -> int:
    """The draw below which a ratio samples: ratio x 2^64, rounded as OpenTelemetry's SDK rounds it."""
    return round(ratio * DRAW_RANGE)
