"""Callbacks: the application's own functions, told of crossings on threads of their own.

They may be slow, hang or raise: it is counted and logged, and neither the answers nor their evaluation wait for it. At
most four threads are at it at once, which end when nothing is left to tell; what comes beyond waits, within a limit.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from agenteval_otel.dispatch.own import OwnThread, in_sub_interpreter
from agenteval_otel.dispatch.worker import new_loop
from agenteval_otel.objectives.crossing import ObjectiveCrossing
from agenteval_otel.runtime.worker import Worker

Callback = Callable[[ObjectiveCrossing], Any]
"""A function, sync or async, that is told of a crossing; what it gives is not looked at."""
MAX_THREADS = 4
MAX_WAITING = 256
_GRACE_S = 0.25
"""An async function that is late is cancelled; only one that takes no cancellation is told by its thread."""


class _Call:
    """A callback under way."""

    def __init__(self, kind: str, until: float) -> None:
        self.kind, self.until, self.late = kind, until, False
        self.thread = threading.get_ident()


class Callbacks:
    """Calls functions, and never waits for them but in `flush`.

    Args:
        broken: Told the kind of the crossing that was not told as it should be, and the error.
        timeout_s: Time limit of one call.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        broken: Callable[[str, BaseException], None],
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broken, self._timeout_s, self._clock = broken, timeout_s, clock
        self._closed = False
        self._worker = Worker(
            "agenteval-callback", max_waiting=2 * MAX_WAITING, idle_s=0.0, max_threads=MAX_THREADS,
            thread_class=OwnThread,
        )  # fmt: skip
        self.reset()

    def __repr__(self) -> str:
        return f"<Callbacks running={len(self._calls)} waiting={len(self._waiting)}>"

    def reset(self) -> None:
        """Begin anew: in a forked child there are no threads, and the lock may have been taken."""
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[tuple[Callback, ObjectiveCrossing]] = deque()
        self._calls: set[_Call] = set()

    def tell(self, function: Callback, crossing: ObjectiveCrossing) -> None:
        """Have the function called; returns at once, never raises."""
        failure: BaseException | None = None
        with self._changed:
            if self._closed:
                failure = RuntimeError("shut down")
            elif len(self._waiting) >= MAX_WAITING:
                failure = OverflowError("too many wait")
            else:
                self._waiting.append((function, crossing))
                # A sub-interpreter takes the process along where it ends before its threads do.
                if in_sub_interpreter() or not self._worker.submit(partial(self._work, self._changed)):
                    self._waiting.clear()
                    failure = RuntimeError("no thread can be started")
        if failure is not None:
            self._broken(crossing.kind, failure)

    def look(self) -> None:
        """Count what has run for too long; cheap where nothing runs."""
        if not self._calls:
            return
        now = self._clock()
        with self._changed:
            late = [call for call in self._calls if not call.late and now >= call.until]
            for call in late:
                call.late = True
        for call in late:
            self._broken(call.kind, TimeoutError("it runs on"))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is told, or has run for too long; False when the time ran out."""
        deadline = self._clock() + timeout_s
        own = threading.get_ident()  # a callback that flushes does not wait for itself
        while True:
            self.look()
            with self._changed:
                running = [call for call in self._calls if not call.late and call.thread != own]
                if not running and (not self._waiting or self._stuck()):
                    return not self._waiting
                now = self._clock()
                if now >= deadline:
                    return False
                until = min([deadline, *(call.until for call in running)])
                self._changed.wait(max(until - now, 0.001))

    def close(self, timeout_s: float) -> bool:
        """`flush`, and tell nothing more."""
        told = self.flush(timeout_s)
        with self._changed:
            self._closed = True
            lost = [crossing.kind for _, crossing in self._waiting]
            self._waiting.clear()
        for kind in lost:
            self._broken(kind, RuntimeError("shut down"))
        return told

    def _stuck(self) -> bool:
        return len(self._calls) == MAX_THREADS and all(call.late for call in self._calls)

    def _work(self, changed: threading.Condition) -> None:
        with changed:
            if not self._waiting:
                return  # closed meanwhile
            function, crossing = self._waiting.popleft()
            call = _Call(crossing.kind, self._clock() + self._timeout_s + _GRACE_S)
            self._calls.add(call)
            changed.notify_all()  # who flushes now knows until when to wait
        failure = self._call(function, crossing)
        with changed:
            self._calls.discard(call)
            late = call.late
            changed.notify_all()
        if failure is not None and not late:
            self._broken(crossing.kind, failure)

    def _call(self, function: Callback, crossing: ObjectiveCrossing) -> BaseException | None:
        try:
            found = function(crossing)
            if inspect.isawaitable(found):
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(_within(found, self._timeout_s))
        except BaseException as failure:  # also SystemExit: the thread goes on with the next
            return failure
        return None


async def _within(found: Awaitable[Any], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        await found
