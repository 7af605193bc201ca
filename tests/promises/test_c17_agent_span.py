"""C17: every agent span is written exactly once, with its true times, whatever becomes of the
evaluation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from langfuse._client.span_processor import LangfuseSpanProcessor
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import Sampler, SamplingContext, SamplingDecision
from tests.promises.figures import Recorder
from tests.promises.host_sdk import HostSdk, Keeper
from tests.promises.programs import children
from tests.testing.computing import Computing
from tests.testing.doubles import Free, Thinking

CALLS = 40
HANG_S = 20.0
"""Bounds what hangs; no test waits for it."""


@pytest.fixture
def host() -> Iterator[HostSdk]:
    with closing(HostSdk()) as made:
        yield made


class Holding:
    """An evaluator that holds the background thread until it is released, and a dispatcher that
    lets it.
    """

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.evaluator = Free(action=self.score)

    def score(self, evaluation_input: Any) -> float:
        self.entered.set()
        self.release.wait(HANG_S)
        return 0.5

    def pipeline(
        self, host: HostSdk, *evaluators: Any, max_items: int = 2048, **settings: Any
    ) -> Pipeline:
        dispatcher = PoolDispatcher(max_items=max_items, stall_s=HANG_S)
        return host.pipeline(self.evaluator, *evaluators, dispatcher=dispatcher, **settings)


@pytest.fixture
def holding() -> Iterator[Holding]:
    made = Holding()
    yield made
    made.release.set()


def answers(pipeline: Pipeline, calls: int = CALLS, **options: Any) -> Callable[..., Any]:
    """Call a monitored handler so often."""

    @monitor(agent="support", pipeline=pipeline, **options)
    def handler(question: str) -> str:
        return "An answer to " + question

    for number in range(calls):
        handler(f"question {number}")
    return handler


def spans_once(host: HostSdk, calls: int) -> list[Any]:
    """The agent spans: each exactly once, ended after it began; and each says that the call is
    sampled.
    """
    spans = host.spans()
    ids = {span.context.span_id for span in spans}
    assert (len(spans), len(ids)) == (calls, calls)
    assert all(span.start_time <= span.end_time for span in spans)
    for name in ("agenteval.evaluation.sampled", "agenteval.evaluation.criteria"):
        assert all(name in span.attributes for span in spans)
    return spans


def test_it_ends_in_the_background_with_its_true_end_and_its_scores(
    host: HostSdk, holding: Holding
) -> None:
    """Nothing is written before the background thread has evaluated; then the span has the end that
    the call had.
    """
    pipeline = holding.pipeline(host, Free(criterion_name="tone", value=1.0))
    handler = answers(pipeline, 1)
    handler("another question")
    called_ns = time.time_ns()
    assert holding.entered.wait(HANG_S)
    assert host.spans() == []
    holding.release.set()
    assert pipeline.flush(HANG_S)
    for span in spans_once(host, 2):
        assert span.end_time <= called_ns + 1_000_000
        assert span.attributes["gen_ai.evaluation.fixed.score"] == 0.5
        assert span.attributes["gen_ai.evaluation.tone.score"] == 1.0
        assert span.attributes["gen_ai.agent.name"] == "support"
        assert span.status.status_code is StatusCode.UNSET
    assert host.spans("evaluation ") == []


@pytest.mark.parametrize("full", ["queue", "memory"])
def test_no_room_is_left(full: str, host: HostSdk, holding: Holding, promise: Recorder) -> None:
    """Where the queue, or the memory for spans that wait, has no room, a span ends on the caller's
    thread at once.
    """
    pipeline = holding.pipeline(host, max_items=4 if full == "queue" else 2048)
    before = MEMORY.open_spans.used_bytes
    room = MEMORY.open_spans.max_bytes - before if full == "memory" else 0
    assert MEMORY.open_spans.reserve(room)
    try:
        answers(pipeline)
        dropped = pipeline.accounting.outcomes()["dropped_queue_full"]
        assert dropped == (CALLS - 4 if full == "queue" else 0)
        assert len(host.spans()) == (dropped or CALLS)
    finally:
        MEMORY.open_spans.release(room)
    holding.release.set()
    assert pipeline.flush(HANG_S)
    spans_once(host, CALLS)
    # Spans that ended at once have run spans, unless their calls were dropped.
    assert len(host.with_results()) == CALLS - dropped
    assert len(host.spans("evaluation ")) == (0 if full == "queue" else CALLS)
    assert MEMORY.open_spans.used_bytes == before
    promise("C17", figure=f"queue full: {CALLS} of {CALLS}")


class AfterAnswer(Sampler):
    """Says only when the answer is there that the call is sampled."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return SamplingDecision(True, 1.0, "answer", settled=context.answer is not None)


