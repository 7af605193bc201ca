"""The ``cpu`` lane's thread, for evaluators that cannot go to the child process.

It runs one evaluation after another, so that work that blocks never holds up the event loop. A thread cannot be
stopped: an evaluation that overruns its limit leaves its thread behind, and the next ones go to a fresh one. In a
host's process it rests between evaluations that use more than their share: it holds the interpreter of the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Coroutine
from typing import Any

from agenteval_otel.dispatch.own import OwnThread
from agenteval_otel.runner.child.answers import result_of_work
from agenteval_otel.runner.lanes.records import Record
from agenteval_otel.runner.lanes.share import Share

__all__ = ["LaneThread", "ThreadJob"]

_FELT_S = 0.02


class ThreadJob:
    """One evaluation on its way to the lane's thread and back."""

    def __init__(self, work: Coroutine[Any, Any, Any], record: Record) -> None:
        self.work, self.record = work, record
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.context = contextvars.copy_context()
        self.started: float | None = None
        self._taken = threading.Lock()

    def run(self) -> None:
        """Evaluate, on the lane's thread, and hand the result to the loop; once, in however many queues it stands."""
        if not self._taken.acquire(blocking=False):
            return
        self.started = time.monotonic()
        result: Any = None
        error: Exception | None = None
        try:
            result = result_of_work(self.work, self.context)
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._answer, result, error)

    def _answer(self, result: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class LaneThread:
    """The present thread; a successor takes over its queue when it is stuck.

    Args:
        share: What it is held to; None runs without rest.
    """

    def __init__(self, share: Share | None, jobs: queue.SimpleQueue[ThreadJob | None] | None = None) -> None:
        self.jobs: queue.SimpleQueue[ThreadJob | None] = jobs or queue.SimpleQueue()
        self.current: ThreadJob | None = None
        self.cpu_s = 0.0
        self._share = share
        self._relieved = False
        self._no_rest = threading.Event()
        self._thread = OwnThread(target=contextvars.Context().run, args=(self._work,), name="agenteval-cpu")
        self._thread.start()

    def is_alive(self) -> bool:
        """False once its thread ended, in a forked child too."""
        return self._thread.is_alive()

    def successor(self) -> LaneThread:
        """A fresh thread on the same queue; this one ends when its job comes back."""
        self._relieved = True
        return LaneThread(self._share, self.jobs)

    def end(self) -> None:
        """Ask the thread to end after the jobs that wait, without rest."""
        self._no_rest.set()
        self.jobs.put(None)

    def _work(self) -> None:
        record: Record | None = None
        while not self._relieved:
            job = self.jobs.get()
            if job is None:
                return
            self._rest(record or job.record)
            record = job.record
            self.current = job
            begun = time.thread_time()
            job.run()
            self.current = None
            del job  # an idle thread holds nothing of the last evaluation
            self.cpu_s = time.thread_time()
            if self._share is not None:
                self._share.used(self.cpu_s - begun)

    def _rest(self, after: Record) -> None:
        while self._share is not None and (rest_s := self._share.rest_s()) > 0 and not self._no_rest.is_set():
            if rest_s > _FELT_S:
                after.held(after.stays or "there is no child process")
            self._no_rest.wait(rest_s)
