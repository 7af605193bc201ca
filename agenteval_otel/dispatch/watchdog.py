"""The watchdog: sees when the background thread is held up, or has died, and has it replaced.

A small thread of its own, which sleeps while nothing is under evaluation. It looks four times a second. The background
thread is taken to be held up when its heartbeat stood still for the limit, in looks that came in time themselves: a
process that was stopped, or starved, is no fault of an evaluator.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agenteval_otel.dispatch.pool import _Pool

__all__ = ["Watchdog"]

_LOOK_EVERY_S: Final = 0.2
_LATE: Final = 2.5
_IDLE_LOOKS: Final = 5


class Watchdog:
    """Looks after one pool's worker."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._busy = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self) -> None:
        """There is work: look from now on, until there is none. Cheap, on the background thread."""
        if self._busy.is_set():
            return
        self._busy.set()
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(
                target=contextvars.Context().run, args=(self._run,), name="agenteval-watchdog", daemon=True
            )
            try:
                thread.start()
                self._thread = thread
            except RuntimeError:  # no thread is to be had: nothing is looked after, until the next call
                self._busy.clear()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._busy.set()

    def _run(self) -> None:
        wait_s = min(_LOOK_EVERY_S, self._pool.settings.stall_s / 3)
        while True:
            self._busy.wait()
            beat, still_s, idle_looks = 0.0, 0.0, 0
            while idle_looks < _IDLE_LOOKS:
                if self._closed:
                    return
                began = time.monotonic()
                threading.Event().wait(wait_s)
                looked = time.monotonic()
                idle_looks = idle_looks + 1 if self._pool.is_idle() else 0
                worker = self._pool.worker
                if worker is None or not worker.is_busy() or worker.beat != beat:
                    beat, still_s = (worker.beat if worker is not None else 0.0), 0.0
                elif looked - began < wait_s * _LATE:
                    still_s += looked - began
                if worker is not None and (
                    not worker.thread.is_alive() or (worker.is_busy() and still_s >= self._pool.settings.stall_s)
                ):
                    self._pool.replace(worker, still_s)
            self._busy.clear()
            if not self._pool.is_idle():  # a call came between, and found the watchdog at work
                self._busy.set()
