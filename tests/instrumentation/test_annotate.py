"""`annotate`: facts from inside a handler, of any shape, from its tasks and threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from opentelemetry import trace

from agenteval_otel import annotate, monitor
from agenteval_otel.capture.calls import EVALUATING
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.testing import RecordedTelemetry
from tests.instrumentation.support import Seen
from tests.testing.doubles import Free


def test_in_every_shape(seen: Seen) -> None:
    """Facts said in functions, coroutines, streams and async streams stand in their inputs, between
    chunks too.
    """

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


def test_what_an_evaluator_annotates_is_of_no_answer(pipeline: Pipeline) -> None:
    """No call runs then: nothing is kept, and the next answer has nothing of it."""
    seen: list[EvaluationInput] = []

    def annotating(evaluation_input: EvaluationInput) -> Score:
        annotate(model="from an evaluator", tags={"of": "an evaluator"})
        seen.append(evaluation_input)
        return Score(value=1.0)

    handler = monitor(pipeline=pipeline, evaluators=[Free(action=annotating)])(str.upper)
    handler("one")
    handler("two")
    assert [(each.model, each.tags) for each in seen] == [(None, None)] * 2
    assert EVALUATING.facts is None


def test_tags_of_several_calls_add_up(seen: Seen) -> None:
    """A later value of a key replaces the earlier one; the host's own mapping stays as it was."""
    shared = {"tenant": "a", "plan": "free"}

    @seen.monitor
    def handler(question: str) -> str:
        annotate(tags=shared, prompt_version="1")
        annotate(tags={"plan": "paid", "region": "eu"}, prompt_version="2")
        for number in range(1_000):
            annotate(tags={"step": number})
        return "a"

    handler("q")
    assert seen.last.prompt_version == "2"
    assert seen.last.tags == {"tenant": "a", "plan": "paid", "region": "eu", "step": "999"}
    assert shared == {"tenant": "a", "plan": "free"}


def test_from_tasks_and_threads(seen: Seen) -> None:
    """A task or a thread of a handler belongs to its call; a thread without its context and a late
    task do not.
    """

    async def late() -> None:
        await answered.wait()
        annotate(agent_id="late")

    @seen.monitor
    async def handler(question: str) -> str:
        tasks.append(asyncio.ensure_future(late()))
        await asyncio.gather(in_task(), asyncio.to_thread(annotate, conversation_id="thread"))
        await asyncio.to_thread(
            contextvars.Context().run, lambda: annotate(response_id="no context")
        )
        return "a"

    async def in_task() -> None:
        annotate(session_id="task")

    async def host() -> None:
        await handler("q")
        answered.set()
        await tasks[0]

    tasks: list[Any] = []
    answered = asyncio.Event()
    asyncio.run(host())
    assert (seen.last.session_id, seen.last.conversation_id) == ("task", "thread")
    assert (seen.last.response_id, seen.last.agent_id) == (None, seen.last.agent)


def test_a_streams_facts_and_its_consumers_are_not_mixed(seen: Seen) -> None:
    """Between two chunks the consumer's own call is the one that runs; a copy of the stream's
    context belongs to it.
    """

    @seen.monitor(agent="stream")
    def stream(question: str) -> Generator[str, None, None]:
        context = contextvars.copy_context()
        yield "a"
        context.run(annotate, session_id="copied")

    @seen.monitor(agent="consumer")
    def consumer(question: str) -> str:
        chunks = []
        for chunk in stream(question):
            annotate(model="consumer")
            chunks.append(chunk)
        return "".join(chunks)

    annotate(model="outside of any call")
    assert consumer("q") == "a"
    assert [(made.agent, made.model, made.session_id) for made in seen.inputs] == [
        ("stream", None, "copied"),
        ("consumer", "consumer", None),
    ]


def test_the_innermost_call_is_meant(seen: Seen) -> None:
    """In nested handlers of any shape facts belong to the innermost, sampled or not; after it to
    the outer again.
    """

    @seen.monitor(agent="inner")
    def inner(question: str) -> str:
        annotate(model="inner")
        return "a"

    @seen.monitor(agent="unsampled", sample_rate=0.0)
    def unsampled(question: str) -> None:
        annotate(model="unsampled", session_id="unsampled")

    @seen.monitor(agent="outer-function")
    def function(question: str) -> str:
        inner(question)
        annotate(model="outer")
        unsampled(question)
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
        ("inner", "inner"),
        ("outer-function", "outer"),
        ("inner", "inner"),
        ("outer-stream", "outer"),
        ("inner-stream", "inner"),
        ("outer-of-stream", "outer"),
    ]
    assert {made.session_id for made in seen.inputs} == {None}


@pytest.mark.parametrize("begun", [True, False], ids=["host's span", "own span"])
def test_a_feature_flag_names_the_arm(begun: bool, telemetry: RecordedTelemetry) -> None:
    """Of events on the current span, the host's or the handler's own; what is annotated stands, and
    two flags say nothing."""
    seen = Seen(storage=() if begun else [telemetry.storage()])

    @seen.monitor
    def handler(flags: str) -> str:
        for flag in flags.split():
            key, _, variant = flag.partition("=")
            event = {"feature_flag.key": key, "feature_flag.result.variant": variant}
            trace.get_current_span().add_event("feature_flag.evaluation", event)
        if flags == "short=a":
            annotate(arm="own")
        if flags == "short=c":
            annotate(experiment="own")
        return "a"

    tracer = telemetry.tracer()
    for flags in ("short=b", "short=a", "short=c", "short=a long=b", ""):
        with tracer.start_as_current_span("request") if begun else contextlib.nullcontext():
            handler(flags)
    seen.pipeline.shutdown(5)
    assert [(made.experiment, made.arm) for made in seen.inputs] == [
        ("short", "b"),
        (None, "own"),
        ("own", None),
        (None, None),
        (None, None),
    ]


def test_hedged_and_repeated_calls(seen: Seen) -> None:
    """Each attempt is a call with its own facts: one that raised, one that was overtaken and
    cancelled, one that won.
    """

    @seen.monitor
    async def handler(attempt: str) -> str:
        annotate(session_id=attempt)
        if attempt == "failed":
            raise ConnectionError
        if attempt == "slow":
            await asyncio.Event().wait()
        annotate(model="m")
        return attempt

    async def host() -> None:
        with pytest.raises(ConnectionError):
            await handler("failed")
        tasks = [asyncio.ensure_future(handler(attempt)) for attempt in ("slow", "fast")]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == ["fast"]
        for task in left:
            task.cancel()
        await asyncio.wait(left)

    asyncio.run(host())
    facts = [(each.session_id, each.model, each.error_type) for each in seen.inputs]
    assert facts == [
        ("failed", None, "ConnectionError"),
        ("fast", "m", None),
        ("slow", None, "CancelledError"),
    ]
