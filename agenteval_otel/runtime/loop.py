"""One event loop on one thread, for callers that have none.

What belongs to a loop, such as the connections of a client, is there again at the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, Generic, TypeVar

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.worker import new_loop

T = TypeVar("T")
_LOOK_AGAIN_S: Final = 0.1
_END_S: Final = 0.5
_OF_PARENT: Final[list[asyncio.AbstractEventLoop]] = []
"""Loops of the parent, kept after a fork: closing one in the child would unregister its events."""


class _Run(Generic[T]):
    """A coroutine at work on a loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self.result: Future[T] = Future()

    def begin(
        self, work: Callable[[], Coroutine[Any, Any, T]], context: contextvars.Context
    ) -> None:
        """Have the loop start the coroutine in this context."""
        self._loop.call_soon_threadsafe(lambda: context.run(self._create_task, work))

    def end(self) -> None:
        """Cancel the coroutine where it still runs, and block until it has ended."""
        if not self.result.done():
            # An interrupted caller may not have come as far as to begin it.
            self._loop.call_soon_threadsafe(self._cancel)
            wait([self.result])

    def _create_task(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._task = self._loop.create_task(self._settle(work))
        # A task that is cancelled before its first step does not come as far as to settle.
        self._task.add_done_callback(lambda _: self._settle_as_cancelled())

    async def _settle(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        # Even an interrupt goes to the caller: the loop has to outlive it.
        try:
            self.result.set_result(await work())
        except BaseException as error:
            self.result.set_exception(error)

    def _cancel(self) -> None:
        if self._task is None:
            self._settle_as_cancelled()
        else:
            self._task.cancel()

    def _settle_as_cancelled(self) -> None:
        if not self.result.done():
            self.result.set_exception(asyncio.CancelledError())


class LoopThread:
    """Runs coroutines on one event loop, on a daemon thread that the first one starts.

    The thread stays until the process ends. A forked child starts its own.

    Args:
        name: The thread's.
        thread_class: Its class.
        prepare: Called with a new loop before it runs.
    """

    def __init__(
        self,
        name: str,
        *,
        thread_class: type[threading.Thread] = threading.Thread,
        prepare: Callable[[asyncio.AbstractEventLoop], object] | None = None,
    ) -> None:
        self._name = name
        self._thread_class = thread_class
        self._prepare = prepare
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<LoopThread {self._name}{'' if self._thread is None else ', started'}>"

    def is_here(self) -> bool:
        """Tell whether this is the loop's own thread, which must not wait for the loop."""
        return self._thread is threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Tell whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Cancel what runs, and end the thread, as soon as nothing blocks it. Returns at once.

        Nothing may be started after it.
        """
        loop = self._loop
        if loop is None:
            return
        # The process's end need not wait for a thread that may be blocked.
        atexit.unregister(self._end)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_cancel_and_stop, loop)

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        context: contextvars.Context | None = None,
    ) -> Future[T]:
        """Start a coroutine, in this context or in a copy of the caller's.

        Return a future of its result, at once.

        Raises:
            OSError: No descriptor is left for a loop.
            RuntimeError: No thread can be started.
        """
        run: _Run[T] = _Run(self._started())
        run.begin(work, contextvars.copy_context() if context is None else context)
        return run.result

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        context: contextvars.Context | None = None,
        *,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> T:
        """Start a coroutine as `start` does, block until it has ended, and return its result.

        An interrupt, or `is_unwanted` returning True, cancels the coroutine. Returns only once the
        coroutine has ended.

        Raises:
            OSError: No descriptor is left for a loop.
            RuntimeError: No thread can be started.
        """
        context = contextvars.copy_context() if context is None else context
        run: _Run[T] = _Run(self._started())
        # The coroutine may be at work, and an interrupt come, before `begin` has returned.
        try:
            run.begin(work, context)
            while not run.result.done() and not is_unwanted():
                wait([run.result], _LOOK_AGAIN_S)
        finally:
            run.end()
        return run.result.result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = new_loop()
                if self._prepare is not None:
                    self._prepare(loop)
                thread = self._thread_class(
                    target=_run_on, args=(loop,), name=self._name, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop = loop
                self._thread = thread
                atexit.register(self._end)
            return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop = self._thread = None

    def _reset(self) -> None:
        if self._loop is not None:
            _OF_PARENT.append(self._loop)
        self._forget()

    def _end(self) -> None:
        loop = self._loop
        thread = self._thread
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_END_S)
        if not thread.is_alive():
            loop.close()
        self._forget()


def _run_on(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, and close it.

    `SystemExit` and `KeyboardInterrupt` of a task end `run_forever`, which is then called again:
    they end only that task.
    """
    while not loop.is_closed():
        with contextlib.suppress(BaseException):
            loop.run_forever()
            loop.close()
            return


def _cancel_and_stop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, and stop the loop when they have ended, at most half a second later."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()

    async def stop() -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)
        loop.stop()

    loop.create_task(stop())


def _name_threads(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="agenteval-sync"))


SYNC_LOOP: Final = LoopThread("agenteval-sync", prepare=_name_threads)
"""The loop of the offline functions for code without an event loop."""


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the coroutine's result, from the one loop of such calls. Blocks.

    An interrupt cancels the coroutine, and so does cancelling the task that calls. A call from the
    loop's own thread, by an evaluator, runs on a thread and a loop of its own.
    """
    if SYNC_LOOP.is_here():
        with ThreadPoolExecutor(1, "agenteval-nested") as threads:
            return threads.submit(lambda: asyncio.run(work())).result()
    caller: asyncio.Task[Any] | None = None
    with contextlib.suppress(RuntimeError):
        caller = asyncio.current_task()
    # A task that caught an earlier cancellation keeps its count.
    cancelled_before = 0 if caller is None else caller.cancelling()
    # This call blocks the caller's loop: an interrupt becomes a cancellation that cannot be delivered.
    # The count alone shows it.
    return SYNC_LOOP.run(
        work,
        is_unwanted=lambda: caller is not None and caller.cancelling() > cancelled_before,
    )
