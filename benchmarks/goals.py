"""Goals and their verdicts: as they were set, and at the speed of the machine that measures.

The goals were set on a machine that is faster than most virtual ones. The verdict on the goal as it was set is always
shown. Beside it stands a second one, for goals that are times or rates: the same goal, moved by as much as this
machine is slower in the calibration of the same run. Ratios and counts have no second verdict: they move with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Goal", "at_least", "at_most", "holds"]


@dataclass(frozen=True)
class Goal:
    """A goal and whether ours holds it.

    Attributes:
        words: The goal as it was set.
        met: Whether it is met as it was set.
        times: How many times slower this machine is in what the goal is about; None where speed is not the matter.
        words_here: The goal at this machine's speed.
        met_here: Whether that one is met.
    """

    words: str
    met: bool
    times: float | None = None
    words_here: str = ""
    met_here: bool | None = None


def at_most(value: float | None, limit: float, *, times: float | None = None, and_also: bool = True) -> Goal:
    """`value` must not exceed `limit`; `and_also` is what else has to hold, at any speed."""
    found = float("inf") if value is None else value
    if times is None:
        return Goal(f"<= {limit:g}", found <= limit and and_also)
    here = limit * times
    return Goal(f"<= {limit:g}", found <= limit and and_also, times, f"<= {_short(here)}", found <= here and and_also)


def at_least(value: float | None, limit: float, *, times: float | None = None, and_also: bool = True) -> Goal:
    """`value` must reach `limit`; `and_also` is what else has to hold, at any speed."""
    found = 0.0 if value is None else value
    if times is None:
        return Goal(f">= {limit:,g}", found >= limit and and_also)
    here = limit / times
    return Goal(f">= {limit:,g}", found >= limit and and_also, times, f">= {here:,.0f}", found >= here and and_also)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def holds(words: str, met: bool) -> Goal:
    """A goal in words: a ratio, a count, a comparison within the run."""
    return Goal(words, met)
