"""Agreement: the confusion table of a judge's verdicts and people's, with its covariance.

It has four shares, of rows by (judge, person), and the covariance of these shares. Kappa, the
judge's rates and both corrections of a pass rate are functions of them, and so are their intervals
(delta method).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import ConfigDict, Field

from agenteval_otel.models.intervals import Z95, Estimate, student95, wilson_interval
from agenteval_otel.models.value import Value

FEWEST: Final = 5
"""Rows of each class of people's labels from which on a judge's errors can be corrected."""
# pseudo-rows added to each cell: an error that was not observed yet is still possible
_PSEUDO = 0.5
_NOTHING = 1e-12
_CELLS = range(4)
_MOST_OF_ONE = 0.9  # cap on a cluster's weight: beyond it the others tell too little
_ONE_OF_EACH: Final[dict[tuple[float, ...], int]] = {
    (1.0, 0.0, 0.0, 0.0): 1,
    (0.0, 1.0, 0.0, 0.0): 1,
    (0.0, 0.0, 1.0, 0.0): 1,
    (0.0, 0.0, 0.0, 1.0): 1,
}
_FIGURES = ("pass_rate", "judged_pass_rate", "agreement", "kappa", "sensitivity", "specificity")
Four = tuple[float, float, float, float]


class LabelledRow(NamedTuple):
    """Holds one answer with both verdicts.

    Attributes:
        judge: Whether the judge passed it.
        person: Whether a person passed it.
        weight: 1 / the probability with which it was judged and labelled, above 0.
        cluster: What it shares with other rows (a conversation, a prompt), which are then no
            independent evidence.
    """

    judge: bool
    person: bool
    weight: float = 1.0
    cluster: str | int = ""


class RateCorrection(NamedTuple):
    """Holds the two rates of a judge by which a pass rate is corrected, with their errors.

    The rates are P(judge passes | person passes) and P(judge passes | person fails), smoothed.
    Their variances and their covariance follow, and the quantile of a 95 % interval.
    """

    passes: float
    false_passes: float
    of_passes: float
    of_false: float
    between: float
    quantile: float

    @property
    def square(self) -> float:
        """Return the coefficient of the square in the interval's equation.

        Without an interval it is 0 or less.
        """
        variance = self.of_passes + self.of_false - 2 * self.between
        return (self.passes - self.false_passes) ** 2 - self.quantile**2 * variance


class Agreement(Value):
    """Holds how a judge and people agree on the rows that both have judged.

    Attributes:
        rows: The rows, and their `clusters`, which count as independent.
        effective_rows: As many equally weighted, independent rows are as certain.
        shares: Weighted shares of the rows that (judge, person) passed: both, judge only, person
            only, neither.
        covariance: Of the four shares, robust to clusters, each cell counted half a row more.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    rows: int = Field(ge=1)
    clusters: int = Field(ge=1)
    effective_rows: float = Field(gt=0)
    shares: Four
    covariance: tuple[Four, Four, Four, Four]

    def figures(self) -> dict[str, dict[str, float]]:
        """Return every figure with its 95 % interval, as JSON values."""
        figures: dict[str, dict[str, float]] = {}
        for name in _FIGURES:
            estimate: Estimate = getattr(self, name)
            figures[name] = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        return figures

    @property
    def pass_rate(self) -> Estimate:
        """Return the share that people pass, by their labels alone."""
        return self._share((1, 0, 1, 0), (1, 1, 1, 1))

    @property
    def judged_pass_rate(self) -> Estimate:
        """Return the share of the same rows that the judge passes."""
        return self._share((1, 1, 0, 0), (1, 1, 1, 1))

    @property
    def agreement(self) -> Estimate:
        """Return the share of the rows on which both say the same."""
        return self._share((1, 0, 0, 1), (1, 1, 1, 1))

    @property
    def sensitivity(self) -> Estimate:
        """Return the share that the judge passes of what people pass."""
        return self._share((1, 0, 0, 0), (1, 0, 1, 0))

    @property
    def specificity(self) -> Estimate:
        """Return the share that the judge fails of what people fail."""
        return self._share((0, 0, 0, 1), (0, 1, 0, 1))

    @property
    def kappa(self) -> Estimate:
        """Return Cohen's kappa, -1 to 1: agreement beyond chance, (a - e) / (1 - e).

        The interval is made on Fisher's z.
        """
        smoothed = self._smoothed
        raw = _kappa(self.shares)
        kappa = _kappa(smoothed)
        step = 1e-6
        gradient: list[float] = []
        for cell in _CELLS:
            moved = list(smoothed)
            moved[cell] += step
            gradient.append((_kappa(moved) - kappa) / step)
        error = math.sqrt(self._variance(gradient))
        half = self._quantile * error / (1 - kappa * kappa)
        low = math.tanh(math.atanh(kappa) - half)
        high = math.tanh(math.atanh(kappa) + half)
        return Estimate(raw, min(raw, low), max(raw, high), self.rows, self.effective_rows)

    @property
    def can_correct(self) -> bool:
        """Tell whether a rate can be corrected.

        There must be five rows of each class of people's labels, and the judge must pass
        good answers more often.
        """
        if self._raw_passes <= self._raw_false + _NOTHING:
            return False
        people = self.shares[0] + self.shares[2]
        rows_of_rarer_class = min(people, 1 - people) * self.effective_rows
        return rows_of_rarer_class > FEWEST - _PSEUDO

    @property
    def correction(self) -> RateCorrection:
        """Return the numbers that `corrected` is made of, for what computes elsewhere."""
        rates, variances = self._rates()
        return RateCorrection(*rates, *variances, self._quantile)

    def corrected(self, judged: Estimate, *, overlap: float = 0.0) -> Estimate | None:
        """Estimate the true pass rate of other answers, from the share that the judge passes.

        The rate is 0 to 1. It is misclassification-corrected (Rogan and Gladen 1978): (p +
        specificity - 1) / (sensitivity + specificity - 1). It holds where the judge errs as often
        on these answers as on the labelled ones, whatever their pass rate. The interval has every
        rate t whose p = t sensitivity + (1 - t)(1 - specificity) is within 1.96 standard errors of
        the one seen, errors of p and of both rates included (Fieller 1954). Return None if
        `can_correct` is False, or the interval is everything from 0 to 1.
        """
        if not self.can_correct:
            return None
        (passes, false_passes), variances = self._rates()
        # Rows in both samples: their covariance reduces the variance by twice the overlap.
        of_passes, of_false, between = (variance * (1 - 2 * overlap) for variance in variances)
        p = judged.mean
        of_p = _variance_of(judged)
        # (d - t s)^2 <= z^2 (v + t^2 a + (1 - t)^2 b + 2 t (1 - t) c), a quadratic in t
        d = p - false_passes
        s = passes - false_passes
        z2 = self._quantile**2
        square = s * s - z2 * (of_passes + of_false - 2 * between)
        linear = -2 * d * s - z2 * (-2 * of_false + 2 * between)
        constant = d * d - z2 * (of_p + of_false)
        low, high = _range_where(square, linear, constant)
        if low <= 0.0 and high >= 1.0:
            return None
        raw_range = max(_NOTHING, self._raw_passes - self._raw_false)
        raw = (judged.mean - self._raw_false) / raw_range
        return _estimate(raw, low, high, judged.scores)

    def prediction_powered(self, judged: Estimate, *, overlap: float = 0.0) -> Estimate:
        """Estimate the true pass rate of the population that the labelled rows were drawn from.

        The rate is 0 to 1. It is that of PPI++ (Angelopoulos, Duchi and Zrnic 2023): m + L (p - j),
        with people's pass rate m and the judge's j on the labelled rows, the judge's p on other
        answers of the same population, and the L that makes the variance least. A judge that tells
        nothing gets L = 0. It holds however the judge errs, on no other population. The interval
        takes Student's t with as many degrees of freedom as clusters less one.
        """
        smoothed = self._smoothed
        person = (1, 0, 1, 0)
        judge = (1, 1, 0, 0)
        of_p = _variance_of(judged)
        of_person = self._variance(person)
        between = self._variance(person, judge) * (1 - overlap)
        of_difference = max(_NOTHING, self._variance(judge) * (1 - 2 * overlap) + of_p)
        power = between / of_difference
        mean = _dot(person, smoothed) + power * (judged.mean - _dot(judge, smoothed))
        variance = of_person - 2 * power * between + power * power * of_difference
        half = self._quantile * math.sqrt(max(0.0, variance))
        raw = _dot(person, self.shares) + power * (judged.mean - _dot(judge, self.shares))
        return _estimate(raw, mean - half, mean + half, judged.scores)

    @property
    def _raw_passes(self) -> float:
        return self.sensitivity.mean

    @property
    def _raw_false(self) -> float:
        return 1.0 - self.specificity.mean

    @property
    def _quantile(self) -> float:
        freedom = self.clusters * self.effective_rows / self.rows - 1
        return student95(max(4.0, freedom))

    @property
    def _smoothed(self) -> Four:
        return _smoothed(self.shares, self.effective_rows)

    def _rates(self) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """Return two rates, then their variances and covariance.

        The rates are P(judge passes | person passes) and P(judge passes | person fails).
        """
        passes, of_passes = self._ratio((1, 0, 0, 0), (1, 0, 1, 0))
        false_passes, of_false = self._ratio((0, 1, 0, 0), (0, 1, 0, 1))
        variances = (
            self._variance(of_passes),
            self._variance(of_false),
            self._variance(of_passes, of_false),
        )
        return (passes, false_passes), variances

    def _ratio(self, above: Sequence[float], below: Sequence[float]) -> tuple[float, list[float]]:
        """Return the ratio of two sums of smoothed shares, and its gradient."""
        whole = _dot(below, self._smoothed)
        ratio = _dot(above, self._smoothed) / whole
        return ratio, [(above[cell] - ratio * below[cell]) / whole for cell in _CELLS]

    def _share(self, above: Sequence[float], below: Sequence[float]) -> Estimate:
        """Estimate the ratio of two sums of shares.

        It has Wilson's interval, for as many rows as its variance says.
        """
        whole = _dot(below, self.shares)
        ratio, gradient = self._ratio(above, below)
        variance = self._variance(gradient)
        pseudo = _PSEUDO * sum(below)
        effective = 0.0
        if variance > _NOTHING:
            effective = max(0.0, ratio * (1 - ratio) / variance - pseudo)
        if whole <= 0:
            return Estimate(0.0, 0.0, 1.0, 0, 0.0)
        mean = min(1.0, max(0.0, _dot(above, self.shares) / whole))
        low, high = wilson_interval(mean, effective)
        return Estimate(mean, low, high, round(whole * self.rows), effective)

    def _variance(self, left: Sequence[float], right: Sequence[float] | None = None) -> float:
        """Return left' C right: the covariance of two linear functions of the shares."""
        other = left if right is None else right
        return _dot(left, [_dot(row, other) for row in self.covariance])


