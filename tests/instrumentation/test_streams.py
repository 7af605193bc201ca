"""Streams: the generator protocol is untouched, and how they ended is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar
from typing import Any

import anyio
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
        self.stream, self.loop = stream, asyncio.new_event_loop()

    def step(self, name: str, *arguments: Any) -> Any:
        if isinstance(self.stream, Generator):
            return getattr(self.stream, name)(*arguments)
        return self.loop.run_until_complete(getattr(self.stream, f"a{name}")(*arguments))


@pytest.fixture(params=[talk, async_talk], ids=["sync", "async"])
def driven(request: pytest.FixtureRequest, seen: Seen) -> Any:
    """A monitored stream that was begun, and the log of its handler."""
    log: list[str] = []
    driver = Driver(seen.monitor(request.param(log))("hi"))
    assert seen.outcomes == {}
    assert driver.step("send", None) == "first"
    yield driver, log
    driver.loop.close()


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


def test_a_stream_runs_in_its_consumers_task_and_context(seen: Seen) -> None:
    """Between two chunks the task is the consumer's; what either sets in the context the other sees,
    as without monitoring.
    """
    mark: ContextVar[str] = ContextVar("mark", default="unset")

    @seen.monitor
    async def handler(question: str) -> AsyncGenerator[str, None]:
        tasks.append(asyncio.current_task())
        yield mark.get()
        tasks.append(asyncio.current_task())
        mark.set("by the handler")
        yield mark.get()

    async def consume() -> None:
        mark.set("by the consumer")
        stream = handler("q")
        assert await anext(stream) == "by the consumer"
        assert await anext(stream) == "by the handler"
        assert mark.get() == "by the handler"
        assert tasks == [asyncio.current_task()] * 2
        await stream.aclose()

    tasks: list[Any] = []
    asyncio.run(consume())
    assert seen.outcomes == {"evaluated": 1}


@pytest.mark.parametrize("library", ["asyncio", "anyio"])
def test_time_limits_within_a_stream(seen: Seen, library: str) -> None:
    """A time limit around a chunk of the handler's ends what it waits for, and the stream goes on."""

    async def never_comes() -> None:
        if library == "asyncio":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
        else:
            with anyio.move_on_after(0):
                await anyio.sleep_forever()

    @seen.monitor
    async def handler(question: str) -> AsyncGenerator[str, None]:
        async with asyncio.timeout(None):
            yield "before "
            await never_comes()
            yield "after"

    async def consume() -> list[str]:
        with anyio.CancelScope():
            return [chunk async for chunk in handler("q")]

    assert asyncio.run(consume()) == ["before ", "after"]
    assert (seen.last.response, seen.last.stream_end) == ("before after", "completed")


def test_a_cancelled_stream(seen: Seen) -> None:
    """A consumer that is cancelled cancels its handler; what came is evaluated once."""
    log: list[str] = []

    @seen.monitor
    async def handler(question: str) -> AsyncGenerator[str, None]:
        try:
            yield "first"
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def consume() -> None:
        async for _ in handler("q"):
            pass

    async def work() -> None:
        task = asyncio.ensure_future(consume())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    waiting = asyncio.Event()
    asyncio.run(work())
    assert (log, seen.last.response, seen.outcomes) == (["cancelled"], "first", {"evaluated": 1})


@pytest.mark.parametrize("how", ["closed in another task", "left to the loop"])
def test_a_stream_that_is_left_half_read(seen: Seen, how: str) -> None:
    """Whoever ends it, in whatever task, its handler is closed and it was abandoned, once."""
    log: list[str] = []

    async def begin() -> Any:
        stream = seen.monitor(async_talk(log))("hi")
        assert await anext(stream) == "first"
        return stream

    async def work() -> None:
        stream = await asyncio.create_task(begin())
        if how == "closed in another task":
            await asyncio.create_task(stream.aclose())

    asyncio.run(work())
    assert (log, seen.outcomes) == (["closed"], {"evaluated": 1})
    assert (seen.last.stream_end, seen.last.response) == ("abandoned", "first")
