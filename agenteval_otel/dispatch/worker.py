"""The pool's worker: one background thread with its own event loop, started in an empty context.

It survives whatever evaluations do. An exception of one call settles that call; one that reaches the loop restarts the
serving task on the same loop, where the others' work goes on. A worker whose loop is blocked is replaced by the pool:
it is told so by `superseded` and ends when its loop comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from agenteval_otel.dispatch.base import Process
from agenteval_otel.dispatch.executor import DaemonExecutor
from agenteval_otel.dispatch.own import EVALUATION, Evaluation, OwnThread
from agenteval_otel.semconv import PIPELINE_FAILED

__all__ = ["Entry", "Marker", "Worker", "new_loop"]

_END_S = 1.0
_WORK_S, _REST_S = 1e-3, 5e-5
# While calls come in, the worker looks for them by itself this often, for so long after the last one: to wake it costs
# the caller a write to a pipe, and a thread that wants the interpreter at once.
_LOOK_EVERY_S: Final = 0.05
_LOOK_FOR_S: Final = 1.0
_LEFT_BEHIND: deque[asyncio.Task[Any]] = deque(maxlen=256)


Entry = tuple[Any, int]
"""A call in the queue and the bytes that it holds; a plain tuple, which the caller's thread makes without a call."""


class Marker:
    """Put into the queue by a flush: set when all that stood before it is settled."""

    def __init__(self) -> None:
        self.reached = threading.Event()


