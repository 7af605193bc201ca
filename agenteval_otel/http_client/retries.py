"""Retries: how often and when a model is asked again. The one layer that does: the SDKs' own retries are off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from agenteval_otel.runtime.fork import RANDOM, ForkSafeLock

__all__ = ["RetryBudget", "retry_after_of", "wait_before"]

_LONGEST_S: Final = 8.0
_SAVED: Final = 10.0


class RetryBudget:
    """Holds retries to a share of the calls, so that a provider in trouble gets no more than that on top.

    At any time, the retries so far are at most ``max(first, share x calls so far)``. What was not used is kept up to
    ten retries. Shared by all threads of the process.

    Args:
        share: Retries a call, such as 0.1.
        first: So many are free for a model that has hardly been asked yet.
    """

    def __init__(self, share: float = 0.1, first: int = 2) -> None:
        self._share, self._first = share, float(first)
        self._earned, self._used = 0.0, 0.0
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        return f"<RetryBudget share={self._share:g} earned={self._earned:g} used={self._used:g}>"

    def called(self) -> None:
        """A call has begun."""
        with self._lock:
            self._earned += self._share
            self._used = max(self._used, self._earned - _SAVED)

    def take(self) -> bool:
        """Whether there may be one retry more; it is then counted."""
        with self._lock:
            if self._used + 1.0 > max(self._first, self._earned + 1e-9):
                return False
            self._used += 1.0
            return True


def wait_before(retry: int, base_s: float, retry_after_s: float | None = None) -> float:
    """Seconds to wait before the retry, the first being 0: doubled each time up to 8, less up to a half by chance.

    What the provider asks for is the least; chance then adds up to a quarter of it, and at most a second.
    """
    drawn = RANDOM.random()
    wait = min(_LONGEST_S, base_s * 2.0**retry) * (1.0 - drawn / 2.0)
    if retry_after_s is None:
        return wait
    return max(wait, retry_after_s + drawn * min(1.0, retry_after_s / 4.0))


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait: a number or a date; None where it says nothing that can be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()[:64]
        if value:
            seconds = _seconds(value, unit)
            if seconds is not None:
                return seconds
    return None


def _seconds(value: str, unit: float) -> float | None:
    try:
        seconds = float(value) * unit
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return None
        at = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, (at - datetime.now(UTC)).total_seconds())
    return seconds if math.isfinite(seconds) and seconds >= 0.0 else None
