"""Charts: where lines, bars and their names are drawn."""

from __future__ import annotations

import time

import pytest

from agenteval_otel.ui.charts import bar_chart, line_chart, spark_chart
from agenteval_otel.ui.views import NewVersion, Series

DAY_S = 86_400
MIDNIGHT = 20_000 * DAY_S


def series(means: list[float | None], *, step_s: int = 3_600, start: int = MIDNIGHT) -> Series:
    """A series of so many steps, each mean with an interval of 0.1 around it."""
    times = [start + step_s * number for number in range(len(means))]
    low = [None if mean is None else max(0.0, mean - 0.05) for mean in means]
    high = [None if mean is None else min(1.0, mean + 0.05) for mean in means]
    counts = [0 if mean is None else 7 for mean in means]
    return Series(times, means, low, high, counts, start + step_s * len(means))


def test_a_lower_mean_is_drawn_lower_and_the_line_crosses_empty_steps() -> None:
    drawn = spark_chart(series([0.9, None, 0.7, 0.8]), objective=0.75)
    assert [point.x for point in drawn.line] == [12.5, 62.5, 87.5]
    first, lowest, last = (point.y for point in drawn.line)
    assert first < last < lowest, "pixels from the top"
    assert drawn.objective is not None
    assert last < drawn.objective < lowest
    assert len(drawn.band) == 6
    assert not drawn.dots


@pytest.mark.parametrize("means", [[0.9], [None, 0.9], [0.9, 0.8]])
def test_what_is_too_short_for_a_line_is_dots(means: list[float | None]) -> None:
    drawn = spark_chart(series(means), objective=None)
    assert len(drawn.dots) == len([mean for mean in means if mean is not None])


def test_the_step_that_is_not_over_is_apart() -> None:
    now = int(time.time())
    drawn = line_chart(series([0.9, 0.8, 0.7], start=now - 2 * 3_600), rate=True, objective=None)
    assert len(drawn.line) == 2
    assert drawn.filling[0] == drawn.line[-1]
    assert drawn.steps[-1].words.endswith("70.0 % (65.0 to 75.0), answers: 7, still filling")


@pytest.mark.parametrize(
    ("step_s", "count", "names"),
    [
        (3_600, 24, ["10-04", "06:00", "12:00", "18:00", "10-05"]),
        (60, 5, ["10-04", "00:01", "00:02", "00:03", "00:04", "00:05"]),
        (1, 20, ["10-04", "00:00:05", "00:00:10", "00:00:15", "00:00:20"]),
        (DAY_S, 4, ["10-04", "10-05", "10-06", "10-07", "10-08"]),
    ],
)
def test_moments_are_round(step_s: int, count: int, names: list[str]) -> None:
    drawn = line_chart(series([0.9] * count, step_s=step_s), rate=True, objective=None)
    assert [tick.name for tick in drawn.moments] == names
    assert drawn.moments[0].anchor == "start"
    assert drawn.moments[-1].anchor == "end"


def test_a_version_is_marked_where_it_begins() -> None:
    """With a name that is cut, and stands on the side where there is room."""
    versions = [
        NewVersion("prompt_version", "2", MIDNIGHT + 6 * 3_600),
        NewVersion("service_version", "2026.11.30-" + "a" * 40, MIDNIGHT + 23 * 3_600),
    ]
    drawn = line_chart(series([0.9] * 24), rate=True, objective=None, versions=versions)
    first, last = drawn.marks
    assert (first.x, first.name, first.anchor) == (25.0, "prompt version 2", "start")
    assert first.words == "prompt version 2 from 2024-10-04 06:00 UTC"
    assert last.anchor == "end"
    assert len(last.name) <= 26
    assert last.y > first.y, "names beside each other do not cover each other"


def test_values_have_names_in_the_unit_of_the_figure() -> None:
    rate = line_chart(series([0.9, 0.5]), rate=True, objective=None)
    mean = line_chart(series([0.9, 0.5]), rate=False, objective=None)
    assert [tick.name for tick in rate.values] == ["60 %", "80 %"]
    assert [tick.name for tick in mean.values] == ["0.60", "0.80"]


def test_bars_are_as_high_as_their_share() -> None:
    drawn = bar_chart([0.0, 0.25, 0.5, 0.75], [0.1, 0.0, 0.2, 0.7])
    assert drawn.steps[3].words == "0.75 to 1.00: 70.0 %"
    low, none, middle, high = (step.top for step in drawn.steps)
    assert None not in (low, none, middle, high)
    assert high < middle < low < none == drawn.plot - 8  # type: ignore[operator]
    assert bar_chart([0.0, 0.5], [0.0, 0.0]).steps[0].words == "0.00 to 0.50: 0.0 %"
