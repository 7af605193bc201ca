"""Thinning: the share that is asked for, shares that nest, and probabilities that stay true."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.restraint.thinning import thinned
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.sampling.base import DRAW_RANGE, bound_of
from agenteval_otel.semconv import DROPPED_STEPDOWN

DRAWS = st.integers(0, DRAW_RANGE - 1)
SHARES = st.floats(0, 1)


@given(DRAWS, SHARES, SHARES, st.floats(0.01, 1))
def test_a_smaller_share_is_part_of_a_larger_one(draw: int, one: float, other: float, probability: float) -> None:
    """What goes on at a small share goes on at a larger one, where the draw decided."""
    if draw >= bound_of(probability):
        return
    decision = SamplingDecision(True, probability, "ratio")
    small, large = (thinned(decision, draw, share) for share in sorted((one, other)))
    assert large.sampled or not small.sampled


@given(DRAWS, SHARES, st.floats(0.01, 1))
def test_the_probability_is_the_product(draw: int, share: float, probability: float) -> None:
    """Kept or not, the decision carries probability times share; what is not kept has its outcome."""
    found = thinned(SamplingDecision(True, probability, "ratio"), draw, share)
    assert found.probability == probability * share
    assert found.reason == "ratio"
    assert found.sampled or found.outcome == DROPPED_STEPDOWN


def test_the_decisions_own_draw_counts() -> None:
    """A sampler that draws for a whole conversation is cut by that draw, not by the response's."""
    decision = SamplingDecision(True, 0.5, "conversation", draw=bound_of(0.1))
    assert thinned(decision, bound_of(0.4), 0.5).sampled
    assert not thinned(decision, 0, 0.1).sampled


@pytest.mark.parametrize("probability", [None, 0.3])
def test_a_sampler_that_draws_by_itself_is_thinned_by_the_share(probability: float | None) -> None:
    """Where the draw says nothing about the decision, exactly the share of what was sampled goes on."""
    dice = random.Random(5)
    decision = SamplingDecision(True, probability, "function")
    kept = sum(thinned(decision, dice.getrandbits(64), 0.25).sampled for _ in range(20_000))
    assert abs(kept / 20_000 - 0.25) < 0.02


def test_unknown_stays_unknown() -> None:
    """Without a probability there is none afterwards."""
    assert thinned(SamplingDecision(True, None, "function"), 0, 0.5).probability is None
