"""ObjectiveCrossing, the report that a rate has crossed its objective, and who gets it.

Functions of the application get it. They are called one after the other on a background thread and
may be slow, hang or raise: that is counted and logged, and neither answers nor evaluations wait for
them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, cast

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import clean
from agenteval_otel.components.loading import import_function
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import SpanReference
from agenteval_otel.models.intervals import FEWEST_UNITS
from agenteval_otel.models.value import Value
from agenteval_otel.runtime.reentrancy import EvaluationThread, in_sub_interpreter
from agenteval_otel.runtime.worker import Worker, new_loop

MAX_WAITING = 256


class ObjectiveCrossing(Value):
    """Reports a criterion that breached its objective, or recovered.

    It is frozen. `model_dump_json` gives JSON.

    Attributes:
        agent: The agent's name. ``_other`` for those beyond the limit on agents.
        objective: The share of results that should pass, 0 to 1.
        rate: The share that passes: of the last `count` verdicts (`BreachSettings.window`), each
            weighted by 1 / its probability.
        low, high: Its 95 % interval. A guess, and not reported, of fewer than 20 units.
        units: How many conversations, sessions, traces or lone answers the verdicts are of.
        since_ns: When the breach was detected, in nanoseconds since the epoch.
        at_ns: Time of this report.
        reminder: A repeat: the breach was reported before and lasts.
        clustered: The handler has many calls in one trace, which are sampled together: the interval
            is too narrow.
        span: The evaluated span of the last verdict that failed. None where there was none.
    """

    kind: Literal["breached", "recovered"]
    criterion: str
    agent: str | None = None
    objective: float
    rate: float
    low: float
    high: float
    count: int
    units: int | None = None
    since_ns: int
    at_ns: int
    reminder: bool = False
    clustered: bool = False
    span: SpanReference | None = None

    @property
    def trace_id(self) -> str | None:
        """Return the trace of the last verdict that failed, in hexadecimal digits."""
        return None if self.span is None else self.span.trace_id

    def __str__(self) -> str:
        state = "still breached" if self.reminder else self.kind
        of_agent = f" of {self.agent}" if self.agent else ""
        interval = ""
        if self.has_interval:
            interval = f" ({self.low * 100:.1f} to {self.high * 100:.1f})"
        rate = f"{self.rate * 100:.1f} %{interval}"
        units = "" if self.units in (None, self.count) else f" in {self.units} conversations"
        return (
            f"objective {state}: {self.criterion}{of_agent} passes {rate} of {self.count}{units}, "
            f"objective {self.objective * 100:g} %"
        )

    @property
    def has_interval(self) -> bool:
        """Tell whether there are enough units for an interval."""
        return self.units is None or self.units >= FEWEST_UNITS


def attributes_of(crossing: ObjectiveCrossing) -> dict[str, Any]:
    agent = None if crossing.agent is None else clean(crossing.agent)
    low = crossing.low if crossing.has_interval else None
    high = crossing.high if crossing.has_interval else None
    values = {
        names.EVALUATION_NAME: clean(crossing.criterion),
        names.OBJECTIVE: crossing.objective,
        names.OBJECTIVE_RATE: crossing.rate,
        names.OBJECTIVE_LOW: low,
        names.OBJECTIVE_HIGH: high,
        names.OBJECTIVE_COUNT: crossing.count,
        names.OBJECTIVE_SINCE: crossing.since_ns / 1e9,
        names.AGENT_NAME: agent,
        names.OBJECTIVE_REMINDER: crossing.reminder or None,
        names.SAMPLING_CLUSTERED: crossing.clustered or None,
    }
    return {name: value for name, value in values.items() if value is not None}


Callback = Callable[[ObjectiveCrossing], Any]
"""A function, sync or async, that is called with a crossing. Its result is ignored."""


class Callbacks:
    """Calls functions one after the other on its own thread.

    An async function runs for at most `timeout_s`.

    `on_failure` is called with the kind of the crossing whose callback failed or was not called,
    and the error.
    """

    def __init__(
        self, on_failure: Callable[[str, BaseException], None], *, timeout_s: float
    ) -> None:
        self._on_failure = on_failure
        self._timeout_s = timeout_s
        self._closed = False
        self._worker = Worker(
            "agenteval-callback",
            max_waiting=2 * MAX_WAITING,
            idle_s=0.0,
            thread_class=EvaluationThread,
        )
        self.reset()

    def __repr__(self) -> str:
        return f"<Callbacks waiting={len(self._waiting)}>"

    def reset(self) -> None:
        """Start anew, as a forked child does."""
        self._waiting: deque[tuple[Callback, ObjectiveCrossing]] = deque()

    def submit(self, function: Callback, crossing: ObjectiveCrossing) -> None:
        """Have the function called. Returns at once, and never raises."""
        if self._closed:
            self._on_failure(crossing.kind, RuntimeError("shut down"))
        elif len(self._waiting) >= MAX_WAITING:
            self._on_failure(crossing.kind, OverflowError("too many wait"))
        else:
            self._waiting.append((function, crossing))
            # A sub-interpreter that ends before its threads do takes the process down.
            if in_sub_interpreter() or not self._worker.submit(self._call_next):
                self._waiting.clear()
                self._on_failure(crossing.kind, RuntimeError("no thread can be started"))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was called. Return False if the time ran out."""
        if not self._worker.has_thread or threading.current_thread().name == self._worker.name:
            return not self._waiting  # nothing runs, or a callback flushes
        done = threading.Event()
        return self._worker.submit(done.set) and done.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait as `flush` does, and call nothing more."""
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
        try:
            result = function(crossing)
            if inspect.isawaitable(result):
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(asyncio.wait_for(result, self._timeout_s))
        except BaseException as error:  # also SystemExit: the thread continues with the next
            self._on_failure(crossing.kind, error)


def load_callback(value: object, *, path: str) -> Callback | None:
    """Return the function itself, or the one that ``module:function`` names.

    None stays None. The module is imported.

    Raises:
        ConfigurationError: It cannot be found or called. The error has the path.
    """
    if value is None:
        return None
    if isinstance(value, str) and "://" in value:
        wrong = (
            "expected a function or 'module:function', found an address: call it in the function"
        )
        raise ConfigurationError(wrong, path=path)
    function = import_function(value, path=path) if isinstance(value, str) else value
    if not callable(function):
        wrong = f"expected a function or 'module:function', found {type(function).__name__}"
        raise ConfigurationError(wrong, path=path)
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ConfigurationError(
            "expected a function that takes one argument, the crossing", path=path
        ) from None
    except ValueError:  # a function written in C has no signature
        pass
    return cast(Callback, function)
