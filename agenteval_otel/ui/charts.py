"""Charts of the pages as SVG, which needs no script.

A chart is as wide as its place on the page: x is in per cent of the width, y in pixels from the top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from agenteval_otel.ui.costs import CostSeries
from agenteval_otel.ui.text import brief
from agenteval_otel.ui.views import NewVersion, Series, moment_text

_HEIGHTS: Final = {"spark": 48, "line": 230, "bars": 170}
_MARGIN: Final = 8
_BELOW: Final = 24  # for the names of moments
_STEPS_OF_VALUES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MOST_LINES: Final = 5
_STEPS_OF_TIME_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 300, 600, 900, 1_800),
    *(3_600, 2 * 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600),
    *(days * 86_400 for days in (1, 2, 7, 14, 30, 90, 365, 3_650)),
)
_MOST_MOMENTS: Final = 6
_DAY_S: Final = 86_400
_AROUND: Final = 0.03  # of the values: room above and below them
_MARK_PX: Final = 14
_MARKS_ABOVE: Final = 3  # below each other, before the first line of names is used again
_MARK_CHARS: Final = 26
_FAR_RIGHT: Final = 75.0  # per cent: a name there stands before its line
_AT_EDGE: Final = 3.0  # per cent: a name there would be cut


class Point(NamedTuple):
    """A place in a chart."""

    x: float
    y: float

    def __str__(self) -> str:
        return f"{self.x:g},{self.y:g}"


class Tick(NamedTuple):
    """A value or a moment on an axis.

    Attributes:
        at: In per cent from the left, or in pixels from the top.
        anchor: Where its name stands beside it, as SVG has it.
    """

    at: float
    name: str
    anchor: Literal["start", "middle", "end"] = "middle"


class Step(NamedTuple):
    """A part of the x axis with what it shows.

    Attributes:
        words: For the pointer.
        answers: What chooses its answers: ``since`` and ``until``, or ``low`` and ``high``.
        top: Of a bar, in pixels. None where a line is drawn.
    """

    x: float
    width: float
    words: str
    answers: Mapping[str, float]
    top: float | None = None


class Mark(NamedTuple):
    """A moment on the x axis at which a version begins.

    Attributes:
        name: As short as there is room for.
        words: The whole of it, for the pointer.
        y: Of the name, in pixels: marks beside each other have different ones.
    """

    x: float
    y: float
    name: str
    words: str
    anchor: Literal["start", "end"]


class Chart(NamedTuple):
    """What a template draws.

    Attributes:
        plot: The height of the part above the names of the x axis, in pixels.
        band: The corners of the intervals, around them.
        line: The means, from left to right.
        filling: The last mean before the step that is not over, and that step. Empty if all are over.
        dots: Means that no line would show.
        note: What the dashed part is. Empty if there is none.
    """

    kind: Literal["spark", "line", "bars"]
    height: int
    plot: int
    values: Sequence[Tick] = ()
    moments: Sequence[Tick] = ()
    steps: Sequence[Step] = ()
    band: Sequence[Point] = ()
    line: Sequence[Point] = ()
    filling: Sequence[Point] = ()
    dots: Sequence[Point] = ()
    objective: float | None = None
    marks: Sequence[Mark] = ()
    note: str = ""


class _Scale(NamedTuple):
    """Where values are drawn: `most` at the top, `least` at the bottom."""

    least: float
    most: float
    height: int

    def y(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        room = self.height - 2 * _MARGIN
        return round(_MARGIN + (1.0 - share) * room, 1)

    def ticks(self, *, rate: bool) -> list[Tick]:
        """Return at most five round values, from the lowest on."""
        reach = self.most - self.least
        step = next((step for step in _STEPS_OF_VALUES if reach / step <= _MOST_LINES), 1.0)
        first = math.ceil(self.least / step - 1e-9)
        last = math.floor(self.most / step + 1e-9)
        ticks = []
        for number in range(first, last + 1):
            value = number * step
            name = f"{100 * value:.0f} %" if rate else f"{value:.2f}"
            ticks.append(Tick(self.y(value), name))
        return ticks


def line_chart(
    series: Series, *, rate: bool, objective: float | None, versions: Sequence[NewVersion] = ()
) -> Chart:
    """Return a rate, or a mean, over time, with its intervals, axes and the values of each step.

    `versions` are those that begin meanwhile.
    """
    height = _HEIGHTS["line"]
    plot = height - _BELOW
    scale = _scale_of(series, objective, plot)
    return _lines(series, scale, objective)._replace(
        kind="line",
        height=height,
        values=scale.ticks(rate=rate),
        moments=_moments(series.times[0], series.end),
        steps=_steps(series, rate=rate),
        marks=_marks(series, versions),
    )


def spark_chart(
    series: Series, *, objective: float | None, versions: Sequence[NewVersion] = ()
) -> Chart:
    """Return a rate, or a mean, over time, without axes. `versions` are lines without a name."""
    marks = [mark._replace(name="") for mark in _marks(series, versions)]
    drawn = _lines(series, _scale_of(series, objective, _HEIGHTS["spark"]), objective)
    return drawn._replace(marks=marks)


def bar_chart(starts: Sequence[float], shares: Sequence[float]) -> Chart:
    """Return the shares of equal ranges of scores between 0 and 1."""
    height = _HEIGHTS["bars"]
    plot = height - _BELOW
    scale = _Scale(0.0, 1.1 * max(*shares, 0.01), plot)
    width = 100 / len(starts)
    steps = []
    for number, (start, share) in enumerate(zip(starts, shares, strict=True)):
        end = round(start + 1 / len(starts), 4)
        words = f"{start:.2f} to {end:.2f}: {100 * share:.1f} %"
        of_range = {"low": start, "high": end}
        steps.append(Step(number * width, 0.9 * width, words, of_range, scale.y(share)))
    scores = [_x_tick(20.0 * fifth, f"{fifth / 5:.1f}") for fifth in range(6)]
    return Chart("bars", height, plot, scale.ticks(rate=True), scores, steps)


def cost_chart(series: CostSeries) -> Chart:
    """Return the cost of each step of time as a bar."""
    height = _HEIGHTS["bars"]
    plot = height - _BELOW
    most = 1.1 * max(*series.usd, 1e-6)
    scale = _Scale(0.0, most, plot)
    width = 100 / len(series.times)
    ends = [*series.times[1:], series.end]
    has_seconds = series.step_s < 60
    steps = []
    for number, (start, usd) in enumerate(zip(series.times, series.usd, strict=True)):
        words = f"from {moment_text(start, has_seconds=has_seconds)}: {dollars(usd)}"
        of_step = {"since": start, "until": ends[number]}
        steps.append(Step(number * width, 0.9 * width, words, of_step, scale.y(usd)))
    lines = []
    for value in (0.0, most / 2.2, most / 1.1):
        lines.append(Tick(scale.y(value), dollars(value)))
    return Chart("bars", height, plot, lines, _moments(series.times[0], series.end), steps)


def dollars(usd: float) -> str:
    """Return an amount with cents, a smaller one with its first two digits."""
    digits = 2
    if 0 < usd < 1:
        digits = min(8, max(2, 1 - math.floor(math.log10(usd))))
    return f"${usd:,.{digits}f}"


def _scale_of(series: Series, objective: float | None, height: int) -> _Scale:
    """Return a scale with room for every interval and for the objective, between 0 and 1."""
    shown = [value for value in (*series.low, *series.high, objective) if value is not None]
    if not shown:
        return _Scale(0.0, 1.0, height)
    least = max(0.0, min(shown) - _AROUND)
    most = min(1.0, max(shown) + _AROUND)
    return _Scale(least, most, height)


def _lines(series: Series, scale: _Scale, objective: float | None) -> Chart:
    """Return the lines of a chart without axes. Where steps have no score, it is drawn across them."""
    width = 100 / len(series.times)
    means: list[Point] = []
    lows: list[Point] = []
    highs: list[Point] = []
    for number, (mean, low, high) in enumerate(
        zip(series.mean, series.low, series.high, strict=True)
    ):
        if mean is None or low is None or high is None:
            continue
        x = round((number + 0.5) * width, 2)
        means.append(Point(x, scale.y(mean)))
        lows.append(Point(x, scale.y(low)))
        highs.append(Point(x, scale.y(high)))
    line = means
    filling: list[Point] = []
    note = ""
    if series.is_filling:
        line = means[:-1]
        filling = means[-2:]
        start = moment_text(series.times[-1], has_seconds=series.has_seconds)
        note = f"dashed: the step from {start} is still filling"
    return Chart(
        "spark",
        scale.height,
        scale.height,
        band=[*highs, *reversed(lows)],
        line=line,
        filling=filling,
        dots=line if len(line) < 3 else (),
        objective=None if objective is None else scale.y(objective),
        note=note,
    )


def _steps(series: Series, *, rate: bool) -> list[Step]:
    width = 100 / len(series.times)
    ends = [*series.times[1:], series.end]
    steps = []
    for number, (start, count) in enumerate(zip(series.times, series.counts, strict=True)):
        end = ends[number]
        mean = series.mean[number]
        low = series.low[number]
        high = series.high[number]
        if mean is None or low is None or high is None:
            continue
        if rate:
            value = f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        else:
            value = f"{mean:.3f} ({low:.3f} to {high:.3f})"
        began = moment_text(start, has_seconds=series.has_seconds)
        words = f"from {began}: {value}, answers: {count:,}"
        if series.is_filling and number == len(series.times) - 1:
            words = f"{words}, still filling"
        of_step = {"since": start, "until": end}
        steps.append(Step(round(number * width, 3), round(width, 3), words, of_step))
    return steps


def _moments(start: int, end: int) -> list[Tick]:
    """Return at most six or seven round moments in UTC: a day at its beginning, else the time."""
    length_s = end - start
    steps = (step for step in _STEPS_OF_TIME_S if length_s / step <= _MOST_MOMENTS)
    step = next(steps, _STEPS_OF_TIME_S[-1])
    time_format = "%H:%M:%S" if step < 60 else "%H:%M"
    ticks = []
    for moment in range(start + -start % step, end + 1, step):
        at = datetime.fromtimestamp(moment, UTC)
        name = at.strftime("%m-%d" if moment % _DAY_S == 0 else time_format)
        ticks.append(_x_tick(round(100 * (moment - start) / length_s, 2), name))
    return ticks


def _marks(series: Series, versions: Sequence[NewVersion]) -> list[Mark]:
    start = series.times[0]
    length_s = series.end - start
    marks = []
    for number, version in enumerate(versions):
        x = round(100 * (version.moment - start) / length_s, 2)
        began = moment_text(version.moment, has_seconds=series.has_seconds)
        words = f"{version.words} from {began}"
        y = _MARGIN + 4 + _MARK_PX * (number % _MARKS_ABOVE)
        anchor: Literal["start", "end"] = "start" if x < _FAR_RIGHT else "end"
        marks.append(Mark(x, y, brief(version.words, _MARK_CHARS), words, anchor))
    return marks


def _x_tick(at: float, name: str) -> Tick:
    """Return a tick whose name stays within the chart."""
    if at < _AT_EDGE:
        return Tick(at, name, "start")
    if at > 100 - _AT_EDGE:
        return Tick(at, name, "end")
    return Tick(at, name)
