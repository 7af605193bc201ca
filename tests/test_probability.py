"""Inclusion probabilities: the formulas hold against counted choices, and what is unknown stays
unknown.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models.scoring.probability import (
    independent,
    known,
    nested,
    of_threshold,
    union,
    weight,
)
from agenteval_otel.sampling.trace import Upstream

PROBABILITIES = st.floats(1e-6, 1.0)
MAYBE = st.none() | PROBABILITIES
SPREAD = [(number + 0.5) / 2_000 for number in range(2_000)]


def share(takes: list[bool]) -> float:
    return sum(takes) / len(takes)


@given(st.lists(PROBABILITIES, min_size=1, max_size=5))
def test_choices_by_one_randomness_nest(probabilities: list[float]) -> None:
    """Evenly spread randomness passes all choices with min(p) and any of them with max(p)."""
    every = share([all(u < probability for probability in probabilities) for u in SPREAD])
    some = share([any(u < probability for probability in probabilities) for u in SPREAD])
    assert nested(*probabilities) == pytest.approx(every, abs=1e-3)
    assert union(probabilities) == pytest.approx(some, abs=1e-3)


@given(PROBABILITIES, PROBABILITIES)
def test_independent_choices_multiply(first: float, second: float) -> None:
    """A grid of two randomnesses passes both choices with the product."""
    grid = [(number + 0.5) / 100 for number in range(100)]
    both = share([u < first and v < second for u in grid for v in grid])
    assert independent(first, second) == pytest.approx(both, abs=0.025)


@given(st.lists(MAYBE, max_size=5), st.randoms())
def test_the_order_does_not_matter_and_unknown_stays_unknown(
    values: list[float | None], dice: object
) -> None:
    """Combined in any order the result is the same, lies in (0, 1] or is unknown, and grows with no
    further choice.
    """
    shuffled = sorted(values, key=lambda value: (value is not None, value))[::-1]
    assert nested(*values) == nested(*shuffled)
    assert union(values) == union(shuffled)
    product, again = independent(*values), independent(*shuffled)
    assert product == again or product == pytest.approx(again)
    if None in values:
        assert nested(*values) is independent(*values) is None
        assert union(values) == (1.0 if 1.0 in values else None)
    elif values:
        numbers = [value for value in values if value is not None]
        assert product is not None
        assert 0.0 < product <= min(numbers) == nested(*values)
        assert union(values) == max(numbers)


@given(st.integers(0, (1 << 56) - 1), PROBABILITIES)
def test_sampling_upstream_by_the_same_randomness_nests(threshold: int, ratio: float) -> None:
    """Kept upstream by ``ot=th`` and here by a ratio: min(p); by other randomness the product."""
    upstream = of_threshold(threshold)
    assert upstream is not None
    assert Upstream(upstream, same_randomness=True).applied(ratio) == min(ratio, upstream)
    assert Upstream(upstream).applied(ratio) == pytest.approx(ratio * upstream)
    assert Upstream().applied(ratio) == ratio
    assert Upstream(upstream, same_randomness=True).applied(None) is None
    assert Upstream(unknown="upstream_not_kept").applied(ratio) is None


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0, 1.0), (1 << 55, 0.5), (1 << 56, None), (-1, None)]
)
def test_a_threshold_has_a_probability(threshold: int, expected: float | None) -> None:
    """1 - T / 2^56; what is no threshold of 56 bits has none."""
    assert of_threshold(threshold) == expected


@pytest.mark.parametrize("value", [None, True, "0.5", -0.1, 1.1, math.nan, math.inf, 10**400, 0.0])
def test_what_is_no_probability_is_unknown(value: object) -> None:
    """Samplers from outside may say anything; a sampled response has no probability of 0."""
    assert known(value) is None


@given(PROBABILITIES)
def test_the_weight_undoes_the_probability(probability: float) -> None:
    """A response stands for 1/p; one of unknown probability, or of one too small for floats, for
    itself.
    """
    assert known(probability) == probability
    assert weight(probability) * probability == pytest.approx(1.0)
    assert weight(None) == weight(0.0) == weight(5e-324) == 1.0
    assert known(0.0, sampled=False) == 0.0
