"""Callbacks: the application's own functions, called with crossings on one background thread.

They may be slow, hang or raise: that is counted and logged, and neither answers nor evaluations wait for them. The
thread ends when nothing is left to do; what comes while it is busy waits, within a limit.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.imports import imported
from agenteval_otel.objectives.crossing import ObjectiveCrossing
from agenteval_otel.runtime.event_loop import new_loop
from agenteval_otel.runtime.reentrancy import EvaluationThread, in_sub_interpreter
from agenteval_otel.runtime.worker import Worker

Callback = Callable[[ObjectiveCrossing], Any]
"""A function, sync or async, that is called with a crossing; its result is ignored."""
MAX_WAITING = 256
_GRACE_S = 0.25
"""A late async function is cancelled; only one that ignores the cancellation is reported while it runs."""


class _Call:
    """A callback that runs."""

    def __init__(self, kind: str, until: float) -> None:
        self.kind, self.until, self.late = kind, until, False
        self.thread = threading.get_ident()


class Callbacks:
    """Calls functions one after the other, and waits for them in `flush` only.

    Args:
        on_failure: Called with the kind of the crossing whose callback failed or was not called, and the error.
        timeout_s: Time limit of one call.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        on_failure: Callable[[str, BaseException], None],
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_failure, self._timeout_s, self._clock = on_failure, timeout_s, clock
        self._closed = False
        self._worker = Worker(
            "agenteval-callback", max_waiting=2 * MAX_WAITING, idle_s=0.0, thread_class=EvaluationThread
        )  # fmt: skip
        self.reset()

    def __repr__(self) -> str:
        return f"<Callbacks running={self._running is not None} waiting={len(self._waiting)}>"

    def reset(self) -> None:
        """Start anew: in a forked child there are no threads, and the lock may have been taken."""
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[tuple[Callback, ObjectiveCrossing]] = deque()
        self._running: _Call | None = None

    def submit(self, function: Callback, crossing: ObjectiveCrossing) -> None:
        """Have the function called; returns at once, never raises."""
        failure: BaseException | None = None
        with self._changed:
            if self._closed:
                failure = RuntimeError("shut down")
            elif len(self._waiting) >= MAX_WAITING:
                failure = OverflowError("too many wait")
            else:
                self._waiting.append((function, crossing))
                # A sub-interpreter takes the process down if it ends before its threads do.
                if in_sub_interpreter() or not self._worker.submit(partial(self._work, self._changed)):
                    self._waiting.clear()
                    failure = RuntimeError("no thread can be started")
        if failure is not None:
            self._on_failure(crossing.kind, failure)

    def check_late(self) -> None:
        """Report a call that has run for too long, once; cheap where nothing runs."""
        call = self._running
        if call is None or self._clock() < call.until:
            return
        with self._changed:
            reported, call.late = call.late, True
        if not reported:
            self._on_failure(call.kind, TimeoutError("it still runs"))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was called; False when the time ran out or a late call blocks the others."""
        deadline = self._clock() + timeout_s
        own = threading.get_ident()  # a callback that flushes does not wait for itself
        while True:
            self.check_late()
            with self._changed:
                call = self._running
                is_blocked = call is not None and (call.late or call.thread == own)
                if is_blocked or (call is None and not self._waiting):
                    return not self._waiting
                now = self._clock()
                if now >= deadline:
                    return False
                until = deadline if call is None else min(deadline, call.until)
                self._changed.wait(max(until - now, 0.001))

    def close(self, timeout_s: float) -> bool:
        """`flush`, and call nothing more."""
        complete = self.flush(timeout_s)
        with self._changed:
            self._closed = True
            lost = [crossing.kind for _, crossing in self._waiting]
            self._waiting.clear()
        for kind in lost:
            self._on_failure(kind, RuntimeError("shut down"))
        return complete

    def _work(self, changed: threading.Condition) -> None:
        with changed:
            if not self._waiting:
                return  # closed meanwhile
            function, crossing = self._waiting.popleft()
            call = self._running = _Call(crossing.kind, self._clock() + self._timeout_s + _GRACE_S)
            changed.notify_all()  # a flush now knows until when to wait
        failure = self._call(function, crossing)
        with changed:
            self._running = None
            late = call.late
            changed.notify_all()
        if failure is not None and not late:
            self._on_failure(crossing.kind, failure)

    def _call(self, function: Callback, crossing: ObjectiveCrossing) -> BaseException | None:
        try:
            result = function(crossing)
            if inspect.isawaitable(result):
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(_within(result, self._timeout_s))
        except BaseException as failure:  # also SystemExit: the thread continues with the next
            return failure
        return None


async def _within(result: Awaitable[Any], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        await result


def load_callback(value: Any, *, path: str) -> Callback | None:
    """The function itself, or the one that ``module:function`` names; None stays None. Imports the module.

    Raises:
        ConfigurationError: It cannot be found, or cannot be called with one argument; with the path.
    """
    if value is None:
        return None
    function: Any = _imported(value, path) if isinstance(value, str) else value
    if not callable(function):
        raise ConfigurationError(
            f"expected a function or 'module:function', found {type(function).__name__}", path=path
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ConfigurationError("expected a function that takes one argument, the crossing", path=path) from None
    except ValueError:  # a function written in C has no signature
        pass
    return cast(Callback, function)


def _imported(name: str, path: str) -> Any:
    module, colon, function = name.strip().partition(":")
    if not colon or not module or not function:
        raise ConfigurationError(f"expected 'module:function', found {name[:80]!r}", path=path)
    try:
        return imported(module, function)
    except (Exception, SystemExit) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise ConfigurationError(
            f"{name[:80]!r} cannot be imported: {type(error).__name__}: {reason}", path=path
        ) from error
