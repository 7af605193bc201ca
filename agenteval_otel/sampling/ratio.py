"""Sampling by ratio, from the response's randomness."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from pydantic import Field

from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, bound_of

__all__ = ["DrawRule", "RatioSampler"]


class DrawRule(NamedTuple):
    """A sampler that looks at nothing but the draw: what it takes, and what it says of it."""

    bound: int
    taken: SamplingDecision


class RatioSampler(Sampler, type="ratio"):
    """Evaluates a fixed share of the responses.

    Attributes:
        ratio: Share in [0, 1]; also the probability that is recorded.
    """

    ratio: float = Field(default=1.0, ge=0, le=1)

    @cached_property
    def _bound(self) -> int:
        return bound_of(self.ratio)

    @cached_property
    def _yes(self) -> SamplingDecision:
        return SamplingDecision(True, self.ratio, "ratio")

    @cached_property
    def _no(self) -> SamplingDecision:
        return SamplingDecision(False, self.ratio, "ratio")

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return self._yes if context.draw < self._bound else self._no

    @property
    def by_draw(self) -> DrawRule | None:
        """`decide` for callers that have the draw alone: a draw below the bound is taken, others are ``not_sampled``.

        None in a subclass that decides in its own way.
        """
        if type(self).decide is not RatioSampler.decide:
            return None
        return DrawRule(self._bound, self._yes)
