"""The scores of one criterion by one judge.

The module computes how they are spread compared with a reference, and whether length sways them.
Memory is bounded: it keeps the last scores of a window, and the counts of the reference.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from agenteval_otel.models.intervals import UnitSums

BINS: Final = 10
_Z: Final = 4.0
"""Quantile of the index by chance that a drift has to exceed, in standard deviations of a normal
variable: 1 look in 30,000. The window is looked at again and again."""
_SMOOTHING: Final = 0.5


class Counts(NamedTuple):
    """Holds the weight of the scores in each bin from 0 to 1.

    They count as `effective` scores of equal weight.
    """

    weights: tuple[float, ...]
    effective: float


class Drift(NamedTuple):
    """Holds the drift of the window from the reference.

    `psi` is the population stability index, `by_chance` what chance explains of it.
    """

    psi: float
    by_chance: float


class ScoreWindow:
    """Keeps the last `size` scores.

    Each has the weight (1 / probability), the length and the unit of its answer.
    """

    def __init__(self, size: int, reference: Counts | None = None) -> None:
        self._scores: deque[tuple[float, float, int]] = deque(maxlen=size)
        self._units: deque[Hashable] = deque(maxlen=size)
        self.reference = reference
        self._since_reference = 0

    def add(self, score: float, weight: float, length: int, unit: Hashable = None) -> bool:
        """Add a score from 0 to 1. Return True if it completes the reference."""
        self._scores.append((min(max(score, 0.0), 1.0), weight, length))
        self._units.append(unit)
        self._since_reference += 1
        if self.reference is None and len(self._scores) == self._scores.maxlen:
            self.reference = self.counts()
            self._since_reference = 0
            return True
        return False

    def copied(self) -> ScoreWindow:
        """Return a copy to compute with, while scores come."""
        other = ScoreWindow(0, self.reference)
        other._scores = self._scores.copy()
        other._since_reference = self._since_reference
        other._units = self._units.copy()
        return other

    def counts(self) -> Counts:
        return counts_of(((score, weight) for score, weight, _ in self._scores), self._units)

    def drift(self) -> Drift | None:
        """Return the drift, or None until the reference and a window after it are complete."""
        if self.reference is None or self._since_reference < (self._scores.maxlen or 0):
            return None
        return drift_of(self.reference, self.counts())

    def length_correlation(self) -> float | None:
        """Return Spearman's rank correlation of score and length, -1 to 1.

        Return None below 100 scores, or if all scores or all lengths are equal.
        """
        if len(self._scores) < 100:
            return None
        import statistics  # takes decimals and fractions along, and is needed by few hosts

        score_ranks = ranks([score for score, _, _ in self._scores])
        length_ranks = ranks([length for _, _, length in self._scores])
        try:
            return statistics.correlation(score_ranks, length_ranks)
        except statistics.StatisticsError:  # one of them is constant
            return None


def counts_of(
    scores: Iterable[tuple[float, float]], units: Iterable[Hashable] = repeat(None)
) -> Counts:
    """Return the counts of scores with their weights. `units` are what each depends on others by.

    Kish's number of scores, ``(sum w)^2 / sum w^2``, is divided by the design effect of their mean,
    the ratio of its variances by units and by scores, but is no less than that of the units.
    """
    weights = [0.0] * BINS
    sums = UnitSums()
    for (score, weight), unit in zip(scores, units, strict=False):
        weights[min(BINS - 1, int(score * BINS))] += weight
        sums.add(score, weight, unit)
    mean = sums.mean()
    if mean is None:
        return Counts(tuple(weights), 0.0)
    effective = mean.kish
    if mean.units < mean.scores:
        effect = mean.variance / mean.apart if mean.apart > 0.0 else 1.0
        effective = max(mean.kish / max(1.0, effect), min(mean.kish, mean.kish_units))
    return Counts(tuple(weights), effective)


def drift_of(reference: Counts, current: Counts) -> Drift:
    """Sum ``(p - q) ln(p / q)`` over the bins in which either has scores.

    Half a score is added to each of these bins.

    Without a change the index times ``n m / (n + m)`` is nearly chi-squared with one degree of
    freedom less than there are bins. Wilson and Hilferty's approximation gives its quantile.
    """
    used = [at for at in range(BINS) if reference.weights[at] or current.weights[at]]
    freedom = len(used) - 1
    if freedom < 1 or not reference.effective or not current.effective:
        return Drift(0.0, 0.0)
    shares = zip(_shares(reference, used), _shares(current, used), strict=True)
    psi = sum((p - q) * math.log(p / q) for p, q in shares)
    part = 2.0 / (9.0 * freedom)
    quantile = freedom * (1.0 - part + _Z * math.sqrt(part)) ** 3
    scale = 1.0 / reference.effective + 1.0 / current.effective
    return Drift(psi, quantile * scale)


def _shares(counts: Counts, used: Sequence[int]) -> list[float]:
    scale = counts.effective / sum(counts.weights)
    smoothed = [counts.weights[at] * scale + _SMOOTHING for at in used]
    total = sum(smoothed)
    return [value / total for value in smoothed]


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks from 0. Equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[start]]:
            for at in order[start:end]:
                result[at] = (start + end - 1) / 2
            start = end
    return result
