"""`annotate`: facts from inside a handler, of any shape, from its tasks and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

from agenteval_otel import annotate
from tests.instrumentation.support import Seen


def test_in_every_shape(seen: Seen) -> None:
    """Facts said in functions, coroutines, streams and async streams stand in their inputs, between chunks too."""

    @seen.monitor
    def plain(question: str) -> str:
        annotate(model="plain")
        return "a"

    @seen.monitor
    async def waiting(question: str) -> str:
        annotate(model="waiting")
        return "a"

    @seen.monitor
    def stream(question: str) -> Generator[str, None, None]:
        annotate(model="stream")
        yield "a"
        annotate(session_id="later")

    @seen.monitor
    async def async_stream(question: str) -> AsyncGenerator[str, None]:
        annotate(model="async_stream")
        yield "a"
        annotate(session_id="later")

    async def drain() -> None:
        async for _ in async_stream("q"):
            pass

    plain("q")
    asyncio.run(waiting("q"))
    list(stream("q"))
    asyncio.run(drain())
    assert [made.model for made in seen.inputs] == ["plain", "waiting", "stream", "async_stream"]
    assert [made.session_id for made in seen.inputs] == [None, None, "later", "later"]


def test_from_helpers_tasks_and_threads(seen: Seen) -> None:
    """What a handler calls, awaits, starts as a task or runs in a thread belongs to its call."""

    def helper() -> None:
        annotate(model="helper")

    async def in_task() -> None:
        annotate(session_id="task")

    @seen.monitor
    async def handler(question: str) -> str:
        helper()
        await asyncio.gather(in_task(), asyncio.to_thread(annotate, conversation_id="thread"))
        return "a"

    asyncio.run(handler("q"))
    assert (seen.last.model, seen.last.session_id, seen.last.conversation_id) == ("helper", "task", "thread")


def test_from_tasks_of_a_stream(seen: Seen) -> None:
    """What a stream runs in a thread, or as tasks, belongs to it."""

    @seen.monitor
    async def handler(question: str) -> AsyncGenerator[str, None]:
        context = contextvars.copy_context()
        annotate(model="direct")
        yield "a"
        context.run(annotate, session_id="copied")

    async def drain() -> None:
        async for _ in handler("q"):
            annotate(model="the consumer's")

    asyncio.run(drain())
    assert (seen.last.model, seen.last.session_id) == ("direct", "copied")


def test_the_innermost_call_is_meant(seen: Seen) -> None:
    """In nested handlers of any shape facts belong to the innermost one; outside of it to the outer one again."""

    @seen.monitor(agent="inner")
    def inner(question: str) -> str:
        annotate(model="inner")
        return "a"

    @seen.monitor(agent="outer-function")
    def function(question: str) -> str:
        inner(question)
        annotate(model="outer")
        return "b"

    @seen.monitor(agent="outer-stream")
    def stream(question: str) -> Generator[str, None, None]:
        yield inner(question)
        annotate(model="outer")

    @seen.monitor(agent="inner-stream")
    def inner_stream(question: str) -> Generator[str, None, None]:
        annotate(model="inner")
        yield "a"

    @seen.monitor(agent="outer-of-stream")
    def of_stream(question: str) -> str:
        text = "".join(inner_stream(question))
        annotate(model="outer")
        return text

    function("q")
    list(stream("q"))
    of_stream("q")
    assert [(made.agent, made.model) for made in seen.inputs] == [
        ("inner", "inner"), ("outer-function", "outer"), ("inner", "inner"), ("outer-stream", "outer"),
        ("inner-stream", "inner"), ("outer-of-stream", "outer"),
    ]  # fmt: skip


def test_an_unsampled_inner_call_does_not_annotate_the_outer(seen: Seen) -> None:
    """Facts of a call that is not evaluated are nobody's."""

    @seen.monitor(agent="inner", sample_rate=0.0)
    def inner(question: str) -> str:
        annotate(model="inner")
        return "a"

    @seen.monitor(agent="outer")
    def outer(question: str) -> str:
        return inner(question)

    outer("q")
    assert [(made.agent, made.model) for made in seen.inputs] == [("outer", None)]


def test_a_streams_facts_do_not_leak_to_its_consumer(seen: Seen) -> None:
    """Between two chunks the consumer's own monitored call is the one that runs."""
    stream_handler = seen.monitor(agent="stream")(lambda question: iter_words(question))

    def iter_words(question: str) -> Generator[str, None, None]:
        yield "a"
        yield "b"

    @seen.monitor(agent="consumer")
    def consumer(question: str) -> str:
        words = []
        for word in stream_handler(question):
            annotate(model="consumer")
            words.append(word)
        return "".join(words)

    assert consumer("q") == "ab"
    assert {made.agent: made.model for made in seen.inputs} == {"stream": None, "consumer": "consumer"}


def test_bad_facts_are_counted_and_the_rest_stands() -> None:
    """Unknown and unfitting facts are counted by name; the answer is evaluated with the others."""
    seen = Seen()

    @seen.monitor
    def handler(question: str) -> str:
        annotate(mood="good", cost="dear", model="m")
        return "x"

    assert handler("q") == "x"
    assert (seen.last.model, seen.last.cost) == ("m", None)
    assert seen.pipeline.accounting.failures == {"annotate:mood": 1, "annotate:cost": 1}
    assert seen.outcomes == {"evaluated": 1}
    seen.pipeline.shutdown(5)


def test_outside_of_any_call_it_does_nothing() -> None:
    """Without a monitored call around, with any facts, nothing happens."""
    annotate(model="m")
    annotate()
    annotate(**{"not a name": object()})


def test_tasks_that_outlive_the_call_do_no_harm(seen: Seen) -> None:
    """A task that annotates after its handler has answered reaches nobody and raises nothing."""

    @seen.monitor
    async def handler(question: str) -> str:
        tasks.append(asyncio.ensure_future(late()))
        return "a"

    async def late() -> None:
        await answered.wait()
        annotate(model="late")

    async def host() -> None:
        await handler("q")
        answered.set()
        await tasks[0]

    tasks: list[Any] = []
    answered = asyncio.Event()
    asyncio.run(host())
    assert seen.last.model is None


def test_threads_without_the_context_do_not_annotate(seen: Seen) -> None:
    """A bare thread does not belong to the call, and no other call is hit."""

    @seen.monitor
    def handler(question: str) -> str:
        thread = threading.Thread(target=contextvars.Context().run, args=(lambda: annotate(model="thread"),))
        thread.start()
        thread.join(10)
        return "a"

    handler("q")
    assert seen.last.model is None
