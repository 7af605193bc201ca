"""CircuitBreaker: an endpoint in trouble is left alone, and asked again by one call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.judges.breaker import BreakerSettings, CircuitBreaker
from agenteval_otel.testing import ManualClock


def failure(
    word: str = "overloaded", *, retryable: bool = True, retry_after_s: float | None = None
) -> JudgeError:
    return JudgeError("no", error_type=word, retryable=retryable, retry_after_s=retry_after_s)


def fail(breaker: CircuitBreaker, times: int = 1, error: JudgeError | None = None) -> None:
    for _ in range(times):
        with contextlib.suppress(JudgeError), breaker.call():
            raise error or failure()


def answer(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with breaker.call():
            pass


def refusal(breaker: CircuitBreaker) -> JudgeError:
    with pytest.raises(JudgeError) as caught, breaker.call():
        raise AssertionError("it was let through")
    return caught.value


def half_open() -> tuple[CircuitBreaker, ManualClock]:
    """A breaker whose next call is the probe."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock=clock)
    fail(breaker, 5)
    clock.advance(16)
    return breaker, clock


def test_failures_in_a_row_open_it() -> None:
    """The fifth failure in a row opens it; a success in between resets the count."""
    breaker = CircuitBreaker(clock=ManualClock())
    fail(breaker, 4)
    answer(breaker)
    fail(breaker, 4)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"
    error = refusal(breaker)
    assert (error.error_type, error.retryable, error.retry_after_s) == ("breaker_open", True, 15.0)


def test_a_share_of_failures_opens_it() -> None:
    """Half of the last twenty calls opens it, without five in a row; fewer calls do not."""
    breaker = CircuitBreaker(clock=ManualClock())
    for _ in range(9):
        answer(breaker)
        fail(breaker)
    assert breaker.state == "closed"
    answer(breaker)
    fail(breaker)
    assert breaker.state == "open"


def test_old_calls_are_no_evidence() -> None:
    """Calls outside of the window do not count for the share."""
    clock = ManualClock()
    breaker = CircuitBreaker(BreakerSettings(failures=100, least_calls=10), clock=clock)
    fail(breaker, 9)
    clock.advance(61.0)
    answer(breaker, 9)
    fail(breaker, 8)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"


HEALTHY = (
    "refusal",
    "truncated",
    "empty_answer",
    "malformed_answer",
    "context_overflow",
    "bad_request",
    "not_found",
)


@pytest.mark.parametrize(
    ("word", "opens_with"),
    [("authentication", 5), ("timeout", 20), *((word, None) for word in HEALTHY)],
)
def test_what_opens_it_depends_on_the_failure(word: str, opens_with: int | None) -> None:
    """A refused key is refused each time; timeouts count for the share of twenty calls alone; an
    endpoint that answers is healthy.
    """
    breaker = CircuitBreaker(clock=ManualClock())
    fail(breaker, (opens_with or 100) - 1, failure(word, retryable=False))
    assert breaker.state == "closed"
    fail(breaker, 1, failure(word, retryable=False))
    assert breaker.state == ("open" if opens_with else "closed")


def test_a_failing_probe_doubles_the_time() -> None:
    """Up to the longest time; a success resets it."""
    clock = ManualClock()
    breaker = CircuitBreaker(BreakerSettings(open_s=10, longest_open_s=35), clock=clock)
    fail(breaker, 5)
    for open_s in (10, 20, 35, 35):
        clock.advance(open_s - 0.1)
        refusal(breaker)
        clock.advance(0.2)
        fail(breaker)
    clock.advance(36)
    answer(breaker)
    fail(breaker, 5)
    assert refusal(breaker).retry_after_s == 10


@pytest.mark.parametrize(("asked_s", "open_s"), [(1.0, 15.0), (3600.0, 3600.0), (1e12, 86_400.0)])
def test_retry_after_prolongs_the_time(asked_s: float, open_s: float) -> None:
    """It stays open at least as long as the endpoint asks, up to a day."""
    breaker = CircuitBreaker(clock=ManualClock())
    fail(breaker, 5, failure("rate_limited", retry_after_s=asked_s))
    assert refusal(breaker).retry_after_s == open_s


def test_a_probe_without_a_result_makes_room_for_the_next() -> None:
    """A cancelled or unpaid probe neither closes nor opens it."""
    breaker, _ = half_open()
    for nothing in (asyncio.CancelledError(), EvaluationSkipped("budget")):
        with contextlib.suppress(type(nothing)), breaker.call():
            raise nothing
    assert breaker.state == "half_open"
    answer(breaker)
    assert breaker.state == "closed"


def test_a_probe_that_never_ends_is_replaced() -> None:
    """After ten minutes the next call is the probe."""
    breaker, clock = half_open()
    with contextlib.suppress(JudgeError), breaker.call():
        clock.advance(599)
        refusal(breaker)
        clock.advance(2)
        with breaker.call():
            pass
        assert breaker.state == "closed"
        raise failure()
    assert breaker.state == "closed"


def test_earlier_calls_do_not_prolong_the_time() -> None:
    """Calls from before it opened neither prolong nor end the time."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock=clock)
    with breaker.call(), contextlib.suppress(JudgeError), breaker.call():
        fail(breaker, 5)
        clock.advance(10)
        raise failure()
    assert breaker.state == "open"
    clock.advance(5.1)
    assert breaker.state == "half_open"


def test_threads_get_one_probe() -> None:
    """Of eight threads at a half-open breaker one goes through."""
    breaker, _ = half_open()
    all_tried = threading.Barrier(8)

    def goes_through(_: int) -> bool:
        with contextlib.suppress(JudgeError), breaker.call():
            all_tried.wait(20.0)
            return True
        all_tried.wait(20.0)
        return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(goes_through, range(8))) == 1


def test_an_abandoned_call_that_the_garbage_collector_ends_waits_for_nothing() -> None:
    """Its thread may hold the breaker's lock at that moment."""

    def abandoned(breaker: CircuitBreaker) -> Iterator[None]:
        with breaker.call():
            yield

    def clock() -> float:
        if len(calls) == 2:
            calls.clear()  # ends the abandoned call, within the lock
        return 0.0

    def work() -> None:
        breaker = CircuitBreaker(clock=clock)
        calls.append(abandoned(breaker))
        next(calls[0])
        calls.append(iter(()))
        fail(breaker)

    calls: list[Iterator[None]] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive()
