"""Executor: starts each evaluation where its evaluator runs, and keeps what evaluators were observed to do."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.execution.jobs import Awaits, Deliveries, Job, Outcome
from agenteval_otel.execution.launch import Unavailable
from agenteval_otel.execution.portable import NotPortable, RunsHere
from agenteval_otel.execution.state import EvaluatorState
from agenteval_otel.execution.supervisor import Supervisor
from agenteval_otel.execution.tasks import Tasks
from agenteval_otel.execution.threads import Threads
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

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
        waiting_s: How long these take together, as their evaluators usually do.
        submitted_s: The same of all evaluations so far.
        at_once: How many run at the same time.
    """

    waiting: int
    waiting_s: float
    submitted_s: float
    at_once: int


class Executor:
    """Runs evaluations of one pipeline, or of one offline run.

    `start` is called on the thread of a running event loop, and calls back there; `blame` and `close` from any thread.

    Args:
        live: In a host's process: evaluators are watched and moved, threads rest. Offline ``process`` means ``thread``,
            without rest, and nothing is moved.
    """

    def __init__(self, *, live: bool, async_concurrency: int = ASYNC_CONCURRENCY) -> None:
        self._live, self._async_concurrency = live, async_concurrency
        self._states: dict[int, tuple[EvaluatorState, weakref.ref[Evaluator]]] = {}
        self._supervisor = Supervisor() if live else None
        self._reset()
        _EXECUTORS.add(self)
        reset_in_child(self._forked)

    def _reset(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Deliveries, Tasks]]
        self._loops = weakref.WeakKeyDictionary()
        self._threads = Threads(rests=self._live)
        self._waiting = dict.fromkeys(("thread", "process", "async"), 0)
        self._waiting_s = dict.fromkeys(self._waiting, 0.0)
        self._submitted_s = dict.fromkeys(self._waiting, 0.0)

    def __repr__(self) -> str:
        return f"<Executor {self._threads!r} {self._supervisor!r}>"

    def mode(self, evaluator: Evaluator) -> Execution:
        known = self._states.get(id(evaluator))
        return (known[0] if known is not None else self.state(evaluator)).mode

    def state(self, evaluator: Evaluator) -> EvaluatorState:
        """What is known of the evaluator; forgotten with it."""
        key = id(evaluator)
        known = self._states.get(key)
        if known is None:
            reference = weakref.ref(evaluator, lambda _: self._states.pop(key, None))
            known = self._states[key] = EvaluatorState(evaluator, live=self._live), reference
        return known[0]

    def start(
        self,
        evaluator: Evaluator,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
        done: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        """Start an evaluation that does not run inline; the function that is returned cancels it.

        Args:
            done: Called once, later, on this thread, unless the evaluation is cancelled: with the results, the
                exception that the evaluator raised, or an `EvaluationError`: ``timeout``, ``crashed`` (it ended its
                process), ``quarantined``, or ``queue_full``.
        """
        loop, state = asyncio.get_running_loop(), self.state(evaluator)
        job = Job(evaluator, state, evaluation_input, criteria, done, loop)
        error = state.quarantine()
        mode = "thread" if state.mode == "inline" else state.mode
        if error is None and self._waiting[mode] >= MAX_WAITING:
            error = EvaluationError(f"{MAX_WAITING} evaluations wait already", error_type="queue_full")
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

    def ran_inline(self, evaluator: Evaluator, cpu_s: float) -> None:
        """The engine measured the CPU time of an inline evaluation (see `INLINE_SAMPLE`)."""
        if self._live:
            self.state(evaluator).ran_inline(cpu_s)

    def blame(self, evaluator: Evaluator, seconds: float) -> None:
        """The evaluator blocked the background thread for so long: it runs in a thread, or is quarantined."""
        self.state(evaluator).blocked(seconds)

    def started_async(self) -> Mapping[asyncio.Task[Any], Evaluator]:
        """The tasks that run, with their evaluators."""
        started: dict[asyncio.Task[Any], Evaluator] = {}
        for _, tasks in list(self._loops.values()):
            started |= tasks.started
        return started

    def waiting(self) -> dict[str, ModeLoad]:
        at_once = {"thread": 1, "process": 1, "async": self._async_concurrency}
        return {
            mode: ModeLoad(count, max(0.0, self._waiting_s[mode]), self._submitted_s[mode], at_once[mode])
            for mode, count in self._waiting.items()
        }

    def close(self) -> None:
        """End threads and processes when nothing waits for them; returns at once. Later evaluations are done."""
        self._threads.close()
        if self._supervisor is not None:
            self._supervisor.close()

    def _submit(self, job: Job, mode: Execution) -> None:
        state = job.state
        if mode == "process":
            try:
                state.recipe(job.evaluator)  # before anything is started for an evaluator that cannot run there
            except NotPortable as error:
                state.leave_process(str(error))
                mode = "thread"
        is_async = mode == "async" or state.in_own_loop
        job.limit_s = job.evaluator.timeout_s or (ASYNC_TIMEOUT_S if is_async else TIMEOUT_S)
        job.mode, job.expected_s = mode, state.usual_s
        self._waiting[mode] += 1
        self._waiting_s[mode] += job.expected_s
        self._submitted_s[mode] += job.expected_s
        job.deliveries, tasks = self._of(job.loop)
        try:
            if mode == "async":
                tasks.submit(job)
            elif mode == "process" and self._supervisor is not None:
                self._supervisor.submit(job)
            else:
                self._threads.submit(job)
        except RuntimeError as error:  # no thread can be started now
            job.loop.call_soon(self._complete, job, error)

    def _complete(self, job: Job, outcome: Outcome) -> None:
        """An evaluation ended, on its loop's thread; where it has to run elsewhere it starts there."""
        state, mode = job.state, job.mode
        if not self._leave(job) or job.done is None:
            return
        if isinstance(outcome, Awaits):
            state.awaits()
            self._submit(job, state.mode)
            return
        if isinstance(outcome, Unavailable) and state.strikes:  # it has ended a process: not in this one
            outcome = EvaluationError(str(outcome), error_type="crashed")
        if isinstance(outcome, RunsHere):
            if isinstance(outcome, NotPortable):
                state.leave_process(str(outcome))
            elif isinstance(outcome, Unavailable):
                reason = f"{outcome}: evaluations run in a thread of this process meanwhile; see docs/execution.md"
                log.warning("worker_process_unavailable", reason=reason)
            self._submit(job, "thread")
            return
        state.measured(job.seconds)
        if mode == "thread":
            state.ran_in_thread(job.cpu_s)
        job.finish(outcome)

    def _leave(self, job: Job) -> bool:
        """The job waits no more; False when that was known."""
        mode, job.mode = job.mode, None
        if mode is None:
            return False
        self._waiting[mode] -= 1
        # Sums of fractions leave a rest: nothing waits for no time.
        self._waiting_s[mode] = self._waiting_s[mode] - job.expected_s if self._waiting[mode] else 0.0
        return True

    def _of(self, loop: asyncio.AbstractEventLoop) -> tuple[Deliveries, Tasks]:
        known = self._loops.get(loop)
        if known is None:
            tasks = Tasks(self._async_concurrency, self._complete)
            known = self._loops[loop] = Deliveries(loop, self._complete), tasks
        return known

    def _forked(self) -> None:
        if self._supervisor is not None:
            self._supervisor.forget()
        self._reset()


_EXECUTORS: weakref.WeakSet[Executor] = weakref.WeakSet()


def forget_processes() -> None:
    """At the process's exit, when nothing more is evaluated: the fork servers end with this process."""
    for executor in list(_EXECUTORS):
        if executor._supervisor is not None:
            executor._supervisor.leave()
