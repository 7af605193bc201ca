"""Contract of dispatchers, which settle each call once.

The module also has the simplest dispatcher, and the threads of their loops.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final, Protocol

from agenteval_otel.components import Component
from agenteval_otel.engine.live import Done, Taken
from agenteval_otel.engine.task import Queued
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.runtime.loop import LoopThread
from agenteval_otel.runtime.reentrancy import EVALUATION, EvaluationThread
from agenteval_otel.runtime.worker import Worker, settle
from agenteval_otel.semconv import DROPPED_SHUTDOWN, PIPELINE_FAILED

MAX_THREADS = 8
_MAX_WAITING = 10_000
_IDLE_S = 5.0
Process = Callable[[Sequence[Queued], Done, Callable[[], None]], None]
"""Evaluates a list of what was queued: `done` takes each, once. Between two steps it calls the third
argument, which lets other threads have the interpreter, and may raise to end a thread that another
one has replaced.
"""
Settle = Callable[[Queued, str], None]
"""Takes the outcome of what was queued, exactly once for each. It must not block."""


class Stall(Protocol):
    """Says what to do when the background thread is held up.

    It is called on the watchdog's thread.
    """

    def blame(self, task: object, held_s: float, thread_id: int) -> Evaluator | None:
        """Find, log and move what holds the thread for so long. Return it if it is an evaluator."""

    def take_over(self, queued: Queued, blamed: Evaluator | None, held_s: float) -> Taken:
        """Say who goes on with a task that was under way.

        For the next thread, make it ready to be processed again.
        """


class Dispatcher(Component, contract="dispatcher"):
    """Runs evaluations somewhere. Implement `start`, `submit`, `flush`, `shutdown`."""

    def start(
        self,
        process: Process,
        settle: Settle,
        *,
        has_room: Callable[[], bool] = lambda: True,
        on_work: Callable[[int, float], None] = lambda calls, seconds: None,
        on_stall: Stall | None = None,
    ) -> None:
        """Set what is done with calls. No thread is started yet.

        `has_room` is asked before each list of calls, `on_work` takes the calls processed in a row
        and the seconds.
        """
        raise NotImplementedError

    def submit(self, queued: Queued, size_bytes: int) -> bool:
        """Take a call or a task, on the caller's thread, without blocking.

        Return False if it was dropped (and settled as such).
        """
        raise NotImplementedError

    def flush(self, timeout_s: float) -> bool:
        """Wait until all calls taken before are settled. Return False if the time ran out."""
        raise NotImplementedError

    def shutdown(self, timeout_s: float) -> bool:
        """Take no more calls, wait for those taken, and settle the rest as dropped.

        Return False if some were dropped.
        """
        raise NotImplementedError

    def retire(self) -> None:
        """Let go of what waits for calls, at once: none are expected any more.

        One that comes is taken as before.
        """

    def state(self) -> dict[str, int]:
        """Return the gauges of the queue, ``size``, ``waiting``, ``bytes`` and ``max_bytes``.

        The size is in calls, of which those ``waiting`` have not begun.
        """
        return {"size": 0, "waiting": 0, "bytes": 0, "max_bytes": 0}


class InlineDispatcher(Dispatcher, type="inline"):
    """Evaluates before the answer goes back: for tests and scripts, not for production.

    One thread with one event loop evaluates all calls.
    """

    @cached_property
    def _parts(self) -> dict[str, Any]:
        return {"closed": False}

    def start(self, process: Process, settle: Settle, **_: Any) -> None:
        self._parts.update(process=process, settle=settle)

    def submit(self, queued: Queued, size_bytes: int) -> bool:
        settle: Settle = self._parts["settle"]
        if self._parts["closed"]:
            settle(queued, DROPPED_SHUTDOWN)
            return False
        settle(queued, _outcome_of(self._parts["process"], queued))
        return True

    def flush(self, timeout_s: float) -> bool:
        return True

    def shutdown(self, timeout_s: float) -> bool:
        self._parts["closed"] = True
        return True


def _outcome_of(process: Process, queued: Queued) -> str:
    """Process what was queued in an empty context, on the one loop of inline evaluations."""

    async def processed() -> str:
        # Inside of the task: an exception that cannot even be shown would keep the runner from
        # cleaning up.
        outcomes: list[str | Awaitable[str]] = []
        try:
            process([queued], lambda _, outcome: outcomes.append(outcome), lambda: None)
            outcome = outcomes[0]
            if isinstance(outcome, str):
                return outcome
            return await outcome
        except Exception:
            return PIPELINE_FAILED

    try:
        if _INLINE_LOOP.is_here():  # an evaluator calls a handler that is evaluated inline
            return _on_a_new_thread(processed)
        return _INLINE_LOOP.run(processed, contextvars.Context())
    except Exception:
        return PIPELINE_FAILED


def _on_a_new_thread(processed: Callable[[], Coroutine[Any, Any, str]]) -> str:
    outcome = PIPELINE_FAILED

    def run() -> None:
        nonlocal outcome
        outcome = asyncio.run(processed())

    thread = EvaluationThread(target=contextvars.Context().run, args=(run,))
    thread.start()
    thread.join()
    return outcome


def _use_daemon_threads(loop: asyncio.AbstractEventLoop) -> None:
    # These threads are known to be an evaluator's.
    loop.set_default_executor(DaemonExecutor())


_INLINE_LOOP: Final = LoopThread(
    "agenteval-inline", thread_class=EvaluationThread, prepare=_use_daemon_threads
)


def process_each(process: Callable[[Any], str | Awaitable[str]]) -> Process:
    """Return the processing of lists whose tasks have nothing to do with each other."""

    def processed(tasks: Sequence[Any], done: Done, pause: Callable[[], None]) -> None:
        for task in tasks:
            try:
                outcome = process(task)
            except BaseException:
                outcome = PIPELINE_FAILED
            done(task, outcome)
            pause()

    return processed


class DaemonExecutor(ThreadPoolExecutor):
    """Runs functions on at most eight daemon threads of an event loop.

    They are for name look-ups, and `asyncio.to_thread` in evaluators.

    The standard library's own, which asyncio demands by type, refuses work while the interpreter
    ends, when the last evaluations are delivered, and the exit waits for its threads.
    """

    def __init__(self) -> None:
        super().__init__(MAX_THREADS)
        self._worker = Worker(
            "agenteval-executor",
            max_waiting=_MAX_WAITING,
            idle_s=_IDLE_S,
            max_threads=MAX_THREADS,
            thread_class=EvaluationThread,
        )
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on one of the threads.

        Raises RuntimeError if it was shut down, too much waits, or no thread can be
        started.
        """
        future: Future[Any] = Future()
        evaluation = EVALUATION.get()

        def call() -> Any:
            EVALUATION.set(evaluation)  # of the whole context this alone comes along
            return fn(*args, **kwargs)

        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if not self._worker.submit(lambda: settle(future, call)):
            raise RuntimeError("too much waits, or no thread can be started")
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more.

        The threads end after what waits. It never waits itself: what hangs would hold the
        exit.
        """
        self._closed = True
        self._worker.close(0.0)
