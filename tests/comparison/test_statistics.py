"""Differences of weighted means, tests and sizes, against published figures and against simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models.intervals import UnitMean
from agenteval_otel.offline.comparison import statistics
from agenteval_otel.offline.comparison.statistics import Array, Clusters, Difference
from agenteval_otel.storage.summaries import ScoreColumns, summarise


def scores_of(
    scores: list[float] | Array, weights: list[float] | Array | None = None
) -> ScoreColumns:
    """Return scores of one criterion, a cluster each."""
    values = np.array(scores, dtype=float)
    own = np.ones(len(values)) if weights is None else np.array(weights, dtype=float)
    numbers = np.arange(len(values))
    return ScoreColumns(values, own, numbers, np.ones(len(values), np.bool_), numbers * 0)


def clusters(scores: list[float] | Array) -> Clusters:
    """Clusters of one score each."""
    return statistics.clusters_of(scores_of(scores), 1)


def mean_of(scores: ScoreColumns) -> UnitMean:
    (mean,) = summarise(scores, 1)
    assert mean is not None
    return mean


def rate(passes: int, trials: int) -> UnitMean:
    return mean_of(scores_of([1.0] * passes + [0.0] * (trials - passes)))


def test_the_published_interval_of_a_rare_rate() -> None:
    """Newcombe (1998), method 10, of 0/29 and 1/10 as printed there with the signs of our B minus
    A.
    """
    difference = statistics.unpaired(rate(0, 10), rate(0, 20))
    assert (difference.low, difference.high) == pytest.approx((-0.2775, 0.1611), abs=5e-4)
    difference = statistics.unpaired(rate(9, 10), rate(3, 10))
    assert difference.value == pytest.approx(-0.6)
    # by G / (G - 1) wider
    assert (difference.low, difference.high) == pytest.approx((-0.8090, -0.1705), abs=0.025)


def test_an_interval_of_many_is_students() -> None:
    """Of 40 and 60 scores: Welch's interval, as textbooks compute it."""
    random = np.random.default_rng(1)
    a, b = random.uniform(0.2, 0.9, 40), random.uniform(0.1, 0.7, 60)
    difference = statistics.unpaired(mean_of(scores_of(a)), mean_of(scores_of(b)))
    error = np.sqrt(a.var(ddof=1) / 40 + b.var(ddof=1) / 60)
    assert difference.error == pytest.approx(error)
    # t of 78 degrees
    assert difference.high - difference.value == pytest.approx(1.991 * error, rel=0.002)


def test_a_conversation_counts_as_one_draw() -> None:
    """Eight equal answers in each conversation make the interval no narrower than one."""
    single = mean_of(scores_of([1.0, 0.0] * 20))
    turns = scores_of([1.0, 0.0] * 160)
    together = mean_of(turns._replace(units=turns.units % 40))
    assert (together.mean, together.variance) == pytest.approx((single.mean, single.variance))
    assert together.kish_units == single.kish_units == 40


def test_uneven_sampling_is_undone() -> None:
    """Half of the failures and a twentieth of the passes: the means are those of all, with the
    right interval.

    Of 300 intervals of 95 % a right method holds less than 91 % or more than 98.5 % once in 500.
    """
    random = np.random.default_rng(2)

    def sampled_mean(share: float) -> UnitMean:
        scores = (random.random(1_000) < share).astype(float)
        probability = np.where(scores == 1, 0.05, 0.5)
        seen = random.random(1_000) < probability
        return mean_of(scores_of(scores[seen], 1 / probability[seen]))

    held = 0
    for _ in range(300):
        difference = statistics.unpaired(sampled_mean(0.9), sampled_mean(0.8))
        held += difference.low <= -0.1 <= difference.high
    assert 0.91 <= held / 300 <= 0.985


def test_signs_of_few_pairs_are_exact() -> None:
    """Of five pairs that all drop, two of the 32 signs are as far from nothing."""
    p = statistics.flipped_signs(clusters([-1.0] * 5 + [0.0] * 20), np.random.default_rng(1))
    assert p[0] == pytest.approx(2 / 32, abs=0.01)
    assert statistics.flipped_signs(clusters([0.0] * 9), np.random.default_rng(1))[0] == 1.0


def test_labels_of_few_are_exact() -> None:
    """All 70 ways to label eight scores: the p-value is the share of those that are as far apart."""
    values = np.array([0.1, 0.2, 0.25, 0.4, 0.5, 0.7, 0.8, 0.9])

    def gap(chosen: tuple[int, ...]) -> float:
        a, b = np.delete(values, chosen), values[list(chosen)]
        return float(abs(b.mean() - a.mean()) / np.sqrt(a.var(ddof=1) + b.var(ddof=1)))

    gaps = [gap(chosen) for chosen in itertools.combinations(range(8), 4)]
    larger = sum(each >= gap((4, 5, 6, 7)) - 1e-9 for each in gaps)
    p = statistics.permuted_labels(
        clusters(values[:4]), clusters(values[4:]), np.random.default_rng(1)
    )
    assert p[0] == pytest.approx(larger / 70, abs=0.01)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0] * 9, [1.0] * 9), ([1.0], [0.0]), ([0.5] * 3, [0.5] * 4)]
)
def test_no_spread_is_no_claim(a: list[float], b: list[float]) -> None:
    """Equal scores, and one score a side, give a p-value and an interval that say nothing."""
    p = statistics.permuted_labels(clusters(a), clusters(b), np.random.default_rng(1))
    difference = statistics.unpaired(mean_of(scores_of(a)), mean_of(scores_of(b)))
    assert p[0] == 1.0
    assert difference.low < 0 < difference.high or difference.error == 0


def test_holm() -> None:
    """The example of the method: ordered p-values times what is left, never falling."""
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_a_corrected_p_value_is_never_smaller(values: list[float]) -> None:
    corrected = statistics.holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, corrected, strict=True))


def test_a_sequential_interval_is_wider_and_few_conclude_nothing() -> None:
    difference = Difference(-0.1, -0.16, -0.04, 0.03)
    at_100, p = statistics.at_any_time(difference, 100)
    assert at_100.low < difference.low
    assert at_100.high > difference.high
    assert 0.05 < p < 0.3
    assert (at_100.high < 0) is (p <= 0.05)
    assert statistics.at_any_time(difference._replace(value=-0.2), 100)[1] < 0.001
    few, p = statistics.at_any_time(difference, 19)
    assert (few.low, few.high, p) == (-1.0, 1.0, 1.0)


def test_the_split_of_an_experiment() -> None:
    """Chi-square with one degree of freedom: 821 and 780 of a half each is chance, 821 and 680 is
    not.
    """
    assert statistics.balance((821, 780), (0, 0), 0.5) == pytest.approx(0.3055, abs=1e-3)
    assert statistics.balance((821, 680), (0, 0), 0.5) < statistics.MISMATCH
    assert statistics.balance((90, 10), (0, 0), 0.1) == pytest.approx(1.0)


def test_more_claims_and_fewer_answers_find_larger_drops_only() -> None:
    a, b = rate(90, 100), rate(90, 100)
    one, ten = (
        statistics.detectable(statistics.unpaired(a, b), a.estimate(), b.estimate(), n)
        for n in (1, 10)
    )
    large = rate(900, 1_000)
    found = statistics.detectable(
        statistics.unpaired(large, large), large.estimate(), large.estimate(), 1
    )
    assert found < one < ten
    # 199 a side find .90 to .80: half as many sqrt(2) times that
    assert one == pytest.approx(0.15, abs=0.015)