def agreement_of(rows: Iterable[LabelledRow]) -> Agreement:
    """Measure the agreement on the rows. Rows without a cluster are their own cluster.

    The covariance of the shares s is the jackknife's: the sum over the G clusters of r r' (G - 1) /
    G, where r is sum w (x - s) / sum(w) / (1 - h), and h the cluster's share of the weight. The
    effective rows n are Kish's sum(w)^2 / sum(w^2), divided by the design effect of the clusters:
    the trace of the clusters' covariance, over that for independent rows. Each cell then counts
    half a row more than n says.

    Raises:
        ValueError: There are no rows.
    """
    listed = list(rows)
    if not listed:
        raise ValueError("no rows with both verdicts")
    total = math.fsum(row.weight for row in listed)
    clusters: dict[object, list[float]] = defaultdict(lambda: [0.0] * 4)
    for number, row in enumerate(listed):
        cluster: object = (row.cluster,) if row.cluster != "" else number
        clusters[cluster][_cell(row)] += row.weight / total
    # Equal clusters come by the hundred: they are multiplied once, with their number.
    counted: Counter[tuple[float, ...]] = Counter(tuple(cells) for cells in clusters.values())
    sums: list[float] = []
    for cell in _CELLS:
        sums.append(math.fsum(cells[cell] * times for cells, times in counted.items()))
    a, b, c, d = sums
    shares = (a, b, c, d)
    scale = max(1, len(clusters) - 1) / len(clusters)
    effective = total * total / math.fsum(row.weight**2 for row in listed)
    independent = (1.0 - _dot(shares, shares)) / effective
    if independent > _NOTHING:
        of_clusters = _outer(counted, shares, 1.0)
        trace = sum(of_clusters[cell][cell] for cell in _CELLS)
        effective = max(1.0, effective / max(1.0, trace / independent))
    smoothed = _smoothed(shares, effective)
    count = effective + 4 * _PSEUDO
    seen = _outer(counted, smoothed, scale * (effective / count) ** 2, left_out=True)
    unseen = _outer(_ONE_OF_EACH, smoothed, 1.0)
    covariance = [[0.0] * 4 for _ in _CELLS]
    for first in _CELLS:
        for second in _CELLS:
            of_pseudo_rows = _PSEUDO * unseen[first][second] / count**2
            covariance[first][second] = seen[first][second] + of_pseudo_rows
    return Agreement(
        rows=len(listed),
        clusters=len(clusters),
        effective_rows=effective,
        shares=shares,
        covariance=tuple(map(tuple, covariance)),
    )


