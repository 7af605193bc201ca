"""Executor: starts each evaluation where its evaluator runs, and watches what evaluators do there."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import thread_time
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.execution.budget import CpuBudget
from agenteval_otel.execution.jobs import Awaits, Deliveries, Job, Outcome
from agenteval_otel.execution.portable import NotPortable
from agenteval_otel.execution.processes import Processes
from agenteval_otel.execution.state import CHEAP_S, EvaluatorState
from agenteval_otel.execution.tasks import Tasks
from agenteval_otel.execution.threads import Threads
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

__all__ = ["ASYNC_TIMEOUT_S", "TIMEOUT_S", "Executor", "ModeLoad", "let_processes_go"]

TIMEOUT_S = 5.0
"""Time limit in a thread or a worker process, where the evaluator has none of its own."""
ASYNC_TIMEOUT_S = 30.0
ASYNC_CONCURRENCY = 64
MAX_WAITING = 8192
"""Evaluations that may wait in one mode."""


class ModeLoad(NamedTuple):
    """What waits in one mode.

    Attributes:
        waiting: Evaluations that wait or run.
        seconds: How long these take together, as their evaluators usually do.
        at_once: How many run at the same time.
        submitted: How many there were so far.
    """

    waiting: int
    seconds: float
    at_once: int
    submitted: int = 0


class Executor:
    """Runs evaluations of one pipeline, or of one offline run.

    `start` is called on the thread of a running event loop, and calls back there; `blame` and `close` from any thread.

    Args:
        live: In a host's process: evaluators are watched and moved, threads rest. Else, as offline, ``thread`` and
            ``process`` run in threads without rest, and nothing is moved.
        async_concurrency: Async evaluations at once.
    """

    def __init__(self, *, live: bool, async_concurrency: int = ASYNC_CONCURRENCY) -> None:
        self._live, self._async_concurrency = live, async_concurrency
        self._states: dict[int, EvaluatorState] = {}
        self._reset()
        _EXECUTORS.add(self)
        reset_in_child(self._forked)

    def _reset(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = weakref.WeakKeyDictionary()
        self._threads = Threads(_deliver, CpuBudget() if self._live else None)
        self._processes = Processes(self._complete, self._no_process) if self._live else None
        self._waiting = dict.fromkeys(("thread", "process", "async"), 0)
        self._seconds = dict.fromkeys(self._waiting, 0.0)
        self._submitted = dict.fromkeys(self._waiting, 0)

    def __repr__(self) -> str:
        strikes = sum(state.strikes for state in list(self._states.values()))
        return f"<Executor strikes={strikes} {self._threads!r} {self._processes!r}>"

    @property
    def cpu_s(self) -> float:
        """CPU seconds that its threads and processes used, as far as they are known."""
        return self._threads.cpu_s + (self._processes.cpu_s if self._processes is not None else 0.0)

    def mode(self, evaluator: Evaluator) -> Execution:
        """Where the evaluator's next evaluation runs."""
        state = self._states.get(id(evaluator))
        return (state or self.state(evaluator)).mode

    def state(self, evaluator: Evaluator) -> EvaluatorState:
        """What is known of the evaluator; forgotten with it."""
        key = id(evaluator)
        state = self._states.get(key)
        if state is None:
            gone = weakref.ref(evaluator, lambda _: self._states.pop(key, None))
            state = self._states[key] = EvaluatorState(evaluator, live=self._live, gone=gone)
        return state

    def start(
        self,
        evaluator: Evaluator,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
        done: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        """Start an evaluation that does not run inline; the function that is returned cancels it.

        Args:
            evaluator: Its mode is another one than ``inline``.
            evaluation_input: What to score.
            criteria: What is asked for.
            done: Called once, later, on this thread, unless the evaluation is cancelled: with the results, or with the
                exception that the evaluator raised, or with an `EvaluationError`: ``timeout`` when it overran its
                limit, ``crashed`` when it ended its process, ``quarantined`` when it did so too often, ``queue_full``
                when too many wait.
        """
        loop = asyncio.get_running_loop()
        state = self._states.get(id(evaluator)) or self.state(evaluator)
        job = Job(evaluator, state, evaluation_input, criteria, done, loop)
        error = state.quarantine()
        mode = "thread" if state.mode == "inline" else state.mode
        if error is None and self._waiting[mode] >= MAX_WAITING:
            error = EvaluationError(f"{MAX_WAITING} evaluations wait already", error_type="queue_full")
        if error is None:
            return self._submit(job, mode)
        loop.call_soon(job.finish, error)
        return job.cancel

    async def run(
        self, evaluator: Evaluator, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """Run one evaluation, inline ones included, and wait for it.

        Raises:
            EvaluationError: See `start`.
            Exception: Whatever the evaluator raised.
        """
        if self.mode(evaluator) == "inline":
            begun = thread_time()
            try:
                return await evaluator.evaluate(evaluation_input, criteria)
            finally:
                if self._live and (cpu_s := thread_time() - begun) >= CHEAP_S:
                    self.ran_inline(evaluator, cpu_s)
        future: asyncio.Future[list[EvaluationResult]] = asyncio.get_running_loop().create_future()
        cancel = self.start(evaluator, evaluation_input, criteria, lambda outcome: _settle(future, outcome))
        try:
            return await future
        except asyncio.CancelledError:
            cancel()
            raise

    def ran_inline(self, evaluator: Evaluator, seconds: float) -> None:
        """The engine saw an inline evaluation take so much CPU time (see `INLINE_SAMPLE`)."""
        if self._live:
            self.state(evaluator).ran_inline(seconds)

    def blame(self, evaluator: Evaluator, seconds: float) -> None:
        """The evaluator blocked the background thread for so long: it runs in a thread, or is quarantined."""
        self.state(evaluator).blocked(seconds)

    def started_async(self) -> Mapping[asyncio.Task[Any], Evaluator]:
        """The tasks that run, with their evaluators."""
        started: dict[asyncio.Task[Any], Evaluator] = {}
        for of_loop in list(self._loops.values()):
            started |= of_loop.tasks.started
        return started

    def waiting(self) -> dict[str, ModeLoad]:
        """What waits or runs in each mode."""
        at_once = {"thread": 1, "process": 1, "async": self._async_concurrency}
        return {
            mode: ModeLoad(count, max(0.0, self._seconds[mode]), at_once[mode], self._submitted[mode])
            for mode, count in self._waiting.items()
        }

    def close(self) -> None:
        """End threads and processes when nothing waits for them; returns at once. Later evaluations are done."""
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    def _submit(self, job: Job, mode: Execution) -> Callable[[], None]:
        state, of_loop = job.state, self._of(job.loop)
        if mode == "process":
            try:
                state.recipe()  # before anything is started for an evaluator that cannot run there
            except NotPortable as error:
                state.stays(str(error))
                mode = "thread"
        is_async = mode == "async" or state.in_own_loop
        job.limit_s = job.evaluator.timeout_s or (ASYNC_TIMEOUT_S if is_async else TIMEOUT_S)
        job.deliveries, job.mode, job.expected_s = of_loop.deliveries, mode, state.usual_s
        self._waiting[mode] += 1
        self._submitted[mode] += 1
        self._seconds[mode] += job.expected_s
        stop = job.cancel
        if mode == "async":
            stop = of_loop.tasks.submit(job)
        elif mode == "process" and self._processes is not None:
            self._processes.submit(job)
        else:
            try:
                self._threads.submit(job)
            except RuntimeError as error:  # no thread can be started now
                job.loop.call_soon(self._complete, job, error)

        def cancel() -> None:
            stop()
            self._leave(job)

        return cancel

    def _complete(self, job: Job, outcome: Outcome) -> None:
        """An evaluation ended, on its loop's thread."""
        mode = job.mode
        if not self._leave(job) or job.done is None:
            return
        if isinstance(outcome, Awaits):
            job.state.awaits()
            self._submit(job, job.state.mode)
            return
        if mode == "thread":
            job.state.ran_in_thread(job.cpu_s, job.seconds)
        else:
            job.state.took(job.seconds)
        job.finish(outcome)

    def _no_process(self, job: Job, reason: Exception | None) -> None:
        """A job cannot run in a worker process: it runs in a thread. Without a reason it is about its input alone."""
        if isinstance(reason, NotPortable):
            job.state.stays(str(reason))
        elif reason is not None:
            log.warning(
                "worker_process_unavailable",
                reason=f"{reason}: evaluations run in a thread of this process meanwhile; see docs/execution.md",
            )
        if self._leave(job) and job.done is not None:
            self._submit(job, "thread")

    def _leave(self, job: Job) -> bool:
        """The job waits no more; False when that was known."""
        mode, job.mode = job.mode, None
        if mode is None:
            return False
        self._waiting[mode] -= 1
        self._seconds[mode] -= job.expected_s
        return True

    def _of(self, loop: asyncio.AbstractEventLoop) -> _OfLoop:
        of_loop = self._loops.get(loop)
        if of_loop is None:
            deliveries = Deliveries(loop, self._complete)
            of_loop = self._loops[loop] = _OfLoop(deliveries, Tasks(self._async_concurrency, self._complete))
        return of_loop

    def _forked(self) -> None:
        self._exit()
        self._reset()

    def _exit(self) -> None:
        if self._processes is not None:
            self._processes.forget()


class _OfLoop(NamedTuple):
    """What belongs to one event loop."""

    deliveries: Deliveries
    tasks: Tasks


def _deliver(job: Job, outcome: Outcome) -> None:
    assert job.deliveries is not None
    job.deliveries.put(job, outcome)


def _settle(future: asyncio.Future[Any], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, StopIteration):  # a future refuses it
        outcome = RuntimeError("the evaluator raised StopIteration")
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


_EXECUTORS: weakref.WeakSet[Executor] = weakref.WeakSet()


def let_processes_go() -> None:
    """At the process's exit, when nothing more is evaluated: each fork server ends when its socket is closed, and
    Python would warn of one that stays open."""
    for executor in list(_EXECUTORS):
        executor._exit()
