"""Load: how long the queued work takes to drain, and how late the host's event loops run."""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["CostMeter", "LoopLag", "Work"]

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
        inline_s: Estimated seconds until the background thread has worked them off.
        async_s: Estimated seconds until the judges have.
        dropped: Calls since the process began that the full queue refused.
    """

    queued: int = 0
    inline_s: float = 0.0
    async_s: float = 0.0
    dropped: int = 0

    @property
    def drain_s(self) -> float:
        """Estimated seconds until nothing is queued; the background thread and the judges work side by side."""
        return max(self.inline_s, self.async_s)


class _Mean:
    """An exponentially weighted mean of positive values that no single value can move far.

    One value counts as four times the mean at most: a first call that imports a library, or a pause of the process,
    says nothing about the next thousand. The very first value is left out.
    """

    def __init__(self) -> None:
        self.value, self._count = 0.0, 0

    def add(self, value: float, count: int = 1) -> None:
        """Add the mean of `count` values."""
        self._count += count
        if self._count == count:
            return
        if not self.value:
            self.value = value
            return
        weight = 1.0 - (1.0 - _WEIGHT) ** count
        self.value += weight * (min(value, _MAX_FACTOR * self.value) - self.value)


class CostMeter:
    """Measures what an answer costs: on the background thread, and at the judges.

    Written by the background thread; `work` may be called on any thread.

    Args:
        concurrency: Async evaluations that may run at once.
    """

    def __init__(self, concurrency: int = 64) -> None:
        self._concurrency = concurrency
        self.reset()

    def __repr__(self) -> str:
        return f"<CostMeter answer={self._answer.value:.2g} s async={self._async.value:.2g} s>"

    @property
    def async_per_answer(self) -> float:
        """Async evaluations that an answer starts, in the mean."""
        return self._async_per_answer or 0.0

    def reset(self) -> None:
        """Forget what was measured."""
        self._answer, self._async = _Mean(), _Mean()
        self._async_per_answer: float | None = None

    def note(self, answers: int, seconds: float, async_evaluations: int = 0) -> None:
        """The background thread took so long for some answers, and started so many async evaluations for them."""
        if answers <= 0:
            return
        self._answer.add(seconds / answers, answers)
        per_answer, before = async_evaluations / answers, self._async_per_answer
        weight = 1.0 if before is None else 1.0 - (1.0 - _WEIGHT) ** answers
        self._async_per_answer = (before or 0.0) + weight * (per_answer - (before or 0.0))

    def note_async(self, seconds: float) -> None:
        """An async evaluation took so long, whether it gave a result or ran into its time limit."""
        self._async.add(seconds)

    def work(self, queued: int, *, async_pending: int = 0, dropped: int = 0) -> Work:
        """Estimate what is left to do.

        Args:
            queued: Answers whose evaluation the background thread has not begun.
            async_pending: Async evaluations of other answers that wait or run.
            dropped: See `Work`.
        """
        evaluations = queued * (self._async_per_answer or 0.0) + async_pending
        async_s = evaluations * self._async.value / self._concurrency
        return Work(queued + async_pending, queued * self._answer.value, async_s, dropped)


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
                timer = self._timer(loop)
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

    def _timer(self, loop: asyncio.AbstractEventLoop) -> _Timer | None:
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
        """Set the timer."""
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
