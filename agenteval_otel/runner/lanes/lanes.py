"""`Lanes`: takes each evaluation to its lane, and watches what evaluators do there."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Coroutine, Sequence
from time import thread_time
from types import CoroutineType
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Lane
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.runner.child import Child, Job, NotPortable, Unavailable
from agenteval_otel.runner.child.answers import results_of, was_cut_short
from agenteval_otel.runner.lanes.records import FREE_S, Record, Records
from agenteval_otel.runner.lanes.share import Share
from agenteval_otel.runner.lanes.steps import Steps, continued
from agenteval_otel.runner.lanes.thread import LaneThread, ThreadJob
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

__all__ = ["CPU_TIMEOUT_S", "MODEL_TIMEOUT_S", "Lanes"]

CPU_TIMEOUT_S = 5.0
MODEL_TIMEOUT_S = 30.0
MODEL_CONCURRENCY = 64
MAX_WAITING = 8192
_STOOD_STILL_S = 0.5
_GRACE_S = 5.0


class Lanes:
    """Runs evaluations in their lanes. Belongs to one pipeline or one offline run; `close` ends its thread and child.

    Args:
        model_concurrency: Evaluations of the lane ``model`` at once.
        live: In somebody's process: the lane ``cpu`` is a child process, what must stay is held to a share of the
            processor's time, and evaluators that hold the interpreter are moved. Else, as offline, ``cpu`` is a thread.
    """

    def __init__(self, *, model_concurrency: int = MODEL_CONCURRENCY, live: bool = False) -> None:
        self._model_concurrency, self._live = model_concurrency, live
        self._places: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()
        self._records = Records()
        self._left_behind: set[asyncio.Task[Any]] = set()
        self._thread: LaneThread | None = None
        self._threads: list[LaneThread] = []
        self._ended_s = 0.0
        self._share = Share() if live else None
        self._child = Child(self._no_child) if live else None
        self._closed = False
        if live:
            reset_in_child(self._forked)

    def __repr__(self) -> str:
        stuck = sum(record.stuck for record in self._records.by_id.values())
        return f"<Lanes stuck={stuck} left_behind={len(self._left_behind)}>"

    @property
    def cpu_s(self) -> float:
        """CPU seconds that its threads and child processes used since the process began."""
        threads_s: float = sum(thread.cpu_s for thread in self._threads)
        return self._ended_s + threads_s + (self._child.cpu_s if self._child is not None else 0.0)

    async def run(
        self,
        evaluator: Evaluator,
        lane: Lane,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
    ) -> list[EvaluationResult]:
        """Run one evaluator in its lane.

        Raises:
            EvaluationError: ``timeout`` when it overran its limit, ``crashed`` when it ended its process,
                ``quarantined`` when it did so too often, ``lane_full`` when too many wait.
            Exception: Whatever the evaluator raised.
        """
        record = self._records.by_id.get(id(evaluator))
        if lane == "free" and (record is None or not record.moved):
            work = evaluator.evaluate(evaluation_input, criteria)
            if not self._live or type(work) is not CoroutineType:
                return await work
            begun, awaits = thread_time(), False
            try:
                awaited = work.send(None)
                awaits = True
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                # What the host feels; it costs about half a microsecond to know.
                if (took_s := thread_time() - begun) > FREE_S:
                    self._records.of(evaluator).held_up(took_s, awaits=awaits)
            return await continued(awaited, work)  # type: ignore[no-any-return]
        record = record or self._records.of(evaluator)
        record.check()
        if lane != "model" and not record.awaits:
            try:
                return await self._compute(evaluator, record, evaluation_input, criteria)
            except EvaluationError as error:
                if lane != "free" or error.error_type != "wrong_lane":
                    raise
            record.awaits = True  # it did not while it was free; who says `free` may wait
        return await self._ask(evaluator, record, evaluation_input, criteria)

    def held_thread(self, evaluator: Evaluator) -> None:
        """Count that the evaluator held the thread that its loop runs on; the third time quarantines it."""
        self._records.of(evaluator).held_thread()

    def close(self) -> None:
        """End the threads and the child process of the ``cpu`` lane, when nothing waits for them; returns at once."""
        self._closed = True
        if self._thread is not None:
            self._thread.end()
            self._thread = None
        if self._child is not None:
            self._child.close()

    async def _ask(
        self, evaluator: Evaluator, record: Record, given: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        if not self._live:
            async with self._place():
                return await self._as_task(evaluator, record, evaluator.evaluate(given, criteria))
        turns, patience_s = record.turns, max(evaluator.timeout_s or 0.0, MODEL_TIMEOUT_S)
        while True:
            booked_s = await turns.begin(patience_s, lambda: record.held("it is async"))
            steps: Steps | None = None
            try:
                async with self._place():
                    # The first ones show what it uses; those that waited for a place meanwhile wait for credit too.
                    if booked_s or not turns.is_in_debt():
                        steps = Steps()
                        return await self._as_task(evaluator, record, steps.run(evaluator.evaluate(given, criteria)))
            finally:
                turns.end(booked_s, steps.held_s if steps is not None else None)

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        place = self._places.get(loop)
        if place is None:
            place = self._places[loop] = asyncio.Semaphore(self._model_concurrency)
        return place

    async def _as_task(
        self, evaluator: Evaluator, record: Record, work: Coroutine[Any, Any, Any]
    ) -> list[EvaluationResult]:
        limit_s = evaluator.timeout_s or MODEL_TIMEOUT_S
        task = asyncio.get_running_loop().create_task(work)
        due = time.monotonic() + limit_s
        try:
            await asyncio.wait({task}, timeout=limit_s)
            if not task.done() and time.monotonic() - due > _STOOD_STILL_S:
                # The process was stopped, or its loop held up: what came for the evaluation meanwhile is not read yet.
                await asyncio.wait({task}, timeout=min(limit_s, _GRACE_S))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return _result_of(task)
        task.cancel("timeout")  # so that who is asked there can tell it from somebody who no longer wants to know
        # One turn of the loop for a task that takes its cancellation; one that does not is left behind and counted.
        await asyncio.wait({task}, timeout=0.1)
        if not task.done():
            record.got_stuck()
            self._left_behind.add(task)
            task.add_done_callback(self._came_back)
        raise EvaluationError(f"no result within {limit_s:g} s", error_type="timeout")

    def _came_back(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain on the host's stderr

    async def _compute(
        self, evaluator: Evaluator, record: Record, given: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        child = self._child
        if child is not None and record.stays is None and not child.broken:
            try:
                record.recipe()  # before anything is started for an evaluator that cannot go there
                return await self._in_child(child, evaluator, record, given, criteria)
            except NotPortable as reason:
                record.stays = str(reason)
            except Unavailable:
                pass  # said in the log by `_no_child`; nothing is left out: the thread evaluates it
        return await self._on_thread(evaluator, record, evaluator.evaluate(given, criteria))

    async def _in_child(
        self, child: Child, evaluator: Evaluator, record: Record, given: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
    ) -> list[EvaluationResult]:  # fmt: skip
        if child.waiting >= MAX_WAITING:
            raise EvaluationError(f"{MAX_WAITING} evaluations wait already", error_type="lane_full")
        job = Job(record.number, record.recipe, (given, criteria), evaluator.timeout_s or CPU_TIMEOUT_S)
        child.submit(job)
        try:
            answer = await job.future
        except asyncio.CancelledError:
            job.given_up = True
            child.wake()
            raise
        if was_cut_short(answer):
            record.got_stuck()
        found: list[EvaluationResult] = results_of(answer)
        return found

    def _no_child(self, why: str) -> None:
        log.warning("child_unavailable", said=f"{why}: the lane cpu is a thread of this process; see docs/lanes.md")

    async def _on_thread(
        self, evaluator: Evaluator, record: Record, work: Coroutine[Any, Any, Any]
    ) -> list[EvaluationResult]:
        limit_s = evaluator.timeout_s or CPU_TIMEOUT_S
        job = ThreadJob(work, record)
        thread = self._queued(job)
        while not job.future.done():
            if not thread.is_alive() and job.started is None:
                # It ended, as lanes do when they are closed, before the job was in its queue. Where a successor has
                # that queue, the job stands in two: it is done once.
                thread = self._queued(job)
            left_s = limit_s if job.started is None else job.started + limit_s - time.monotonic()
            if job.started is not None and left_s <= 0:
                self._replace_thread(record, job)
                job.future.cancel()  # what comes too late is for nobody
                raise EvaluationError(f"no result within {limit_s:g} s", error_type="timeout")
            try:
                await asyncio.wait({job.future}, timeout=max(left_s, 0.01))
            except asyncio.CancelledError:
                job.future.cancel()  # nobody will look at what comes, and asyncio complains of errors nobody looked at
                raise
        found: list[EvaluationResult] = job.future.result()
        return found

    def _queued(self, job: ThreadJob) -> LaneThread:
        thread = self._present_thread()
        thread.jobs.put(job)
        if self._closed:
            thread.end()
        return thread

    def _present_thread(self) -> LaneThread:
        if self._closed:
            return self._noted(LaneThread(None))  # a late evaluation has a thread that ends with it
        if self._thread is None or not self._thread.is_alive():
            self._thread = self._noted(LaneThread(self._share))
        return self._thread

    def _noted(self, thread: LaneThread) -> LaneThread:
        ended = [one for one in self._threads if not one.is_alive()]
        self._ended_s += sum(one.cpu_s for one in ended)
        self._threads = [one for one in self._threads if one not in ended] + [thread]
        return thread

    def _replace_thread(self, record: Record, job: ThreadJob) -> None:
        record.got_stuck()
        if self._thread is not None and self._thread.current is job:
            self._thread = self._noted(self._thread.successor())

    def _forked(self) -> None:
        self._thread, self._threads, self._ended_s = None, [], 0.0


def _result_of(task: asyncio.Task[Any]) -> list[EvaluationResult]:
    if task.cancelled():
        raise EvaluationError("the evaluator cancelled itself", error_type="cancelled")
    result: list[EvaluationResult] = task.result()
    return result
