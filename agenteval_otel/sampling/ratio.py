"""Sampling by ratio, from the response's randomness."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from pydantic import Field

from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, threshold_of

__all__ = ["RatioSampler", "ThresholdRule"]


class ThresholdRule(NamedTuple):
    """A sampler that depends on randomness alone: it samples below `threshold`, with the decision `sampled`."""

    threshold: int
    sampled: SamplingDecision


class RatioSampler(Sampler, type="ratio"):
    """Evaluates a fixed share of the responses.

    Attributes:
        ratio: Share in [0, 1]; also the probability that is recorded.
    """

    ratio: float = Field(default=1.0, ge=0, le=1)

    def __str__(self) -> str:
        return f"{self.ratio * 100:g} % of the calls"

    @cached_property
    def _threshold(self) -> int:
        return threshold_of(self.ratio)

    @cached_property
    def _yes(self) -> SamplingDecision:
        return SamplingDecision(True, self.ratio, "ratio")

    @cached_property
    def _no(self) -> SamplingDecision:
        return SamplingDecision(False, self.ratio, "ratio")

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return self._yes if context.randomness < self._threshold else self._no

    @property
    def by_randomness(self) -> ThresholdRule | None:
        """`decide` for callers that have the draw alone: a draw below the bound is taken, others are ``not_sampled``.

        None in a subclass that decides in its own way.
        """
        if type(self).decide is not RatioSampler.decide:
            return None
        return ThresholdRule(self._threshold, self._yes)
