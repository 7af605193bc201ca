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

_STOOD_STILL_S = 0.5
_GRACE_S = 5.0
_CANCEL_S = 0.1


class Tasks:
    """The async evaluations of one event loop, on its thread; `started` holds also those that ignored their
    cancellation.
    """

    def __init__(self, concurrency: int, complete: Callable[[Job, Outcome], None]) -> None:
        self._concurrency, self._complete = concurrency, complete
        self._waiting: deque[Job] = deque()
        self._supervisors: set[asyncio.Task[None]] = set()
        self.started: dict[asyncio.Task[Any], Evaluator] = {}

    def submit(self, job: Job) -> None:
        if len(self._supervisors) < self._concurrency:
            self._start(job)
        else:
            self._waiting.append(job)

    def _start(self, job: Job) -> None:
        job.task = job.loop.create_task(_without_exit(job))
        self.started[job.task] = job.evaluator
        job.task.add_done_callback(self._forget)
        self._supervisors.add(job.loop.create_task(self._supervise(job, job.task)))

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.started.pop(task, None)
        if not task.cancelled():
            task.exception()  # or asyncio complains on the host's stderr

    async def _supervise(self, job: Job, task: asyncio.Task[Any]) -> None:
        try:
            outcome = await self._outcome(job, task)
        finally:
            self._supervisors.discard(asyncio.current_task())
        while self._waiting and len(self._supervisors) < self._concurrency:
            waiting = self._waiting.popleft()
            if waiting.done is not None:
                self._start(waiting)
        self._complete(job, outcome)

    async def _outcome(self, job: Job, task: asyncio.Task[Any]) -> Outcome:
        began = time.monotonic()
        await asyncio.wait({task}, timeout=job.limit_s)
        if not task.done() and time.monotonic() - began - job.limit_s > _STOOD_STILL_S:
            # The process was stopped, or its loop blocked: what arrived for the evaluation meanwhile is not read yet.
            await asyncio.wait({task}, timeout=min(job.limit_s, _GRACE_S))
        overran = not task.done()
        if overran:
            task.cancel("timeout")  # a judge tells it by this text from a caller that gave up
            await asyncio.wait({task}, timeout=_CANCEL_S)
        job.seconds = time.monotonic() - began
        if overran:
            if not task.done():
                job.state.strike("it overran its time limit and ignored its cancellation")
            return job.timeout()
        if task.cancelled():
            return EvaluationError("the evaluator cancelled itself", error_type="cancelled")
        return task.exception() or task.result()


async def _without_exit(job: Job) -> Any:
    try:
        return await job.work()
    except SystemExit:  # asyncio would let it end the loop
        raise EvaluationError("SystemExit", error_type="SystemExit") from None
