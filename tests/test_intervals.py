"""Intervals of weighted means."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models.intervals import Estimate, WeightedSums, estimate_of, wilson_interval

scores = st.floats(0, 1)
weights = st.floats(1, 50)
scored = st.lists(st.tuples(scores, weights), min_size=1, max_size=40)


def estimated(passes: int, trials: int) -> Estimate:
    """The estimate of so many passes among equally weighted trials."""
    result = estimate_of((1.0 if number < passes else 0.0, 1.0) for number in range(trials))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("passes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_published_intervals_of_one_rate(
    passes: int, trials: int, low: float, high: float
) -> None:
    """The examples that are printed with Wilson's method in the literature come out to the last
    digit.
    """
    assert wilson_interval(passes / trials, trials) == pytest.approx((low, high), abs=5e-5)
    result = estimated(passes, trials)
    assert (result.low, result.high) == pytest.approx((low, high), abs=5e-5)
    assert result.effective == pytest.approx(trials)


def test_uneven_sampling_is_undone() -> None:
    """All of the 8 failures and every tenth of the 92 passes: the mean is that of the hundred, not
    of the sample.
    """
    sampled = [(0.0, 1.0)] * 8 + [(1.0, 10.0)] * 9
    result = estimate_of(sampled)
    assert result is not None
    assert result.mean == pytest.approx(90 / 98)
    assert result.scores == 17
    assert result.low < 0.92 < result.high
    assert sum(score for score, _ in sampled) / len(sampled) < result.low


@given(scored)
def test_an_interval_holds_its_mean_and_stays_in_range(values: list[tuple[float, float]]) -> None:
    """0 <= low <= mean <= high <= 1, whatever the scores and weights."""
    result = estimate_of(values)
    assert result is not None
    assert 0 <= result.low <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.high <= 1
    assert result.effective > 0


@given(scored, st.floats(1, 20))
def test_only_the_ratio_of_weights_matters(
    values: list[tuple[float, float]], factor: float
) -> None:
    """All weights times a factor change neither the mean nor the interval."""
    result = estimate_of(values)
    scaled = estimate_of((score, weight * factor) for score, weight in values)
    assert result is not None
    assert scaled is not None
    assert (scaled.mean, scaled.low, scaled.high) == pytest.approx(
        (result.mean, result.low, result.high), abs=1e-6
    )


def test_of_nothing_there_is_no_estimate() -> None:
    """No scores, no mean; of no trials nothing is known."""
    assert estimate_of([]) is None
    assert wilson_interval(0.5, 0) == (0.0, 1.0)
    assert repr(WeightedSums()) == "<WeightedSums count=0 w=0 wy=0>"


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.97])
def test_the_interval_keeps_its_promise_under_uneven_sampling(rate: float) -> None:
    """Of 300 samples of about 100, a tenth of it taken always and the rest by half, at least 92 %
    hold the truth.
    """
    rng = random.Random(11)
    stack = 0
    for _ in range(300):
        sums = WeightedSums()
        for _ in range(180):
            suspicious = rng.random() < 0.1
            if suspicious or rng.random() < 0.5:
                sums.add(
                    float(rng.random() < (rate / 2 if suspicious else rate)),
                    1.0 if suspicious else 2.0,
                )
        result = sums.estimate()
        assert result is not None
        stack += result.low <= 0.95 * rate <= result.high
    assert stack >= 0.92 * 300