@pytest.mark.parametrize("sampler", [None, AfterAnswer()])
def test_load_shedding(host: HostSdk, sampler: Any) -> None:
    """A call that is shed when its answer is there already has its span; one that is shed before
    never had one.
    """
    pipeline = host.pipeline(Free(), sampler=sampler)

    @monitor(agent="support", pipeline=pipeline)
    def handler(question: str) -> str:
        pipeline.load_shedder.look()
        pipeline.load_shedder.keep = 0.0  # as the look of a background thread under load sets it
        return "An answer."

    handler("q")
    handler("q")
    assert pipeline.flush(HANG_S)
    outcomes = pipeline.accounting.outcomes()
    if sampler is None:
        assert (outcomes["evaluated"], outcomes["shed"]) == (1, 1)
        spans_once(host, 1)
    else:
        assert outcomes["shed"] == 2
        spans_once(host, 2)


def raises(evaluation_input: Any) -> Any:
    raise RuntimeError("broken")


def leaves(evaluation_input: Any) -> Any:
    raise SystemExit(3)


async def never_ends(evaluation_input: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "evaluator",
    [
        Free(action=raises),
        Free(action=leaves),
        Func.of(raises, execution="thread"),
        Func.of(leaves, execution="thread"),
        Thinking(action=raises),
        Thinking(action=never_ends, timeout_s=0.2),
    ],
    ids=[
        "inline raises",
        "inline leaves",
        "thread raises",
        "thread leaves",
        "async raises",
        "async hangs",
    ],
)
def test_an_evaluator_fails(host: HostSdk, evaluator: Any) -> None:
    """Whatever an evaluator raises, and wherever it runs: each span once, and below it a run span
    with the scores of the others.
    """
    pipeline = host.pipeline(evaluator, Free(criterion_name="fine"))
    answers(pipeline, 10)
    assert pipeline.flush(HANG_S)
    agents = {span.context.span_id for span in spans_once(host, 10)}
    runs = host.with_results()
    assert len(runs) == 10
    assert {run.parent.span_id for run in runs if run.parent} == agents
    for run in runs:
        attributes = run.attributes or {}
        assert attributes["gen_ai.evaluation.fine.score"] == 0.5
        assert "gen_ai.evaluation.fixed.score" not in attributes


def test_it_waits_for_no_thread_and_no_judge(host: HostSdk, holding: Holding) -> None:
    """The span is written while a thread and a judge are still at it; the results come later, on a
    run span.
    """

    async def waits(evaluation_input: Any) -> Any:
        await asyncio.to_thread(holding.release.wait, HANG_S)

    slow = Func.of(
        lambda value: holding.release.wait(HANG_S), criterion_name="slow", execution="thread"
    )
    ready = threading.Event()
    last = Free(criterion_name="last", action=lambda value: ready.set() or 1.0)
    pipeline = host.pipeline(slow, Thinking(action=waits), Free(criterion_name="fine"), last)
    for _ in range(2):  # the next answer is begun when the first one's span has ended
        ready.clear()
        answers(pipeline, 1)
        assert ready.wait(HANG_S)
    assert host.spans()
    assert host.with_results() == []
    holding.release.set()
    assert pipeline.flush(HANG_S)
    spans_once(host, 2)
    assert [span.name for span in host.with_results()] == ["evaluation support"] * 2


