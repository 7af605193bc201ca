"""Intervals: how far a mean of scores in [0, 1] may lie from the truth.

The scores are weighted by 1 / probability.
"""

from __future__ import annotations

import hashlib
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
_FEW: Final = 10.0  # scores on the rarer side, below which their variance is a guess
_MOST_UNITS: Final = 2_000
_DIGEST: Final = 0xFFFF_FFFF
_NOTHING = 1e-12  # a variance that is 0 but for rounding
_ROUNDING: Final = 1e-6  # 10 of 100 are ten


def student95(freedom: float) -> float:
    """Return Student's quantile of a two-sided 95 % interval, by Fisher's and Cornish's expansion.

    It is exact enough from 3 on.
    """
    return Z95 + sum(term / max(freedom, 1.0) ** power for power, term in enumerate(_T, 1))


FEWEST_UNITS: Final = 20
"""Of fewer units the variance is a guess: no interval is shown."""
FEWEST_BASELINE: Final = 10
"""With fewer scores of the least probability nothing is known of most answers: no mean is shown."""


class Estimate(NamedTuple):
    """A mean with its interval, all in [0, 1].

    Attributes:
        scores: How many scores it is made of.
        effective: How many equally weighted pass/fail scores would be as certain.
        units: How many units the scores are of. None where that is not known.
        baseline: How many of the scores have the least probability, and so stand for most answers.
            None where all have.
    """

    mean: float
    low: float
    high: float
    scores: int
    effective: float
    units: int | None = None
    baseline: int | None = None

    @property
    def is_known(self) -> bool:
        """Tell whether the mean may be shown: at least 10 scores have the least probability."""
        return self.baseline is None or self.baseline >= FEWEST_BASELINE

    @property
    def has_interval(self) -> bool:
        """Tell whether the interval may be shown: the mean may, and there are at least 20 units."""
        return self.is_known and (self.units is None or self.units >= FEWEST_UNITS)


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
        baseline: How many of them have the least probability. None where all have.
    """

    mean: float
    apart: float
    between: float
    kish: float
    kish_units: float
    units: int
    scores: int
    baseline: int | None = None

    @property
    def variance(self) -> float:
        """Return the variance by units without its bias, G / (G - 1) * between. Infinite for one."""
        if self.units <= 1:
            return math.inf
        return self.between * self.units / (self.units - 1)

    def estimate(self) -> Estimate:
        """Return the mean with its 95 % interval.

        The interval is Wilson's (1927) with n = m (1 - m) / V, which for equal weights and
        pass/fail scores is the number of scores, and which stays in [0, 1] and keeps its coverage
        near 0 and 1, where m +- z sqrt(V) does not. V is the variance by units where a unit has
        several scores, and no less than if each were a unit. Where fewer than ten scores stand on
        the rarer side V is itself a guess: n is then at most Kish's number, and the interval is
        Agresti's and Coull's (1998). Wilson's holds 91 % there, such as of 50 scores of which 99 %
        pass.
        """
        mean = min(1.0, max(0.0, self.mean))
        by_unit = self.variance if self.units < self.scores else self.between
        variance = max(self.apart, by_unit)
        kish = min(self.kish, self.kish_units)
        effective = mean * (1 - mean) / variance if variance > _NOTHING else kish
        if is_rare(mean, self.kish):
            effective = min(effective, kish)
            low, high = agresti_coull_interval(mean, effective)
        else:
            low, high = wilson_interval(mean, effective)
        return Estimate(mean, low, high, self.scores, effective, self.units, self.baseline)


class WeightedSums:
    """Running sums of scores in [0, 1], each a unit.

    Mean and interval come from them without keeping the scores.

    Attributes:
        count: How many scores were added.
        w, w2: Sums of the weights, and of their squares.
        wy: Sum of weight times score.
        w2y, w2y2: Sums of the squared weight times the score, and times the squared score.
    """

    __slots__ = ("count", "w", "w2", "w2y", "w2y2", "wy")

    def __init__(self) -> None:
        self.count = 0
        self.w = 0.0
        self.w2 = 0.0
        self.wy = 0.0
        self.w2y = 0.0
        self.w2y2 = 0.0

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
        """Return the weighted mean of the scores. None without any."""
        if self.count <= 0 or self.w <= 0:
            return None
        mean = min(1.0, max(0.0, self.wy / self.w))
        squares = max(0.0, self.w2y2 - 2 * mean * self.w2y + mean * mean * self.w2)
        apart = squares / (self.w * self.w)
        kish = self.w * self.w / self.w2
        return UnitMean(mean, apart, apart, kish, kish, self.count, self.count)

    def estimate(self) -> Estimate | None:
        """Return the weighted mean with its interval (`UnitMean.estimate`).

        Return None without scores.
        """
        mean = self.mean()
        return None if mean is None else mean.estimate()


class UnitSums(WeightedSums):
    """Running sums of scores in [0, 1] by unit.

    Two numbers are kept for each unit, of at most `most_units`. Of more, a half is kept, then a quarter,
    and so on, chosen by a hash of their names: whole units, however far apart their scores come.
    They stand for the others by their weight.
    """

    __slots__ = (
        "_alone",
        "_alone_squares",
        "_kept",
        "_mask",
        "_most_units",
        "_named_weight",
        "_preferred",
    )

    def __init__(self, *, most_units: int = _MOST_UNITS) -> None:
        super().__init__()
        self._most_units = most_units
        self._preferred = 0
        self._alone = 0
        # of those without a unit: w^2, w^2 score, w^2 score^2
        self._alone_squares = (0.0, 0.0, 0.0)
        self._named_weight = 0.0
        self._kept: dict[Hashable, tuple[float, float]] = {}  # of each: weights, weighted scores
        self._mask = 0

    def add(
        self,
        score: float,
        weight: float = 1.0,
        unit: Hashable = None,
        *,
        is_baseline: bool = True,
    ) -> None:
        """Add one score of a unit. Without one it is a unit of its own.

        Args:
            score: In [0, 1].
            weight: 1 / probability.
            unit: What the score depends on others by.
            is_baseline: Its answer had the least probability of all, as far as that is known.
        """
        super().add(score, weight)
        if not is_baseline:
            self._preferred += 1
        scored = weight * score
        if unit is None:
            self._alone += 1
            w2, w2y, w2y2 = self._alone_squares
            self._alone_squares = (
                w2 + weight * weight,
                w2y + weight * scored,
                w2y2 + scored * scored,
            )
            return
        self._named_weight += weight
        if self._mask and _digest(unit) & self._mask:
            return
        w, y = self._kept.get(unit, (0.0, 0.0))
        self._kept[unit] = (w + weight, y + scored)
        if len(self._kept) > self._most_units:
            self._keep_half()

    def mean(self) -> UnitMean | None:
        """Return the weighted mean of the scores. None without any.

        Where not all units are kept, `units`, `between` and `kish_units` are estimates.
        """
        mean = super().mean()
        if mean is None:
            return None
        rate = mean.mean
        w2, w2y, w2y2 = self._alone_squares
        kept = self._kept.values()
        of_kept = math.fsum(w for w, _ in kept)
        scale = 1.0
        if self._mask and of_kept:
            scale = self._named_weight / of_kept
        squares = w2 + scale * math.fsum(w * w for w, _ in kept)
        residuals = max(0.0, w2y2 - 2 * rate * w2y + rate * rate * w2)
        residuals += scale * math.fsum((y - rate * w) ** 2 for w, y in kept)
        named_units = round(scale * len(kept))
        baseline = self.count - self._preferred if self._preferred else None
        return mean._replace(
            between=residuals / (self.w * self.w),
            kish_units=self.w * self.w / squares,
            units=min(self.count, self._alone + named_units),
            baseline=baseline,
        )

    def _keep_half(self) -> None:
        self._mask = (2 * self._mask + 1) & _DIGEST
        self._kept = {
            unit: sums for unit, sums in self._kept.items() if not _digest(unit) & self._mask
        }


def _digest(unit: Hashable) -> int:
    """Return 32 bits that are the same in every process, as those of `hash` are not."""
    text = repr(unit).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())


def is_rare(mean: float, kish: float, few: float = _FEW) -> bool:
    """Tell whether fewer than `few` scores are on the rarer side.

    Their variance is then itself a guess.
    """
    return min(mean, 1 - mean) * kish < few - _ROUNDING


def estimate_of(scored: Iterable[tuple[float, float]]) -> Estimate | None:
    """Return `WeightedSums.estimate` of (score, weight) pairs."""
    sums = WeightedSums()
    for score, weight in scored:
        sums.add(score, weight)
    return sums.estimate()


def wilson_interval(rate: float, count: float) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a rate seen in `count` independent trials.

    `count` may be fractional.

    (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n). E. B. Wilson, J. Am. Stat. Assoc.
    22 (1927).
    """
    if count <= 0:
        return 0.0, 1.0
    shift = Z95 * Z95 / count
    centre = (rate + shift / 2) / (1 + shift)
    variance = rate * (1 - rate) / count + shift / (4 * count)
    half = Z95 / (1 + shift) * math.sqrt(variance)
    # The limits themselves meet the rate at 0 and 1. Rounding must not move them past it.
    low = min(rate, max(0.0, centre - half))
    high = max(rate, min(1.0, centre + half))
    return low, high


def agresti_coull_interval(rate: float, count: float) -> tuple[float, float]:
    """Return Agresti's and Coull's 95 % interval of a rate seen in `count` independent trials.

    `count` may be fractional. The interval has the same centre as Wilson's, and is never
    narrower.

    c +- z sqrt(c (1 - c) / (n + z^2)) with c = (n p + z^2/2) / (n + z^2). A. Agresti, B. Coull, The
    American Statistician 52 (1998).
    """
    if count <= 0:
        return 0.0, 1.0
    total = count + Z95 * Z95
    centre = (count * rate + Z95 * Z95 / 2) / total
    half = Z95 * math.sqrt(centre * (1 - centre) / total)
    low = min(rate, max(0.0, centre - half))
    high = max(rate, min(1.0, centre + half))
    return low, high
