"""What evaluation costs, of what judges' calls are stored with: by criterion, by agent and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from agenteval_otel.ui.columns import ResultColumns, Rows
from agenteval_otel.ui.views import Window, rows_in, span_of, steps_of

_MOST_NAMES: Final = 50


class CostGroup(NamedTuple):
    """What the judges' calls of a criterion, or of an agent, cost.

    Attributes:
        calls: How many results have calls of their own.
        unpriced: How many of them have no known price.
        usd: What the others cost together.
    """

    name: str
    calls: int
    unpriced: int
    usd: float

    @property
    def each(self) -> float | None:
        """Return the average cost of a call with a price. None without one."""
        priced = self.calls - self.unpriced
        return self.usd / priced if priced else None


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
    """What evaluation costs in a window of time.

    Attributes:
        total: Of all that was chosen.
        by: Groups by ``criterion`` and by ``agent``, the most expensive first.
    """

    total: CostGroup
    by: Mapping[str, Sequence[CostGroup]]
    series: CostSeries


def costs_in(columns: ResultColumns, window: Window, filters: Mapping[str, str]) -> Costs | None:
    """Return what judges' calls cost. None if no result of the window has any."""
    rows = rows_in(columns, window, filters, with_shadows=True)
    rows = rows[~np.isnan(columns["cost"][rows])]
    if not len(rows):
        return None
    groups = {name: _groups_by(columns, rows, name) for name in ("criterion", "agent")}
    return Costs(_group(columns, rows, ""), groups, _series(columns, rows, window))


def _groups_by(columns: ResultColumns, rows: Rows, column: str) -> list[CostGroup]:
    """Return the fifty most expensive groups by a column of names."""
    codes = columns[column][rows]
    names = columns.names(column)
    groups = [
        _group(columns, rows[codes == code], names[code] or "(none)") for code in np.unique(codes)
    ]
    groups.sort(key=lambda group: (-group.usd, group.name))
    return groups[:_MOST_NAMES]


def _group(columns: ResultColumns, rows: Rows, name: str) -> CostGroup:
    costs = columns["cost"][rows]
    is_priced = costs >= 0
    usd = float(costs[is_priced].sum(dtype=np.float64))
    return CostGroup(name, len(rows), int(np.count_nonzero(~is_priced)), usd)


def _series(columns: ResultColumns, rows: Rows, window: Window) -> CostSeries:
    span = span_of(columns, rows, window.by)
    start, step = steps_of(span)
    at = (columns.seconds(rows, window.by) - start) // step
    count = (span.end - 1 - start) // step + 1
    costs = np.maximum(columns["cost"][rows], 0.0)
    usd = np.bincount(at, weights=costs, minlength=count)
    times = [start + step * number for number in range(count)]
    return CostSeries(times, usd.tolist(), start + step * count)
