"""Intervals of weighted means."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models.intervals import (
    Estimate,
    UnitSums,
    WeightedSums,
    agresti_coull_interval,
    estimate_of,
    wilson_interval,
)

scores = st.floats(0, 1)
weights = st.floats(1, 50)
scored = st.lists(st.tuples(scores, weights), min_size=1, max_size=40)


def estimated(values: Iterable[tuple[float, float]]) -> Estimate:
    """The estimate of scores with their weights, of which there are some."""
    result = estimate_of(values)
    assert result is not None
    return result


def of_passes(passes: int, trials: int) -> Estimate:
    """The estimate of so many passes among equally weighted trials."""
    return estimated([(1.0, 1.0)] * passes + [(0.0, 1.0)] * (trials - passes))


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


def test_the_interval_of_a_rate_is_wilsons_and_wider_where_one_side_is_rare() -> None:
    """With ten on the rarer side it is Wilson's. With nine it is Agresti's and Coull's, which has the
    same centre, and reaches a rate of 99 % from 48 of 50 (Wilson's ends at 98.9 %).
    """
    often, rarely, rarest = (of_passes(passes, 50) for passes in (40, 41, 48))
    assert (often.low, often.high) == pytest.approx(wilson_interval(0.8, 50))
    low, high = wilson_interval(0.82, 50)
    assert rarely.low + rarely.high == pytest.approx(low + high)
    assert (rarely.low, rarely.high) == pytest.approx((0.68976, 0.90458), abs=5e-5)
    assert rarest.high > 0.99 > wilson_interval(0.96, 50)[1]
    assert rarely.effective == pytest.approx(50)


def test_uneven_sampling_is_undone() -> None:
    """All of the 8 failures and every tenth of the 92 passes: the mean is that of the hundred, not
    of the sample.
    """
    sampled = [(0.0, 1.0)] * 8 + [(1.0, 10.0)] * 9
    result = estimated(sampled)
    assert result.mean == pytest.approx(90 / 98)
    assert result.scores == 17
    assert result.low < 0.92 < result.high
    assert sum(score for score, _ in sampled) / len(sampled) < result.low


@given(scored)
def test_an_interval_holds_its_mean_and_stays_in_range(values: list[tuple[float, float]]) -> None:
    """0 <= low <= mean <= high <= 1, whatever the scores and weights."""
    result = estimated(values)
    assert 0 <= result.low <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.high <= 1
    assert result.effective > 0


@given(scored, st.floats(1, 20))
def test_only_the_ratio_of_weights_matters(
    values: list[tuple[float, float]], factor: float
) -> None:
    """All weights times a factor change neither the mean nor the interval."""
    result = estimated(values)
    scaled = estimated((score, weight * factor) for score, weight in values)
    assert (scaled.mean, scaled.low, scaled.high) == pytest.approx(
        (result.mean, result.low, result.high), abs=1e-6
    )


def test_of_nothing_there_is_no_estimate() -> None:
    """No scores, no mean; of no trials nothing is known."""
    assert estimate_of([]) is None
    assert wilson_interval(0.5, 0) == agresti_coull_interval(0.5, 0) == (0.0, 1.0)
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


def turns(
    rng: random.Random, *, size: int, alike: float, count: int, rate: float
) -> Iterator[tuple[float, int]]:
    """Verdicts of conversations, with their conversation; two of one correlate by `alike`."""
    scale = (1 - alike) / alike
    for number in range(count // size):
        own = rng.betavariate(rate * scale, (1 - rate) * scale)
        for _ in range(size):
            yield float(rng.random() < own), number


@pytest.mark.parametrize(("size", "alike"), [(5, 0.3), (10, 0.6)])
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.97])
def test_the_interval_keeps_its_promise_for_conversations(
    size: int, alike: float, rate: float
) -> None:
    """Of 300 samples of 200 turns at least 92 % hold the truth, where the intervals that take turns
    as independent miss it in one of five, and more.
    """
    rng, by_unit, apart = random.Random(7), 0, 0
    for _ in range(300):
        of_units, of_turns = UnitSums(), WeightedSums()
        for score, number in turns(rng, size=size, alike=alike, count=200, rate=rate):
            of_units.add(score, unit=number)
            of_turns.add(score)
        for sums in (of_units, of_turns):
            result = sums.estimate()
            assert result is not None
            held = result.low <= rate <= result.high
            if sums is of_units:
                by_unit += held
            else:
                apart += held
    assert by_unit >= 0.92 * 300
    assert apart <= 0.9 * 300


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1, 20), st.integers(0, 5)), min_size=1))
def test_sums_of_units_are_those_of_their_scores(scores: list[tuple[float, float, int]]) -> None:
    """In whatever order the scores of units come, mean and variance are those of the formula."""
    sums = UnitSums()
    for score, weight, unit in scores:
        sums.add(score, weight, unit)
    mean = sums.mean()
    assert mean is not None
    total = sum(weight for _, weight, _ in scores)
    of_units: dict[int, float] = {}
    for score, weight, unit in scores:
        of_units[unit] = of_units.get(unit, 0.0) + weight * (score - mean.mean)
    assert mean.units == len(of_units)
    assert mean.between == pytest.approx(
        sum(value * value for value in of_units.values()) / total**2, abs=1e-9
    )


@pytest.mark.parametrize("size", [1, 5])
def test_many_units_are_estimated_from_a_part_of_them(size: int) -> None:
    """Memory is bounded, and the interval is right even where the turns of a unit lie far apart."""
    count = 20_000
    scored = list(turns(random.Random(3), size=size, alike=0.4, count=count, rate=0.9))
    random.Random(5).shuffle(scored)
    part, apart, of_units = UnitSums(), WeightedSums(), Counter[int]()
    for score, unit in scored:
        part.add(score, unit=unit)
        apart.add(score)
        of_units[unit] += int(score)
    exact, estimated = apart.mean(), part.mean()
    assert exact is not None
    assert estimated is not None
    assert (estimated.mean, estimated.apart) == (exact.mean, exact.apart)
    residuals = [passed - size * exact.mean for passed in of_units.values()]
    between = sum(value * value for value in residuals) / count**2
    assert estimated.units == pytest.approx(count / size, rel=0.1)
    assert estimated.kish_units == pytest.approx(count / size, rel=0.1)
    assert estimated.between == pytest.approx(between, rel=0.15)
    assert len(pickle.dumps(part)) < 25 * 2_000  # bytes of so many units, of 4,000 or 20,000


def test_scores_without_a_unit_count_each_beside_units() -> None:
    """A score without a conversation or trace is a unit of its own, and costs no memory."""
    sums, apart = UnitSums(), UnitSums()
    for number in range(50):
        score, weight = float(number % 3 > 0), 1.0 + number % 2
        sums.add(score, weight, None if number % 5 else "c")
        apart.add(score, weight, number if number % 5 else "c")
    assert sums.mean() == pytest.approx(apart.mean())
    assert len(pickle.dumps(sums)) < len(pickle.dumps(apart)) / 2
