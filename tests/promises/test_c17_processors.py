"""C17: where a processor of the host's may act on spans while the handler runs, agent spans end on its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langfuse._client.span_processor import LangfuseSpanProcessor
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from agenteval_otel import monitor
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.telemetry.backpressure import Backpressure
from tests.promises.figures import Recorder
from tests.promises.host_sdk import HostSdk
from tests.testing.doubles import Free

HANG_S = 20.0
"""Bounds what hangs; no test waits for it."""


class Naming(SpanProcessor):
    """A processor of the application's own that sets an attribute on each span's start, as Baggage's does."""

    def __init__(self) -> None:
        self.ended_on: list[int] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("tenant", "a")

    def on_end(self, span: Any) -> None:
        self.ended_on.append(threading.get_ident())


class Batching(BatchSpanProcessor):
    """The SDK's, with a start of its own."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("tenant", "a")


class Wrapping(SpanProcessor):
    """Stands before another one, as Logfire's do."""

    def __init__(self, exporter: Any) -> None:
        self._processor = BatchSpanProcessor(exporter)

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._processor.on_start(span, parent_context)

    def on_end(self, span: Any) -> None:
        self._processor.on_end(span)

    def shutdown(self) -> None:
        self._processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._processor.force_flush(timeout_millis)


def langfuse(exporter: Any) -> Any:
    return LangfuseSpanProcessor(
        public_key="public", secret_key="secret", base_url="http://127.0.0.1:1", span_exporter=exporter,
        should_export_span=lambda span: True,
    )  # fmt: skip


class Standing:
    """A provider that stands before the SDK's, as Logfire's does; `provider` is what it is called there."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider

    def get_tracer(self, *args: Any, **fields: Any) -> Any:
        return self.provider.get_tracer(*args, **fields)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self.provider.force_flush(timeout_millis))


class Strange:
    """A provider of which nothing can be seen."""

    def __init__(self, provider: Any) -> None:
        self.get_tracer, self.force_flush = provider.get_tracer, provider.force_flush


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.release.set()


class Held:
    """An evaluator that holds the background thread until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.evaluator = Free(action=lambda given: 0.5 if self.release.wait(HANG_S) else 0.0)
        self.dispatcher = PoolDispatcher(stall_s=HANG_S)


def handler_of(pipeline: Pipeline) -> Callable[[str], str]:
    @monitor(agent="support", pipeline=pipeline)
    def handler(question: str) -> str:
        return "An answer."

    return handler


@pytest.mark.parametrize(
    ("processor", "wrap", "late"),
    [
        (BatchSpanProcessor, None, True), (BatchSpanProcessor, Standing, True), (BatchSpanProcessor, Strange, False),
        (SimpleSpanProcessor, None, False), (Batching, None, False), (Wrapping, None, False),
        (Wrapping, Standing, False), (langfuse, None, False),
    ],
    ids=["the SDK's", "the SDK's behind a provider", "unseen", "simple", "a subclass with on_start", "a wrapper",
         "a wrapper behind a provider", "Langfuse's"],
)  # fmt: skip
def test_where_the_span_ends(processor: Any, wrap: Any, late: bool, held: Held, promise: Recorder) -> None:
    """On the background thread behind the SDK's batch processors; else before the handler's answer is back."""
    host = HostSdk(processor=processor)
    try:
        pipeline = host.pipeline(
            held.evaluator, dispatcher=held.dispatcher,
            **({} if wrap is None else {"tracer_provider": wrap(host.tracer_provider)}),
        )  # fmt: skip
        handler_of(pipeline)("q")
        assert len(host.spans()) == (0 if late else 1)
        held.release.set()
        assert pipeline.flush(HANG_S)
        (span,), (run,) = host.spans(), host.spans("evaluation ")
        assert span.attributes is not None
        assert run.parent is not None
        assert ("gen_ai.evaluation.fixed.score" in span.attributes) is late
        assert run.parent.span_id == span.context.span_id
        assert run.attributes is not None
        assert run.attributes["gen_ai.evaluation.fixed.score"] == 0.5
        promise("C17", figure="8 kinds of processors: each span once, on the thread where it may end")
    finally:
        host.close()


def test_by_setting(held: Held) -> None:
    """``agent_span_end: caller``: at once, whatever the processors."""
    host = HostSdk()
    try:
        pipeline = host.pipeline(held.evaluator, dispatcher=held.dispatcher, agent_span_end="caller")
        handler_of(pipeline)("q")
        assert len(host.spans()) == 1
        held.release.set()
        assert pipeline.flush(HANG_S)
        assert len(host.spans()) == len(host.spans("evaluation ")) == 1
    finally:
        host.close()


def test_a_processor_that_is_added_later_is_noticed(held: Held) -> None:
    """The next call's span ends on the caller's thread, so that the processor sees start and end there."""
    host = HostSdk()
    try:
        pipeline = host.pipeline(held.evaluator, dispatcher=held.dispatcher)
        handler = handler_of(pipeline)
        handler("before")
        assert host.spans() == []
        added = Naming()
        host.tracer_provider.add_span_processor(added)
        handler("after")
        assert added.ended_on == [threading.get_ident()]
        (span,) = host.spans()
        assert span.attributes is not None
        assert span.attributes["tenant"] == "a"
        held.release.set()
        assert pipeline.flush(HANG_S)
        assert len({span.context.span_id for span in host.spans()}) == len(host.spans()) == 2
    finally:
        host.close()


def test_langfuses_queue_is_waited_for() -> None:
    """A subclass of the SDK's batch processor has its queue: emission waits for room in that, too."""
    host = HostSdk(processor=langfuse)
    try:
        backpressure = Backpressure()
        assert backpressure.has_room([host.tracer_provider])
        (processor,) = host.tracer_provider._active_span_processor._span_processors
        queue = processor._batch_processor._queue
        queue.extendleft([None] * 1_500)
        assert not backpressure.has_room([host.tracer_provider])
        queue.clear()
    finally:
        host.close()


def test_behind_what_cannot_be_seen_512_items_go_out_in_five_seconds() -> None:
    """Of a provider that shows no processors nobody knows how full its queue is."""
    now = [0.0]
    backpressure = Backpressure(lambda: now[0])
    strange = object()
    assert backpressure.has_room([strange])
    backpressure.sent(512)
    assert not backpressure.has_room([strange])
    now[0] = 5.0
    assert backpressure.has_room([strange])
