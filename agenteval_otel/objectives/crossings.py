"""ObjectiveCrossing, the report that a rate has crossed its objective, and the application's functions that get it.

These functions are called one after the other on a background thread and may be slow, hang or raise: that is counted
and logged, and neither answers nor evaluations wait for them.
"""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import clean
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import SpanReference
from agenteval_otel.models.value import Value
from agenteval_otel.runtime.reentrancy import EvaluationThread, in_sub_interpreter
from agenteval_otel.runtime.worker import Worker, new_loop

MAX_WAITING = 256
_GRACE_S = 0.25
"""A late async function is cancelled; only one that ignores the cancellation is reported while it runs."""


class ObjectiveCrossing(Value):
    """A criterion that breached its objective, or recovered. Frozen; `model_dump_json` gives JSON.

    Attributes:
        kind: ``breached`` or ``recovered``.
        criterion: The criterion's name.
        agent: The agent's; ``_other`` for those beyond the limit on agents.
        objective: The share of results that should pass, 0 to 1.
        rate: The share that passes: of the last verdicts (`BreachSettings.window`), each weighted by 1 / its
            probability.
        low, high: Its 95 % interval.
        count: Number of verdicts behind the rate.
        since_ns: When the breach was detected, in nanoseconds since the epoch.
        at_ns: Time of this report.
        reminder: A repeat: the breach was reported before and lasts.
        clustered: The handler has many calls in one trace, which are sampled together: the interval is too narrow.
        span: The evaluated span of the last verdict that failed; None where there was none.
    """

    kind: Literal["breached", "recovered"]
    criterion: str
    agent: str | None = None
    objective: float
    rate: float
    low: float
    high: float
    count: int
    since_ns: int
    at_ns: int
    reminder: bool = False
    clustered: bool = False
    span: SpanReference | None = None

    @property
    def trace_id(self) -> str | None:
        """The trace of the last verdict that failed, in hexadecimal digits."""
        return None if self.span is None else self.span.trace_id

    def __str__(self) -> str:
        state = "still breached" if self.reminder else self.kind
        of_agent = f" of {self.agent}" if self.agent else ""
        return (
            f"objective {state}: {self.criterion}{of_agent} passes {self.rate * 100:.1f} % ({self.low * 100:.1f} to "
            f"{self.high * 100:.1f}) of {self.count}, objective {self.objective * 100:g} %"
        )  # fmt: skip


def attributes_of(crossing: ObjectiveCrossing) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        names.EVALUATION_NAME: clean(crossing.criterion),
        names.OBJECTIVE: crossing.objective,
        names.OBJECTIVE_RATE: crossing.rate,
        names.OBJECTIVE_LOW: crossing.low,
        names.OBJECTIVE_HIGH: crossing.high,
        names.OBJECTIVE_COUNT: crossing.count,
        names.OBJECTIVE_SINCE: crossing.since_ns / 1e9,
    }
    if crossing.agent is not None:
        attributes[names.AGENT_NAME] = clean(crossing.agent)
    if crossing.reminder:
        attributes[names.OBJECTIVE_REMINDER] = True
    if crossing.clustered:
        attributes[names.SAMPLING_CLUSTERED] = True
    return attributes


Callback = Callable[[ObjectiveCrossing], Any]
"""A function, sync or async, that is called with a crossing; its result is ignored."""


class _Call:
    def __init__(self, kind: str, late_at: float) -> None:
        self.kind, self.late_at, self.thread = kind, late_at, threading.get_ident()
        self._unreported = threading.Lock()

    def is_first_report(self) -> bool:
        """Whether no failure of it has been reported so far; True once."""
        return self._unreported.acquire(blocking=False)

    @property
    def is_late(self) -> bool:
        return self._unreported.locked()


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
        )
        self.reset()

    def __repr__(self) -> str:
        return f"<Callbacks running={self._running is not None} waiting={len(self._waiting)}>"

    def reset(self) -> None:
        """Start anew, as a forked child does."""
        self._waiting: deque[tuple[Callback, ObjectiveCrossing]] = deque()
        self._running: _Call | None = None

    def submit(self, function: Callback, crossing: ObjectiveCrossing) -> None:
        """Have the function called; returns at once, never raises."""
        if self._closed:
            self._on_failure(crossing.kind, RuntimeError("shut down"))
        elif len(self._waiting) >= MAX_WAITING:
            self._on_failure(crossing.kind, OverflowError("too many wait"))
        elif in_sub_interpreter():  # it takes the process down if it ends before its threads do
            self._on_failure(crossing.kind, RuntimeError("no thread can be started"))
        else:
            self._waiting.append((function, crossing))
            if not self._worker.submit(self._call_next):
                self._waiting.clear()
                self._on_failure(crossing.kind, RuntimeError("no thread can be started"))

    def check_late(self) -> None:
        """Report a call that has run for too long, once; cheap where nothing runs."""
        call = self._running
        if call is not None and self._clock() >= call.late_at and call.is_first_report():
            self._on_failure(call.kind, TimeoutError("it still runs"))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was called; False when the time ran out or a late call blocks the others."""
        call = self._running
        if call is not None and call.thread == threading.get_ident():  # a callback that flushes
            return not self._waiting
        done = threading.Event()
        if (call is None and not self._waiting) or not self._worker.submit(done.set):
            return not self._waiting
        deadline = self._clock() + timeout_s
        while not done.wait(min(_GRACE_S, max(0.0, deadline - self._clock()))):
            self.check_late()
            call = self._running
            if call is not None and call.is_late:
                return not self._waiting
            if self._clock() >= deadline:
                return False
        return True

    def close(self, timeout_s: float) -> bool:
        """`flush`, and call nothing more."""
        complete = self.flush(timeout_s)
        self._closed = True
        while self._waiting:
            _, crossing = self._waiting.popleft()
            self._on_failure(crossing.kind, RuntimeError("shut down"))
        return complete

    def _call_next(self) -> None:
        try:
            function, crossing = self._waiting.popleft()
        except IndexError:  # closed meanwhile
            return
        call = self._running = _Call(crossing.kind, self._clock() + self._timeout_s + _GRACE_S)
        try:
            result = function(crossing)
            if inspect.isawaitable(result):
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(_within(result, self._timeout_s))
        except BaseException as error:  # also SystemExit: the thread continues with the next
            if call.is_first_report():
                self._on_failure(crossing.kind, error)
        finally:
            self._running = None


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
    function: Any = _imported(value.strip(), path) if isinstance(value, str) else value
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
    if not all(name.partition(":")):
        raise ConfigurationError(f"expected 'module:function', found {name[:80]!r}", path=path)
    try:
        return pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise ConfigurationError(
            f"{name[:80]!r} cannot be imported: {type(error).__name__}: {reason}", path=path
        ) from error