def _outer(
    counted: Mapping[tuple[float, ...], int], centre: Four, scale: float, *, left_out: bool = False
) -> list[list[float]]:
    """Return the sum of the outer products of the clusters' residuals.

    With `left_out` each residual is from the mean of the rows without its cluster.
    """
    matrix = [[0.0] * 4 for _ in _CELLS]
    for cells, times in counted.items():
        whole = sum(cells)
        others = 1.0 - min(whole, _MOST_OF_ONE) if left_out else 1.0
        residuals = [(cells[cell] - whole * centre[cell]) / others for cell in _CELLS]
        for first in _CELLS:
            for second in _CELLS:
                matrix[first][second] += times * scale * residuals[first] * residuals[second]
    return matrix


def _cell(row: LabelledRow) -> int:
    return 2 * (not row.judge) + (not row.person)


def _smoothed(shares: Four, rows: float) -> Four:
    a, b, c, d = ((share * rows + _PSEUDO) / (rows + 4 * _PSEUDO) for share in shares)
    return a, b, c, d


def _variance_of(judged: Estimate) -> float:
    """Return the rate's variance, which is not 0 at a rate of 0 or 1 (Agresti and Coull 1998)."""
    count = judged.effective + Z95 * Z95
    rate = (judged.mean * judged.effective + Z95 * Z95 / 2) / count
    return rate * (1 - rate) / count


