"""Thinning: of what a sampler took, take a share, and keep the probability true."""

from __future__ import annotations

import os
import random

from agenteval_otel.sampling.base import SamplingDecision, bound_of
from agenteval_otel.scoring.probability import independent
from agenteval_otel.semconv import DROPPED_STEPDOWN

__all__ = ["thinned"]

_random = random.Random()
# A forked child would otherwise repeat its siblings' numbers.
os.register_at_fork(after_in_child=_random.seed)


def thinned(decision: SamplingDecision, draw: int, share: float) -> SamplingDecision:
    """The decision with `share` of its probability, or one that samples nothing, counted as ``dropped_stepdown``.

    Cut from the response's own draw where that decided, so that what is left of a small share is part of what is left
    of a larger one. A draw above the probability tells of a sampler that drew by itself: then we do too.

    Args:
        decision: One that samples and is settled.
        draw: The response's, in [0, 2^64).
        share: In [0, 1].
    """
    probability = decision.probability
    if probability is not None:
        lower = independent(probability, share) or 0.0
        if decision.draw is not None:
            draw = decision.draw
        goes_on = draw < bound_of(lower) if draw < bound_of(probability) else _random.random() < share
    else:
        lower, goes_on = None, _random.random() < share
    if goes_on:
        return decision._replace(probability=lower)
    return decision._replace(sampled=False, probability=lower, outcome=DROPPED_STEPDOWN)
