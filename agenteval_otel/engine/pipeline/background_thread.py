"""The pool's background thread, with its own event loop, started in an empty context."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from agenteval_otel.engine.pipeline.dispatcher import DaemonExecutor, Process
from agenteval_otel.engine.task import Queued
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.reentrancy import EVALUATION, PROCESS, EvaluationScope, EvaluationThread
from agenteval_otel.runtime.worker import new_loop
from agenteval_otel.semconv import PIPELINE_FAILED

_END_S = 1.0
# How long the thread works before it rests: a thread that waits for the interpreter gets it at once
# then, instead of after the 5 ms that a busy thread may keep it. Longer where many calls wait, as a
# rest takes its time.
_WORK_S = 5e-4
_FULL_WORK_S = 2e-3
_REST_S = 5e-5
MAX_LIST: Final = 32
_TICK_S = 0.25
_ROOM_AGAIN_S = 0.002
_BIRTH_EVERY_S = 0.1
# While calls come in, the thread polls the queue this often, and for so long after the last one:
# waking it would cost the caller a write to a pipe, and make the thread compete for the GIL at
# once.
_LOOK_EVERY_S: Final = 0.05
_LOOK_FOR_S: Final = 1.0
# With answers pending the thread gives a sign of life four times a second. AWS Lambda freezes a
# process between two invocations, and may end it in that state.
_FROZEN_S = 2.0
_FREEZES = "AWS_LAMBDA_FUNCTION_NAME"
_LEFT_BEHIND: deque[asyncio.Task[Any]] = deque(maxlen=256)

Entry = tuple[Queued, int]
"""A call or a task in the queue and its bytes, as a plain tuple, which the caller's thread makes without calling
a function.
"""


class _Superseded(BaseException):
    """Says that another thread took over from this one."""


class Pool(Protocol):
    """Holds the queue that the background thread works off, and takes its outcomes."""

    queue: deque[Entry]
    thread: BackgroundThread | None
    not_before: float
    process: Process | None
    has_room: Callable[[], bool]
    on_work: Callable[[int, float], None]
    concurrency: int
    linger_s: float
    stall_s: float

    def watch(self) -> None: ...
    def close(self, entry: Entry, outcome: str) -> bool: ...
    def take_back(self, entries: Sequence[Entry]) -> None: ...


class BackgroundThread(EvaluationThread):
    """Takes calls from the pool's queue and has them processed, a list at a time.

    It survives whatever evaluations do.

    Attributes:
        superseded: Another thread took over. This one ends when it comes back.
        looking: A timer makes it check the queue, so that no call has to wake it.
        running: What is under evaluation, by the future that is waited for.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__(
            target=contextvars.Context().run, args=(self._run,), name="agenteval-background"
        )
        self._pool = pool
        self._queue = pool.queue
        self.running: dict[asyncio.Future[str], Entry] = {}
        self.sleeping = self.superseded = self.failed = False
        self.beat = time.monotonic()
        self._present: dict[int, Entry] = {}
        self._idle_s = 0.0
        self._evaluation = EvaluationScope()
        self._closing = self.looking = False
        self._last_call = self._rested = 0.0
        self._work_s = _WORK_S
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake: asyncio.Event | None = None

    def wake(self, *, linger: bool) -> None:
        """Wake the loop, from any thread.

        With `linger` it gathers calls for a moment before it starts on them.
        """
        if self.sleeping:  # else it updates `beat` itself, or is blocked
            self.beat = time.monotonic()
            self.sleeping = False
        loop = self._loop
        if loop is None:
            return  # not started yet: it looks at the queue first thing
        # Its loop may be closed: the watchdog, or the next call, starts another.
        with contextlib.suppress(RuntimeError):
            # In a context of its own: a timer would keep the caller's.
            after_s = self._pool.linger_s if linger else 0.0
            loop.call_soon_threadsafe(self._rise, after_s, context=contextvars.Context())

    def close(self, *, at_once: bool = False) -> None:
        """Make it end when the queue is empty.

        With `at_once` it does not finish calls under evaluation.
        """
        self._closing = True
        self.superseded = self.superseded or at_once
        self.wake(linger=False)

    def is_busy(self) -> bool:
        """Tell whether a heartbeat is to be expected: work is under way, or waits to be taken."""
        if self._present or self.running:
            return True
        return not self.sleeping and bool(self._queue)

    def under_way(self) -> list[Entry]:
        return [*list(self._present.values()), *list(self.running.values())]

    def present_task(self) -> Any:
        """Return the task that runs at this moment, asked from another thread."""
        return asyncio.current_task(self._loop) if self._loop is not None else None

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
            # No file descriptor is left, or the host's policy raises: this thread ends, a later
            # call tries again.
            self._pool.not_before = time.monotonic() + _BIRTH_EVERY_S
            self.failed = True
            if self._pool.thread is self:
                self._pool.thread = None
            return
        # the host's debug mode is about the host's loop; here it would warn on its stderr
        loop.set_debug(False)
        loop.set_default_executor(DaemonExecutor())
        self._loop = loop
        try:
            self._serve_until_closed(loop)
        finally:
            self._loop = None
            _end_tasks(loop)
            # what a generator raises may quote the conversation
            loop.set_exception_handler(lambda *_: None)
            with contextlib.suppress(BaseException):  # closes the connections of hosted models
                loop.run_until_complete(
                    asyncio.wait([loop.create_task(loop.shutdown_asyncgens())], timeout=_END_S)
                )
            _end_tasks(loop)  # a generator that does not end
            loop.close()

    def _serve_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            main = loop.create_task(self._serve())
            try:
                loop.run_until_complete(main)
                return
            except BaseException:
                # The loop passed on a task's SystemExit or KeyboardInterrupt: the other tasks
                # continue.
                main.cancel()
                if self.superseded:
                    return

    async def _serve(self) -> None:
        awake = self._awake = asyncio.Event()
        loop = asyncio.get_running_loop()
        while not self.superseded:
            # What is queued while it looks at intervals may have come after the freeze.
            self._beat(is_pending=bool(self.running or (self._queue and not self.looking)))
            self.sleeping = self.looking = False
            awake.clear()
            has_room = True
            if self._queue:
                self._pool.watch()
                has_room = self._pool.has_room()
                if has_room and len(self.running) < self._pool.concurrency:
                    self._work_off()
                    if self._queue and len(self.running) < self._pool.concurrency:
                        await asyncio.sleep(0)  # what waits for the loop gets its turn
                        continue
            if self._closing and not self._queue and not self.running:
                return
            if not self._queue:
                lately = time.monotonic() - self._last_call < _LOOK_FOR_S
                self.looking = lately and not self._closing and self._pool.linger_s > 0
                self.sleeping = not self.looking
                # came between the look and the flag: no call wakes us for it
                if self.sleeping and self._queue:
                    self.sleeping = False
                    continue
            after_s = self._look_after_s(has_room=has_room)
            timer = loop.call_later(after_s, awake.set) if after_s is not None else None
            await awake.wait()
            if timer is not None:
                timer.cancel()

    def _beat(self, *, is_pending: bool) -> None:
        """Give a sign of life.

        Log if the platform froze the process while answers were pending: the next time it
        may not go on.
        """
        now_s = time.monotonic()
        frozen_s = now_s - self.beat
        self.beat = now_s
        if frozen_s >= _FROZEN_S and is_pending and _FREEZES in os.environ:
            remedy = "call flush() before the function returns"
            log.warning(
                "frozen_while_pending", part="exit", frozen_s=round(frozen_s), remedy=remedy
            )

    def _look_after_s(self, *, has_room: bool) -> float | None:
        """Return when to check again without being woken.

        With calls under evaluation, checks keep `beat` current.
        """
        if not has_room:
            return _ROOM_AGAIN_S
        if self.looking:
            return max(self._pool.linger_s, _LOOK_EVERY_S)
        return min(_TICK_S, self._pool.stall_s / 4) if self.running else None

    def _work_off(self) -> None:
        queue = self._queue
        taken = self._present
        most = min(MAX_LIST, self._pool.concurrency - len(self.running))
        while queue and len(taken) < most:
            entry = queue.popleft()
            taken[id(entry[0])] = entry
        if not taken:
            return
        calls = [call for call, _ in taken.values()]
        self._work_s = _FULL_WORK_S if len(calls) == MAX_LIST else _WORK_S
        evaluation = self._evaluation = EvaluationScope()
        EVALUATION.set(evaluation)
        began = self.beat = self._rested = self._last_call = time.monotonic()
        self._idle_s = 0.0
        process = self._pool.process
        assert process is not None
        try:
            process(calls, self._done, self._pause)
        except BaseException:  # also SystemExit: an evaluation never ends the thread
            pass
        if self.superseded:
            self._pool.take_back(list(self._present.values()))
            self._present.clear()  # the pool keeps a thread that it has replaced
            return
        for call in calls:
            # It ignores a call that has its outcome: only those that `process` has lost fail.
            self._done(call, PIPELINE_FAILED)
        evaluation.closed()
        self.beat = time.monotonic()
        self._pool.on_work(len(calls), self.beat - began - self._idle_s)

    def _pause(self) -> None:
        if self.superseded:
            raise _Superseded
        self.beat = now = time.monotonic()
        if now - self._rested > self._work_s and PROCESS.rests:
            time.sleep(_REST_S)
            self._rested = time.monotonic()
            self._idle_s += self._rested - now

    def _done(self, call: object, outcome: str | Awaitable[str]) -> None:
        """Take the outcome of a call of the present list, or an awaitable for it.

        It is called once per call.
        """
        if self.superseded and asyncio.iscoroutine(outcome):
            outcome.close()  # this loop ends: the call is taken back, and the next thread goes on
            return
        entry = self._present.pop(id(call), None)
        if entry is None:
            return
        if isinstance(outcome, str):
            self._pool.close(entry, outcome)
            return
        future = asyncio.ensure_future(outcome)
        self.running[future] = entry
        self._evaluation.opened()
        future.add_done_callback(partial(self._finished, self._evaluation))

    def _finished(self, evaluation: EvaluationScope, future: asyncio.Future[str]) -> None:
        entry = self.running.pop(future, None)
        evaluation.closed()
        self._beat(is_pending=True)
        failed = future.cancelled() or future.exception() is not None
        outcome = PIPELINE_FAILED if failed else future.result()
        if entry is not None:
            self._pool.close(entry, outcome)
        if self._awake is not None:
            self._awake.set()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs and let it end.

    Otherwise asyncio complains on the host's stderr of tasks that are pending.
    """
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    with contextlib.suppress(BaseException):
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
    for task in tasks:
        if not task.done():
            # It ignores its cancellation. Kept, because asyncio complains on the host's stderr when
            # it is collected.
            _LEFT_BEHIND.append(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        elif not task.cancelled():
            task.exception()
