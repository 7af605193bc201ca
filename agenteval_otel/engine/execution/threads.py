"""Threads: a bounded number of daemon threads that evaluations run on, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from typing import Any

from agenteval_otel.engine.execution.jobs import Job, Outcome, result_of_plain
from agenteval_otel.errors import EvaluationError
from agenteval_otel.runtime.reentrancy import EvaluationThread

LOOK_AHEAD_S = 0.25
"""An evaluation that takes longer does not hold up those behind it."""
MAX_THREADS = 4
"""Threads at once, without those that were abandoned."""
CPU_SHARE = 0.2
"""How much of a core a thread may use of the host's interpreter."""
_COMPUTES_S = 1e-3
_BACKLOG = 32


class Threads:
    """Holds the queue and its threads, usually one.

    If an evaluation takes long, a new thread runs those behind it.

    A thread whose evaluation overran its limit is abandoned. `submit` belongs to the thread of an
    event loop.
    """

    def __init__(self, *, rests: bool) -> None:
        self.rests = rests
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.closing = threading.Event()
        self._lock = threading.RLock()  # a signal handler may close what its own thread submits to
        self._threads: set[_Thread] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._shortest_s = LOOK_AHEAD_S

    def __repr__(self) -> str:
        return f"<Threads {len(self._threads)}>"

    def submit(self, job: Job) -> None:
        job.context = contextvars.copy_context()
        with self._lock:
            if not any(thread.is_alive() for thread in self._threads):
                self._threads.clear()
                self._add_thread()
            self.jobs.put(job)
        self._shortest_s = min(self._shortest_s, job.limit_s)
        if self._timer is None or self._loop is not job.loop:
            self._loop = job.loop
            self._set_timer()

    def close(self) -> None:
        """Have the threads end after the jobs that wait, without rest. Returns at once."""
        self.closing.set()
        for _ in list(self._threads):  # they leave it when they end
            self.jobs.put(None)

    def may_end(self, thread: _Thread) -> bool:
        """Tell whether the thread has to end.

        It has to if it was abandoned, or if nothing waits and either another one stays or
        all are closed.
        """
        with self._lock:
            was_abandoned = thread not in self._threads
            has_jobs = not self.jobs.empty()
            is_last = len(self._threads) <= 1
            stays = has_jobs or (is_last and not self.closing.is_set())
            if stays and not was_abandoned:
                return False
            self._threads.discard(thread)
            return True

    def _add_thread(self) -> None:
        thread = _Thread(self)
        thread.start()
        self._threads.add(thread)

    def _set_timer(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(max(0.01, self._shortest_s), self._look, self._loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # a loop that was replaced came back
        now = time.monotonic()
        slow = 0
        busy = 0
        for thread in list(self._threads):
            running = thread.running
            if running is None:
                continue
            job, began = running
            if now - began >= job.limit_s:
                with self._lock:
                    self._threads.discard(thread)
                job.state.strike("it overran its time limit")
                job.deliver(job.timeout())
            else:
                busy += 1
                slow += now - began >= LOOK_AHEAD_S
        # no thread can be started now: the next look tries again
        with self._lock, contextlib.suppress(RuntimeError):
            if not self.jobs.empty() and slow == len(self._threads) < MAX_THREADS:
                self._add_thread()
        self._timer = None
        if busy or not self.jobs.empty():
            self._set_timer()


class _Thread(EvaluationThread):
    def __init__(self, pool: Threads) -> None:
        super().__init__(
            target=contextvars.Context().run, args=(self._work,), name="agenteval-evaluator"
        )
        self._pool = pool
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self.running: tuple[Job, float] | None = None

    def _work(self) -> None:
        try:
            while True:
                job = self._pool.jobs.get()
                if job is not None and job.done is not None:
                    self._run(job)
                    self._rest(job)
                del job  # an idle thread keeps nothing of the last evaluation
                if self._pool.may_end(self):
                    return
        finally:
            if self._own_loop is not None:
                self._own_loop.close()

    def _run(self, job: Job) -> None:
        began = time.monotonic()
        cpu_began = time.thread_time()
        self.running = job, began
        outcome: Outcome
        try:
            assert job.context is not None
            outcome = job.context.run(self._result, job)
        except BaseException as error:
            outcome = error
        self.running = None
        job.cpu_s = time.thread_time() - cpu_began
        job.seconds = time.monotonic() - began
        if self._pool.rests:
            # the rest holds up those behind it as well
            job.seconds = max(job.seconds, job.cpu_s / CPU_SHARE)
        job.deliver(outcome)

    def _result(self, job: Job) -> Any:
        if not job.state.in_own_loop:
            return result_of_plain(job.work())
        if self._own_loop is None:
            self._own_loop = asyncio.new_event_loop()
        try:
            return self._own_loop.run_until_complete(asyncio.wait_for(job.work(), job.limit_s))
        except TimeoutError:
            raise job.timeout() from None
        except (SystemExit, asyncio.CancelledError) as error:
            raise EvaluationError(type(error).__name__, error_type=type(error).__name__) from None

    def _rest(self, job: Job) -> None:
        pool = self._pool
        if not pool.rests or job.cpu_s <= _COMPUTES_S:
            return
        if pool.jobs.qsize() >= _BACKLOG:
            job.state.log(
                "evaluator_throttled",
                f"{pool.jobs.qsize()} evaluations wait because evaluator threads are limited to {CPU_SHARE:.0%} of "
                'a core. With execution="process" they use another core',
            )
        pool.closing.wait(job.cpu_s * (1 / CPU_SHARE - 1))
