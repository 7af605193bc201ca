"""Circuit breaker: suspends calls to a failing endpoint, then sends one as a probe."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.errors import JudgeError, ModelError
from agenteval_otel.runtime.fork import ForkSafeLock

_LONGEST_RETRY_AFTER_S: Final = 86_400.0
_PROBE_S: Final = 600.0
_MAX_CALLS: Final = 1_000
_TIMED_OUT: Final = "timeout"


class BreakerSettings(BaseModel, metaclass=FriendlyErrors):
    """Sets when calls to an endpoint are suspended, and for how long.

    Attributes:
        failures: Number of failures in a row that open the breaker. Timeouts do not count.
        failure_rate: Share of failed calls within `window_s`, above 0 to 1, that opens it.
        least_calls: Minimum number of calls within the window for `failure_rate` to apply.
        window_s: Length of the window in seconds, of at most 1,000 calls.
        open_s: How long it stays open, in seconds, before one call is let through as a probe. It is
            longer if the endpoint requests it (``Retry-After``, up to a day).
        longest_open_s: Each failed probe doubles that time, up to this limit. ``Retry-After`` may
            exceed it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    failures: int = Field(default=5, ge=1)
    failure_rate: float = Field(default=0.5, gt=0, le=1)
    least_calls: int = Field(default=20, ge=1)
    window_s: float = Field(default=60.0, gt=0)
    open_s: float = Field(default=15.0, gt=0)
    longest_open_s: float = Field(default=300.0, gt=0)


class CircuitBreaker:
    """Lets calls through (closed), refuses them (open), or lets one through (half open).

    An open breaker refuses calls at once. The one call of a half open breaker is a probe.

    Failures that may pass (`ModelError.retryable`), timeouts and refused keys count against an
    endpoint. A refusal, or an answer that cannot be read, is an answer: the endpoint is healthy.
    Timeouts count for the share alone: calls that hang together end together, and a few of them are
    no evidence about the others. Any thread may use it. It never waits.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or BreakerSettings()
        self._clock = clock
        self._lock = ForkSafeLock()
        self._calls: deque[tuple[float, bool]] = deque(maxlen=_MAX_CALLS)
        self._in_a_row = 0
        self._open_s = self._settings.open_s
        self._open_until: float | None = None
        self._probe: object = None
        self._probe_until = 0.0

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        until = self._open_until
        if until is None:
            return "closed"
        return "open" if self._clock() < until else "half_open"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Run the block as one call to the endpoint. Its exception decides the outcome.

        Raises `JudgeError` when open.
        """
        call = object()
        self._enter(call)
        try:
            yield
        except ModelError as error:
            is_late = error.error_type == "timeout"
            failed = error.retryable or is_late or error.error_type == "authentication"
            self._end(call, failed, is_late, error.retry_after_s or 0.0)
            raise
        except BaseException as error:
            # The executor cancels late calls with this message; other exceptions are not counted.
            if isinstance(error, asyncio.CancelledError) and _TIMED_OUT in error.args:
                self._end(call, failed=True, is_late=True)
            # Without the lock: the garbage collector may end a call while its thread has it.
            elif self._probe is call:
                self._probe = None
            raise
        self._end(call, failed=False)

    def _enter(self, call: object) -> None:
        with self._lock:
            now = self._clock()
            if self._open_until is None:
                return
            # A probe on a closed loop never ends: after ten minutes another may start.
            if now >= self._open_until and (self._probe is None or now >= self._probe_until):
                self._probe = call
                self._probe_until = now + _PROBE_S
                return
            wait_s = max(0.0, self._open_until - now)
        raise JudgeError(
            f"the endpoint failed again and again. The next call is made in {wait_s:.0f} s",
            error_type="breaker_open",
            retryable=True,
            retry_after_s=wait_s,
        )

    def _end(
        self, call: object, failed: bool, is_late: bool = False, retry_after_s: float = 0.0
    ) -> None:
        with self._lock:
            now = self._clock()
            if call is self._probe:
                self._probe = None
                if not failed:
                    self._calls.clear()
                    self._in_a_row = 0
                    self._open_until = None
                    self._open_s = self._settings.open_s
                    return
                self._open_s = min(self._settings.longest_open_s, 2 * self._open_s)
            # Calls from before it opened are no evidence.
            elif self._open_until is not None or not self._count(now, failed, is_late):
                return
            self._open_until = now + max(self._open_s, min(retry_after_s, _LONGEST_RETRY_AFTER_S))

    def _count(self, now: float, failed: bool, is_late: bool) -> bool:
        """Count a call, and tell whether it opens the breaker."""
        settings = self._settings
        calls = self._calls
        calls.append((now, failed))
        while calls and calls[0][0] <= now - settings.window_s:
            calls.popleft()
        if not is_late:
            self._in_a_row = self._in_a_row + 1 if failed else 0
        if not failed:
            return False
        failures = sum(failed for _, failed in calls)
        has_enough_calls = len(calls) >= settings.least_calls
        fails_often = has_enough_calls and failures >= settings.failure_rate * len(calls)
        return fails_often or self._in_a_row >= settings.failures


@lru_cache(maxsize=256)
def breaker_of(endpoint: str, settings: BreakerSettings) -> CircuitBreaker:
    """Return the breaker of an endpoint in this process.

    Of more than 256 breakers, the least recently used begins anew.
    """
    return CircuitBreaker(settings)