def test_an_evaluator_holds_the_background_thread(host: HostSdk, holding: Holding) -> None:
    """The thread is replaced, and every span is written while the one that hangs still hangs."""

    def hangs_once(evaluation_input: Any) -> float:
        return 0.5 if holding.entered.is_set() else holding.score(evaluation_input)

    pipeline = host.pipeline(Free(action=hangs_once), dispatcher=PoolDispatcher(stall_s=0.1))
    answers(pipeline)
    assert pipeline.flush(HANG_S)
    assert not holding.release.is_set()
    spans_once(host, CALLS)


def test_the_worker_process_is_killed(host: HostSdk) -> None:
    """The spans have ended before; nothing of them is lost or written again with the worker
    process.
    """
    others = children()
    pipeline = host.pipeline(Computing(cpu_s=0.05), Free(criterion_name="fine"))
    answers(pipeline, 1)
    assert pipeline.flush(HANG_S)
    assert ["error.type" in event.attributes for event in host.events()] == [False, False]
    with killing_children(others):
        answers(pipeline, 10)
        assert pipeline.flush(HANG_S)
    spans_once(host, 11)
    runs = host.with_results()
    assert len(runs) == 11
    assert all((run.attributes or {})["gen_ai.evaluation.fine.score"] == 0.5 for run in runs)


@contextlib.contextmanager
def killing_children(spared: set[int]) -> Iterator[None]:
    """Kill this process's child processes during the block, as a kernel out of memory does."""
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.01):
            for child in children() - spared:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()


@pytest.mark.parametrize("where", ["capture", "ground truth", "storage"])
def test_another_part_fails(host: HostSdk, where: str) -> None:
    """What breaks around the evaluation costs the result, not the span."""

    async def gone(*_: Any) -> Any:
        raise OSError("gone")

    settings, options = {}, {}
    if where == "ground truth":
        settings = {"ground_truth": SimpleNamespace(find=gone)}
    elif where == "storage":
        settings = {"storage": (SimpleNamespace(type="failing", save_result=gone),)}
    else:
        options = {"capture": lambda arguments, answer: 1 / 0}
    pipeline = host.pipeline(Free(), **settings)
    answers(pipeline, 10, **options)
    pipeline.flush(HANG_S)
    spans_once(host, 10)


def test_a_shutdown_comes_between(host: HostSdk, holding: Holding) -> None:
    """What a shutdown drops, and what comes after it, has its span."""
    pipeline = holding.pipeline(host)
    handler = answers(pipeline)
    assert not pipeline.shutdown(0.2)
    handler("too late")
    holding.release.set()
    assert pipeline.accounting.outcomes()["dropped_shutdown"] == CALLS + 1
    spans_once(host, CALLS + 1)


def small_queue(exporter: Any) -> BatchSpanProcessor:
    return BatchSpanProcessor(
        exporter, max_queue_size=128, max_export_batch_size=32, schedule_delay_millis=50
    )


@pytest.mark.parametrize(
    ("processor", "calls", "evaluators"),
    [(BatchSpanProcessor, 2_000, 1), (small_queue, 300, 1), (small_queue, 100, 6)],
)
def test_a_burst_loses_none_of_the_hosts_spans_and_none_of_ours(
    processor: Any, calls: int, evaluators: int, promise: Recorder
) -> None:
    """Calls at once beside spans of the application, before an exporter that takes 20 ms: all
    arrive.
    """
    with closing(HostSdk(Keeper(takes_s=0.02), processor)) as host:
        failing = [
            Free(criterion_name=f"failing_{number}", action=raises)
            for number in range(evaluators - 1)
        ]
        pipeline = host.pipeline(Free(), *failing)
        tracer = host.tracer_provider.get_tracer("application")

        handler = answers(pipeline, 0)
        for number in range(calls):
            handler(f"question {number}")
            if number % 10 == 0:
                tracer.start_span("application").end()
        assert pipeline.flush(60.0)
        own, agents = host.spans("application"), spans_once(host, calls)
        promise(
            "C17",
            figure=f"burst of {calls} beside {calls // 10} spans of the application: {len(own)} and "
            f"{len(agents)} arrive",
        )
        assert len(own) == calls // 10
        name = "invoke_agent support" if evaluators == 1 else "evaluation support"
        assert [span.name for span in host.with_results()] == [name] * calls
        assert len(host.spans("evaluation failing_")) == calls * (evaluators - 1)
        assert pipeline.accounting.outcomes()["evaluated"] == calls
        assert len(host.events()) == calls * evaluators


