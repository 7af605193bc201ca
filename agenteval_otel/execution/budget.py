"""CpuBudget: how much of a core our threads may use of the host's interpreter."""

from __future__ import annotations

import time

__all__ = ["CPU_SHARE", "CpuBudget"]

CPU_SHARE = 0.2
_BURST_S = 0.25
_MAX_REST_S = 2.0


class CpuBudget:
    """CPU seconds that grow with the time that passes, up to a quarter of a second, and are used up.

    A short burst (a first call that imports) runs at once, and a steady load comes down to the share.
    """

    def __init__(self) -> None:
        self._left_s, self._since = _BURST_S, time.monotonic()

    def use(self, cpu_s: float) -> None:
        """Book what was used."""
        self._grow()
        self._left_s -= cpu_s

    def rest_s(self) -> float:
        """How long to rest, 0 while something is left; at most two seconds, after which the caller asks again."""
        self._grow()
        return min(_MAX_REST_S, -self._left_s / CPU_SHARE) if self._left_s < 0 else 0.0

    def _grow(self) -> None:
        now = time.monotonic()
        self._left_s = min(_BURST_S, self._left_s + (now - self._since) * CPU_SHARE)
        self._since = now
