"""How figures are said: the same in every report."""

from __future__ import annotations

from collections.abc import Mapping

from agenteval_otel.cli.demo.tables import percent
from agenteval_otel.cli.evaluate.tallies import Tally
from agenteval_otel.intervals import Estimate

__all__ = ["counted", "duration_of", "exactly", "number", "plural", "share_of", "value_of", "words_of"]


def value_of(estimate: Estimate, dash: str = "\u2013") -> str:
    """A mean with its 95 % interval: ``0.82 (0.77-0.86)``."""
    return f"{number(estimate.mean)} ({number(estimate.low)}{dash}{number(estimate.high)})"


def share_of(estimate: Estimate, dash: str = "\u2013") -> str:
    """A share with its 95 % interval: ``82 % (77-86)``."""
    low, high = (percent(end).removesuffix(" %") for end in (estimate.low, estimate.high))
    return f"{percent(estimate.mean)} ({low}{dash}{high})"


def exactly(estimate: Estimate, *, percent: bool = False) -> str:
    """A mean or a share with digits enough to be held against a limit, and its 95 % interval."""
    if percent:
        return f"{100 * estimate.mean:.4g} % (95 % interval {100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return f"{estimate.mean:.4g} (95 % interval {estimate.low:.3f} to {estimate.high:.3f})"


def number(value: float) -> str:
    """A number from 0 to 1 with two digits, with more where only they tell it from 0 and 1."""
    digits = next((digits for digits in (2, 3, 4) if round(value, digits) not in (0.0, 1.0)), 2)
    return f"{value:.{digits}f}"


def counted(tally: Tally) -> str:
    """How many results of each kind, with why: ``0 scored, 12 failed: timeout 12``."""
    parts = [f"{tally.scored:,} scored"]
    if tally.skipped:
        parts.append(f"{tally.skipped:,} skipped: {words_of(tally.skips)}")
    if tally.failed:
        parts.append(f"{tally.failed:,} failed: {words_of(tally.errors)}")
    return ", ".join(parts)


def words_of(counts: Mapping[str, int], *, most: int = 3) -> str:
    """The most frequent words with their counts."""
    found = sorted(counts.items(), key=lambda pair: -pair[1])
    rest = len(found) - most
    told = [f"{word} {count:,}" for word, count in found[:most]]
    return ", ".join([*told, f"{rest} more"] if rest > 0 else told)


def plural(count: int, word: str) -> str:
    """``1 input``, ``1,200 inputs``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def duration_of(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
