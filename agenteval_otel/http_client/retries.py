"""Retries: how often and when a model is asked again. The only layer that does: the SDKs' own retries are off."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from agenteval_otel.runtime.fork import RANDOM, ForkSafeLock

_LONGEST_S: Final = 8.0
_FREE: Final = 2.0
_SAVED: Final = 10.0


class RetryBudget:
    """Holds retries to ``max(2, share x calls)``; of unused ones at most ten are saved. Any thread may call."""

    def __init__(self, share: float) -> None:
        self._share, self._earned, self._used = share, 0.0, 0.0
        self._lock = ForkSafeLock()

    def count_call(self) -> None:
        with self._lock:
            self._earned += self._share
            self._used = max(self._used, self._earned - _SAVED)

    def take(self) -> bool:
        """Whether there may be one more retry, which is then counted."""
        with self._lock:
            if self._used + 1.0 > max(_FREE, self._earned + 1e-9):
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
    """Seconds that a response asks to wait, as a number or a date; None where it names none that can be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _seconds(headers.get(name, "").strip()[:64])
        if seconds is not None and math.isfinite(seconds) and seconds >= 0.0:
            return seconds * unit
    return None


def _seconds(value: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
