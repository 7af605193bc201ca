"""Contract of samplers by rule: what they match, and which share of it they sample."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.sampling.base import Sampler, SamplingContext, threshold_of


class RuleSampler(Sampler):
    """Samples a share of the responses that it matches, and has no say on others.

    Implement `matches`.

    Attributes:
        ratio: Share in [0, 1] of the responses that match.
    """

    ratio: float = Field(default=1.0, ge=0, le=1)

    @cached_property
    def _decisions(self) -> dict[tuple[bool | None, bool], SamplingDecision]:
        """Return the decisions by what `matches` says and whether the share includes the call.

        They are built once, because every call asks.
        """
        sampled = SamplingDecision(True, self.ratio, self.type)
        no_say = SamplingDecision(False, None, self.type, applies=False)
        unsettled = no_say._replace(settled=False)
        return {
            (True, True): sampled,
            (True, False): sampled._replace(sampled=False),
            (False, True): no_say,
            (False, False): no_say,
            (None, True): unsettled._replace(sampled=True),
            (None, False): unsettled,
        }

    @cached_property
    def _threshold(self) -> int:
        return threshold_of(self.ratio)

    def decide(self, context: SamplingContext) -> SamplingDecision:
        is_in_share = context.randomness < self._threshold
        return self._decisions[self.matches(context), is_in_share]

    @property
    def least_probability(self) -> float | None:
        return self.ratio

    def matches(self, context: SamplingContext) -> bool | None:
        """Tell whether the rule matches. Return None while too little is known."""
        raise NotImplementedError
