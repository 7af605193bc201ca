"""PoolDispatcher: evaluations on one background thread, behind a queue that is bounded by bytes."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.engine.live import Taken
from agenteval_otel.engine.pipeline.background_thread import MAX_LIST, BackgroundThread, Entry
from agenteval_otel.engine.pipeline.dispatcher import Dispatcher, Process, Settle, Stall
from agenteval_otel.engine.task import Queued
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.reentrancy import EvaluationThread, in_sub_interpreter
from agenteval_otel.semconv import DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN, PIPELINE_FAILED

_MAX_HELD: Final = 5
_MAX_PAUSE_S: Final = 600.0
_LOOK_EVERY_S: Final = 0.2
_LATE: Final = 2.5
_IDLE_LOOKS: Final = 5


class PoolDispatcher(Dispatcher, type="pool"):
    """Evaluates on one daemon thread with its own event loop.

    The thread is started with the first call, and again after `fork`.

    When the queue is full the newest call is dropped and counted. A blocked thread is replaced
    within a second, and its unfinished calls move to the new thread.

    Attributes:
        max_bytes: Estimated bytes that captured calls may hold, waiting or under evaluation.
        max_items: Their maximum number. By default `max_bytes` is reached first.
        concurrency: How many calls may wait for a thread, a process or a judge at once.
        linger_s: How long an idle thread collects calls before it processes them, in seconds.
        stall_s: Seconds after which a blocked thread is replaced.
    """

    max_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    max_items: int = Field(default=1_000_000, ge=1)
    concurrency: int = Field(default=256, ge=1)
    linger_s: float = Field(default=0.01, ge=0)
    stall_s: float = Field(default=0.75, gt=0)

    @cached_property
    def _pool(self) -> _Pool:
        return _Pool(self)

    def __repr__(self) -> str:
        pool = self._pool
        state = "closed" if pool.closed else "open"
        return f"<PoolDispatcher {state} items={len(pool.entries)} bytes={pool.bytes}/{self.max_bytes}>"

    def start(
        self,
        process: Process,
        settle: Settle,
        *,
        has_room: Callable[[], bool] = lambda: True,
        on_work: Callable[[int, float], None] = lambda calls, seconds: None,
        on_stall: Stall | None = None,
    ) -> None:
        pool = self._pool
        pool.process = process
        pool.settle = settle
        pool.has_room = has_room
        pool.on_work = on_work
        pool.on_stall = on_stall

    def submit(self, queued: Queued, size_bytes: int) -> bool:
        return self._pool.submit(queued, size_bytes)

    def flush(self, timeout_s: float) -> bool:
        return self._pool.flush(timeout_s)

    def shutdown(self, timeout_s: float) -> bool:
        return self._pool.shutdown(timeout_s)

    def retire(self) -> None:
        self._pool.retire()

    def state(self) -> dict[str, int]:
        pool = self._pool
        return {
            "size": len(pool.entries),
            "waiting": len(pool.queue),
            "bytes": pool.bytes,
            "max_bytes": self.max_bytes,
        }


class _Pool:
    def __init__(self, settings: PoolDispatcher) -> None:
        self.concurrency = settings.concurrency
        self.linger_s = settings.linger_s
        self.stall_s = settings.stall_s
        self._max_items = settings.max_items
        self._max_bytes = settings.max_bytes
        self.process: Process | None = None
        self.settle: Settle = lambda queued, outcome: None
        self.has_room: Callable[[], bool] = lambda: True
        self.on_work: Callable[[int, float], None] = lambda calls, seconds: None
        self.on_stall: Stall | None = None
        self._memory = MEMORY.captured_calls
        self._memory.max_bytes = max(self._memory.max_bytes, settings.max_bytes)
        self.closed = self._retired = False
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a forked child too: the thread did not come along, and the parent evaluates what waits.
        self.queue: deque[Entry] = deque()
        self.entries: dict[int, Entry] = {}
        self._flushes: list[_Flush] = []
        self.thread: BackgroundThread | None = None
        # known before it runs, `thread` only afterwards
        self._newest: BackgroundThread | None = None
        self._watchdog = _Watchdog(self)
        self._starting = threading.Lock()
        # threads that were replaced and have not come back
        self._blocked: list[threading.Thread] = []
        self._replaced_at = 0.0
        # no thread starts before this: the last one got no file descriptor for its event loop
        self.not_before = 0.0
        self.bytes = 0

    def submit(self, queued: Queued, size_bytes: int) -> bool:
        if self.closed:
            self.settle(queued, DROPPED_SHUTDOWN)
            return False
        full = len(self.entries) >= self._max_items or self.bytes + size_bytes > self._max_bytes
        if full or not self._memory.reserve(size_bytes):
            self.settle(queued, DROPPED_QUEUE_FULL)
            return False
        entry = (queued, size_bytes)
        self.entries[id(entry)] = entry
        self.bytes += size_bytes
        self.queue.append(entry)
        if self.closed:  # a shutdown came between, and may be over
            return self._give_up(entry)
        thread = self.thread
        if thread is None:
            return self.start_thread() or self._give_up(entry)
        if thread.sleeping:
            thread.wake(linger=True)
        elif thread.looking and len(self.queue) == MAX_LIST:
            # enough for a list: it need not wait for its timer
            thread.wake(linger=False)
        return True

    def flush(self, timeout_s: float) -> bool:
        if not self.entries:
            return True
        if self._newest is threading.current_thread():
            return False  # an evaluator that waits for itself
        flush = _Flush(self.entries)
        self._flushes.append(flush)
        still_open = {id(queued) for queued, _ in list(self.entries.values())}
        flush.settled(*flush.open_ids - still_open)  # before the flush was in the list
        if self.queue and self.thread is None:
            self.start_thread()
        thread = self.thread
        if thread is not None:
            thread.wake(linger=False)
        try:
            return flush.done.wait(timeout_s)
        finally:
            self._flushes.remove(flush)

    def retire(self) -> None:
        self._retired = True
        thread = self.thread
        self.thread = None  # the next call, if there is one, starts another
        if thread is not None:
            thread.close()
        self._watchdog.stop.set()  # it has no thread left to look after

    def shutdown(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        self.closed = True
        self.flush(timeout_s)
        thread = self.thread
        self._watchdog.stop.set()
        lost = [
            entry for entry in list(self.entries.values()) if self.close(entry, DROPPED_SHUTDOWN)
        ]
        self.queue.clear()
        if thread is not None and thread is not threading.current_thread():
            thread.close(at_once=bool(lost))
            thread.join(max(0.0, deadline - time.monotonic()))
        return not lost

    def close(self, entry: Entry, outcome: str) -> bool:
        """Settle a task. Return False if that was done before."""
        # Popping from a dictionary is atomic: of two threads that settle a task, only one succeeds.
        if self.entries.pop(id(entry), None) is None:
            return False
        queued, size_bytes = entry
        self.bytes -= size_bytes
        self._memory.release(size_bytes)
        self.settle(queued, outcome)
        for flush in list(self._flushes):
            flush.settled(id(queued))
        return True

    def start_thread(self) -> bool:
        """Start the background thread, unless there is one.

        Return False if no thread can be started.
        """
        if not self._starting.acquire(blocking=False):
            return True  # a thread is being started, and looks at the queue first thing
        try:
            if (
                self.thread is None
                and self.process is not None
                and time.monotonic() >= self.not_before
            ):
                if in_sub_interpreter():
                    return False  # if it ends before its threads, it ends the whole process
                thread = BackgroundThread(self)
                self._newest = thread
                thread.start()
                if not self._retired:
                    self.thread = thread
                    if thread.failed:  # meanwhile, before it could say so here
                        self.thread = None
                if self.closed or self._retired:  # ends when the queue is empty
                    thread.close()
                elif self.queue and thread.sleeping:  # it came before the loop was known
                    thread.wake(linger=False)
            return True
        except RuntimeError:
            return False
        finally:
            self._starting.release()

    def watch(self) -> None:
        if self._watchdog.thread is None:
            self._watchdog.watch()

    def replace(self, thread: BackgroundThread, held_s: float) -> None:
        """Replace a thread that is blocked or has ended.

        The next one takes over its unfinished calls.
        """
        with self._starting:
            if self.thread is not thread or not self._may_replace():
                return
            thread.superseded = True
            self.thread = None
            self._replaced_at = time.monotonic()
            self._blocked.append(thread)
        task = thread.present_task()
        under_way = [entry for entry in thread.under_way() if id(entry) in self.entries]
        thread_id = thread.ident or 0
        blamed = None
        if self.on_stall is not None:
            blamed = self.on_stall.blame(task, held_s, thread_id)
        for entry in reversed(under_way):
            taken: Taken = "failed"
            if self.on_stall is not None:
                taken = self.on_stall.take_over(entry[0], blamed, held_s)
            if taken == "next":
                self._again(entry)
            elif taken == "failed":
                self.close(entry, PIPELINE_FAILED)
        # if it was not really blocked, it wakes and ends; its entries are void
        thread.wake(linger=False)
        self.start_thread()

    def take_back(self, entries: Sequence[Entry]) -> None:
        """Requeue what a thread took from the queue just as it was replaced."""
        for entry in reversed(entries):
            self._again(entry)  # not what the next thread has already
        if self.queue:
            self.start_thread()
            thread = self.thread
            if thread is not None:
                thread.wake(linger=False)

    def _may_replace(self) -> bool:
        """Tell whether another thread may be started.

        The more threads are held up, the longer the next one has to wait.
        """
        self._blocked = [thread for thread in self._blocked if thread.is_alive()]
        beyond = len(self._blocked) - _MAX_HELD
        pause_s = 0.0 if beyond < 0 else min(_MAX_PAUSE_S, self.stall_s * 2.0**beyond)
        return time.monotonic() - self._replaced_at >= pause_s

    def _again(self, entry: Entry) -> None:
        """Put the call at the head of the queue as a new entry.

        Outcomes from the blocked thread are then ignored.
        """
        again = (entry[0], entry[1])
        self.entries[id(again)] = again  # first: a flush that looks meanwhile must find one of them
        if self.entries.pop(id(entry), None) is None:
            del self.entries[id(again)]
        else:
            self.queue.appendleft(again)

    def _give_up(self, entry: Entry) -> bool:
        # IndexError: another thread appends meanwhile
        with contextlib.suppress(ValueError, IndexError):
            self.queue.remove(entry)
        self.close(entry, DROPPED_SHUTDOWN if self.closed else PIPELINE_FAILED)
        return False


class _Flush:
    """Waits for what is open when it begins, each of which is another object."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        self.open_ids = {id(queued) for queued, _ in list(entries.values())}
        self.done = threading.Event()

    def settled(self, *ids: int) -> None:
        self.open_ids.difference_update(ids)
        if not self.open_ids:
            self.done.set()