class Worker:
    """Takes entries from the pool's queue and runs them as tasks, at most `concurrency` at once."""

    def __init__(
        self, queue: deque[Entry | Marker], process: Process, done: Any, concurrency: int, linger_s: float,
        report: Callable[[], None],
    ):  # fmt: skip
        self._queue, self._process, self._done, self._report = queue, process, done, report
        self._concurrency, self._linger_s = concurrency, linger_s
        self.running: dict[asyncio.Task[None], Entry] = {}
        self.begun: set[int] = set()
        """The entries of `running`, by their id, of which something was done."""
        self.markers: list[Marker] = []
        """Taken from the queue and not reached."""
        self.sleeping = False
        self.superseded = self.stillborn = False
        self.beat = time.monotonic()
        self._closing = self._ticking = self.looking = False
        self._last_call = self._rested = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake: asyncio.Event | None = None
        self._look: asyncio.TimerHandle | None = None
        self.thread = OwnThread(target=contextvars.Context().run, args=(self._run,), name="agenteval-pool")

    def __repr__(self) -> str:
        return f"<Worker running={len(self.running)} {'asleep' if self.sleeping else 'awake'}>"

    def wake(self, *, linger: bool) -> None:
        """Wake the loop, from any thread; with `linger` it gathers calls for a moment before it starts on them."""
        if self.sleeping:  # else it beats itself, or stands still
            self.beat = time.monotonic()
            self.sleeping = False
        loop = self._loop
        if loop is None:
            return  # not begun yet: it looks at the queue first thing
        try:
            # In a context of its own: a timer would hold the caller's.
            loop.call_soon_threadsafe(self._rise, self._linger_s if linger else 0.0, context=contextvars.Context())
        except RuntimeError:
            return  # its loop is closed: the pool's supervision starts another

    def hurry(self) -> None:
        """Have the next look now, from any thread; says nothing of whether the loop turns, so the beat stays."""
        self.looking = False  # once: a loop that stands still would gather one request for each call
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._looked, context=contextvars.Context())

    def close(self, *, at_once: bool = False) -> None:
        """Ask the worker to end when the queue is empty; `at_once` without what is still under evaluation."""
        self._closing = True
        self.superseded = self.superseded or at_once
        self.wake(linger=False)

    def _rise(self, after_s: float) -> None:
        if self._awake is None:
            return
        if after_s and not self.running:
            asyncio.get_running_loop().call_later(after_s, self._awake.set)
        else:
            self._awake.set()

    def _run(self) -> None:
        try:
            loop = new_loop()
        except Exception:
            # No file descriptor is left, or the host's policy or log handler raises: the pool tries again.
            self.stillborn = True
            return
        loop.set_debug(False)  # the host's debug mode is about the host's loop; here it would warn on its stderr
        loop.set_default_executor(DaemonExecutor())
        self._loop = loop
        with contextlib.suppress(Exception):
            self._report()
        try:
            self._serve_until_closed(loop)
        finally:
            self._loop = None
            _end_tasks(loop)
            loop.close()

    def _serve_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            main = loop.create_task(self._serve())
            try:
                loop.run_until_complete(main)
                return
            except BaseException:
                # SystemExit or KeyboardInterrupt of one task came through the loop: the others go on.
                main.cancel()
                if self.superseded:
                    return

    async def _serve(self) -> None:
        awake = self._awake = asyncio.Event()
        while not self.superseded:
            self.beat = time.monotonic()
            awake.clear()
            self._take()
            if self._closing and not self._queue and not self.running:
                return
            if self._queue and len(self.running) < self._concurrency:
                continue
            if not self._queue and not self._look_again():
                self.sleeping = True
                if self._queue:  # came between the look and the flag: nobody will wake us for it
                    self.sleeping = False
                    continue
            await awake.wait()

    def _look_again(self) -> bool:
        """Whether calls came lately: then the queue is looked at by a timer, and nobody has to wake the loop."""
        if self._closing or self._linger_s <= 0 or time.monotonic() - self._last_call >= _LOOK_FOR_S:
            return False
        if not self.looking:
            self.looking = True
            self._look = asyncio.get_running_loop().call_later(max(self._linger_s, _LOOK_EVERY_S), self._looked)
        return True

    def _looked(self) -> None:
        self.looking = False
        if self._look is not None:
            self._look.cancel()  # one that came in a hurry leaves no timer behind
            self._look = None
        if self._awake is not None:
            self._awake.set()

    def _take(self) -> None:
        while self._queue and len(self.running) < self._concurrency:
            entry = self._queue.popleft()
            if isinstance(entry, Marker):
                self._watch(entry)
                continue
            self._last_call = self.beat
            task = asyncio.get_running_loop().create_task(self._one(entry))
            self.running[task] = entry
            task.add_done_callback(self._finished)
        if self.running and not self._ticking:
            self._ticking = True
            self._tick()

    def _tick(self) -> None:
        """The heartbeat: while calls are under evaluation a loop that turns says so every second."""
        self.beat = time.monotonic()
        if self.running:
            asyncio.get_running_loop().call_later(1.0, self._tick)
        else:
            self._ticking = False

    async def _one(self, entry: Entry) -> None:
        self.begun.add(id(entry))  # before the look at `superseded`: whoever replaces this worker does it in turn
        if self.superseded:
            return
        outcome, evaluation = PIPELINE_FAILED, Evaluation()
        EVALUATION.set(evaluation)
        try:
            outcome = await self._process(entry[0])
        except BaseException:
            # Also SystemExit: an evaluation never ends the worker. Cancelled: the worker itself ends.
            outcome = PIPELINE_FAILED
        finally:
            evaluation.over = True
            self._done(entry, outcome)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.begun.discard(id(self.running.pop(task, None)))
        self.beat = time.monotonic()
        if self.beat - self._rested > _WORK_S:
            # Whoever waits for the interpreter gets it now, instead of after the 5 ms that it lets a busy thread have.
            time.sleep(_REST_S)
            self._rested = time.monotonic()
        if self._awake is not None:
            self._awake.set()

    def _watch(self, marker: Marker) -> None:
        waiting = set(self.running)
        if not waiting:
            marker.reached.set()
            return
        self.markers.append(marker)

        def one_less(task: asyncio.Task[None]) -> None:
            waiting.discard(task)
            if not waiting and marker in self.markers:  # else the next worker has it
                self.markers.remove(marker)
                marker.reached.set()

        for task in list(waiting):
            task.add_done_callback(one_less)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop, or an `OSError` where no descriptor is left.

    What it needs is asked for beforehand: a loop that stays half made complains on the host's stderr at its end.
    """
    with selectors.DefaultSelector():
        for end in socket.socketpair():
            end.close()
    return asyncio.new_event_loop()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs and let it end: asyncio complains on the host's stderr of tasks that it finds undone."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    with contextlib.suppress(BaseException):
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
    for task in tasks:
        if not task.done():
            # It takes no cancellation. Kept, because its end by the collector would be told on the host's stderr, as
            # would what its coroutine undoes in a context that is not its own.
            _LEFT_BEHIND.append(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        elif not task.cancelled():
            task.exception()