class Naming(SpanProcessor):
    """A processor of the application's own that sets an attribute on each span's start, as
    Baggage's does.
    """

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("tenant", "a")


class Batching(BatchSpanProcessor):
    on_start = Naming.on_start  # type: ignore[assignment]


class Wrapping(SpanProcessor):
    def __init__(self, exporter: Any) -> None:
        inner = BatchSpanProcessor(exporter)
        self.on_start, self.on_end = inner.on_start, inner.on_end  # type: ignore[method-assign]
        self.shutdown, self.force_flush = inner.shutdown, inner.force_flush  # type: ignore[method-assign]


def langfuse(exporter: Any) -> Any:
    return LangfuseSpanProcessor(
        public_key="public",
        secret_key="secret",
        base_url="http://127.0.0.1:1",
        span_exporter=exporter,
        should_export_span=lambda span: True,
    )


def behind_a_provider(provider: Any) -> Any:
    """A provider that stands before the SDK's, as Logfire's does; `provider` is what it is called
    there.
    """
    return SimpleNamespace(
        provider=provider, get_tracer=provider.get_tracer, force_flush=provider.force_flush
    )


def opaque(provider: Any) -> Any:
    """A provider of which nothing can be seen."""
    return SimpleNamespace(get_tracer=provider.get_tracer, force_flush=provider.force_flush)


@pytest.mark.parametrize(
    ("processor", "wrap", "setting", "late"),
    [
        (BatchSpanProcessor, None, "background", True),
        (BatchSpanProcessor, None, "caller", False),
        (BatchSpanProcessor, behind_a_provider, "background", True),
        (BatchSpanProcessor, opaque, "background", False),
        (SimpleSpanProcessor, None, "background", False),
        (Batching, None, "background", False),
        (Wrapping, None, "background", False),
        (Wrapping, behind_a_provider, "background", False),
        (langfuse, None, "background", False),
    ],
)
def test_where_the_span_ends(
    processor: Any, wrap: Any, setting: str, late: bool, holding: Holding, promise: Recorder
) -> None:
    """On the background thread behind the SDK's batch processors; else before the handler's answer
    is back.
    """
    with closing(HostSdk(processor=processor)) as host:
        provider = None if wrap is None else wrap(host.tracer_provider)
        pipeline = holding.pipeline(host, tracer_provider=provider, agent_span_end=setting)
        answers(pipeline, 1)
        assert len(host.spans()) == (0 if late else 1)
        holding.release.set()
        assert pipeline.flush(HANG_S)
        (span,), (carrier,) = host.spans(), host.with_results()
        assert (carrier.context.span_id == span.context.span_id) is late
        assert late or carrier.parent.span_id == span.context.span_id
        assert carrier.attributes["gen_ai.evaluation.fixed.score"] == 0.5
        promise(
            "C17", figure="8 kinds of processors: each span once, on the thread where it may end"
        )


def test_a_processor_that_is_added_later_is_noticed(host: HostSdk, holding: Holding) -> None:
    """The next call's span ends on the caller's thread, so that the processor sees start and end
    there.
    """
    pipeline = holding.pipeline(host)
    handler = answers(pipeline, 1)
    assert host.spans() == []
    host.tracer_provider.add_span_processor(Naming())
    handler("after")
    (span,) = host.spans()
    assert span.attributes["tenant"] == "a"
    holding.release.set()
    assert pipeline.flush(HANG_S)
    spans_once(host, 2)
