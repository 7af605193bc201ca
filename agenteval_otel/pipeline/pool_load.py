"""Feeds load shedding from a dispatcher and calls `LoadShedder.look` from a timer on its event loop.

An engine with a thread of its own needs none of this: it feeds a `CostMeter` and calls `look` by itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from typing import Any

from agenteval_otel.dispatch import Dispatcher
from agenteval_otel.pipeline.load import CostMeter, Work
from agenteval_otel.pipeline.load_shedding import LOOK_EVERY_S, LoadShedder, LoadSheddingSettings
from agenteval_otel.semconv import DROPPED_QUEUE_FULL
from agenteval_otel.telemetry import Accounting

__all__ = ["PoolLoad"]


class PoolLoad:
    """Measures a dispatcher's work.

    Args:
        dispatcher: Its `state` tells the queue's size; with a capacity of 0 there is no queue, and nothing is measured.
        accounting: Counts the calls that the full queue refused, and failures.
        settings: The bounds.
    """

    def __init__(
        self, dispatcher: Dispatcher, accounting: Accounting, settings: LoadSheddingSettings | None = None
    ) -> None:
        self._dispatcher, self._accounting = dispatcher, accounting
        concurrency: int = getattr(dispatcher, "concurrency", 1)
        self._meter = CostMeter(concurrency)
        self._loop: weakref.ref[Any] | None = None
        self._calls = 0
        self._before = (0.0, 0)  # CPU seconds of the thread and calls, when the timer fired last
        self.shedder = LoadShedder(settings, work=self.work, fail=accounting.fail)

    def __repr__(self) -> str:
        return f"<PoolLoad {self._meter!r} {self.shedder!r}>"

    def work(self) -> Work:
        """What is queued and under evaluation; from any thread."""
        dropped = self._accounting.outcomes()[DROPPED_QUEUE_FULL]
        return self._meter.work(self._dispatcher.state()["size"], dropped=dropped)

    def note(self, seconds: float) -> None:
        """A call was under evaluation for so long, waiting included."""
        self._calls += 1
        self._meter.note_async(seconds)

    def attend(self) -> None:
        """Set the timer unless it is set; with each call, on the dispatcher's event loop. Never raises."""
        try:
            loop = asyncio.get_running_loop()
            if (self._loop is not None and self._loop() is loop) or not self._dispatcher.state()["capacity"]:
                return
            self._loop, self._before = weakref.ref(loop), (time.thread_time(), self._calls)
            self.shedder.look()
            self._wait(loop)
        except Exception:  # a dispatcher or a loop of an unknown kind: nothing is measured
            self._loop = None
            self.shedder.look()  # counts the failure, and nobody stays reduced

    @property
    def is_attended(self) -> bool:
        """Whether a timer is set."""
        return self._loop is not None and self._loop() is not None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(LOOK_EVERY_S, self._fired, loop, context=contextvars.Context())

    def _fired(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is None or self._loop() is not loop:
            return  # another worker's loop took over
        calls = self._note_cpu()
        if self.shedder.look() or calls:
            self._wait(loop)
        else:
            self._loop = None

    def _note_cpu(self) -> int:
        """Note what the calls since the last time cost this thread; their number."""
        (cpu_before_s, calls_before), self._before = self._before, (time.thread_time(), self._calls)
        calls = self._before[1] - calls_before
        self._meter.note(calls, self._before[0] - cpu_before_s, async_evaluations=calls)
        return calls
