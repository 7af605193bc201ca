"""Streams: the generator protocol is untouched, and how they ended is told."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Generator
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
        try:
            got = yield "first"
            while True:
                try:
                    got = yield f"got {got}"
                except ValueError as error:
                    got = f"error {error}"
                if got == "end":
                    return
        finally:
            log.append("closed")

    return handler


def test_send_throw_and_return(seen: Seen) -> None:
    """Sent values and thrown errors reach the handler, and its return value the one that drives it."""
    log: list[str] = []
    stream = seen.monitor(talk(log))("hi")
    assert next(stream) == "first"
    assert stream.send("a") == "got a"
    assert stream.throw(ValueError("b")) == "got error b"
    with pytest.raises(StopIteration) as stop:
        stream.send("end")
    assert stop.value.value == "returned"
    assert log == ["closed"]
    assert (seen.last.response, seen.last.stream_end) == ("firstgot agot error b", "completed")


def test_asend_and_athrow(seen: Seen) -> None:
    """The same for async streams."""

    async def drive() -> None:
        stream = seen.monitor(async_talk(log))("hi")
        assert await anext(stream) == "first"
        assert await stream.asend("a") == "got a"
        assert await stream.athrow(ValueError("b")) == "got error b"
        with pytest.raises(StopAsyncIteration):
            await stream.asend("end")

    log: list[str] = []
    asyncio.run(drive())
    assert log == ["closed"]
    assert (seen.last.response, seen.last.stream_end) == ("firstgot agot error b", "completed")


def test_yield_from_gives_the_return_value(seen: Seen) -> None:
    """A host that delegates to a monitored stream gets its return value."""

    @seen.monitor
    def handler(question: str) -> Generator[str, None, int]:
        yield "a"
        return 7

    def host() -> Generator[str, None, None]:
        value = yield from handler("q")
        yield str(value)

    assert list(host()) == ["a", "7"]


@pytest.mark.parametrize("how", ["close", "collected", "thrown"])
def test_a_stream_that_is_left(seen: Seen, how: str) -> None:
    """Closed, collected or ended by GeneratorExit: the handler is closed, and the stream was abandoned."""
    log: list[str] = []
    stream = seen.monitor(talk(log))("hi")
    next(stream)
    assert seen.inputs == []
    if how == "close":
        stream.close()
    elif how == "thrown":
        with pytest.raises(GeneratorExit):
            stream.throw(GeneratorExit())
    else:
        del stream
        gc.collect()
    assert log == ["closed"]
    assert (seen.last.stream_end, seen.last.error_type, seen.last.response) == ("abandoned", None, "first")


def test_an_async_stream_that_is_closed(seen: Seen) -> None:
    """aclose closes the handler, and the stream was abandoned."""

    async def drive() -> None:
        stream = seen.monitor(async_talk(log))("hi")
        await anext(stream)
        await stream.aclose()
        assert log == ["closed"]

    log: list[str] = []
    asyncio.run(drive())
    assert (seen.last.stream_end, seen.last.error_type) == ("abandoned", None)


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


def test_an_async_stream_that_is_collected(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    """A stream that nobody holds any more is closed by its loop, in silence."""

    async def drive() -> None:
        stream = seen.monitor(async_talk(log))("hi")
        await anext(stream)
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


def test_a_stream_that_breaks(seen: Seen) -> None:
    """A stream whose handler raises ended with an error: the parts so far are evaluated with its class."""

    @seen.monitor
    def handler(question: str) -> Generator[str, None, None]:
        yield "half an"
        raise LookupError("x")

    with pytest.raises(LookupError):
        list(handler("q"))
    assert (seen.last.stream_end, seen.last.error_type, seen.last.response) == ("error", "LookupError", "half an")


def test_a_thrown_error_that_the_handler_passes_on(seen: Seen) -> None:
    """An error that the consumer throws and the handler does not catch comes back as it is."""
    stream = seen.monitor(talk([]))("hi")
    next(stream)
    thrown = KeyError("x")
    with pytest.raises(KeyError) as caught:
        stream.throw(thrown)
    assert caught.value is thrown
    assert seen.last.stream_end == "error"


def test_counted_from_the_first_chunk(seen: Seen) -> None:
    """A stream that is made and never begun is no call."""
    log: list[str] = []
    for handler in (talk(log), async_talk(log)):
        stream = seen.monitor(handler)("hi")
        assert seen.outcomes == {}
        if isinstance(stream, Generator):
            stream.close()
        else:
            asyncio.run(stream.aclose())
    gc.collect()
    assert seen.outcomes == {}
    assert log == []


def test_chunks_pass_at_once(seen: Seen) -> None:
    """Each chunk reaches the consumer before the handler makes the next one; objects pass as they are."""
    made: list[Any] = []

    @seen.monitor
    def handler(question: str) -> Generator[Any, None, None]:
        for chunk in ({"text": "a"}, "b", b"c"):
            made.append(chunk)
            yield chunk

    for count, chunk in enumerate(handler("q"), start=1):
        assert len(made) == count
        assert chunk is made[-1]
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
