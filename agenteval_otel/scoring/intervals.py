"""Intervals: how far a mean of sampled scores may lie from the truth, and whether two of them differ.

Pure arithmetic on scores in [0, 1], each with the weight 1 / (its inclusion probability). Used offline, in the command
line's tables and wherever a mean is shown: a rate without its interval invites to see drops in noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

Z_95 = 1.959963984540054
"""Standard normal quantile of a two-sided 95 % interval."""
_FEW = 5.0
_NOTHING = 1e-12


class Estimate(NamedTuple):
    """A mean with its interval, all in [0, 1].

    Attributes:
        scores: How many scores it is made of.
        effective: How many equally weighted pass/fail scores would be as certain.
    """

    mean: float
    low: float
    high: float
    scores: int
    effective: float


class Difference(NamedTuple):
    """Second mean minus first, with a 95 % interval.

    Attributes:
        z: The test's statistic, in standard errors.
        p_value: Two-sided, of "they are equal".
    """

    value: float
    low: float
    high: float
    z: float
    p_value: float


class WeightedSums:
    """Running sums of scores in [0, 1], from which mean and interval come without keeping the scores."""

    __slots__ = ("count", "w", "w2", "w2y", "w2y2", "wy")

    def __init__(self) -> None:
        self.count = 0
        self.w = self.w2 = self.wy = self.w2y = self.w2y2 = 0.0

    def __repr__(self) -> str:
        return f"<WeightedSums count={self.count} w={self.w:g} wy={self.wy:g}>"

    def add(self, score: float, weight: float = 1.0) -> None:
        """Add one score with its weight, 1 / probability (at least 1)."""
        square = weight * weight
        self.count += 1
        self.w += weight
        self.w2 += square
        self.wy += weight * score
        self.w2y += square * score
        self.w2y2 += square * score * score

    def plus(self, other: WeightedSums, *, sign: int = 1) -> WeightedSums:
        """The sums of both together, or with ``sign=-1`` those of what the other one, a part of this, leaves."""
        made = WeightedSums()
        for name in self.__slots__:
            setattr(made, name, getattr(self, name) + sign * getattr(other, name))
        return made

    def estimate(self, *, z: float = Z_95) -> Estimate | None:
        """Weighted mean with its Wilson interval; None without scores.

        The mean is Hajek's, m = sum(w y) / sum(w): it undoes uneven sampling. Its variance is linearised for
        independent (Poisson) sampling, V = sum(w^2 (y - m)^2) / sum(w)^2. The interval is Wilson's (1927) with
        n = m (1 - m) / V, which for equal weights and pass/fail scores is the number of scores, and which stays in
        [0, 1] and keeps its coverage near 0 and 1, where m +- z sqrt(V) does not. Where fewer than five scores stand on
        the rarer side V is itself a guess: n is then at most Kish's sum(w)^2 / sum(w^2).
        """
        if self.count <= 0 or self.w <= 0:
            return None
        mean = min(1.0, max(0.0, self.wy / self.w))
        kish = self.w * self.w / self.w2
        variance = max(0.0, self.w2y2 - 2 * mean * self.w2y + mean * mean * self.w2) / (self.w * self.w)
        spread = mean * (1 - mean)
        effective = spread / variance if variance > _NOTHING else kish
        if min(mean, 1 - mean) * kish < _FEW:
            effective = min(effective, kish)
        low, high = wilson_interval(mean, effective, z=z)
        return Estimate(mean, low, high, self.count, effective)


def estimate_of(scored: Iterable[tuple[float, float]], *, z: float = Z_95) -> Estimate | None:
    """`WeightedSums.estimate` of (score, weight) pairs."""
    sums = WeightedSums()
    for score, weight in scored:
        sums.add(score, weight)
    return sums.estimate(z=z)


def wilson_interval(rate: float, count: float, *, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a rate seen in `count` (which may be fractional) independent trials.

    (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n); E. B. Wilson, J. Am. Stat. Assoc. 22 (1927).
    """
    if count <= 0:
        return 0.0, 1.0
    shift = z * z / count
    centre = (rate + shift / 2) / (1 + shift)
    half = z / (1 + shift) * math.sqrt(rate * (1 - rate) / count + shift / (4 * count))
    # The limits themselves meet the rate at 0 and 1; rounding must not lift them past it.
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def difference_of(before: Estimate, after: Estimate) -> Difference:
    """Whether two means of different scores differ.

    The p-value is that of the pooled two-proportion z test on the effective numbers; the interval is Newcombe's square-
    and-add of the two Wilson intervals (R. G. Newcombe, Statistics in Medicine 17 (1998), method 10).
    """
    value = after.mean - before.mean
    low = value - math.hypot(after.mean - after.low, before.high - before.mean)
    high = value + math.hypot(after.high - after.mean, before.mean - before.low)
    trials = before.effective + after.effective
    pooled = (before.mean * before.effective + after.mean * after.effective) / trials
    error = math.sqrt(pooled * (1 - pooled) * (1 / before.effective + 1 / after.effective))
    z = 0.0 if error <= _NOTHING else value / error
    return Difference(value, max(-1.0, low), min(1.0, high), z, math.erfc(abs(z) / math.sqrt(2)))
