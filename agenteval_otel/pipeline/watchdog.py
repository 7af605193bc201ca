"""The watchdog: sees when the background thread is held up, or has died, and has it replaced.

A small thread of its own while calls are under evaluation. It looks five times a second. The background
thread is taken to be held up when its heartbeat stood still for the limit, in looks that came in time themselves: a
process that was stopped, or starved, is no fault of an evaluator.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import Final

from agenteval_otel.pipeline.background_thread import Pool

__all__ = ["Watchdog"]

_LOOK_EVERY_S: Final = 0.2
_LATE: Final = 2.5
_IDLE_LOOKS: Final = 5


class Watchdog:
    """Looks after one pool's worker.

    Attributes:
        thread: Its thread, while there is work.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.thread: threading.Thread | None = None
        self._stop = threading.Event()

    def watch(self) -> None:
        """There is work: look until there is none. Cheap, on the background thread."""
        if self.thread is not None or self._stop.is_set():
            return
        thread = threading.Thread(
            target=contextvars.Context().run, args=(self._run,), name="agenteval-watchdog", daemon=True
        )
        self.thread = thread
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had: nothing is looked after, until the next call
            self.thread = None

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        wait_s = min(_LOOK_EVERY_S, self._pool.settings.stall_s / 3)
        beat, still_s, idle_looks = 0.0, 0.0, 0
        while True:
            began = time.monotonic()
            if self._stop.wait(wait_s):
                return
            looked_s = time.monotonic() - began
            idle_looks = idle_looks + 1 if self._pool.is_idle() else 0
            if idle_looks >= _IDLE_LOOKS:
                self.thread = None
                if self._pool.is_idle() or self.thread is not None:
                    return
                self.thread, idle_looks = threading.current_thread(), 0  # a call came in the moment between
            worker = self._pool.worker
            if worker is None:
                continue
            if not worker.is_busy() or worker.beat != beat:
                beat, still_s = worker.beat, 0.0
            elif looked_s < wait_s * _LATE:
                still_s += looked_s
            if not worker.thread.is_alive() or still_s >= self._pool.settings.stall_s:
                self._pool.replace(worker, still_s)
                still_s = 0.0
