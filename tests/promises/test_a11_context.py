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
from opentelemetry.trace import Tracer

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


async def _coroutine(number: int) -> str:
    if number % 100 == 0:
        await asyncio.to_thread(str)
    return f"answer {number}"


def _stream(number: int) -> Iterator[str]:
    yield "answer "
    yield str(number)


class Requests:
    """Runs requests, each with a value, a baggage entry and a span of its own, and remembers what
    they left.
    """

    def __init__(self, tracer: Tracer, pipeline: Pipeline) -> None:
        self.tracer = tracer
        self.alive: list[weakref.ref[Value]] = []
        self.trace_of: dict[int, int] = {}  # by the id of the request's span
        self.sync = monitor(pipeline=pipeline, agent="sync")(lambda number: f"answer {number}")
        self.coroutine = monitor(pipeline=pipeline, agent="coroutine")(_coroutine)
        self.stream = monitor(pipeline=pipeline, agent="stream")(_stream)

    def enter(self, number: int) -> Any:
        value = Value()
        self.alive.append(weakref.ref(value))
        REQUEST.set(value)
        otel_context.attach(baggage.set_baggage("request", value))
        span = self.tracer.start_span(f"request {number}")
        otel_context.attach(trace.set_span_in_context(span))
        context = span.get_span_context()
        self.trace_of[context.span_id] = context.trace_id
        return span

    def serve(self, number: int) -> None:
        span = self.enter(number)
        assert self.sync(number) if number % 2 else list(self.stream(number))
        span.end()

    async def serve_in_a_loop(self, number: int) -> None:
        span = self.enter(number)
        assert await self.coroutine(number)
        span.end()

    async def gather(self, numbers: range) -> None:
        await asyncio.gather(*map(self.serve_in_a_loop, numbers))

    def serve_all(self, numbers: range) -> None:
        for number in numbers:
            copy_context().run(self.serve, number)


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


def test_no_value_outlives_its_request(
    telemetry: RecordedTelemetry, pooled: Pipeline, promise: Recorder
) -> None:
    """After a flush every value of 10,000 requests' contexts is dead, and each result belongs to
    its own request.
    """
    requests = Requests(telemetry.tracer(), pooled)
    for start in range(0, REQUESTS, BATCH):
        numbers = range(start, start + BATCH)
        if start // BATCH % 2:
            asyncio.run(requests.gather(numbers))
        else:
            together([partial(requests.serve_all, numbers[half::2]) for half in (0, 1)])
        assert pooled.flush(30.0)
    gc.collect()
    kept = sum(reference() is not None for reference in requests.alive)
    assert kept == 0, f"{kept} of {len(requests.alive)} values are still alive"
    assert pooled.accounting.outcomes()["evaluated"] == REQUESTS
    assert_own_traces(telemetry, requests.trace_of)
    promise(
        "A11",
        figure=f"{REQUESTS} requests: {kept} values alive, 0 spans and events in another's trace",
    )


def assert_own_traces(telemetry: RecordedTelemetry, trace_of: dict[int, int]) -> None:
    """Every run span is a child of one request's span, every event is of that span, and none is
    missing.
    """
    traces, parents = set(trace_of.values()), set()
    for span in telemetry.spans("evaluation "):
        assert span.context.trace_id in traces
        parent_id = span.parent.span_id if span.parent else 0
        if parent_id in trace_of:
            assert span.context.trace_id == trace_of[parent_id]
            assert parent_id not in parents
            parents.add(parent_id)
    assert len(parents) == REQUESTS
    events = telemetry.events()
    assert len(events) == 2 * REQUESTS
    assert all(trace_of[event.span_id] == event.trace_id for event in events)
