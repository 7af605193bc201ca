"""Executor: starts each evaluation where its evaluator runs.

It also keeps what evaluators were observed to do.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenteval_otel.engine.execution.jobs import Awaits, EvaluatorState, Job, Outcome
from agenteval_otel.engine.execution.supervisor import NoWorkerProcess, Supervisor
from agenteval_otel.engine.execution.threads import Threads
from agenteval_otel.engine.execution.wire import NotPortable, RunsHere
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

TIMEOUT_S = 5.0
"""Time limit in a thread or a worker process, where the evaluator has none of its own."""
ASYNC_TIMEOUT_S = 30.0
ASYNC_CONCURRENCY = 64
MAX_WAITING = 8192
"""Evaluations that may wait in one mode."""
_STOOD_STILL_S = 0.5
_GRACE_S = 5.0
_CANCEL_S = 0.1


@dataclass(slots=True)
class Load:
    """Counts the jobs that wait or run in one mode, and sums up their expected seconds.

    `submitted_s` is the sum of all jobs so far. Up to `at_once` jobs run at once.
    """

    at_once: int = 1
    waiting: int = 0
    waiting_s: float = 0.0
    submitted_s: float = 0.0


class Executor:
    """Runs evaluations of one pipeline, or of one offline run.

    With `live`, in a host's process, evaluators are moved and threads rest. Else ``process`` means
    ``thread``.
    """

    def __init__(self, *, live: bool, async_concurrency: int = ASYNC_CONCURRENCY) -> None:
        self.is_live = live
        self._async_concurrency = async_concurrency
        self._states: dict[int, tuple[EvaluatorState, weakref.ref[Evaluator]]] = {}
        self.supervisor = Supervisor() if live else None
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, _Tasks] = {}
        self._threads = Threads(rests=self.is_live)
        self.loads: dict[str, Load] = {
            "thread": Load(),
            "process": Load(),
            "async": Load(self._async_concurrency),
        }

    def __repr__(self) -> str:
        return f"<Executor {self._threads!r} {self.supervisor!r}>"

    def state(self, evaluator: Evaluator) -> EvaluatorState:
        key = id(evaluator)
        known = self._states.get(key)
        if known is None:
            reference = weakref.ref(evaluator, lambda _: self._states.pop(key, None))
            known = (EvaluatorState(evaluator, live=self.is_live), reference)
            self._states[key] = known
        return known[0]

    def is_quarantined(self, evaluator: Evaluator) -> bool:
        """Tell whether an evaluator is not run any more. Any thread."""
        known = self._states.get(id(evaluator))
        return known is not None and known[0].quarantine() is not None

    def start(
        self,
        evaluator: Evaluator,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
        done: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        """Start an evaluation that does not run inline, on an event loop's thread.

        Return a function that cancels it.

        `done` is called once, later, on this thread: with the results, the exception that the
        evaluator raised, or an `EvaluationError`: ``timeout``, ``crashed`` (it ended its process),
        ``quarantined`` or ``queue_full``.
        """
        loop = asyncio.get_running_loop()
        state = self.state(evaluator)
        job = Job(evaluator, state, evaluation_input, criteria, done, loop, self._complete)
        error = state.quarantine()
        mode: Execution = "thread" if state.mode == "inline" else state.mode
        if error is None and self.loads[mode].waiting >= MAX_WAITING:
            error = EvaluationError(
                f"{MAX_WAITING} evaluations wait already", error_type="queue_full"
            )
        if error is None:
            self._submit(job, mode)
        else:
            loop.call_soon(job.finish, error)

        def cancel() -> None:
            job.done = None
            if job.task is not None:
                job.task.cancel()
            self._leave(job)

        return cancel

    def started_async(self) -> Mapping[asyncio.Task[Any], Evaluator]:
        started: dict[asyncio.Task[Any], Evaluator] = {}
        for tasks in list(self._loops.values()):
            started |= tasks.started
        return started

    def close(self) -> None:
        """End threads and processes when nothing waits for them.

        Returns at once. Later evaluations are still done.
        """
        self._threads.close()
        if self.supervisor is not None:
            self.supervisor.close()

    def leave(self) -> None:
        """Let worker processes end with this process, at its exit. No other is started."""
        if self.supervisor is not None:
            self.supervisor.leave()

    def _submit(self, job: Job, mode: Execution) -> None:
        state = job.state
        if mode == "process":
            try:
                # before anything is started for an evaluator that cannot run there
                state.recipe(job.evaluator)
            except NotPortable as error:
                state.leave_process(str(error))
                mode = "thread"
        is_async = mode == "async" or state.in_own_loop
        usual_limit_s = ASYNC_TIMEOUT_S if is_async else TIMEOUT_S
        job.limit_s = job.evaluator.timeout_s or usual_limit_s
        job.mode = mode
        job.expected_s = state.usual_s
        load = self.loads[mode]
        load.waiting += 1
        load.waiting_s += job.expected_s
        load.submitted_s += job.expected_s
        try:
            if mode == "async":
                self._tasks_of(job.loop).submit(job)
            elif mode == "process" and self.supervisor is not None:
                self.supervisor.submit(job)
            else:
                self._threads.submit(job)
        except RuntimeError as error:  # no thread can be started now
            job.loop.call_soon(self._complete, job, error)

    def _complete(self, job: Job, outcome: Outcome) -> None:
        """Finish the job, or restart it in another mode."""
        state = job.state
        mode = job.mode
        if not self._leave(job) or job.done is None:
            return
        if isinstance(outcome, Awaits):
            state.awaits()
            self._submit(job, state.mode)
            return
        # it has ended a process: not in this one
        if isinstance(outcome, NoWorkerProcess) and state.strikes:
            outcome = EvaluationError(str(outcome), error_type="crashed")
        if isinstance(outcome, RunsHere):
            if isinstance(outcome, NotPortable):
                state.leave_process(str(outcome))
            elif isinstance(outcome, NoWorkerProcess):
                reason = f"{outcome}: evaluations run in a thread of this process meanwhile"
                log.warning("worker_process_unavailable", reason=reason)
            self._submit(job, "thread")
            return
        state.measured(job.seconds)
        if mode == "thread":
            state.ran_in_thread(job.cpu_s)
        job.finish(outcome)

    def _leave(self, job: Job) -> bool:
        """Remove the job from its load. Return False if it is not there."""
        mode = job.mode
        job.mode = None
        if mode is None:
            return False
        load = self.loads[mode]
        load.waiting -= 1
        # Rounding errors add up: without jobs the sum is set to 0.
        load.waiting_s = max(0.0, load.waiting_s - job.expected_s) if load.waiting else 0.0
        return True

    def _tasks_of(self, loop: asyncio.AbstractEventLoop) -> _Tasks:
        known = self._loops.get(loop)
        if known is None:
            closed_loops = [other for other in self._loops if other.is_closed()]
            for closed_loop in closed_loops:
                del self._loops[closed_loop]
            known = _Tasks(self._async_concurrency)
            self._loops[loop] = known
        return known


class _Tasks:
    """Runs the async evaluations of one event loop.

    `started` holds also those that ignored their cancellation.
    """

    def __init__(self, concurrency: int) -> None:
        self._places = asyncio.Semaphore(concurrency)
        # asyncio itself keeps tasks by weak reference only
        self._supervisors: set[asyncio.Task[None]] = set()
        self.started: dict[asyncio.Task[Any], Evaluator] = {}

    def submit(self, job: Job) -> None:
        supervisor = job.loop.create_task(self._supervise(job))
        self._supervisors.add(supervisor)
        supervisor.add_done_callback(self._supervisors.discard)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.started.pop(task, None)
        if not task.cancelled():
            task.exception()  # or asyncio complains on the host's stderr

    async def _supervise(self, job: Job) -> None:
        async with self._places:
            if job.done is None:  # cancelled while it waited
                return
            task = job.task = job.loop.create_task(_without_exit(job))
            self.started[task] = job.evaluator
            task.add_done_callback(self._forget)
            outcome = await self._outcome(job, task)
        job.complete(job, outcome)

    async def _outcome(self, job: Job, task: asyncio.Task[Any]) -> Outcome:
        began = time.monotonic()
        await asyncio.wait({task}, timeout=job.limit_s)
        if not task.done() and time.monotonic() - began - job.limit_s > _STOOD_STILL_S:
            # The process was stopped, or its loop blocked: what arrived for the evaluation
            # meanwhile is not read yet.
            await asyncio.wait({task}, timeout=min(job.limit_s, _GRACE_S))
        overran = not task.done()
        if overran:
            # by this text a judge distinguishes it from a cancellation by its caller
            task.cancel("timeout")
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
