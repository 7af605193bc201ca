"""Differences of weighted means, with intervals by clusters, tests and detectable sizes.

Differences are tested by permutation, or by intervals that hold at any time. `holm` corrects the
p-values. A cluster is what was drawn or assigned
together, such as a conversation. All arrays have a row for each cluster and a column for each
criterion. A cluster without scores of a criterion has the weight 0 there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agenteval_otel.models.intervals import Estimate, UnitMean, is_rare, student95, wilson_interval
from agenteval_otel.storage.summaries import ScoreColumns

Array = npt.NDArray[np.float64]

ALPHA = 0.05
POWER = 0.8
MISMATCH = 0.001
"""A split of the arms that is less likely than this is a fault of the assignment, not chance."""
_Z = NormalDist().inv_cdf
# permutations, and how many cluster labels are drawn at most
_MOST = 9_999
_LEAST = 1_999
_WORK = 20_000_000
_CHUNK = 4_000_000
_FEW_SCORES = 5.0
_FEW_PAIRS = 5.0
_STEPS = 30  # of the fixed point
_FEWEST = 20.0  # the minimum number of clusters for `at_any_time`
_UNIT = 100.0  # clusters: the unit of its ratio r
_NOTHING = 1e-12


class Clusters(NamedTuple):
    """Holds sums over the scores of each cluster: of their weights, and of weight times score."""

    weights: Array
    sums: Array


def clusters_of(scores: ScoreColumns, criteria: int) -> Clusters:
    """Return the sums of each unit of the scores, with a column for each of so many groups."""
    places = scores.units.astype(np.int64) * criteria + scores.groups
    length = (int(scores.units.max(initial=-1)) + 1) * criteria
    weights = np.bincount(places, scores.weights, length).astype(np.float64)
    sums = np.bincount(places, scores.weights * scores.values, length).astype(np.float64)
    return Clusters(weights.reshape(-1, criteria), sums.reshape(-1, criteria))


class Difference(NamedTuple):
    """Holds B minus A, -1 to 1, with its 95 % interval and standard error."""

    value: float
    low: float
    high: float
    error: float


def unpaired(a: UnitMean, b: UnitMean) -> Difference:
    """Return the difference of two independent means.

    m_B - m_A +- t sqrt(V_A + V_B), with Welch's degrees of freedom over Kish's number of clusters.
    Where fewer than five scores stand on the rarer side of a mean it is Newcombe's interval (1998),
    from Wilson's intervals of both.
    """
    value = b.mean - a.mean
    variance = a.variance + b.variance
    if not math.isfinite(variance):
        return Difference(value, -1.0, 1.0, math.inf)
    error = math.sqrt(variance)
    if is_rare(a.mean, a.kish, _FEW_SCORES) or is_rare(b.mean, b.kish, _FEW_SCORES):
        low_a, high_a = wilson_interval(a.mean, a.estimate().effective)
        low_b, high_b = wilson_interval(b.mean, b.estimate().effective)
        low = value - math.hypot(b.mean - low_b, high_a - a.mean)
        high = value + math.hypot(high_b - b.mean, a.mean - low_a)
        error_of_interval = (high - low) / (2 * _Z(1 - ALPHA / 2))
        return Difference(value, low, high, max(error, error_of_interval))
    parts = ((a.variance, a.kish_units), (b.variance, b.kish_units))
    freedom = variance**2 / sum(part**2 / max(count - 1, 1.0) for part, count in parts)
    return _with_interval(value, error, freedom)


def paired(mean: UnitMean, pairs: Clusters, column: int) -> Difference:
    """Return the mean of the differences within pairs, with Student's interval over their clusters.

    Where fewer than five pairs differ, two more of average weight that differ, one in each
    direction, widen it.
    """
    if not math.isfinite(mean.variance):
        return Difference(mean.mean, -1.0, 1.0, math.inf)
    differing = pairs.weights[np.abs(pairs.sums[:, column]) > _NOTHING, column]
    is_few = True
    if differing.size > 0:
        effective = differing.sum() ** 2 / (differing * differing).sum()
        is_few = bool(effective < _FEW_PAIRS)
    variance = mean.variance
    if is_few:
        variance += 2 / mean.kish_units**2
    return _with_interval(mean.mean, math.sqrt(variance), mean.kish_units - 1)


def _with_interval(value: float, error: float, freedom: float) -> Difference:
    half = student95(freedom) * error
    return Difference(value, max(-1.0, value - half), min(1.0, value + half), error)


def p_value(difference: Difference) -> float:
    """Return the two-sided p-value of "there is no difference", by the normal distribution.

    It is for more answers than can be permuted.
    """
    if difference.error == 0 or not math.isfinite(difference.error):
        return 1.0 if difference.value == 0 or difference.error else 0.0
    return math.erfc(abs(difference.value) / difference.error / math.sqrt(2))


# --- tests
# ------------------------------------------------------------------------------------------------------------
def permuted_labels(
    a: Clusters, b: Clusters, random: np.random.Generator, *, most: int = _MOST
) -> Array:
    """Return for each criterion the two-sided p-value of "both sides have one mean".

    At most `most` permutations are tried.

    The labels A and B are permuted among the clusters. The statistic is the difference over its
    standard error, which keeps the test right where the sides differ in their spread or weights
    (Janssen 1997).
    """
    weights = np.vstack([a.weights, b.weights])
    sums = np.vstack([a.sums, b.sums])
    columns = np.hstack([weights, sums, weights**2, weights * sums, sums**2, weights > 0])
    total = columns.sum(axis=0)
    labels: npt.NDArray[Any] = np.zeros(len(weights), dtype=np.float32)
    labels[len(a.weights) :] = 1.0
    observed = _studentized(labels[None, :] @ columns, total)[0]
    count = min(most, _permutations(len(labels)))
    larger = np.zeros(weights.shape[1])
    rows = max(1, _CHUNK // len(labels))
    for start in range(0, count, rows):
        unpermuted = np.tile(labels, (min(rows, count - start), 1))
        drawn: npt.NDArray[Any] = random.permuted(unpermuted, axis=1)
        statistic = _studentized(drawn @ columns, total)
        larger += (statistic >= observed - _NOTHING).sum(axis=0)
    return np.asarray((larger + 1) / (count + 1), dtype=float)


def _studentized(of_b: npt.NDArray[Any], total: Array) -> Array:
    """Return |m_B - m_A| over its standard error, for sums over the clusters of B and over all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = []
        variances = []
        for part in (total - of_b, of_b):
            w, s, ww, ws, ss, n = np.split(part, 6, axis=1)
            mean = s / w
            squares = ss - 2 * mean * ws + mean**2 * ww
            means.append(mean)
            variances.append(np.maximum(squares, 0.0) / w**2 * n / np.maximum(n - 1, 1))
        gap = np.abs(means[1] - means[0])
        ratio = gap / np.sqrt(variances[0] + variances[1])
    # Without any spread a difference is as large as can be; without a difference, or with an empty
    # side, it is 0.
    without_spread = np.where(gap > _NOTHING, np.inf, 0.0)
    return np.where(np.isnan(ratio), without_spread, ratio)


