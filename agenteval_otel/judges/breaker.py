"""Circuit breaker: an endpoint that is in trouble is left alone, and then asked again by one call.

It belongs to an endpoint, not to a judge: evaluators with judges of their own, of one endpoint, share it. Any thread
may use it; it waits for nothing.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained
from agenteval_otel.errors import JudgeError
from agenteval_otel.runtime.fork import ForkSafeLock

__all__ = ["BreakerSettings", "CircuitBreaker", "Permit", "breaker_of"]

BreakerState = Literal["closed", "open", "half_open"]
_MOST_ENDPOINTS: Final = 256
_LONGEST_RETRY_AFTER_S: Final = 86_400.0
_PROBE_S: Final = 600.0
_MOST_CALLS: Final = 1_000
_LASTING: Final = ("authentication", "timeout")


class BreakerSettings(BaseModel, metaclass=Explained):
    """When an endpoint is left alone, and for how long.

    Attributes:
        failures: So many failures one after another open the breaker, deadlines that passed not counted.
        failure_rate: Share of the calls of the last `window_s`, above 0 to 1, that opens it when they fail.
        least_calls: Fewer calls within the window are no evidence for a share.
        window_s: Length of the window in seconds, of at most 1,000 calls.
        open_s: How long it stays open, in seconds, before one call is let through to see; longer where the endpoint
            asked for that (``Retry-After``, up to a day).
        longest_open_s: Each probe that fails doubles the time, up to this.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    failures: int = Field(default=5, ge=1)
    failure_rate: float = Field(default=0.5, gt=0, le=1)
    least_calls: int = Field(default=20, ge=1)
    window_s: float = Field(default=60.0, gt=0)
    open_s: float = Field(default=15.0, gt=0)
    longest_open_s: float = Field(default=300.0, gt=0)


class CircuitBreaker:
    """Closed lets calls through, open refuses them at once, half open lets one through to see.

    What counts against an endpoint is what may pass with time (`JudgeError.retryable`), a deadline that passed, and a
    key that it refuses. An answer that says no, or cannot be read, is an answer: the endpoint is well. Deadlines count
    for the share alone: calls that hang together end together, and a few of them say nothing of the others.

    Args:
        settings: When it opens and for how long.
        clock: Monotonic seconds.
    """

    def __init__(self, settings: BreakerSettings | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock, self._lock = settings or BreakerSettings(), clock, ForkSafeLock()
        self._calls: deque[tuple[float, bool]] = deque(maxlen=_MOST_CALLS)
        self._failed = 0
        self._in_a_row = 0
        self._open_until: float | None = None
        self._open_s = self._settings.open_s
        self._probe: Permit | None = None
        self._probe_until = 0.0
        self.refused = 0

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.state}, {self.refused} refused>"

    @property
    def state(self) -> BreakerState:
        """``closed``, ``open`` or, from when a probe is due until it has come back, ``half_open``."""
        until = self._open_until
        if until is None:
            return "closed"
        return "open" if self._clock() < until else "half_open"

    def enter(self) -> Permit:
        """Let a call through; whoever gets the permit has to say how the call ended.

        Raises:
            JudgeError: ``breaker_open``: the endpoint is left alone, for `retry_after_s` more.
        """
        with self._lock:
            now = self._clock()
            permit = Permit(self)
            if self._open_until is None:
                return permit
            free = self._probe is None or now >= self._probe_until
            if now >= self._open_until and free:
                # A probe whose loop has died never comes back: after a while the next one goes.
                self._probe, self._probe_until = permit, now + _PROBE_S
                return permit
            self.refused += 1
            wait_s = max(0.0, self._open_until - now)
        raise JudgeError(
            f"the endpoint failed again and again; it is asked again in {wait_s:.0f} s", error_type="breaker_open",
            retryable=True, retry_after_s=wait_s,
        )  # fmt: skip

    def _ended(self, permit: Permit, failed: bool | None, retry_after_s: float, late: bool) -> None:
        with self._lock:
            now = self._clock()
            if permit is self._probe:
                self._probe = None
                if failed is not None:
                    self._after_probe(now, failed, retry_after_s)
            elif failed is not None and self._open_until is None:  # who was under way when it opened says nothing new
                self._count(now, failed, late)
                if failed and self._is_enough():
                    self._open(now, retry_after_s)

    def _after_probe(self, now: float, failed: bool, retry_after_s: float) -> None:
        if failed:
            self._open_s = min(self._settings.longest_open_s, 2 * self._open_s)
            self._open(now, retry_after_s)
            return
        self._open_until, self._open_s, self._failed, self._in_a_row = None, self._settings.open_s, 0, 0
        self._calls.clear()

    def _count(self, now: float, failed: bool, late: bool) -> None:
        calls = self._calls
        if len(calls) == calls.maxlen:
            self._failed -= calls.popleft()[1]
        calls.append((now, failed))
        self._failed += failed
        while calls and calls[0][0] <= now - self._settings.window_s:
            self._failed -= calls.popleft()[1]
        if not late:
            self._in_a_row = self._in_a_row + 1 if failed else 0

    def _is_enough(self) -> bool:
        settings, calls = self._settings, len(self._calls)
        often = calls >= settings.least_calls and self._failed >= settings.failure_rate * calls
        return often or self._in_a_row >= settings.failures

    def _open(self, now: float, retry_after_s: float) -> None:
        self._open_until = now + max(self._open_s, min(retry_after_s, _LONGEST_RETRY_AFTER_S))


class Permit:
    """One call that a breaker let through: how it ended is said once, whatever is said later is not heard."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker: CircuitBreaker | None = breaker

    def answered(self) -> None:
        """The endpoint gave an answer, whatever it says."""
        self._end(False, 0.0)

    def failed(self, error: JudgeError) -> None:
        """The judge raised: the error decides whether that counts against the endpoint."""
        counts = error.retryable or error.error_type in _LASTING
        self._end(counts, error.retry_after_s or 0.0, late=error.error_type == "timeout")

    def abandoned(self) -> None:
        """The call came to nothing that says something of the endpoint: cancelled, or never made."""
        self._end(None, 0.0)

    def _end(self, failed: bool | None, retry_after_s: float, *, late: bool = False) -> None:
        breaker, self._breaker = self._breaker, None
        if breaker is not None:
            breaker._ended(self, failed, retry_after_s, late)


def breaker_of(endpoint: str, settings: BreakerSettings) -> CircuitBreaker:
    """The breaker that this process has for an endpoint; of more than 256 the one unused for longest begins anew."""
    key = (endpoint, settings)
    with _lock:
        breaker = _breakers.pop(key, None) or CircuitBreaker(settings)
        _breakers[key] = breaker
        while len(_breakers) > _MOST_ENDPOINTS:
            _breakers.popitem(last=False)
    return breaker


_breakers: OrderedDict[tuple[str, BreakerSettings], CircuitBreaker] = OrderedDict()
_lock = ForkSafeLock()
