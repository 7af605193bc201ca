"""The threads of the pool's event loop: for name look-ups of model clients, and `asyncio.to_thread` in evaluators.

The standard library's executor refuses work while the interpreter ends, when the last evaluations are delivered, and
the exit waits for its threads. These threads are daemons, and take work until the loop is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from agenteval_otel.runtime.reentrancy import EVALUATION, EvaluationThread
from agenteval_otel.runtime.worker import Worker, settle

MAX_THREADS = 8
_MAX_WAITING = 10_000
_IDLE_S = 5.0


class DaemonExecutor(ThreadPoolExecutor):
    """At most eight daemon threads, started when they are needed, ended when they have been idle for five seconds.

    A `ThreadPoolExecutor` by its type only: asyncio takes no other kind for a loop's own.
    """

    def __init__(self) -> None:
        super().__init__(MAX_THREADS)
        self._worker = Worker(
            "agenteval-executor", max_waiting=_MAX_WAITING, idle_s=_IDLE_S, max_threads=MAX_THREADS,
            thread_class=EvaluationThread,
        )  # fmt: skip
        self._closed = False

    def __repr__(self) -> str:
        return f"<DaemonExecutor {self._worker!r}>"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on one of the threads.

        Raises:
            RuntimeError: It was shut down, too much waits, or no thread can be started.
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
        """Take no more; the threads end after what waits. Never waits itself: what hangs would hold the exit."""
        self._closed = True
        self._worker.close(0.0)
