"""A background worker, which is our own thread that runs jobs in order.

There is an event loop for such a thread too.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

T = TypeVar("T")

Job = Callable[[], object]
# What wakes a thread: one `_JOB` for each job that was queued, one `_END` for each thread to end.
_JOB: Final = True
_END: Final = False


class Worker:
    """Runs jobs, one at a time, on a daemon thread.

    The first job starts the thread. The thread ends when it has been idle.

    At most `max_waiting` jobs wait: a further one is refused and logged. Whatever a job raises is
    logged by its type.

    Args:
        on_idle: Called on the thread when no job came for `idle_s`, and before it ends.
        stays: The thread ends by `close` alone, and calls `on_idle` each time that it has been
            idle.
        max_threads: With more than one, jobs run side by side, begun in order.
    """

    def __init__(
        self,
        name: str,
        *,
        max_waiting: int,
        idle_s: float = 0.5,
        on_idle: Job | None = None,
        stays: bool = False,
        max_threads: int = 1,
        thread_class: type[threading.Thread] = threading.Thread,
    ) -> None:
        self.name = name
        self._max_waiting = max_waiting
        self._idle_s = idle_s
        self._on_idle = on_idle
        self._stays = stays
        self._max_threads = max_threads
        self._thread_class = thread_class
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # Reentrant: a signal handler may submit while its own thread does.
        self._lock = threading.RLock()
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._jobs: deque[Job] = deque()
        self._threads: set[threading.Thread] = set()
        self._load = 0  # jobs that wait or run

    def __repr__(self) -> str:
        return f"<Worker {self.name} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def has_thread(self) -> bool:
        return bool(self._threads)

    def submit(self, job: Job) -> bool:
        """Queue a job. Return False if it will not run: too many wait, or no thread can be started."""
        with self._lock:
            is_full = self.waiting >= self._max_waiting
            is_taken = False
            if not is_full:
                is_taken = self.start()
            if is_taken:
                self._load += 1
                self._jobs.append(job)
                self._signals.put(_JOB)
        if is_full:
            log.warning("worker_full", part=self.name, waiting=self._max_waiting)
        return is_taken

    def start(self) -> bool:
        """Start a thread if none runs, or if all are busy and there may be more.

        Return False if no thread runs then.
        """
        with self._lock:
            threads = self._threads
            if threads and (self._load < len(threads) or len(threads) >= self._max_threads):
                return True
            # In an empty context: the caller's would be kept for as long as the thread lives.
            run = contextvars.Context().run
            thread: threading.Thread | None = None
            try:  # in a sub-interpreter a daemon thread may not even be made
                thread = self._thread_class(
                    target=run, args=(self._run,), name=self.name, daemon=True
                )
                # before it starts: a signal handler that submits meanwhile starts no second one
                threads.add(thread)
                thread.start()
            except RuntimeError:
                if thread is not None:
                    threads.discard(thread)
            return bool(threads)

    def close(self, timeout_s: float) -> bool:
        """Run the queued jobs, call `on_idle`, and end the threads.

        Return whether they ended in time. Return False to a caller that cannot wait, such
        as a job.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:  # a thread that another one is just starting cannot be joined yet
            threads = list(self._threads)
        for _ in threads:
            self._signals.put(_END)
        try:
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        except RuntimeError:
            # By a job, or by a signal handler while the thread starts: neither can wait for it.
            return False
        return not any(thread.is_alive() for thread in threads)

    def _run(self) -> None:
        signals = self._signals
        # A job that forked finds another queue in the child, and ends: this thread alone came along.
        while signals is self._signals:
            try:
                signal: bool | None = signals.get(timeout=self._idle_s)
            except queue.Empty:
                signal = None  # idle
            if signal is _JOB:
                self._do(self._jobs.popleft())
                with self._lock:
                    if signals is self._signals:  # else the job has forked: the child counts from 0
                        self._load -= 1
                continue
            if self._on_idle is not None:
                self._do(self._on_idle)
            if self._stays and signal is not _END:
                continue
            with self._lock:
                if not self.waiting:
                    self._threads.discard(threading.current_thread())
                    return
            if signal is _END:
                # A job was queued meanwhile. It runs first, and the end comes again behind it.
                self._signals.put(_END)

    def _do(self, job: Job) -> None:
        try:
            job()
        except BaseException as error:
            log.warning("job_failed", part=self.name, error_type=type(error).__name__)


class Flusher:
    """Runs `flush` on its own thread with a time limit, even if `flush` ignores its own.

    It runs one flush at a time.
    """

    def __init__(self, flush: Callable[[], bool]) -> None:
        self._flush = flush
        self._worker = Worker("agenteval-flush", max_waiting=8, idle_s=0.0)

    def flush(self, timeout_s: float) -> bool:
        """Tell whether the given `flush` returned True.

        Return False if it raised, was not done in time, or no thread can be started any
        more.

        A flush that is under way is waited for first. Threads that flush at once each get their own
        result.
        """
        deadline = time.monotonic() + timeout_s
        results: list[bool] = []
        if not self._worker.close(timeout_s):  # waits for a flush that is under way
            return False
        self._worker.submit(lambda: results.append(self._flush()))
        is_done = self._worker.close(deadline - time.monotonic())
        return is_done and results == [True]


def settle(future: Future[T], work: Callable[[], T]) -> None:
    """Do the work unless the future was cancelled. The future holds its result or its exception."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop.

    Raise `OSError` if no descriptor is left: a half-built loop would write to stderr.
    """
    # A trial of what a loop opens: a selector and a pair of sockets.
    with selectors.DefaultSelector():
        for end in socket.socketpair():
            end.close()
    return asyncio.new_event_loop()
