"""Callbacks: good, bad, slow and hanging functions; answers do not wait, and each failure is
counted once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.objectives import ObjectiveCrossing
from agenteval_otel.engine.objectives.crossings import MAX_WAITING, Callbacks
from agenteval_otel.engine.pipeline import Pipeline

CROSSING = ObjectiveCrossing(
    kind="breached",
    criterion="tone",
    agent="shop",
    objective=0.9,
    rate=0.5,
    low=0.4,
    high=0.6,
    count=50,
    since_ns=1,
    at_ns=1,
)


class Recorder:
    """Callbacks, what they counted as broken, and functions that hang until the test ends."""

    def __init__(self, timeout_s: float) -> None:
        self.broken: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.callbacks = Callbacks(self._broken, timeout_s=timeout_s)

    def _broken(self, kind: str, error: BaseException) -> None:
        self.broken.append((kind, type(error).__name__))

    def submit(self, function: Callable[[ObjectiveCrossing], Any]) -> None:
        self.callbacks.submit(function, CROSSING)

    def hang(self, crossing: ObjectiveCrossing) -> None:
        self.gate.wait(30)


def mine() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agenteval-callback"]


@pytest.fixture
def recorder_of() -> Iterator[Callable[..., Recorder]]:
    built: list[Recorder] = []

    def make(timeout_s: float = 10.0) -> Recorder:
        built.append(Recorder(timeout_s))
        return built[-1]

    yield make
    for recorder in built:
        recorder.gate.set()
        recorder.callbacks.close(5.0)
    for thread in mine():
        thread.join(5)
    assert mine() == []


def test_functions_are_called_and_what_they_raise_is_counted(
    recorder_of: Callable[..., Recorder],
) -> None:
    """Each on a thread of ours; an async one is awaited there to its end. An exit is counted too."""
    recorder, calls = recorder_of(), list[Any]()

    def call(crossing: ObjectiveCrossing) -> None:
        calls.append((crossing, threading.current_thread().name))

    async def call_later(crossing: ObjectiveCrossing) -> None:
        await asyncio.sleep(0)
        call(crossing)
        raise KeyError("no")

    def raising(error: BaseException) -> Callable[[ObjectiveCrossing], Any]:
        def function(crossing: ObjectiveCrossing) -> None:
            raise error

        return function

    for error in (ValueError("secret"), SystemExit(3), KeyboardInterrupt()):
        recorder.submit(raising(error))
    recorder.submit(call_later)
    recorder.submit(call)
    assert recorder.callbacks.flush(5.0)
    words = ("ValueError", "SystemExit", "KeyboardInterrupt", "KeyError")
    assert recorder.broken == [("breached", word) for word in words]
    assert calls == [(CROSSING, "agenteval-callback")] * 2


def test_a_late_async_function_is_cancelled(recorder_of: Callable[..., Recorder]) -> None:
    """It is counted as a timeout, and the next callback runs."""
    recorder, calls = recorder_of(0.05), list[str]()

    async def slow(crossing: ObjectiveCrossing) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise

    recorder.submit(slow)
    recorder.submit(lambda crossing: calls.append("next"))
    assert recorder.callbacks.flush(5.0)
    assert (recorder.broken, calls) == ([("breached", "TimeoutError")], ["cancelled", "next"])


def test_waiting_calls_are_bounded(recorder_of: Callable[..., Recorder]) -> None:
    """One hangs, a few hundred wait, the rest is counted; so are those that still wait at the end."""
    recorder = recorder_of()
    for _ in range(1 + MAX_WAITING + 50):
        recorder.submit(recorder.hang)
    assert len(mine()) == 1
    lost = [error for _, error in recorder.broken if error == "OverflowError"]
    assert 50 <= len(lost) <= 51  # the first one waited too until the thread took it
    before = len(recorder.broken)
    assert not recorder.callbacks.close(0.05)
    recorder.submit(recorder.hang)
    assert recorder.broken[before:] == [("breached", "RuntimeError")] * (
        MAX_WAITING + 51 - len(lost)
    )


def test_a_callback_that_flushes_does_not_wait_for_itself(
    recorder_of: Callable[..., Recorder],
) -> None:
    """It gets an answer at once."""
    recorder = recorder_of()
    result: list[Any] = []
    recorder.submit(lambda crossing: result.append(recorder.callbacks.flush(20.0)))
    assert recorder.callbacks.flush(10.0)
    assert result == [True]


def test_what_callbacks_ask_is_not_evaluated(
    recorder_of: Callable[..., Recorder], pipeline: Pipeline
) -> None:
    """A monitored agent that is called in a callback is not evaluated: that could go on without
    end.
    """
    recorder = recorder_of()
    agent = monitor(agent="pager", pipeline=pipeline)(lambda question: "An answer.")
    recorder.submit(lambda crossing: agent("who is on duty?"))
    assert recorder.callbacks.flush(5.0)
    assert (recorder.broken, sum(pipeline.accounting.outcomes().values())) == ([], 0)
