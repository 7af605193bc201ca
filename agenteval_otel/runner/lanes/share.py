"""Share: how much of one processor something may use that cannot leave the host's interpreter."""

from __future__ import annotations

import time

__all__ = ["CPU_SHARE", "Share"]

CPU_SHARE = 0.2
_CREDIT_S = 0.25
_MAX_REST_S = 2.0


class Share:
    """Credit in CPU seconds: it grows with the time that passes, up to a quarter of a second, and is used up.

    So a short burst (a first call that imports) goes at once, and a steady load comes down to the share.
    """

    def __init__(self) -> None:
        self._credit_s, self._since = _CREDIT_S, time.monotonic()

    def used(self, cpu_s: float) -> None:
        """Book what was used."""
        self._grow()
        self._credit_s -= cpu_s

    def rest_s(self) -> float:
        """How long to rest, 0 while there is credit; at most two seconds, after which the debt is looked at again."""
        self._grow()
        return min(_MAX_REST_S, -self._credit_s / CPU_SHARE) if self._credit_s < 0 else 0.0

    def _grow(self) -> None:
        now = time.monotonic()
        self._credit_s = min(_CREDIT_S, self._credit_s + (now - self._since) * CPU_SHARE)
        self._since = now
