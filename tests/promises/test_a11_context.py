"""A11: what a request puts into its context is neither kept nor mixed up with another request's."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.programs import together

REQUESTS = 10_000
BATCH = 500
REQUEST: ContextVar[Any] = ContextVar("request", default=None)


class Value:
    """What a request puts into its context."""


class Requests:
    """Runs requests, each with a value, a baggage entry and a span of its own, and remembers what
    they left.
    """

    def __init__(self, telemetry: RecordedTelemetry, pipeline: Pipeline) -> None:
        self.tracer = telemetry.tracer()
        self.alive: list[weakref.ref[Value]] = []
        self.trace_of: dict[str, int] = {}
        self.sync = monitor(pipeline=pipeline, agent="sync")(lambda number: f"answer {number}")
        self.coroutine = monitor(pipeline=pipeline, agent="coroutine")(self._answer)
        self.stream = monitor(pipeline=pipeline, agent="stream")(self._chunks)

    @staticmethod
    async def _answer(number: int) -> str:
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: None
        ) if number % 100 == 0 else None
        return f"answer {number}"

    @staticmethod
    def _chunks(number: int) -> Iterator[str]:
        yield "answer "
        yield str(number)

    def enter(self, number: int) -> Any:
        value = Value()
        self.alive.append(weakref.ref(value))
        REQUEST.set(value)
        otel_context.attach(baggage.set_baggage("request", value))
        span = self.tracer.start_span(f"request {number}")
        otel_context.attach(trace.set_span_in_context(span))
        self.trace_of[f"{span.get_span_context().span_id:016x}"] = span.get_span_context().trace_id
        return span

    def serve(self, number: int) -> None:
        span = self.enter(number)
        assert self.sync(number) if number % 2 else list(self.stream(number))
        span.end()

    async def serve_in_a_loop(self, number: int) -> None:
        span = self.enter(number)
        assert await self.coroutine(number)
        span.end()


@pytest.fixture
def pooled(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    made = pipeline_of(
        ResponseHealth(),
        Func.of(lambda value: True, criterion_name="slow"),
        sheds=False,
        storage=(telemetry.storage(detail="result"),),
        dispatcher=PoolDispatcher(max_items=2 * BATCH),
    )
    yield made
    assert made.shutdown(10.0)


async def _gathered(requests: Requests, numbers: range) -> None:
    await asyncio.gather(*(requests.serve_in_a_loop(number) for number in numbers))


def _some(requests: Requests, numbers: range) -> None:
    for number in numbers:
        copy_context().run(requests.serve, number)


def test_no_value_outlives_its_request(
    telemetry: RecordedTelemetry, pooled: Pipeline, promise: Recorder
) -> None:
    """After a flush every value of 10,000 requests' contexts is dead, and each result belongs to
    its own request.
    """
    requests = Requests(telemetry, pooled)
    for start in range(0, REQUESTS, BATCH):
        numbers = range(start, start + BATCH)
        if start // BATCH % 2:
            asyncio.run(_gathered(requests, numbers))
        else:
            together([partial(_some, requests, numbers[half::2]) for half in (0, 1)])
        assert pooled.flush(30.0)
    gc.collect()
    kept = sum(reference() is not None for reference in requests.alive)
    assert kept == 0, f"{kept} of {len(requests.alive)} values are still alive"
    assert pooled.accounting.outcomes()["evaluated"] == REQUESTS
    assert_own_traces(telemetry, requests)
    promise(
        "A11",
        figure=f"{REQUESTS} requests: {kept} values alive, 0 spans and events in another's trace",
    )


def assert_own_traces(telemetry: RecordedTelemetry, requests: Requests) -> None:
    """Every run span is a child of one request's span, every event is of that span, and none is
    missing.
    """
    runs = telemetry.spans("evaluation ")
    children = [
        span for span in runs if span.parent and f"{span.parent.span_id:016x}" in requests.trace_of
    ]
    parents = {f"{span.parent.span_id:016x}" for span in children}
    assert len(parents) == len(children) == REQUESTS
    assert all(
        span.context.trace_id == requests.trace_of[f"{span.parent.span_id:016x}"]
        for span in children
    )
    in_traces = set(requests.trace_of.values())
    assert all(span.context.trace_id in in_traces for span in runs)
    events = telemetry.events()
    assert len(events) == 2 * REQUESTS
    assert all(requests.trace_of[f"{event.span_id:016x}"] == event.trace_id for event in events)
