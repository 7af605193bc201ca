"""Callbacks: good, bad, slow and hanging functions; nobody waits for them, and each failure is counted once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.objectives import ObjectiveCrossing
from agenteval_otel.objectives.callbacks import MAX_THREADS, MAX_WAITING, Callbacks
from agenteval_otel.pipeline import Pipeline

CROSSING = ObjectiveCrossing(
    kind="breached", criterion="tone", agent="shop", objective=0.9, rate=0.5, low=0.4, high=0.6, count=50, since_ns=1,
    at_ns=1,
)  # fmt: skip


class Told:
    """Callbacks, what they counted as broken, and a gate at which functions hang until the test ends."""

    def __init__(self, timeout_s: float) -> None:
        self.broken: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.callbacks = Callbacks(self._broken, timeout_s=timeout_s)

    def _broken(self, kind: str, error: BaseException) -> None:
        self.broken.append((kind, type(error).__name__))

    def tell(self, function: Callable[[ObjectiveCrossing], Any]) -> None:
        self.callbacks.tell(function, CROSSING)

    def hang(self, crossing: ObjectiveCrossing) -> None:
        self.gate.wait(30)


def mine() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agenteval-callback"]


@pytest.fixture
def told() -> Iterator[Callable[..., Told]]:
    made: list[Told] = []

    def make(timeout_s: float = 10.0) -> Told:
        made.append(Told(timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.gate.set()
        one.callbacks.close(5.0)
    for thread in mine():
        thread.join(5)
    assert mine() == []


def test_sync_and_async_functions_are_called(told: Callable[..., Told]) -> None:
    """Each on a thread of ours with the value it is told; an async one is awaited there to its end."""
    one = told()
    found: list[Any] = []

    async def later(crossing: ObjectiveCrossing) -> None:
        await asyncio.sleep(0)
        found.append((crossing, threading.current_thread().name))

    one.tell(lambda crossing: found.append((crossing, threading.current_thread().name)))
    one.tell(later)
    assert one.callbacks.flush(5.0)
    assert found == [(CROSSING, "agenteval-callback")] * 2
    assert one.broken == []


def test_what_they_raise_is_counted(told: Callable[..., Told]) -> None:
    """Also an exit and an interruption; what comes after them is told all the same."""
    one = told()
    found: list[Any] = []

    def bad(error: BaseException) -> Callable[[ObjectiveCrossing], Any]:
        def function(crossing: ObjectiveCrossing) -> None:
            raise error

        return function

    async def bad_later(crossing: ObjectiveCrossing) -> None:
        raise KeyError("no")

    for error in (ValueError("secret"), SystemExit(3), KeyboardInterrupt()):
        one.tell(bad(error))
    one.tell(bad_later)
    one.tell(found.append)
    assert one.callbacks.flush(5.0)
    assert sorted(one.broken) == [
        ("breached", word) for word in ("KeyError", "KeyboardInterrupt", "SystemExit", "ValueError")
    ]
    assert found == [CROSSING]


def test_a_late_async_function_is_cancelled(told: Callable[..., Told]) -> None:
    """It is counted once, as a timeout, and its thread is free again."""
    one, cancelled = told(0.05), []

    async def slow(crossing: ObjectiveCrossing) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    one.tell(slow)
    assert one.callbacks.flush(5.0)
    assert (one.broken, cancelled) == ([("breached", "TimeoutError")], [True])


def test_a_hanging_function_is_counted_and_left_alone(told: Callable[..., Told]) -> None:
    """`flush` waits for no longer than its time limit; once it comes back its thread ends."""
    one = told(0.05)
    one.tell(one.hang)
    started = time.monotonic()
    assert one.callbacks.flush(20.0)
    assert time.monotonic() - started < 10
    assert one.broken == [("breached", "TimeoutError")]
    assert len(mine()) == 1
    one.callbacks.look()
    one.gate.set()
    for thread in mine():
        thread.join(5)
    assert one.broken == [("breached", "TimeoutError")]


def test_what_waits_is_bounded(told: Callable[..., Told]) -> None:
    """Four hang, a few hundred wait, the rest is counted; nobody is told again when they hang for good."""
    one = told(0.05)
    for _ in range(MAX_THREADS + MAX_WAITING + 50):
        one.tell(one.hang)
    assert len(mine()) == MAX_THREADS
    lost = [word for _, word in one.broken if word == "OverflowError"]
    assert 50 <= len(lost) <= 50 + MAX_THREADS  # those that no thread had taken yet waited too
    assert not one.callbacks.flush(5.0)  # which sees that they are stuck
    assert one.broken.count(("breached", "TimeoutError")) == MAX_THREADS
    before = len(one.broken)
    assert not one.callbacks.close(1.0)
    assert {word for _, word in one.broken[before:]} == {"RuntimeError"}
    one.tell(one.hang)
    assert one.broken[-1] == ("breached", "RuntimeError")


def test_a_burst_is_told_in_full(told: Callable[..., Told]) -> None:
    """A hundred crossings of one outage are all told, by four threads at most, though each takes a moment."""
    one, found, most = told(), [], []
    pause = threading.Event()

    def slow(crossing: ObjectiveCrossing) -> None:
        most.append(len(mine()))
        pause.wait(0.002)
        found.append(crossing)

    for _ in range(100):
        one.tell(slow)
    assert one.callbacks.flush(20.0)
    assert (len(found), max(most) <= MAX_THREADS, one.broken) == (100, True, [])


def test_a_callback_that_flushes_does_not_wait_for_itself(told: Callable[..., Told]) -> None:
    """It gets an answer at once."""
    one = told()
    found: list[Any] = []
    one.tell(lambda crossing: found.append(one.callbacks.flush(20.0)))
    assert one.callbacks.flush(10.0)
    assert found == [True]


def test_what_callbacks_ask_is_not_evaluated(told: Callable[..., Told], pipeline: Pipeline) -> None:
    """A monitored agent that is called in a callback is not evaluated: that could go on without end."""
    one = told()
    agent = monitor(agent="pager", pipeline=pipeline)(lambda question: "An answer.")
    one.tell(lambda crossing: agent("who is on duty?"))
    assert one.callbacks.flush(5.0)
    assert (one.broken, sum(pipeline.accounting.outcomes().values())) == ([], 0)