def _estimate(mean: float, low: float, high: float, scores: int) -> Estimate:
    mean = min(1.0, max(0.0, mean))
    low = min(mean, max(0.0, low))
    high = max(mean, min(1.0, high))
    deviation = (high - low) / (2 * Z95)
    effective = float(scores)
    if deviation > _NOTHING:
        effective = mean * (1 - mean) / deviation**2
    return Estimate(mean, low, high, scores, effective)


def _range_where(square: float, linear: float, constant: float) -> tuple[float, float]:
    """Return the smallest range with all t from 0 to 1 that satisfy the inequality.

    It is square t^2 + linear t + constant <= 0.
    """
    root = math.sqrt(max(0.0, linear * linear - 4 * square * constant))
    ends = sorted((-linear + sign * root) / (2 * square or _NOTHING) for sign in (-1, 1))
    if square > 0:
        return ends[0], ends[1]
    inside = [end for end in ends if 0 <= end <= 1]
    if not inside:
        return 0.0, 1.0
    low = 0.0 if constant <= 0 else inside[0]
    high = 1.0 if square + linear + constant <= 0 else inside[-1]
    return low, high


def _kappa(shares: Sequence[float]) -> float:
    a, b, c, d = shares
    total = a + b + c + d
    agreed = (a + d) / total
    both_pass = (a + b) * (a + c)
    both_fail = (c + d) * (b + d)
    chance = (both_pass + both_fail) / (total * total)
    return (agreed - chance) / (1 - chance) if chance < 1 else 0.0


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))
