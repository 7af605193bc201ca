"""Thinning: the share that was asked for goes on, shares nest, and probabilities stay true."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.pipeline.load_shedding import thinned
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.sampling.base import RANDOMNESS_RANGE, threshold_of
from agenteval_otel.semconv import SHED

DRAWS = st.integers(0, RANDOMNESS_RANGE - 1)
SHARES = st.floats(0, 1)


@given(DRAWS, SHARES, SHARES, st.floats(0.01, 1))
def test_a_smaller_share_is_part_of_a_larger_one(
    randomness: int, item: float, other: float, probability: float
) -> None:
    if randomness >= threshold_of(probability):
        return
    decision = SamplingDecision(True, probability, "ratio")
    small, large = (thinned(decision, randomness, share) for share in sorted((item, other)))
    assert large.sampled or not small.sampled
    assert large.probability == probability * max(item, other)
    assert large.sampled or large.outcome == SHED


def test_the_decisions_own_draw_counts() -> None:
    """A sampler that draws for a whole conversation is cut by that draw, not by the response's."""
    decision = SamplingDecision(True, 0.5, "conversation", randomness=threshold_of(0.1))
    assert thinned(decision, threshold_of(0.4), 0.5).sampled
    assert not thinned(decision, 0, 0.1).sampled


@pytest.mark.parametrize("probability", [None, 0.3])
def test_a_sampler_that_draws_by_itself_is_thinned_by_the_share(probability: float | None) -> None:
    dice = random.Random(5)
    decision = SamplingDecision(True, probability, "function")
    kept = sum(thinned(decision, dice.getrandbits(64), 0.25).sampled for _ in range(20_000))
    assert abs(kept / 20_000 - 0.25) < 0.02
    if probability is None:
        assert thinned(decision, 0, 0.5).probability is None


@settings(deadline=None)  # thousands of draws: a busy machine takes longer
@given(st.lists(SHARES, min_size=1, max_size=4), st.floats(0.05, 1), st.integers(0, 2**32))
def test_weighted_counts_are_unbiased(shares: list[float], probability: float, seed: int) -> None:
    """However often the share changes, responses weighted by 1/probability add up to all responses, within 5 sigma."""
    dice, calls = random.Random(seed), 4_000
    estimate = variance = 0.0
    for number in range(calls):
        share, randomness = max(0.05, shares[number % len(shares)]), dice.getrandbits(64)
        if randomness >= threshold_of(probability):
            continue
        decision = thinned(SamplingDecision(True, probability, "ratio"), randomness, share)
        if decision.sampled:
            assert decision.probability is not None
            estimate += 1 / decision.probability
    variance = sum(1 / (probability * max(0.05, share)) - 1 for share in shares) / len(shares) * calls
    assert abs(estimate - calls) <= 5 * variance**0.5 + 1e-6