def flipped_signs(pairs: Clusters, random: np.random.Generator, *, most: int = _MOST) -> Array:
    """Return for each criterion the two-sided p-value of "A and B can be exchanged within a pair".

    Signs are flipped by clusters of pairs, at most `most` times.
    """
    sums = pairs.sums[np.abs(pairs.sums).max(axis=1) > _NOTHING]
    observed = np.abs(sums.sum(axis=0))
    if not len(sums):
        return np.ones(pairs.sums.shape[1])
    count = min(most, _permutations(len(sums)))
    larger = np.zeros(sums.shape[1])
    rows = max(1, _CHUNK // len(sums))
    for start in range(0, count, rows):
        signs = random.integers(0, 2, (min(rows, count - start), len(sums)), dtype=np.int8)
        flipped = 2.0 * (signs.astype(np.float32) @ sums) - sums.sum(axis=0)
        larger += (np.abs(flipped) >= observed - 1e-9).sum(axis=0)
    return np.asarray((larger + 1) / (count + 1), dtype=float)


def _permutations(clusters: int) -> int:
    return min(_MOST, max(_LEAST, _WORK // max(clusters, 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) corrected p-values.

    Of all claims at a level, at most that share of runs has a wrong one.
    """
    corrected = [1.0] * len(p_values)
    largest = 0.0
    smallest_first = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(smallest_first):
        remaining = len(p_values) - rank
        largest = max(largest, min(1.0, p_values[index] * remaining))
        corrected[index] = largest
    return corrected


def detectable(
    difference: Difference, a: Estimate, b: Estimate, claims: int, *, pairs: int | None = None
) -> float:
    """Return the drop that is found in 80 % of such comparisons, at 5 % over so many claims.

    At most 1.

    d = (z(1 - alpha / 2 claims) + z(0.8)) * the standard error at a drop of d, plus half a step of
    each side's scores, since passes and failures have few p-values. A drop adds to the variance of
    B as m (1 - m) grows, or makes a share d more of the pairs differ. For few clusters or any
    number of looks, the wider interval sets the first quantile: its half width over the error.
    """
    error = difference.error
    size = 0.0
    if not math.isfinite(error) or error == 0:
        return 1.0 if error else 0.0
    half = (difference.high - difference.low) / 2
    of_claims = _Z(1 - ALPHA / 2 / max(claims, 1))
    quantiles = max(half / error, of_claims) + _Z(POWER)
    steps = (1 / a.effective + 1 / b.effective) / 2
    for _ in range(_STEPS):
        if pairs is not None:
            more = size * (1 - size) / pairs
        else:
            mean = max(a.mean - size, 0.0)
            more = max(0.0, mean * (1 - mean) - a.mean * (1 - a.mean)) / b.effective
        size = min(1.0, steps + quantiles * math.sqrt(error * error + more))
    return size


def at_any_time(difference: Difference, clusters: float) -> tuple[Difference, float]:
    """Return the difference with an interval, and a p-value.

    Both hold however often and whenever one looks.

    Robbins' normal mixture as an asymptotic confidence sequence (Waudby-Smith et al., Ann. Stat.
    52, 2024): half of the interval is the standard error times sqrt((1 + 1/r) (log(1 + r) - 2 log
    alpha)), with r = clusters / 100. `clusters` is Kish's number of the smaller side. From fewer
    than 20 nothing is concluded.
    """
    value, _, _, error = difference
    if clusters < _FEWEST or not math.isfinite(error):
        return difference._replace(low=-1.0, high=1.0), 1.0
    ratio = clusters / _UNIT
    logarithms = math.log1p(ratio) - 2 * math.log(ALPHA)
    half = error * math.sqrt((1 + 1 / ratio) * logarithms)
    low = max(-1.0, value - half)
    high = min(1.0, value + half)
    p = 1.0
    if error != 0:
        exponent = -((value / error) ** 2) / (2 + 2 / ratio)
        p = min(1.0, math.sqrt(1 + ratio) * math.exp(exponent))
    return difference._replace(low=low, high=high), p


def balance(units: tuple[float, float], errors: tuple[float, float], share: float) -> float:
    """Return the p-value of "units are assigned to B with this share".

    The test is chi-square with one degree of freedom.

    `errors` are the variances of the numbers of units if these are estimates, by uneven sampling.
    They are 0 for counts.
    """
    total = sum(units)
    variance = total * share * (1 - share)
    if any(errors):
        variance = (1 - share) ** 2 * errors[1] + share**2 * errors[0]
    if variance <= 0:
        return 1.0
    gap = units[1] - share * total
    return math.erfc(math.sqrt(gap * gap / variance / 2))
