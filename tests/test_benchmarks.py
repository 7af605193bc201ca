"""The benchmarks judge fairly: what a goal says, what a slower machine moves, what a line through memory tells."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.goals import at_least, at_most, holds
from benchmarks.harness import Bench, Figure
from benchmarks.machine import REFERENCE, Machine, machine_of
from benchmarks.soak import slope
from benchmarks.tables import show, summary


def machine(times: float) -> Machine:
    return machine_of(
        {name: there / times if unit == "1/s" else there * times for name, (_, unit, there) in REFERENCE.items()}
    )


def bench(*figures: Figure) -> tuple[Bench, list[Figure]]:
    return Bench("case", "Cases", (), lambda found, machine: [], notes=("A note.",)), list(figures)


def test_a_slower_machine_moves_the_second_verdict_only() -> None:
    """A time beyond its goal stays missed as set, and is met where the machine is as much slower."""
    goal = at_most(20.0, 10.0, times=2.5)
    assert (goal.met, goal.met_here) == (False, True)
    assert at_most(26.0, 10.0, times=2.5).met_here is False


def test_rates_move_the_other_way() -> None:
    """A slower machine owes fewer a second, and still something."""
    goal = at_least(500.0, 1_000.0, times=2.0)
    assert (goal.met, goal.met_here, goal.words_here) == (False, True, ">= 500")
    assert at_least(499.0, 1_000.0, times=2.0).met_here is False


def test_a_figure_that_is_missing_meets_nothing() -> None:
    """What was not measured is not met."""
    assert not at_most(None, 10.0).met
    assert not at_least(None, 10.0).met


@pytest.mark.parametrize("times", [0.5, 1.0])
def test_a_faster_machine_makes_no_goal_stricter(times: float) -> None:
    """The factors never fall below one."""
    found = machine(times)
    assert {found.tight, found.cold, found.tail, found.span, found.emission} == {1.0}


def test_the_factors_are_times_slower() -> None:
    """Times and rates of a machine that is three times slower all give three."""
    found = machine(3.0)
    for factor in (found.tight, found.cold, found.tail, found.span, found.emission):
        assert factor == pytest.approx(3.0)


def test_the_table_never_hides_the_verdict_as_set() -> None:
    """A row that is met at this machine's speed still says MISSED in the column of the goal as it was set."""
    text = show([bench(Figure("a call", "us", {"ours": 20.0, "raw": 40.0}, at_most(20.0, 10.0, times=2.5)))])
    row = next(line for line in text.splitlines() if "a call" in line)
    assert "MISSED" in row
    assert "met <= 25 (x2.5)" in row
    assert "- A note." in text


def test_the_summary_says_what_the_same_is() -> None:
    """A missed goal is named in full, wherever it stands in its group."""
    parts: list[Any] = [
        bench(Figure("a burst: evaluated", "calls", {"ours": 5.0}), Figure("the same: counted", "calls", {"ours": 4.0},
              holds("all", False)))
    ]  # fmt: skip
    assert "- a burst: counted: 4 calls (goal all)" in summary(parts)


def test_memory_that_stands_still_has_a_slope_of_nothing() -> None:
    """A level line has slope and bound zero, a rising one its slope."""
    level = [(float(second), 50.0) for second in range(120)]
    assert slope(level) == pytest.approx((0.0, 0.0), abs=1e-9)
    rising = [(float(second), 50.0 + second * 0.25) for second in range(120)]
    assert slope(rising) == pytest.approx((0.25, 0.25))


def test_the_bound_grows_with_what_the_line_leaves_over() -> None:
    """Memory that jumps about gets an upper bound above its slope."""
    jumping = [(float(second), 50.0 + (second // 10 % 2)) for second in range(120)]
    found, bound = slope(jumping)
    assert bound > found
