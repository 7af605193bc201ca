"""Figures and signs as every report and command prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agenteval_otel.models.intervals import Estimate
from agenteval_otel.runtime.masking import printable

# In code, an @ mentions no one and an address is not a link.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~@&]|://|www\.")
DASH, GOOD, BAD, DOWN = "\u2013", "✓", "✗", "▼"


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage. Only exactly 0 and 1 are shown as 0 % and 100 %."""
    step = 10.0**-digits
    shown = (
        share * 100 if share in (0, 1) else min(max(round(share * 100, digits), step), 100 - step)
    )
    return f"{shown:.{digits}f} %"


def setting(share: float) -> str:
    """A share from the settings as a percentage, not rounded."""
    return f"{share * 100:g} %"


def with_interval(estimate: Estimate, *, rate: bool = False) -> str:
    """A mean with its 95 % interval, ``0.82 (0.77-0.86)``, or a rate, ``82 % (77-86)``."""
    if not rate:
        return f"{estimate.mean:.2f} ({estimate.low:.2f}{DASH}{estimate.high:.2f})"
    low, high = (percent(end).removesuffix(" %") for end in (estimate.low, estimate.high))
    return f"{percent(estimate.mean)} ({low}{DASH}{high})"


def exactly(estimate: Estimate, *, rate: bool = False) -> str:
    """A mean or a rate with enough digits to compare it with a limit, and its 95 % interval."""
    if rate:
        return f"{100 * estimate.mean:.4g} % (95 % interval {100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return f"{estimate.mean:.4g} (95 % interval {estimate.low:.3f} to {estimate.high:.3f})"


def frequencies(counts: Mapping[Any, int], *, most: int = 3) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = [f"{key} {count:,}" for key, count in ordered[:most]]
    return ", ".join([*shown, f"{len(ordered) - most} more"] if len(ordered) > most else shown)


def count_of(count: int, singular: str, plural: str | None = None) -> str:
    """``1 input``, ``1,200 inputs``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def markdown_text(text: str) -> str:
    """The text, as code where Markdown would interpret it."""
    shown = printable(text)
    return (
        f"`{shown.replace('`', chr(39)).replace('|', chr(92) + '|')}`"
        if _SPECIAL.search(shown)
        else shown
    )
