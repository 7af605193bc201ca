"""PoolDispatcher: evaluations on one background thread, behind a queue that is bounded by items and by bytes.

The caller's thread appends to a deque and, only when the worker sleeps, wakes it: no lock, nothing that can block in a
signal handler or a destructor. When the queue is full the **newest** call is dropped and counted: what was accepted is
kept. The worker gathers calls for a few milliseconds before it starts, so that it does not compete for the interpreter
with the answer that is just going out; while calls come in it looks for them by itself, and none has to wake it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.dispatch.base import Dispatcher, Process, Settle
from agenteval_otel.dispatch.forked import free_lazy_parts
from agenteval_otel.dispatch.holder import evaluator_on
from agenteval_otel.dispatch.own import in_sub_interpreter
from agenteval_otel.dispatch.worker import Entry, Marker, Worker
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.semconv import DROPPED_BYTES, DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN, PIPELINE_FAILED

__all__ = ["PoolDispatcher"]

_MAX_HELD = 5
_LONGEST_PAUSE_S = 600.0
_LOOK_EVERY = 64
_BIRTH_EVERY_S = 0.1
_DOUBT_S = 1.0


class PoolDispatcher(Dispatcher, type="pool"):
    """One daemon thread with its own event loop, started with the first call and again after `fork`.

    Attributes:
        max_items: Calls that may wait or be under evaluation.
        max_bytes: Estimated bytes that these may hold.
        concurrency: Calls under evaluation at once.
        linger_s: How long a sleeping worker gathers calls before it starts.
        stall_s: A worker whose loop stood still for so long is replaced.
    """

    max_items: int = Field(default=2048, ge=1)
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    concurrency: int = Field(default=64, ge=1)
    linger_s: float = Field(default=0.01, ge=0)
    stall_s: float = Field(default=30.0, gt=0)

    @cached_property
    def _pool(self) -> _Pool:
        return _Pool(self)

    def __repr__(self) -> str:
        return repr(self._pool)

    def start(self, process: Process, settle: Settle) -> None:
        self._pool.process, self._pool.settle = process, settle

    def submit(self, call: object, size_bytes: int) -> bool:
        return self._pool.submit(call, size_bytes)

    def flush(self, timeout_s: float) -> bool:
        return self._pool.flush(timeout_s)

    def shutdown(self, timeout_s: float) -> bool:
        return self._pool.shutdown(timeout_s)

    def retire(self) -> None:
        self._pool.retire()

    def when_replaced(self, report: Callable[[Component | None], object]) -> None:
        self._pool.replaced = report

    def state(self) -> dict[str, int]:
        return {"size": self._pool.items, "capacity": self.max_items, "bytes": self._pool.bytes}


class _Pool:
    """The running part: queue, totals and the present worker."""

    def __init__(self, settings: PoolDispatcher) -> None:
        self._settings = settings
        self._max_items, self._max_bytes = settings.max_items, settings.max_bytes
        self._look_every = min(_LOOK_EVERY, max(1, settings.max_items // 4))
        self.process: Process | None = None
        self.settle: Settle = lambda call, outcome: None
        self.replaced: Callable[[Component | None], object] = lambda holder: None
        self._closed = self._retired = False
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a forked child too: the thread did not come along, and the parent evaluates what waits.
        self._queue: deque[Entry | Marker] = deque()
        self._open: dict[int, Entry] = {}
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None  # known before it runs, the worker only afterwards
        self._held: list[threading.Thread] = []  # threads that were replaced and have not come back
        self._replaced_at = 0.0
        self._unreported: deque[Worker] = deque()
        self._doubted = (0.0, 0.0)  # the beat that seemed to be the last, and when that was seen
        self._starting = threading.Lock()
        self.items = 0
        self.bytes = 0

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<PoolDispatcher {state} items={self.items}/{self._max_items} bytes={self.bytes}/{self._max_bytes}>"

    def submit(self, call: object, size_bytes: int) -> bool:
        outcome = None
        if self._closed:
            outcome = DROPPED_SHUTDOWN
        elif self.items >= self._max_items:
            outcome = DROPPED_QUEUE_FULL
        elif self.bytes + size_bytes > self._max_bytes:
            outcome = DROPPED_BYTES
        if outcome is not None:
            if self._worker is not None and not self._closed:
                self._look_after(self._worker)
            self.settle(call, outcome)
            return False
        entry = (call, size_bytes)
        self._open[id(entry)] = entry
        self.items += 1
        self.bytes += size_bytes
        self._queue.append(entry)
        if self._closed:  # a shutdown came between, and may be over
            return self._give_up(entry)
        worker = self._worker
        if worker is None:
            return self._start_worker() or self._give_up(entry)
        if worker.sleeping:
            worker.wake(linger=True)
        elif worker.stillborn or not len(self._queue) % self._look_every:
            self._look_after(worker)
        return True

    def flush(self, timeout_s: float) -> bool:
        worker = self._worker
        if not self._open:
            return True
        if self._thread is threading.current_thread():
            return False  # an evaluator that waits for itself
        marker = Marker()
        self._queue.append(marker)
        if worker is not None:
            self._look_after(worker)
        else:  # retired, or another thread is starting it
            self._start_worker()
        if (current := self._worker) is not None:
            current.wake(linger=False)
        return marker.reached.wait(timeout_s)

    def retire(self) -> None:
        self._retired = True
        worker, self._worker = self._worker, None  # the next call, if there is one, starts another
        if worker is not None:
            worker.close()

    def shutdown(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        self._closed = True
        self.flush(timeout_s)
        worker = self._worker
        lost = [entry for entry in list(self._open.values()) if self._close(entry, DROPPED_SHUTDOWN)]
        self._queue.clear()
        if worker is not None and worker.thread is not threading.current_thread():
            worker.close(at_once=bool(lost))
            worker.thread.join(max(0.0, deadline - time.monotonic()))
        return not lost

    def _done(self, entry: Entry, outcome: str) -> None:
        self._close(entry, outcome)

    def _close(self, entry: Entry, outcome: str) -> bool:
        # Popping a dictionary is atomic: of two that would settle a call, one does.
        if self._open.pop(id(entry), None) is None:
            return False
        self.items -= 1
        call, size_bytes = entry
        self.bytes -= size_bytes
        self.settle(call, outcome)
        return True

    def _give_up(self, entry: Entry) -> bool:
        """The call came too late, or no thread can be started: at the interpreter's exit, or at the process's limit."""
        with contextlib.suppress(ValueError, IndexError):  # IndexError: another thread appends meanwhile
            self._queue.remove(entry)
        self._close(entry, DROPPED_SHUTDOWN if self._closed else PIPELINE_FAILED)
        return False

    def _start_worker(self) -> bool:
        if not self._starting.acquire(blocking=False):
            return True  # another thread is at it, and the worker looks at the queue first thing
        try:
            if self._worker is None and self.process is not None:
                if in_sub_interpreter():
                    return False  # which takes the whole process along where it ends before its threads do
                worker = Worker(
                    self._queue, self.process, self._done, self._settings.concurrency, self._settings.linger_s,
                    self._report,
                )  # fmt: skip
                self._thread = worker.thread
                worker.thread.start()
                if not self._retired:
                    self._worker = worker
                if self._closed or self._retired:  # ends when the queue is empty
                    worker.close()
            return True
        except RuntimeError:
            return False
        finally:
            self._starting.release()

    def _stands_still(self, worker: Worker) -> bool:
        # Found so twice: after a pause of the whole process the first look comes before the worker's turn.
        now = time.monotonic()
        if worker.sleeping or now - worker.beat <= self._settings.stall_s:
            return False
        if self._doubted[0] != worker.beat:
            self._doubted = (worker.beat, now)
            return False
        return now - self._doubted[1] > min(_DOUBT_S, self._settings.stall_s)

    def _look_after(self, worker: Worker) -> None:
        """Replace a worker that died or whose loop stands still; what it had begun has failed."""
        if worker.thread.is_alive() and not self._stands_still(worker):
            if worker.looking:  # a burst does not wait for its next look
                worker.hurry()
            return
        if worker.stillborn:  # leaves nothing behind: tried again for as long as it takes, but not with every call
            if time.monotonic() - worker.beat < _BIRTH_EVERY_S:
                return
        elif not self._may_replace():
            return
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._worker is not worker:
                return
            worker.superseded = True
            self._worker = None
            if not worker.stillborn:
                self._replaced_at = time.monotonic()
                self._held.append(worker.thread)
                self._unreported.append(worker)
            self._take_back(worker)
        finally:
            self._starting.release()
        self._start_worker()

    def _take_back(self, worker: Worker) -> None:
        """What has begun is lost with its thread; the rest goes to the next one, in its order, before what waits."""
        entries = list(worker.running.values())
        waiting: list[Entry | Marker] = [entry for entry in entries if id(entry) not in worker.begun]
        for entry in entries:
            if id(entry) in worker.begun:
                self._close(entry, PIPELINE_FAILED)
        markers, worker.markers = worker.markers, []
        self._queue.extendleft(reversed([*waiting, *markers]))

    def _may_replace(self) -> bool:
        """Whether another thread may be started: the more threads are held, the longer the next one has to wait."""
        self._held = [thread for thread in self._held if thread.is_alive()]
        beyond = len(self._held) - _MAX_HELD
        pause_s = 0.0 if beyond < 0 else min(_LONGEST_PAUSE_S, self._settings.stall_s * 2.0**beyond)
        return time.monotonic() - self._replaced_at >= pause_s

    def _report(self) -> None:
        """Say which evaluators hold the threads that were replaced; on the new thread, not on a caller's."""
        while self._unreported:
            self.replaced(evaluator_on(self._unreported.popleft().thread))


reset_in_child(free_lazy_parts)
