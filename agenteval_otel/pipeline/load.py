"""Load: how long the queued work takes to drain, and how late the host's event loops run."""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_WEIGHT: Final = 1 / 32
_MAX_FACTOR: Final = 4.0
_TIMER_S: Final = 0.25
_MEASURED_FOR_S: Final = 5.0
_MAX_LOOPS: Final = 8
# A loop that was stopped and started again was not late.
_STOPPED_S: Final = 10.0


class Work(NamedTuple):
    """Queued work.

    Attributes:
        queued: Answers that wait or are under evaluation.
        drain_s: Estimated seconds until nothing is queued.
        dropped: Calls since the process began that the full queue refused.
    """

    queued: int = 0
    drain_s: float = 0.0
    dropped: int = 0


class CostMeter:
    """Measures what an answer costs: on the background thread, and in each execution elsewhere.

    Written by the background thread; `drain_s` may be called on any thread.

    Args:
        at_once: How many evaluations run at the same time, by execution.
    """

    def __init__(self, at_once: Mapping[str, int]) -> None:
        self._at_once = at_once
        self._inline_s = 0.0
        self._elsewhere_s = dict.fromkeys(at_once, 0.0)
        self._answers = 0

    def __repr__(self) -> str:
        return f"<CostMeter inline={self._inline_s:.2g} s elsewhere={self._elsewhere_s}>"

    def note(self, answers: int, seconds: float, elsewhere_s: Mapping[str, float]) -> None:
        """The background thread took so long for some answers, and started so many seconds of evaluations for them.

        The first answers are left out, and others count as four times the mean at most: a first call that imports a
        library, or a pause of the process, says nothing about the next thousand.
        """
        if answers <= 0:
            return
        is_first, self._answers = self._answers == 0, self._answers + answers
        weight = 1.0 - (1.0 - _WEIGHT) ** answers
        for mode, total_s in elsewhere_s.items():
            mean_s = self._elsewhere_s[mode]
            self._elsewhere_s[mode] = mean_s + (weight if mean_s else 1.0) * (total_s / answers - mean_s)
        if not is_first:
            per_answer_s, mean_s = seconds / answers, self._inline_s or seconds / answers
            self._inline_s = mean_s + weight * (min(per_answer_s, _MAX_FACTOR * mean_s) - mean_s)

    def drain_s(self, queued: int, waiting_s: Mapping[str, float]) -> float:
        """Estimated seconds until all is done; the background thread and the executions work side by side.

        Args:
            queued: Answers whose evaluation the background thread has not begun.
            waiting_s: What evaluations of other answers take that wait or run, by execution.
        """
        elsewhere = (
            (queued * self._elsewhere_s[mode] + seconds) / self._at_once[mode] for mode, seconds in waiting_s.items()
        )
        return max(queued * self._inline_s, *elsewhere)


class LoopLag:
    """How late the host's event loops run.

    A timer on a loop measures it four times a second, for five seconds after a monitored call. Loops are kept by weak
    reference; a timer that is left over keeps neither a loop nor a program alive.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def __repr__(self) -> str:
        return f"<LoopLag timers={len(self._timers)} measured={len(self._measured)}>"

    def reset(self) -> None:
        """Forget all; for a forked child, whose parent runs the loops."""
        self._measured: deque[tuple[float, float]] = deque(maxlen=256)
        self._timers: dict[int, _Timer] = {}

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop for the next seconds; on the loop's own thread, never raises."""
        try:
            timer = self._timers.get(id(loop))
            if timer is None or timer.loop() is not loop:
                timer = self._add_timer(loop)
            if timer is not None:
                timer.until = self._clock() + _MEASURED_FOR_S
                if not timer.is_set:
                    timer.start(loop)
        except Exception:  # a loop of an unknown kind: it is not measured
            return

    def add(self, late_s: float) -> None:
        """A timer was late by so many seconds."""
        if late_s < _STOPPED_S:
            self._measured.append((self._clock(), late_s))

    def since(self, moment: float) -> list[float]:
        """Lateness in seconds of every timer since a moment."""
        return [late_s for measured_at, late_s in list(self._measured) if measured_at > moment]

    def _add_timer(self, loop: asyncio.AbstractEventLoop) -> _Timer | None:
        for key, timer in list(self._timers.items()):
            known = timer.loop()
            if known is None or known.is_closed():
                self._timers.pop(key, None)
        if len(self._timers) >= _MAX_LOOPS:
            return None
        timer = self._timers[id(loop)] = _Timer(loop, self.add, self._clock)
        return timer


class _Timer:
    """The timer of one loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, add: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self.loop = weakref.ref(loop)
        self._add, self._clock = add, clock
        self.until = self._due = 0.0
        self.is_set = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._clock() + _TIMER_S
        try:
            # In a context of its own: the timer would keep the caller's alive.
            loop.call_later(_TIMER_S, self._fired, context=contextvars.Context())
        except TypeError:  # a loop whose `call_later` takes no context
            loop.call_later(_TIMER_S, self._fired)
        self.is_set = True

    def _fired(self) -> None:
        self.is_set = False
        now, loop = self._clock(), self.loop()
        self._add(max(0.0, now - self._due))
        if loop is not None and now < self.until and not loop.is_closed():
            self.start(loop)
