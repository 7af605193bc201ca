"""Figures and signs as every report and command prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agenteval_otel.models.intervals import FEWEST_BASELINE, FEWEST_UNITS, Estimate
from agenteval_otel.runtime.masking import printable

# In code, an @ mentions no one and an address is not a link.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~@&]|://|www\.")
DASH = "\u2013"
GOOD = "✓"
BAD = "✗"
DOWN = "▼"


def percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage. Only exactly 0 and 1 are shown as 0 % and 100 %."""
    step = 10.0**-digits
    shown = share * 100
    if share not in (0, 1):
        shown = min(max(round(shown, digits), step), 100 - step)
    return f"{shown:.{digits}f} %"


def setting(share: float) -> str:
    """Format a share from the settings as a percentage, not rounded."""
    return f"{share * 100:g} %"


def with_interval(estimate: Estimate, *, rate: bool = False) -> str:
    """Return a mean with its 95 % interval, ``0.82 (0.77-0.86)``, or a rate, ``82 % (77-86)``.

    Where no interval may be shown the number of scores or units stands there, ``0.82 (of 12)``, and
    where no mean may be shown that of the baseline answers, ``- (3 baseline)``. `interval_notes`
    says why.
    """
    baseline = "" if estimate.baseline is None else f"{estimate.baseline:,} baseline"
    if not estimate.is_known:
        return f"{DASH} ({baseline})"
    mean = percent(estimate.mean) if rate else f"{estimate.mean:.2f}"
    if not estimate.has_interval:
        return f"{mean} ({_too_few(estimate)})"
    if rate:
        low = percent(estimate.low).removesuffix(" %")
        high = percent(estimate.high).removesuffix(" %")
    else:
        low = f"{estimate.low:.2f}"
        high = f"{estimate.high:.2f}"
    parts = [f"{low}{DASH}{high}"]
    if baseline:
        parts.append(baseline)
    return f"{mean} ({', '.join(parts)})"


def exactly(estimate: Estimate, *, rate: bool = False) -> str:
    """Return a mean or a rate with enough digits to compare it with a limit.

    Its 95 % interval follows, or why there is none.
    """
    mean = f"{100 * estimate.mean:.4g} %" if rate else f"{estimate.mean:.4g}"
    if not estimate.is_known:
        return f"unknown: {estimate.baseline} baseline answers are too few"
    if not estimate.has_interval:
        return f"{mean} ({_too_few(estimate)}: no interval)"
    if rate:
        interval = f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
    else:
        interval = f"{estimate.low:.3f} to {estimate.high:.3f}"
    return f"{mean} (95 % interval {interval})"


def _too_few(estimate: Estimate) -> str:
    if estimate.units == estimate.scores:
        return f"of {estimate.scores:,}"
    return f"of {count_of(estimate.units or 0, 'unit')}"


def interval_notes(estimates: Iterable[Estimate | None]) -> list[tuple[str, ...]]:
    """Return what the words in the brackets of these estimates mean, each with its sentence."""
    known = [estimate for estimate in estimates if estimate is not None]
    notes: list[tuple[str, ...]] = []
    if any(estimate.is_known and not estimate.has_interval for estimate in known):
        text = (
            f"too few for an interval: it takes {FEWEST_UNITS} units (conversations, sessions or "
            "traces, else answers)"
        )
        notes.append(("of ...", text))
    if any(estimate.baseline is not None for estimate in known):
        text = (
            "answers that neither sampling nor escalation preferred. They stand for most answers, and "
            f"a mean takes {FEWEST_BASELINE} of them"
        )
        notes.append(("baseline", text))
    return notes


def frequencies(counts: Mapping[Any, int], *, most: int = 3) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = [f"{key} {count:,}" for key, count in ordered[:most]]
    if len(ordered) > most:
        shown.append(f"{len(ordered) - most} more")
    return ", ".join(shown)


def count_of(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun: ``1 input``, ``1,200 inputs``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def markdown_text(text: str) -> str:
    """Return the text, as code if Markdown would interpret it."""
    shown = printable(text)
    if not _SPECIAL.search(shown):
        return shown
    code = shown.replace("`", "'").replace("|", "\\|")
    return f"`{code}`"