class _Watchdog:
    """Detects a background thread that is blocked or has ended, and has it replaced.

    Only checks that run on time count: a stopped or starved process is not the fault of an
    evaluator.
    """

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self.thread: threading.Thread | None = None
        self.stop = threading.Event()

    def watch(self) -> None:
        if self.thread is not None or self.stop.is_set():
            return
        # Ours, like the thread that it watches: the host's destructors may run on it too.
        thread = EvaluationThread(
            target=contextvars.Context().run, args=(self._run,), name="agenteval-watchdog"
        )
        self.thread = thread
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: nothing is watched until the next call
            self.thread = None

    def _run(self) -> None:
        wait_s = min(_LOOK_EVERY_S, self._pool.stall_s / 3)
        beat = 0.0
        still_s = 0.0
        idle_looks = 0
        while True:
            began = time.monotonic()
            if self.stop.wait(wait_s):
                return
            looked_s = time.monotonic() - began
            idle_looks = 0 if self._pool.entries else idle_looks + 1
            if idle_looks >= _IDLE_LOOKS:
                self.thread = None  # from here on `watch` may start another watchdog
                if not self._pool.entries or self.thread is not None:
                    return
                # A call came before that, and its `watch` still saw this watchdog: it goes on.
                self.thread = threading.current_thread()
                idle_looks = 0
            thread = self._pool.thread
            if thread is None:
                continue
            if not thread.is_busy() or thread.beat != beat:
                beat = thread.beat
                still_s = 0.0
            elif looked_s < wait_s * _LATE and time.monotonic() > beat:
                still_s += looked_s
            # One that ended because the pool was closed is not replaced: `shutdown` stops this
            # watchdog first.
            has_died = not thread.is_alive() and not self.stop.is_set()
            if has_died or still_s >= self._pool.stall_s:
                self._pool.replace(thread, still_s)
                still_s = 0.0


def _free_lazy_parts() -> None:
    """Give lazily made parts of objects a free lock in a forked child.

    The objects are those of our classes, and users' components.

    In Python 3.11 `functools.cached_property` holds one lock for all objects of a class while it
    computes.
    """
    if sys.version_info >= (3, 12):
        return
    kinds: list[type[Any]] = [Component, EvaluationInput]
    for kind in kinds:
        kinds += kind.__subclasses__()
        for part in vars(kind).values():
            if isinstance(part, cached_property):
                part.lock = threading.RLock()  # type: ignore[attr-defined]


reset_in_child(_free_lazy_parts)
