"""Drops: from when on, and whether, the pass rate of a criterion is lower than before.

The demo does not look at when it released the prompt: places all along a criterion's series are tried as the change.
To try many places for several criteria invites false alarms, so the p-value of the best place is multiplied by the
number of places (Bonferroni) and by that of the criteria (Holm): among runs without a change at most one in twenty
reports one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agenteval_otel.intervals import Difference, Estimate, WeightedSums, difference_of

__all__ = ["FALSE_ALARMS", "Drop", "Point", "align", "common_time", "find_drops"]

FALSE_ALARMS = 0.05
_SPLITS = 16
_AT_LEAST = 20
_EDGE = 0.15
_MOMENTS = 100


class Point(NamedTuple):
    """One verdict in the order of time: when its answer ended (seconds since the start), passed, weight, reason."""

    at_s: float
    passed: bool
    weight: float
    reason: str | None = None
    trace_id: str | None = None


class Drop(NamedTuple):
    """A pass rate that fell: `place` is that of the first point of the series after the fall, from 0.

    Attributes:
        p_value: One-sided, corrected for every place and every criterion that was tried.
    """

    criterion: str
    place: int
    at_s: float
    before: Estimate
    after: Estimate
    difference: Difference
    p_value: float


def find_drops(series: Mapping[str, Sequence[Point]], *, false_alarms: float = FALSE_ALARMS) -> list[Drop]:
    """The criteria whose pass rate fell, the deepest fall first.

    Args:
        series: Verdicts by criterion, in the order of time.
        false_alarms: Share of the runs without any change in which at most something is reported.
    """
    found = [_best_split(name, points) for name, points in series.items() if len(points) >= 2 * _AT_LEAST]
    drops: list[Drop] = []
    corrected = 0.0
    # Holm's order: the surest first; each that is found leaves fewer to try, and none is surer than the one before it.
    for tried, drop in enumerate(sorted((drop for drop in found if drop), key=lambda drop: drop.p_value)):
        corrected = max(corrected, min(1.0, drop.p_value * (len(found) - tried)))
        if corrected >= false_alarms:
            break
        drops.append(drop._replace(p_value=corrected))
    return sorted(drops, key=lambda drop: drop.difference.value)


def common_time(drops: Sequence[Drop], series: Mapping[str, Sequence[Point]]) -> float | None:
    """When the fall began that the drops share: the moment that separates before and after best over all of them.

    One criterion's moment may lie seconds off by chance; of several the sum of their squared statistics is sharper.
    """
    moments = sorted({drop.at_s for drop in drops} | {
        point.at_s for drop in drops for point in _around(series[drop.criterion], drop.place)
    })  # fmt: skip
    best, best_total = None, -1.0
    for at_s in moments[:: max(1, len(moments) // _MOMENTS)]:
        total = sum(_statistic(series[drop.criterion], at_s) for drop in drops)
        if total > best_total:
            best, best_total = at_s, total
    return best


def align(drop: Drop, points: Sequence[Point], at_s: float) -> Drop:
    """The drop told from a common moment on, with its own p-value; as it was where the rate did not fall there."""
    place = bisect_left(points, at_s, key=lambda point: point.at_s)
    before, after = _sums(points[:place]).estimate(), _sums(points[place:]).estimate()
    if before is None or after is None or after.mean >= before.mean:
        return drop
    return drop._replace(place=place, at_s=at_s, before=before, after=after, difference=difference_of(before, after))


def _around(points: Sequence[Point], place: int) -> Sequence[Point]:
    reach = max(1, int(len(points) * _EDGE))
    return points[max(0, place - reach) : place + reach]


def _statistic(points: Sequence[Point], at_s: float) -> float:
    place = bisect_left(points, at_s, key=lambda point: point.at_s)
    before, after = _sums(points[:place]).estimate(), _sums(points[place:]).estimate()
    return 0.0 if before is None or after is None else difference_of(before, after).z ** 2


def _best_split(name: str, points: Sequence[Point]) -> Drop | None:
    """The place after which the rate is most surely lower, its p-value times the places tried; None: it never is."""
    edge = max(_AT_LEAST, int(len(points) * _EDGE))
    places = _places(edge, len(points) - edge)
    total = _sums(points)
    before = WeightedSums()
    best: Drop | None = None
    start = 0
    for place in places:
        before = before.plus(_sums(points[start:place]))
        start = place
        first, second = before.estimate(), total.plus(before, sign=-1).estimate()
        if first is None or second is None:
            continue
        difference = difference_of(first, second)
        if difference.z < (best.difference.z if best else 0.0):
            # Only a fall is looked for: half of the two-sided p-value.
            best = Drop(name, place, points[place].at_s, first, second, difference, difference.p_value / 2)
    return best and best._replace(p_value=min(1.0, best.p_value * len(places)))


def _places(first: int, last: int) -> list[int]:
    steps = min(_SPLITS, last - first + 1)
    return sorted({first + round(step * (last - first) / max(1, steps - 1)) for step in range(steps)})


def _sums(points: Sequence[Point]) -> WeightedSums:
    sums = WeightedSums()
    for point in points:
        sums.add(1.0 if point.passed else 0.0, point.weight)
    return sums
