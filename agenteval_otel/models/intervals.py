"""Intervals: how far a mean of scores in [0, 1], weighted by 1 / probability, may lie from the
truth.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

Z95: Final = 1.959963984540054  # the normal quantile of a two-sided 95 % interval
_T = (
    (Z95**3 + Z95) / 4,
    (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96,
    (3 * Z95**7 + 19 * Z95**5 + 17 * Z95**3 - 15 * Z95) / 384,
    (79 * Z95**9 + 776 * Z95**7 + 1482 * Z95**5 - 1920 * Z95**3 - 945 * Z95) / 92_160,
)
_FEW: Final = 10.0
_MOST_UNITS: Final = 100_000
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


class UnitMean(NamedTuple):
    """A weighted mean of scores, and what its certainty rests on.

    The mean is Hajek's, m = sum(w y) / sum(w): it undoes uneven sampling. A unit is what may be
    taken for independent: a conversation, a trace, else the answer alone. Both variances are
    linearised for independent (Poisson) sampling of units.

    Attributes:
        mean: m, as the scores are scaled.
        apart: Its variance if every score were a unit, sum(w^2 (y - m)^2) / sum(w)^2. 0 where only
            the sums of the units are known.
        between: Its variance by units, sum over units of (sum(w y) - m sum(w))^2 / sum(w)^2.
        kish: Kish's number of equally weighted scores, sum(w)^2 / sum(w^2).
        kish_units: The same of units, by the weights of their scores together.
        units: How many units there are.
        scores: How many scores there are.
    """

    mean: float
    apart: float
    between: float
    kish: float
    kish_units: float
    units: int
    scores: int

    @property
    def variance(self) -> float:
        """Return the variance by units without its bias, G / (G - 1) * between. Infinite for one."""
        return self.between * self.units / (self.units - 1) if self.units > 1 else math.inf

    def estimate(self) -> Estimate:
        """Return the mean with its 95 % Wilson interval.

        The interval is Wilson's (1927) with n = m (1 - m) / V, which for equal weights and pass/fail
        scores is the number of scores, and which stays in [0, 1] and keeps its coverage near 0 and
        1, where m +- z sqrt(V) does not. V is the variance by units where a unit has several
        scores, and no less than if each were a unit. Where fewer than ten scores stand on the rarer
        side V is itself a guess: n is then at most Kish's number.
        """
        mean = min(1.0, max(0.0, self.mean))
        by_unit = self.variance if self.units < self.scores else self.between
        variance = max(self.apart, by_unit)
        kish = min(self.kish, self.kish_units)
        effective = mean * (1 - mean) / variance if variance > _NOTHING else kish
        if is_rare(mean, self.kish):
            effective = min(effective, kish)
        low, high = wilson_interval(mean, effective)
        return Estimate(mean, low, high, self.scores, effective)


class WeightedSums:
    """Running sums of scores in [0, 1], each a unit, from which mean and interval come without
    keeping the scores.
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

    def mean(self) -> UnitMean | None:
        """Return the weighted mean of the scores; None without any."""
        if self.count <= 0 or self.w <= 0:
            return None
        mean = min(1.0, max(0.0, self.wy / self.w))
        squares = max(0.0, self.w2y2 - 2 * mean * self.w2y + mean * mean * self.w2)
        apart = squares / (self.w * self.w)
        kish = self.w * self.w / self.w2
        return UnitMean(mean, apart, apart, kish, kish, self.count, self.count)

    def estimate(self) -> Estimate | None:
        """Return the weighted mean with its interval (`UnitMean.estimate`); None without scores."""
        mean = self.mean()
        return None if mean is None else mean.estimate()


class UnitSums(WeightedSums):
    """Running sums of scores in [0, 1] by unit.

    Keeps two numbers for each of the last 100,000 units. A unit that comes again after so many
    others counts as a new one.

    Attributes:
        units: How many there are.
        squares: Over the units, of the weights w and the weighted scores y of each: the sums of
            w^2, w y and y^2.
    """

    __slots__ = ("_open", "squares", "units")

    def __init__(self) -> None:
        super().__init__()
        self.units = 0
        self._open: dict[Hashable, tuple[float, float]] = {}
        self.squares = (0.0, 0.0, 0.0)

    def add(self, score: float, weight: float = 1.0, unit: Hashable = None) -> None:
        """Add one score of a unit; without one it is a unit of its own."""
        super().add(score, weight)
        before = None if unit is None else self._open.pop(unit, None)
        if before is None:
            self.units += 1
            before = (0.0, 0.0)
        after = (before[0] + weight, before[1] + weight * score)
        if unit is not None:
            self._open[unit] = after
            if len(self._open) > _MOST_UNITS:
                del self._open[next(iter(self._open))]
        (w, y), (w_before, y_before) = after, before
        ww, wy, yy = self.squares
        self.squares = (
            ww + w * w - w_before * w_before,
            wy + w * y - w_before * y_before,
            yy + y * y - y_before * y_before,
        )

    def mean(self) -> UnitMean | None:
        """Return the weighted mean of the scores; None without any."""
        mean = super().mean()
        if mean is None:
            return None
        total, rate = self.w * self.w, mean.mean
        ww, wy, yy = self.squares
        residuals = max(0.0, yy - 2 * rate * wy + rate * rate * ww)
        return mean._replace(between=residuals / total, kish_units=total / ww, units=self.units)


def is_rare(mean: float, kish: float, few: float = _FEW) -> bool:
    """Tell whether fewer than `few` scores stand on the rarer side, so that their variance is itself a
    guess.
    """
    return min(mean, 1 - mean) * kish < few


def unit_of(*, conversation: str | None, session: str | None, trace: str | None) -> str | None:
    """Return what an answer shares with those that it is no independent news beside: its
    conversation, else its session, else its trace. None for an answer that stands alone.
    """
    return conversation or session or trace


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
