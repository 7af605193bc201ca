"""Lanes: where an evaluator runs, and for how long.

``free`` runs inline. ``model`` runs as a task with a time limit and a limit on how many run at once. ``cpu`` runs on a
daemon thread of its own, one evaluation after another, so that work that blocks never holds up the event loop; an
evaluation that overruns its limit leaves its thread behind and the next ones go to a fresh thread. An evaluator that
keeps getting stuck is quarantined: it fails at once instead of leaving more threads or tasks behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Lane
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult

__all__ = ["CPU_TIMEOUT_S", "MAX_STUCK", "MODEL_TIMEOUT_S", "Lanes"]

CPU_TIMEOUT_S = 5.0
MODEL_TIMEOUT_S = 30.0
MODEL_CONCURRENCY = 64
MAX_STUCK = 3


class Lanes:
    """Runs evaluations in their lanes. Belongs to one pipeline or one offline run; `close` ends its thread."""

    def __init__(self, *, model_concurrency: int = MODEL_CONCURRENCY) -> None:
        self._model_concurrency = model_concurrency
        self._places: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()
        self._stuck: dict[int, int] = {}
        self._left_behind: set[asyncio.Task[Any]] = set()
        self._thread: _LaneThread | None = None

    def __repr__(self) -> str:
        return f"<Lanes stuck={sum(self._stuck.values())} left_behind={len(self._left_behind)}>"

    async def run(
        self,
        evaluator: Evaluator,
        lane: Lane,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
    ) -> list[EvaluationResult]:
        """Run one evaluator in its lane.

        Raises:
            EvaluationError: ``timeout`` when it overran its limit, ``quarantined`` when it did so too often.
            Exception: Whatever the evaluator raised.
        """
        if lane == "free":
            return await evaluator.evaluate(evaluation_input, criteria)
        if self._stuck.get(id(evaluator), 0) >= MAX_STUCK:
            raise EvaluationError("quarantined: it overran its time limit too often", error_type="quarantined")
        work = evaluator.evaluate(evaluation_input, criteria)
        if lane == "cpu":
            return await self._on_thread(evaluator, work)
        async with self._place():
            return await self._as_task(evaluator, work)

    def close(self) -> None:
        """End the thread of the ``cpu`` lane, if there is one; returns at once."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        place = self._places.get(loop)
        if place is None:
            place = self._places[loop] = asyncio.Semaphore(self._model_concurrency)
        return place

    async def _as_task(self, evaluator: Evaluator, work: Coroutine[Any, Any, Any]) -> list[EvaluationResult]:
        limit_s = evaluator.timeout_s or MODEL_TIMEOUT_S
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({task}, timeout=limit_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return _result_of(task)
        task.cancel()
        # One turn of the loop for a task that takes its cancellation; one that does not is left behind and counted.
        await asyncio.wait({task}, timeout=0.1)
        if not task.done():
            self._leave_behind(evaluator, task)
        raise EvaluationError(f"no result within {limit_s:g} s", error_type="timeout")

    def _leave_behind(self, evaluator: Evaluator, task: asyncio.Task[Any]) -> None:
        self._stuck[id(evaluator)] = self._stuck.get(id(evaluator), 0) + 1
        self._left_behind.add(task)

        def came_back(task: asyncio.Task[Any]) -> None:
            self._left_behind.discard(task)
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not complain on the host's stderr

        task.add_done_callback(came_back)

    async def _on_thread(self, evaluator: Evaluator, work: Coroutine[Any, Any, Any]) -> list[EvaluationResult]:
        limit_s = evaluator.timeout_s or CPU_TIMEOUT_S
        if self._thread is None or not self._thread.is_alive():
            self._thread = _LaneThread()
        job = _Job(work, asyncio.get_running_loop())
        self._thread.jobs.put(job)
        while not job.future.done():
            left_s = limit_s if job.started is None else job.started + limit_s - time.monotonic()
            if job.started is not None and left_s <= 0:
                self._replace_thread(evaluator, job)
                job.future.cancel()  # what comes too late is for nobody
                raise EvaluationError(f"no result within {limit_s:g} s", error_type="timeout")
            try:
                await asyncio.wait({job.future}, timeout=max(left_s, 0.01))
            except asyncio.CancelledError:
                job.future.cancel()  # nobody will look at what comes, and asyncio complains of errors nobody looked at
                raise
        return job.future.result()

    def _replace_thread(self, evaluator: Evaluator, job: _Job) -> None:
        self._stuck[id(evaluator)] = self._stuck.get(id(evaluator), 0) + 1
        if self._thread is not None and self._thread.current is job:
            self._thread = self._thread.successor()


def _result_of(task: asyncio.Task[Any]) -> list[EvaluationResult]:
    if task.cancelled():
        raise EvaluationError("the evaluator cancelled itself", error_type="cancelled")
    result: list[EvaluationResult] = task.result()
    return result


class _Job:
    """One evaluation on its way to the lane's thread and back."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work, self.loop = work, loop
        self.future: asyncio.Future[list[EvaluationResult]] = loop.create_future()
        self.context = contextvars.copy_context()
        self.started: float | None = None

    def run(self) -> None:
        self.started = time.monotonic()
        result: list[EvaluationResult] = []
        error: BaseException | None = None
        try:
            self.context.run(self.work.send, None)
            self.work.close()
            error = EvaluationError("an evaluator in the cpu lane must not await", error_type="wrong_lane")
        except StopIteration as end:
            result = end.value
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._answer, result, error)

    def _answer(self, result: list[EvaluationResult], error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        elif isinstance(error, Exception):
            self.future.set_exception(error)
        else:
            self.future.set_exception(EvaluationError(type(error).__name__, error_type=type(error).__name__))


class _LaneThread:
    """The ``cpu`` lane's present thread; a successor takes over its queue when it is stuck."""

    def __init__(self, jobs: queue.SimpleQueue[_Job | None] | None = None) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = jobs or queue.SimpleQueue()
        self.current: _Job | None = None
        self._relieved = False
        self._thread = threading.Thread(
            target=contextvars.Context().run, args=(self._work,), name="agenteval-cpu", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """False once its thread ended, in a forked child too."""
        return self._thread.is_alive()

    def successor(self) -> _LaneThread:
        """A fresh thread on the same queue; this one ends when its job comes back."""
        self._relieved = True
        return _LaneThread(self.jobs)

    def end(self) -> None:
        """Ask the thread to end after the jobs that wait."""
        self.jobs.put(None)

    def _work(self) -> None:
        while not self._relieved:
            job = self.jobs.get()
            if job is None:
                return
            self.current = job
            job.run()
            self.current = None
