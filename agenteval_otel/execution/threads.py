"""Threads: a bounded number of daemon threads that evaluations run on, one after the other.

Mostly there is one thread. When its evaluation takes long, those behind it go to a fresh one. A thread cannot be
stopped: one whose evaluation overran its limit is abandoned, and ends when that evaluation comes back. In a host's
process the threads rest after each evaluation that computes, and longer where they use more than their share of a
core: they hold the host's interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution.budget import CPU_SHARE, CpuBudget
from agenteval_otel.execution.jobs import Job, Outcome, result_of_plain
from agenteval_otel.runtime.reentrancy import EvaluationThread

__all__ = ["LOOK_AHEAD_S", "MAX_THREADS", "Threads"]

LOOK_AHEAD_S = 0.25
"""An evaluation that takes longer does not hold up those behind it."""
MAX_THREADS = 4
"""Threads at once, without those that were abandoned."""
_FELT_REST_S = 0.02
_COMPUTES_S, _LONGEST_REST_S = 1e-3, 0.05

Deliver = Callable[[Job, Outcome], None]


class Threads:
    """The queue and its threads. `submit` and the time limits belong to the thread of an event loop.

    Args:
        deliver: Takes outcomes, from any thread.
        budget: What the threads may use of a core; None runs without rest.
    """

    def __init__(self, deliver: Deliver, budget: CpuBudget | None) -> None:
        self.deliver, self.budget = deliver, budget
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.closing = threading.Event()
        self._lock = threading.RLock()  # a signal handler may close what its own thread submits to
        self._threads: list[_Thread] = []
        self._abandoned: list[_Thread] = []
        self._ended_cpu_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._shortest_s = LOOK_AHEAD_S

    def __repr__(self) -> str:
        return f"<Threads {len(self._threads)} abandoned={len(self.abandoned)}>"

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all threads since the beginning."""
        return self._ended_cpu_s + sum(thread.cpu_s for thread in [*self._threads, *self._abandoned])

    @property
    def abandoned(self) -> list[_Thread]:
        """Threads whose evaluation overran its limit and has not come back."""
        return [thread for thread in self._abandoned if thread.is_alive()]

    def submit(self, job: Job) -> None:
        """Take a job.

        Raises:
            RuntimeError: No thread can be started now.
        """
        job.context = contextvars.copy_context()
        with self._lock:
            if not any(thread.is_alive() for thread in self._threads):
                self._threads = []
                self._add_thread()
            self.jobs.put(job)
        self._shortest_s = min(self._shortest_s, job.limit_s)
        if self._timer is None or self._loop is not job.loop:
            self._loop = job.loop
            self._arm()

    def close(self) -> None:
        """Have the threads end after the jobs that wait, without rest; returns at once."""
        self.closing.set()
        for _ in self._threads:
            self.jobs.put(None)

    def leave(self, thread: _Thread) -> bool:
        """Whether the thread may end: nothing waits, and it is not the one that stays."""
        with self._lock:
            if thread.abandoned or (self.jobs.empty() and (self.closing.is_set() or len(self._threads) > 1)):
                self._forget(thread)
                return True
            return False

    def _add_thread(self) -> None:
        thread = _Thread(self)
        thread.start()
        self._threads.append(thread)

    def _forget(self, thread: _Thread) -> None:
        for threads in (self._threads, self._abandoned):
            if thread in threads:
                threads.remove(thread)
                self._ended_cpu_s += thread.cpu_s

    def _arm(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(max(0.01, self._shortest_s), self._look, self._loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """See whether evaluations overran their limits, and whether some wait behind a long one."""
        if loop is not self._loop:
            return  # a loop that was replaced came back
        now, slow, busy = time.monotonic(), 0, 0
        for thread in list(self._threads):
            running = thread.running
            if running is None:
                continue
            job, began = running
            if now - began >= job.limit_s:
                self._abandon(thread, job)
            else:
                busy += 1
                slow += now - began >= LOOK_AHEAD_S
        with self._lock, contextlib.suppress(RuntimeError):  # no thread can be had now: it is tried again
            if not self.jobs.empty() and slow == len(self._threads) < MAX_THREADS:
                self._add_thread()
        self._timer = None
        if busy or not self.jobs.empty():
            self._arm()

    def _abandon(self, thread: _Thread, job: Job) -> None:
        with self._lock:
            thread.abandoned = True
            if thread in self._threads:
                self._threads.remove(thread)
                self._abandoned.append(thread)
        job.state.strike("it overran its time limit")
        self.deliver(job, EvaluationError(f"no result within {job.limit_s:g} s", error_type="timeout"))


class _Thread(EvaluationThread):
    """One thread of a pool."""

    def __init__(self, pool: Threads) -> None:
        super().__init__(target=contextvars.Context().run, args=(self._work,), name="agenteval-evaluator")
        self._pool = pool
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self.running: tuple[Job, float] | None = None
        self.abandoned = False
        self.cpu_s = 0.0

    def _work(self) -> None:
        try:
            while True:
                job = self._pool.jobs.get()
                if job is not None and job.done is not None:
                    self._rest(job)
                    self._run(job)
                del job  # an idle thread keeps nothing of the last evaluation
                if self._pool.leave(self):
                    return
        finally:
            if self._own_loop is not None:
                self._own_loop.close()

    def _run(self, job: Job) -> None:
        began, cpu_began = time.monotonic(), time.thread_time()
        self.running = job, began
        outcome: Outcome
        try:
            assert job.context is not None
            outcome = job.context.run(self._result, job)
        except BaseException as error:
            outcome = error
        self.running = None
        self.cpu_s = time.thread_time()
        job.cpu_s, job.seconds = self.cpu_s - cpu_began, time.monotonic() - began
        if self._pool.budget is not None:
            self._pool.budget.use(job.cpu_s)
        self._pool.deliver(job, outcome)
        if self._pool.budget is not None and job.cpu_s > _COMPUTES_S:
            # Between two evaluations, so that a request of the host's meets one and not a row of them.
            self._pool.closing.wait(min(_LONGEST_REST_S, 2 * job.cpu_s))

    def _result(self, job: Job) -> Any:
        if not job.state.in_own_loop:
            return result_of_plain(job.work())
        if self._own_loop is None:
            self._own_loop = asyncio.new_event_loop()
        try:
            return self._own_loop.run_until_complete(asyncio.wait_for(job.work(), job.limit_s))
        except TimeoutError:
            raise EvaluationError(f"no result within {job.limit_s:g} s", error_type="timeout") from None
        except (SystemExit, asyncio.CancelledError) as error:
            raise EvaluationError(type(error).__name__, error_type=type(error).__name__) from None

    def _rest(self, job: Job) -> None:
        budget, closing = self._pool.budget, self._pool.closing
        while budget is not None and (rest_s := budget.rest_s()) > 0 and not closing.is_set():
            if rest_s > _FELT_REST_S:
                job.state.log(
                    "evaluator_throttled",
                    f"the threads of evaluators rest: they use more than {CPU_SHARE:.0%} of a core; "
                    'execution="process" uses another one; see docs/execution.md',
                )
            closing.wait(rest_s)
