"""Goals and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Goal", "at_least", "at_most", "holds"]


@dataclass(frozen=True)
class Goal:
    """A goal in words, and whether ours holds it."""

    words: str
    met: bool


def at_most(value: float | None, limit: float) -> Goal:
    """`value` must not exceed `limit`; a value that was not measured does."""
    return Goal(f"<= {limit:g}", value is not None and value <= limit)


def at_least(value: float | None, limit: float, *, and_also: bool = True) -> Goal:
    """`value` must reach `limit`; `and_also` is what else has to hold."""
    return Goal(f">= {limit:,g}", value is not None and value >= limit and and_also)


def holds(words: str, met: bool) -> Goal:
    """A goal in words: a ratio, a count, a comparison within the run."""
    return Goal(words, met)
