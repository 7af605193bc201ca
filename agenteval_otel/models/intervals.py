"""Intervals: how far a mean of scores in [0, 1], weighted by 1 / probability, may lie from the
truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

Z95: Final = 1.959963984540054  # the normal quantile of a two-sided 95 % interval
_T = (
    (Z95**3 + Z95) / 4,
    (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96,
    (3 * Z95**7 + 19 * Z95**5 + 17 * Z95**3 - 15 * Z95) / 384,
    (79 * Z95**9 + 776 * Z95**7 + 1482 * Z95**5 - 1920 * Z95**3 - 945 * Z95) / 92_160,
)
_FEW = 5.0
_NOTHING = 1e-12


def student95(freedom: float) -> float:
    """Student's quantile of a two-sided 95 % interval, by Fisher's and Cornish's expansion; exact
    enough from 3 on.
    """
    return Z95 + sum(term / max(freedom, 1.0) ** power for power, term in enumerate(_T, 1))


class Estimate(NamedTuple):
    """A mean with its interval, all in [0, 1]."""

    mean: float
    low: float
    high: float
    scores: int  # how many it is made of
    effective: float  # how many equally weighted pass/fail scores would be as certain


class WeightedSums:
    """Running sums of scores in [0, 1], from which mean and interval come without keeping the
    scores.
    """

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

    def estimate(self, *, effective: float | None = None) -> Estimate | None:
        """Weighted mean with its 95 % Wilson interval; None without scores.

        `effective` is the count to take, where the scores are known not to be independent.

        The mean is Hajek's, m = sum(w y) / sum(w): it undoes uneven sampling. Its variance is
        linearised for independent (Poisson) sampling, V = sum(w^2 (y - m)^2) / sum(w)^2. The
        interval is Wilson's (1927) with n = m (1 - m) / V, which for equal weights and pass/fail
        scores is the number of scores, and which stays in [0, 1] and keeps its coverage near 0 and
        1, where m +- z sqrt(V) does not. Where fewer than five scores stand on the rarer side V is
        itself a guess: n is then at most Kish's sum(w)^2 / sum(w^2).
        """
        if self.count <= 0 or self.w <= 0:
            return None
        mean = min(1.0, max(0.0, self.wy / self.w))
        kish = self.w * self.w / self.w2
        variance = max(0.0, self.w2y2 - 2 * mean * self.w2y + mean * mean * self.w2) / (
            self.w * self.w
        )
        return estimate_by(mean, variance, kish, self.count, effective)


def estimate_by(
    mean: float, variance: float, kish: float, scores: int, effective: float | None = None
) -> Estimate:
    """The estimate with Wilson's interval, as `WeightedSums.estimate` describes it, by the variance
    of the mean.
    """
    if effective is None:
        effective = mean * (1 - mean) / variance if variance > _NOTHING else kish
    if is_rare(mean, kish):
        effective = min(effective, kish)
    low, high = wilson_interval(mean, effective)
    return Estimate(mean, low, high, scores, effective)


def is_rare(mean: float, kish: float) -> bool:
    """Whether fewer than five scores stand on the rarer side, so that their variance is itself a
    guess.
    """
    return min(mean, 1 - mean) * kish < _FEW


def estimate_of(scored: Iterable[tuple[float, float]]) -> Estimate | None:
    """`WeightedSums.estimate` of (score, weight) pairs."""
    sums = WeightedSums()
    for score, weight in scored:
        sums.add(score, weight)
    return sums.estimate()


def wilson_interval(rate: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a rate seen in `count` (which may be fractional) independent
    trials.

    (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n); E. B. Wilson, J. Am. Stat. Assoc.
    22 (1927).
    """
    if count <= 0:
        return 0.0, 1.0
    shift = Z95 * Z95 / count
    centre = (rate + shift / 2) / (1 + shift)
    half = Z95 / (1 + shift) * math.sqrt(rate * (1 - rate) / count + shift / (4 * count))
    # The limits themselves meet the rate at 0 and 1; rounding must not lift them past it.
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))
