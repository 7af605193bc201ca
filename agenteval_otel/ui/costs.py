"""What evaluation costs, and how long it ran: by criterion, by agent and over time.

Costs are those that judges' calls are stored with, and durations those of the evaluators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.ui.columns import ResultColumns, Rows
from agenteval_otel.ui.views import Window, rows_in, span_of, steps_of

Order = Literal["cost", "time"]
"""What groups are sorted by, the most first."""
_BY: Final = ("criterion", "agent")


class CostGroup(NamedTuple):
    """Holds what the evaluation of a criterion, or of an agent, cost and how long it ran.

    Attributes:
        calls: How many results have calls of a judge of their own.
        unpriced: How many of them have no known price.
        usd: What the others cost together.
        runs: How many results have a run of an evaluator of their own.
        seconds: How long these runs took together.
    """

    name: str
    calls: int
    unpriced: int
    usd: float
    runs: int
    seconds: float

    @property
    def each(self) -> float | None:
        """Return the average cost of a call with a price. None without one."""
        priced = self.calls - self.unpriced
        return self.usd / priced if priced else None

    @property
    def seconds_each(self) -> float | None:
        """Return how long a run took on average. None without one."""
        return self.seconds / self.runs if self.runs else None


class CostSeries(NamedTuple):
    """The cost of each step of time.

    Attributes:
        times: The beginnings of the steps, in seconds since the epoch.
        end: The end of the last step.
    """

    times: Sequence[int]
    usd: Sequence[float]
    end: int

    @property
    def step_s(self) -> int:
        """Return how long a step is."""
        return self.end - self.times[-1]

    @property
    def paid(self) -> list[tuple[int, float]]:
        """Return the steps that cost something, with what they cost."""
        return [(time, usd) for time, usd in zip(self.times, self.usd, strict=True) if usd]


class Costs(NamedTuple):
    """Holds what evaluation costs in a window of time, and how long it ran.

    Attributes:
        total: Of all that was chosen.
        by: Groups by ``criterion`` and by ``agent``, all of them, in the order that was chosen.
    """

    total: CostGroup
    by: Mapping[str, Sequence[CostGroup]]
    series: CostSeries


class _Spent(NamedTuple):
    """Holds what results took. NaN is that of a result without a call, or a run, of its own."""

    rows: Rows
    usd: NDArray[Any]
    seconds: NDArray[Any]


def order_in(text: str | None) -> Order:
    """Return the order that an address has, by cost unless it has the other one."""
    return "time" if text == "time" else "cost"


def costs_in(
    columns: ResultColumns, window: Window, filters: Mapping[str, str], order: Order = "cost"
) -> Costs | None:
    """Return what evaluation took. None if no result of the window tells."""
    spent = _spent(columns, rows_in(columns, window, filters, with_shadows=True))
    if not len(spent.rows):
        return None
    (total,) = _sums_of(spent, np.zeros(len(spent.rows), np.int8), [""])
    key = _slowest_first if order == "time" else _most_expensive_first
    groups: dict[str, Sequence[CostGroup]] = {}
    for column in _BY:
        names = [name or "(none)" for name in columns.names(column)]
        of_column = _sums_of(spent, columns[column][spent.rows], names)
        groups[column] = sorted(of_column, key=key)
    return Costs(total, groups, _series(columns, spent, window))


def _most_expensive_first(group: CostGroup) -> tuple[float, float, str]:
    return -group.usd, -group.seconds, group.name


def _slowest_first(group: CostGroup) -> tuple[float, float, str]:
    return -group.seconds, -group.usd, group.name


def _spent(columns: ResultColumns, rows: Rows) -> _Spent:
    """Return what these results took, without those that took nothing of their own."""
    usd = columns["cost"][rows]
    seconds = columns["duration"][rows].astype(np.float32)
    seconds[_shares_a_run(columns)[rows]] = np.nan
    tells = ~(np.isnan(usd) & np.isnan(seconds))
    return _Spent(rows[tells], usd[tells], seconds[tells])


def _shares_a_run(columns: ResultColumns) -> NDArray[np.bool_]:
    """Tell of each result whether it is of the same run as the one before it.

    An evaluator of several criteria runs once. Its results lie together, with one duration.
    """
    durations = columns["duration"]
    versions = columns["evaluator_version"]
    shares = ~columns.begins(np.arange(columns.count, dtype=np.int32))
    shares[1:] &= (durations[1:] == durations[:-1]) & (versions[1:] == versions[:-1])
    return shares


def _sums_of(spent: _Spent, codes: NDArray[Any], names: Sequence[str]) -> list[CostGroup]:
    """Return the sums of each group that has results. `codes` say which group a result is of."""

    def sums(values: NDArray[Any]) -> list[float]:
        of_groups: list[float] = np.bincount(codes, values, len(names)).tolist()
        return of_groups

    columns = (
        sums(~np.isnan(spent.usd)),
        sums(spent.usd < 0),
        sums(np.nan_to_num(spent.usd).clip(0)),
        sums(~np.isnan(spent.seconds)),
        sums(np.nan_to_num(spent.seconds)),
    )
    groups = []
    for name, calls, unpriced, usd, runs, seconds in zip(names, *columns, strict=True):
        if calls or runs:
            groups.append(CostGroup(name, int(calls), int(unpriced), usd, int(runs), seconds))
    return groups


def _series(columns: ResultColumns, spent: _Spent, window: Window) -> CostSeries:
    span = span_of(columns, spent.rows, window.by)
    start, step = steps_of(span)
    at = (columns.seconds(spent.rows, window.by) - start) // step
    count = (span.end - 1 - start) // step + 1
    usd = np.bincount(at, weights=np.nan_to_num(spent.usd).clip(0), minlength=count)
    times = [start + step * number for number in range(count)]
    return CostSeries(times, usd.tolist(), start + step * count)
