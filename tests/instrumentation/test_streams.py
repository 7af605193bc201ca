"""Streams: the generator protocol is untouched, and how they ended is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from tests.instrumentation.support import Seen


def talk(log: list[str]) -> Any:
    """A handler that answers what it is sent and survives one error."""

    def handler(question: str) -> Generator[str, Any, str]:
        try:
            got = yield "first"
            while True:
                try:
                    got = yield f"got {got}"
                except ValueError as error:
                    got = f"error {error}"
                if got == "end":
                    return "returned"
        finally:
            log.append("closed")

    return handler


def async_talk(log: list[str]) -> Any:
    async def handler(question: str) -> AsyncGenerator[str, Any]:
        inner = talk(log)(question)
        sent: Any = None
        with contextlib.closing(inner):
            while True:
                try:
                    chunk = inner.send(sent)
                except StopIteration:
                    return
                try:
                    sent = yield chunk
                except ValueError as error:
                    sent = f"error {error}"

    return handler


class Driver:
    """Drives a stream of either kind step by step."""

    def __init__(self, stream: Any) -> None:
        self.stream, self._loop = stream, asyncio.new_event_loop()

    def step(self, name: str, *arguments: Any) -> Any:
        if isinstance(self.stream, Generator):
            return getattr(self.stream, name)(*arguments)
        return self._loop.run_until_complete(getattr(self.stream, f"a{name}")(*arguments))


@pytest.fixture(params=[talk, async_talk], ids=["sync", "async"])
def driven(request: pytest.FixtureRequest, seen: Seen) -> Any:
    """A monitored stream that was begun, and the log of its handler."""
    log: list[str] = []
    driver = Driver(seen.monitor(request.param(log))("hi"))
    assert seen.outcomes == {}
    assert driver.step("send", None) == "first"
    yield driver, log
    driver._loop.close()


def test_send_throw_and_return(seen: Seen, driven: Any) -> None:
    """Sent values and thrown errors reach the handler, and its return value the code that drives
    it.
    """
    driver, log = driven
    assert driver.step("send", "a") == "got a"
    assert driver.step("throw", ValueError("b")) == "got error b"
    with pytest.raises((StopIteration, StopAsyncIteration)) as stop:
        driver.step("send", "end")
    assert isinstance(stop.value, StopAsyncIteration) or stop.value.value == "returned"
    assert log == ["closed"]
    assert (seen.last.response, seen.last.stream_end) == ("firstgot agot error b", "completed")


@pytest.mark.parametrize("how", ["close", "thrown"])
def test_a_stream_that_is_left(seen: Seen, driven: Any, how: str) -> None:
    """A stream that is closed or ended by GeneratorExit closes its handler, and was abandoned."""
    driver, log = driven
    assert seen.inputs == []
    if how == "close":
        driver.step("close")
    else:
        with pytest.raises(GeneratorExit):
            driver.step("throw", GeneratorExit())
    assert log == ["closed"]
    assert (seen.last.stream_end, seen.last.error_type, seen.last.response) == (
        "abandoned",
        None,
        "first",
    )


def test_counted_from_the_first_chunk(seen: Seen) -> None:
    """A stream that is made and never begun is no call."""
    log: list[str] = []
    seen.monitor(talk(log))("hi").close()
    asyncio.run(seen.monitor(async_talk(log))("hi").aclose())
    gc.collect()
    assert (seen.outcomes, log) == ({}, [])


@pytest.mark.parametrize(("ratio", "outcome"), [(0.0, "not_sampled"), (1.0, "evaluated")])
def test_an_empty_stream(ratio: float, outcome: str) -> None:
    """A stream without chunks is a call like any other, sampled or not."""
    seen = Seen(ratio)
    assert list(seen.monitor(lambda question: (yield from ()))("q")) == []
    assert seen.outcomes == {outcome: 1}
