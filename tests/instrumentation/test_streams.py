"""Streams: the generator protocol is untouched, and how they ended is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from opentelemetry.trace import get_current_span

from agenteval_otel import monitor
from agenteval_otel.testing import RecordedTelemetry
from tests.instrumentation.support import Seen
from tests.telemetry.support import Watch
from tests.testing.doubles import Free


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
    """Sent values and thrown errors reach the handler, and its return value the code that drives it."""
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
    assert (seen.last.stream_end, seen.last.error_type, seen.last.response) == ("abandoned", None, "first")


def test_a_thrown_error_that_the_handler_passes_on(seen: Seen, driven: Any) -> None:
    """An error that the consumer throws and the handler does not catch comes back as it is."""
    thrown = KeyError("x")
    with pytest.raises(KeyError) as caught:
        driven[0].step("throw", thrown)
    assert caught.value is thrown
    assert (seen.last.stream_end, seen.last.error_type) == ("error", "KeyError")


def test_an_async_stream_whose_task_is_cancelled(seen: Seen) -> None:
    """A server cancels the task of a client that has gone: abandoned, and the cancellation goes on."""

    @seen.monitor
    async def handler(question: str) -> AsyncGenerator[str, None]:
        yield "a"
        entered.set()
        await asyncio.get_running_loop().create_future()

    async def read() -> None:
        async for _ in handler("q"):
            pass

    async def host() -> None:
        task = asyncio.ensure_future(read())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    entered = asyncio.Event()
    asyncio.run(host())
    assert (seen.last.stream_end, seen.last.response) == ("abandoned", "a")


@pytest.mark.parametrize("spanned", [False, True])
def test_an_async_stream_that_the_loop_closes(
    telemetry: RecordedTelemetry, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, spanned: bool
) -> None:
    """A stream left open at the end of `asyncio.run` is closed by it, in silence, and was abandoned."""
    watch = Watch(telemetry)
    seen = Seen()
    made = watch.pipeline([Free()]) if spanned else seen.pipeline
    log: list[str] = []

    async def drive() -> None:
        stream = monitor(agent="support", pipeline=made)(async_talk(log))("hi")
        kept.append(stream)
        await anext(stream)

    kept: list[Any] = []
    asyncio.run(drive())
    kept.clear()
    gc.collect()
    assert log == ["closed"]
    assert made.accounting.outcomes()["evaluated"] == 1
    assert not get_current_span().get_span_context().is_valid
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert [entry.getMessage() for entry in caplog.records] == []
    watch.shutdown()


@pytest.mark.parametrize("make", [talk, async_talk], ids=["sync", "async"])
def test_a_stream_that_is_collected(seen: Seen, caplog: pytest.LogCaptureFixture, make: Callable[..., Any]) -> None:
    """A stream without a reference is closed, by its loop where it has one, in silence."""

    async def drive() -> None:
        stream = seen.monitor(make(log))("hi")
        assert (next(stream) if make is talk else await anext(stream)) == "first"
        del stream
        gc.collect()
        for _ in range(20):
            turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            await turn
        assert log == ["closed"]

    log: list[str] = []
    asyncio.run(drive())
    assert seen.last.stream_end == "abandoned"
    assert [entry.getMessage() for entry in caplog.records] == []


def test_counted_from_the_first_chunk(seen: Seen) -> None:
    """A stream that is made and never begun is no call."""
    log: list[str] = []
    seen.monitor(talk(log))("hi").close()
    asyncio.run(seen.monitor(async_talk(log))("hi").aclose())
    gc.collect()
    assert (seen.outcomes, log) == ({}, [])


def test_chunks_pass_at_once(seen: Seen) -> None:
    """Each chunk reaches the consumer before the handler makes the next one; objects pass as they are."""
    made: list[Any] = []

    @seen.monitor
    def handler(question: str) -> Generator[Any, None, int]:
        for chunk in ({"text": "a"}, "b", b"c"):
            made.append(chunk)
            yield chunk
        return 7

    def host() -> Generator[Any, None, None]:
        yield (yield from handler("q"))

    *chunks, value = list(enumerate(host(), start=1))
    assert all(chunk is made[count - 1] for count, chunk in chunks)
    assert value == (4, 7)
    assert seen.last.response == "abc"


def test_a_long_stream_is_passed_on_and_kept_in_part(seen: Seen) -> None:
    """What is kept for evaluation is bounded; the consumer gets everything."""

    @seen.monitor
    def handler(question: str) -> Generator[str, None, None]:
        for _ in range(100):
            yield "x" * 10_000

    assert sum(map(len, handler("q"))) == 1_000_000
    assert 262_144 <= len(seen.last.response_text) < 300_000


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_an_empty_stream(ratio: float) -> None:
    """A stream without chunks is a call like any other, sampled or not."""
    seen = Seen(ratio)

    @seen.monitor
    def handler(question: str) -> Generator[str, None, None]:
        yield from ()

    assert list(handler("q")) == []
    assert seen.outcomes == ({"evaluated": 1} if ratio else {"not_sampled": 1})


def test_two_streams_side_by_side(seen: Seen) -> None:
    """Streams that are read in turns do not mix their chunks."""
    handler = seen.monitor(lambda question: (yield from [question, question]))
    first, second = handler("a"), handler("b")
    assert [next(first), next(second), next(first), next(second)] == ["a", "b", "a", "b"]
    for stream in (first, second):
        with contextlib.suppress(StopIteration):
            next(stream)
    assert [made.response for made in seen.inputs] == ["aa", "bb"]
