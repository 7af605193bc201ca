"""What the pool's event loop hands to threads: name look-ups of model clients, and `asyncio.to_thread` in evaluators.

The standard library's executor takes no work once the interpreter is going down, which is exactly when the last
evaluations are delivered; and its threads hold the process up until they are done. These threads are daemons: exit does
not wait for them, and the loop's work is taken until the loop itself is closed.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from agenteval_otel.dispatch.own import EVALUATION, OwnThread

__all__ = ["DaemonExecutor"]

MAX_THREADS = 8
_IDLE_S = 5.0

Task = tuple[Future[Any], Callable[[], Any]]


class DaemonExecutor(ThreadPoolExecutor):
    """At most eight daemon threads, started when they are needed, ended when they have been idle for five seconds.

    A `ThreadPoolExecutor` by its type only: asyncio takes no other kind for a loop's own.
    """

    def __init__(self) -> None:
        super().__init__(MAX_THREADS)
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._running = self._load = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<DaemonExecutor threads={self._running} load={self._load}>"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on one of the threads.

        Raises:
            RuntimeError: It was shut down, or no thread can be started.
        """
        future: Future[Any] = Future()
        evaluation = EVALUATION.get()

        def call() -> Any:
            EVALUATION.set(evaluation)  # of the whole context this alone comes along
            return fn(*args, **kwargs)

        with self._guard:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._load >= self._running and self._running < MAX_THREADS:
                self._start()
            self._load += 1  # what waits and what runs
            self._tasks.put((future, call))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more; the threads end after what waits. Never waits itself: what hangs would hold the exit."""
        with self._guard:
            if not self._closed:
                self._closed = True
                for _ in range(self._running):
                    self._tasks.put(None)

    def _start(self) -> None:
        # In an empty context: the first caller's would be held for as long as the thread lives.
        work = contextvars.Context().run
        OwnThread(target=work, args=(self._work,), name="agenteval-executor").start()
        self._running += 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            _run(*task)
            del task  # an idle thread holds nothing of the last evaluation
            with self._guard:
                self._load -= 1

    def _next(self) -> Task | None:
        """The next task; None when this thread is to end."""
        while True:
            try:
                task = self._tasks.get(timeout=_IDLE_S)
            except queue.Empty:
                task = None
            if task is not None:
                return task
            with self._guard:
                if self._closed or self._tasks.empty():  # else one came in the moment between
                    self._running -= 1
                    return None


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
