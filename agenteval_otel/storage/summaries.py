"""Takes stored scores together: the one sum behind comparison, pages, calibration and history.

It works on arrays, because a page draws hundreds of figures of a million results. Scores that
arrive one by one in a process that runs on are `UnitSums`, which gives the same figures within
bounds.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.models.intervals import UnitMean

_DENSE = 4  # so many possible pairs for each score are numbered without a sort


class ScoreColumns(NamedTuple):
    """Scores as arrays of one length.

    Attributes:
        values: The scores, in [0, 1]. Differences of scores are in [-1, 1].
        weights: 1 / probability, above 0.
        units: What the scores depend on others by, as whole numbers from 0.
        is_baseline: Whether the answer had the least probability of all.
        groups: What they are taken together by, as whole numbers from 0.
    """

    values: NDArray[Any]
    weights: NDArray[Any]
    units: NDArray[Any]
    is_baseline: NDArray[Any]
    groups: NDArray[Any]


def summarise(scores: ScoreColumns, count: int) -> list[UnitMean | None]:
    """Return the weighted mean of each of `count` groups, as `UnitSums` does.

    A group without scores has None.
    """
    values, weights, units, is_baseline, groups = scores
    groups = groups.astype(np.intp, copy=False)  # once, and not in each call of `bincount`
    scored = weights * values
    pairs, of_unit = _sums_of_pairs(groups, units, count, (weights, scored))
    total = np.bincount(groups, weights, count)
    means = np.bincount(groups, scored, count) / np.where(total, total, 1.0)
    apart = weights * (values - means[groups])
    between = of_unit[1] - means[pairs] * of_unit[0]
    squares_apart = np.bincount(groups, apart * apart, count)
    squares_between = np.bincount(pairs, between * between, count)
    squares_of_weights = np.bincount(groups, weights * weights, count)
    squares_of_units = np.bincount(pairs, of_unit[0] * of_unit[0], count)
    unit_counts = np.bincount(pairs, None, count)
    score_counts = np.bincount(groups, None, count)
    baseline_counts = np.bincount(groups[is_baseline], None, count)
    columns = (
        means,
        squares_apart,
        squares_between,
        squares_of_weights,
        squares_of_units,
        total * total,
        unit_counts,
        score_counts,
        baseline_counts,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [_unit_mean_of(*row) for row in rows]


def _unit_mean_of(
    mean: float,
    square_apart: float,
    square_between: float,
    square_of_weights: float,
    square_of_units: float,
    square_of_total: float,
    unit_count: int,
    score_count: int,
    baseline_count: int,
) -> UnitMean | None:
    if not score_count:
        return None
    has_only_baseline = baseline_count == score_count
    return UnitMean(
        mean=mean,
        apart=square_apart / square_of_total,
        between=square_between / square_of_total,
        kish=square_of_total / square_of_weights,
        kish_units=square_of_total / square_of_units,
        units=unit_count,
        scores=score_count,
        baseline=None if has_only_baseline else baseline_count,
    )


def _sums_of_pairs(
    groups: NDArray[Any], units: NDArray[Any], count: int, weights: tuple[NDArray[Any], ...]
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return the group of each pair of group and unit that occurs, and the sums of its weights.

    The first weights are above 0.
    """
    most = int(units.max(initial=0)) + 1
    numbers = groups * most + units
    if count * most > _DENSE * len(numbers):
        pairs, numbers = np.unique(numbers, return_inverse=True)
    else:  # without a sort
        pairs = np.arange(count * most)
    sums = [np.bincount(numbers, of_value, len(pairs)) for of_value in weights]
    occurs = sums[0] > 0
    return pairs[occurs] // most, [of_pair[occurs] for of_pair in sums]


class GatheredScores:
    """Scores of stored answers, gathered for `summarise`. Each takes 25 bytes.

    Args:
        groups: The first groups, in this order. Others follow as they appear.
    """

    def __init__(self, groups: Iterable[str] = ()) -> None:
        self._values = array("d")
        self._weights = array("d")
        self._of_unit = array("i")
        self._of_group = array("i")
        self._is_baseline = array("b")
        self._units: dict[Hashable, int] = {}
        self._groups = {name: number for number, name in enumerate(groups)}
        self._unit_count = 0

    def __repr__(self) -> str:
        return f"<GatheredScores {len(self._values):,} of {len(self._groups)} groups>"

    def add(
        self,
        value: float,
        weight: float = 1.0,
        unit: Hashable = None,
        *,
        group: str = "",
        is_baseline: bool = True,
    ) -> None:
        """Add one score of a unit. Without one it is a unit of its own.

        Args:
            value: In [0, 1].
            weight: 1 / probability, above 0.
            unit: What the score depends on others by.
            group: What it is taken together by.
            is_baseline: Its answer had the least probability of all, as far as that is known.
        """
        self._values.append(value)
        self._weights.append(weight)
        self._of_unit.append(self._number_of(unit))
        self._of_group.append(self._groups.setdefault(group, len(self._groups)))
        self._is_baseline.append(is_baseline)

    def means(self) -> dict[str, UnitMean]:
        """Return the weighted mean of each group that has scores, in the order of the groups."""
        means = summarise(self.columns(), len(self._groups))
        named = zip(self._groups, means, strict=True)
        return {name: mean for name, mean in named if mean is not None}

    def mean(self) -> UnitMean | None:
        """Return the weighted mean of the scores of the one group. None without scores."""
        return next(iter(self.means().values()), None)

    def columns(self) -> ScoreColumns:
        """Return the scores as arrays, which share memory: nothing is added after this."""
        return ScoreColumns(
            np.asarray(self._values),
            np.asarray(self._weights),
            np.asarray(self._of_unit),
            np.asarray(self._is_baseline, np.bool_),
            np.asarray(self._of_group),
        )

    def _number_of(self, unit: Hashable) -> int:
        number = None if unit is None else self._units.get(unit)
        if number is None:
            number = self._unit_count
            self._unit_count += 1
            if unit is not None:
                self._units[unit] = number
        return number
