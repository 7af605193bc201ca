"""HostLoops: how late the host's event loops turn.

A timer on the loop says how late it was, four times a second, and only for a few seconds after a monitored call. The
loop is held weakly; a timer that is left behind keeps neither a loop nor a program alive, and a loop that is closed
forgets it without a word.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["HostLoops"]

EVERY_S: Final = 0.25
_FOR_S: Final = 5.0
_MAX_LOOPS: Final = 8
# A loop that was stopped and runs again was not late, it was not there.
_STOOD_STILL_S: Final = 10.0


class HostLoops:
    """Probes on the loops that it was told of, at most eight.

    Args:
        clock: Monotonic seconds.

    Attributes:
        late: When something was measured, and how late the loop was, in seconds; the last few.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin_again()

    def __repr__(self) -> str:
        return f"<HostLoops probes={len(self._probes)} measured={len(self.late)}>"

    def begin_again(self) -> None:
        """Forget all; for a forked child, whose loops are its parent's."""
        self.late: deque[tuple[float, float]] = deque(maxlen=256)
        self._probes: dict[int, _Probe] = {}

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop for the next few seconds; on the loop's own thread, never raises."""
        try:
            probe = self._probes.get(id(loop))
            if probe is None or probe.loop() is not loop:
                probe = self._placed(loop)
            if probe is not None:
                probe.until = self._clock() + _FOR_S
                if not probe.waiting:
                    probe.wait(loop)
        except Exception:  # a loop of a kind of its own: it is not measured
            return

    def since(self, moment: float) -> list[float]:
        """How late the loops were, in seconds, since a moment."""
        return [late_s for measured_at, late_s in list(self.late) if measured_at > moment]

    def _placed(self, loop: asyncio.AbstractEventLoop) -> _Probe | None:
        for key, one in list(self._probes.items()):
            known = one.loop()
            if known is None or known.is_closed():
                self._probes.pop(key, None)
        if len(self._probes) >= _MAX_LOOPS:
            return None
        probe = self._probes[id(loop)] = _Probe(loop, self.late, self._clock)
        return probe


class _Probe:
    """One loop's timer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, late: deque[tuple[float, float]], clock: Callable[[], float]
    ) -> None:
        self.loop = weakref.ref(loop)
        self._late, self._clock = late, clock
        self.until = self._due = 0.0
        self.waiting = False

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer."""
        self._due = self._clock() + EVERY_S
        try:
            # In a context of its own: a timer would hold the caller's.
            loop.call_later(EVERY_S, self._rung, context=contextvars.Context())
        except TypeError:  # a loop that knows no contexts
            loop.call_later(EVERY_S, self._rung)
        self.waiting = True

    def _rung(self) -> None:
        self.waiting = False
        now, loop = self._clock(), self.loop()
        late_s = max(0.0, now - self._due)
        if late_s < _STOOD_STILL_S:
            self._late.append((now, late_s))
        if loop is not None and now < self.until and not loop.is_closed():
            self.wait(loop)
