"""Tasks: async evaluations, one task each, with a time limit and a limit on how many run at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.execution.jobs import Job, Outcome

__all__ = ["Tasks"]

_STOOD_STILL_S = 0.5
_GRACE_S = 5.0
_CANCEL_S = 0.1


class Tasks:
    """The async evaluations of one event loop. Everything happens on its thread.

    Attributes:
        started: The evaluator of each task that runs.
        left_behind: Tasks that go on after their cancellation.
    """

    def __init__(self, concurrency: int, complete: Callable[[Job, Outcome], None]) -> None:
        self._concurrency, self._complete = concurrency, complete
        self._waiting: deque[_Run] = deque()
        self._running = 0
        self.started: dict[asyncio.Task[Any], Evaluator] = {}
        self.left_behind: set[asyncio.Task[Any]] = set()

    @property
    def waiting(self) -> int:
        """Evaluations that wait or run."""
        return len(self._waiting) + self._running

    def submit(self, job: Job) -> Callable[[], None]:
        """Take a job; the function that is returned cancels it."""
        run = _Run(self, job)
        if self._running < self._concurrency:
            self._begin(run)
        else:
            self._waiting.append(run)
        return run.cancel

    def ended(self, job: Job, outcome: Outcome) -> None:
        """An evaluation has its outcome; another one may begin."""
        self._running -= 1
        while self._waiting and self._running < self._concurrency:
            run = self._waiting.popleft()
            if run.job.done is not None:
                self._begin(run)
        self._complete(job, outcome)

    def _begin(self, run: _Run) -> None:
        self._running += 1
        run.begin()


class _Run:
    """One evaluation: its task and its time limit, which begins with the task."""

    def __init__(self, tasks: Tasks, job: Job) -> None:
        self.job, self._tasks = job, tasks
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._timed_out = self._ended = False

    def begin(self) -> None:
        self._began = time.monotonic()
        self._task = self.job.loop.create_task(_without_exit(self.job))
        self._tasks.started[self._task] = self.job.evaluator
        self._task.add_done_callback(self._task_done)
        self._timer = self.job.loop.call_later(self.job.limit_s, self._overran, self._began + self.job.limit_s)

    def cancel(self) -> None:
        self.job.cancel()
        if self._task is not None:
            self._task.cancel()

    def _overran(self, due: float) -> None:
        assert self._task is not None
        now, limit_s = time.monotonic(), self.job.limit_s
        if now - due > _STOOD_STILL_S:
            # The process was stopped, or its loop blocked: what came for the evaluation meanwhile is not read yet.
            grace_s = min(limit_s, _GRACE_S)
            self._timer = self.job.loop.call_later(grace_s, self._overran, now + grace_s)
            return
        self._timed_out = True
        self._timer = self.job.loop.call_later(_CANCEL_S, self._ignored_cancellation)
        self._task.cancel("timeout")  # a judge tells it by this text from a caller that wants no answer any more

    def _ignored_cancellation(self) -> None:
        assert self._task is not None
        if self._task.done():
            return  # the loop was late, not the evaluation: its end is told next
        self.job.state.strike("it overran its time limit and ignored its cancellation")
        self._tasks.left_behind.add(self._task)
        self._end(self._timeout())

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.started.pop(task, None)
        self._tasks.left_behind.discard(task)
        error = None if task.cancelled() else task.exception()  # looked at, or asyncio complains on the host's stderr
        if self._timed_out:
            self._end(self._timeout())
        elif task.cancelled():
            self._end(EvaluationError("the evaluator cancelled itself", error_type="cancelled"))
        else:
            self._end(task.result() if error is None else error)

    def _end(self, outcome: Outcome) -> None:
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self.job.seconds = time.monotonic() - self._began
        self._tasks.ended(self.job, outcome)

    def _timeout(self) -> EvaluationError:
        return EvaluationError(f"no result within {self.job.limit_s:g} s", error_type="timeout")


async def _without_exit(job: Job) -> Any:
    """The evaluation; SystemExit is its failure, where asyncio would let it end the loop."""
    try:
        return await job.work()
    except SystemExit:
        raise EvaluationError("SystemExit", error_type="SystemExit") from None
