"""C17: every agent span is written exactly once, with its true times, whatever becomes of the evaluation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from agenteval_otel import monitor
from agenteval_otel.evaluators import Func
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.sampling import Sampler, SamplingContext, SamplingDecision
from tests.promises.figures import Recorder
from tests.promises.host_sdk import HostSdk, Keeper
from tests.testing.computing import Computing
from tests.testing.doubles import Free, Thinking

CALLS = 40
HANG_S = 20.0
"""Bounds what hangs; no test waits for it."""


@pytest.fixture
def host() -> Iterator[HostSdk]:
    made = HostSdk()
    yield made
    made.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets go of what a test holds, at its end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def answers(pipeline: Pipeline, calls: int = CALLS, **options: Any) -> Callable[..., Any]:
    """Call a monitored handler so often."""

    @monitor(agent="support", pipeline=pipeline, **options)
    def handler(question: str) -> str:
        return "An answer to " + question

    for number in range(calls):
        handler(f"question {number}")
    return handler


def once(host: HostSdk, calls: int) -> list[Any]:
    """The agent spans: each exactly once, ended after it began; and each says that the call is sampled."""
    spans = host.spans()
    ids = {span.context.span_id for span in spans}
    assert (len(spans), len(ids)) == (calls, calls)
    assert all(span.start_time <= span.end_time for span in spans)
    for name in ("agenteval.evaluation.sampled", "agenteval.evaluation.criteria"):
        assert all(name in span.attributes for span in spans)
    return spans


def test_it_ends_in_the_background_with_its_true_end_and_its_scores(host: HostSdk, release: threading.Event) -> None:
    """Nothing is written before the background thread has evaluated; then the span has the end that the call had."""
    entered = threading.Event()

    def score(evaluation_input: Any) -> float:
        entered.set()
        release.wait(HANG_S)
        return 0.25

    pipeline = host.pipeline(
        Free(criterion_name="quality", action=score), Free(criterion_name="tone", value=1.0),
        dispatcher=PoolDispatcher(stall_s=HANG_S),
    )  # fmt: skip
    handler = answers(pipeline, 1)
    handler("another question")
    called_ns = time.time_ns()
    assert entered.wait(HANG_S)
    assert host.spans() == []
    release.set()
    assert pipeline.flush(HANG_S)
    for span in once(host, 2):
        assert span.end_time <= called_ns + 1_000_000
        assert span.attributes["gen_ai.evaluation.quality.score"] == 0.25
        assert span.attributes["gen_ai.evaluation.tone.score"] == 1.0
        assert span.attributes["gen_ai.agent.name"] == "support"
        assert span.status.status_code is StatusCode.UNSET
    runs = host.spans("evaluation ")
    assert {run.parent.span_id for run in runs} == {span.context.span_id for span in host.spans()}


def test_labels_and_failures_stand_on_it(host: HostSdk) -> None:
    """A label beside its score; of an evaluator that failed neither, and of a handler that raised its type."""

    def fails(evaluation_input: Any) -> float:
        raise ValueError("private text")

    pipeline = host.pipeline(Free(criterion_name="broken", action=fails), Func.of(lambda given: True, name="f",
                             criterion_name="fine", execution="inline"))  # fmt: skip

    @monitor(agent="support", pipeline=pipeline)
    def handler(question: str) -> str:
        if "raise" in question:
            raise TimeoutError("private text")
        return "An answer."

    handler("q")
    with pytest.raises(TimeoutError):
        handler("raise")
    assert pipeline.flush(HANG_S)
    fine, raised = sorted(once(host, 2), key=lambda span: span.start_time)
    assert (fine.attributes["gen_ai.evaluation.fine.score"], fine.attributes["gen_ai.evaluation.fine.label"]) == (
        1.0, "pass",
    )  # fmt: skip
    assert not [name for name in fine.attributes if ".broken." in name]
    assert (raised.status.status_code, raised.attributes["error.type"]) == (StatusCode.ERROR, "TimeoutError")
    assert "private" not in repr([dict(span.attributes) for span in (fine, raised)])


# --- whatever becomes of the evaluation ------------------------------------------------------------------------------


def test_the_queue_is_full(host: HostSdk, release: threading.Event, promise: Recorder) -> None:
    """What finds no room in the queue ends on the caller's thread, at once."""
    pipeline = host.pipeline(
        Free(action=lambda given: release.wait(HANG_S)), dispatcher=PoolDispatcher(max_items=4, stall_s=HANG_S)
    )
    answers(pipeline)
    dropped = pipeline.accounting.outcomes()["dropped_queue_full"]
    assert dropped == CALLS - 4
    assert len(host.spans()) == dropped
    release.set()
    assert pipeline.flush(HANG_S)
    once(host, CALLS)
    promise("C17", figure=f"queue full: {CALLS} of {CALLS}")


def test_no_memory_is_left_for_open_spans(host: HostSdk, release: threading.Event) -> None:
    """Where the spans that wait have no room any more, they end on the caller's thread, and the call is evaluated."""
    from agenteval_otel.runtime.memory import MEMORY

    pipeline = host.pipeline(Free(action=lambda given: release.wait(HANG_S)), dispatcher=PoolDispatcher(stall_s=HANG_S))
    before = MEMORY.open_spans.used_bytes
    room = MEMORY.open_spans.max_bytes - before
    assert MEMORY.open_spans.reserve(room)
    try:
        answers(pipeline)
        assert len(host.spans()) == CALLS
    finally:
        MEMORY.open_spans.release(room)
    release.set()
    assert pipeline.flush(HANG_S)
    once(host, CALLS)
    assert len(host.spans("evaluation ")) == CALLS
    assert MEMORY.open_spans.used_bytes == before


class AfterAnswer(Sampler):
    """Says only when the answer is there that the call is sampled."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return SamplingDecision(True, 1.0, "answer", settled=context.answer is not None)


@pytest.mark.parametrize("sampler", [None, AfterAnswer()])
def test_load_shedding(host: HostSdk, sampler: Any) -> None:
    """A call that is shed when its answer is there already has its span; one that is shed before never had one."""
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
        once(host, 1)
    else:
        assert outcomes["shed"] == 2
        once(host, 2)


def raises(evaluation_input: Any) -> Any:
    raise RuntimeError("broken")


def leaves(evaluation_input: Any) -> Any:
    raise SystemExit(3)


async def never_ends(evaluation_input: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "evaluator",
    [
        Free(action=raises), Free(action=leaves), Func.of(raises, execution="thread"),
        Func.of(leaves, execution="thread"), Thinking(action=raises),
        Thinking(action=never_ends, timeout_s=0.2),
    ],
    ids=["inline raises", "inline leaves", "thread raises", "thread leaves", "async raises", "async hangs"],
)  # fmt: skip
def test_an_evaluator_fails(host: HostSdk, evaluator: Any) -> None:
    """Whatever an evaluator raises, and wherever it runs: each span once, with the scores of the others."""
    pipeline = host.pipeline(evaluator, Free(criterion_name="fine"))
    answers(pipeline, 10)
    assert pipeline.flush(HANG_S)
    for span in once(host, 10):
        assert span.attributes["gen_ai.evaluation.fine.score"] == 0.5
        assert "gen_ai.evaluation.fixed.score" not in span.attributes


def test_it_waits_for_no_thread_and_no_judge(host: HostSdk, release: threading.Event) -> None:
    """The span is written, with the scores that are ready, while a thread and a judge are still at it."""

    async def waits(evaluation_input: Any) -> Any:
        await asyncio.to_thread(release.wait, HANG_S)

    slow = Func.of(lambda given: release.wait(HANG_S), name="slow", criterion_name="slow", execution="thread")
    ready = threading.Event()
    pipeline = host.pipeline(
        slow, Thinking(action=waits), Free(criterion_name="fine"),
        Free(criterion_name="last", action=lambda given: ready.set() or 1.0),
    )  # fmt: skip
    answers(pipeline, 1)
    assert ready.wait(HANG_S)
    # The next answer is begun when the first one's span has ended.
    ready.clear()
    answers(pipeline, 1)
    assert ready.wait(HANG_S)
    first = min(host.spans(), key=lambda span: span.start_time or 0)
    assert first.attributes is not None
    assert first.attributes["gen_ai.evaluation.fine.score"] == 0.5
    assert "gen_ai.evaluation.slow.score" not in first.attributes
    assert host.spans("evaluation ") == []
    release.set()
    assert pipeline.flush(HANG_S)
    once(host, 2)
    assert len(host.spans("evaluation support")) == 2


def test_an_evaluator_holds_the_background_thread(host: HostSdk, release: threading.Event) -> None:
    """The thread is replaced, and every span is written while the one that hangs still hangs."""
    hung = threading.Event()

    def hangs_once(evaluation_input: Any) -> float:
        if not hung.is_set():
            hung.set()
            release.wait(HANG_S)
        return 0.5

    pipeline = host.pipeline(Free(action=hangs_once), dispatcher=PoolDispatcher(stall_s=0.1))
    answers(pipeline)
    assert pipeline.flush(HANG_S)
    assert not release.is_set()
    once(host, CALLS)


def test_the_worker_process_is_killed(host: HostSdk) -> None:
    """The spans have ended before; nothing of them is lost or written again with the worker process."""
    others = children()
    pipeline = host.pipeline(Computing(cpu_s=0.05), Free(criterion_name="fine"))
    answers(pipeline, 1)
    assert pipeline.flush(HANG_S)
    (event,) = [event for event in host.events() if event.attributes["gen_ai.evaluation.name"] == "computing"]
    assert "error.type" not in event.attributes
    stop = threading.Event()
    killer = threading.Thread(target=kill_children, args=(others, stop))
    killer.start()
    try:
        answers(pipeline, 10)
        flushed = pipeline.flush(HANG_S)
    finally:
        stop.set()
        killer.join()
    assert flushed
    for span in once(host, 11):
        assert span.attributes["gen_ai.evaluation.fine.score"] == 0.5


def children() -> set[int]:
    """This process's child processes."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as listed:  # the thread may end
            found.update(map(int, listed.read().split()))
    return found


def kill_children(spared: set[int], stop: threading.Event) -> None:
    """Kill this process's child processes, as a kernel out of memory does, until `stop` is set.

    Args:
        spared: Those of other tests, such as the session's Collector.
        stop: Ends it.
    """
    while not stop.wait(0.01):
        for child in children() - spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("where", ["capture", "ground truth", "storage"])
def test_another_part_fails(host: HostSdk, where: str) -> None:
    """What breaks around the evaluation costs the result, not the span."""

    class Failing:
        async def find(self, evaluation_input: Any) -> Any:
            raise OSError("gone")

        async def save_result(self, aggregated: Any) -> None:
            raise OSError("gone")

        async def close(self) -> None:
            """Nothing is open."""

    def capture(*_: Any, **__: Any) -> Any:
        raise OSError("gone")

    settings: dict[str, Any] = {"ground_truth": Failing()} if where == "ground truth" else {}
    pipeline = host.pipeline(Free(), storage=(Failing(),) if where == "storage" else (), **settings)
    answers(pipeline, 10, **({"capture": capture} if where == "capture" else {}))
    pipeline.flush(HANG_S)
    once(host, 10)


def test_a_shutdown_comes_between(host: HostSdk, release: threading.Event) -> None:
    """What a shutdown drops, and what comes after it, has its span."""
    pipeline = host.pipeline(Free(action=lambda given: release.wait(HANG_S)), dispatcher=PoolDispatcher(stall_s=HANG_S))
    handler = answers(pipeline)
    assert not pipeline.shutdown(0.2)
    handler("too late")
    release.set()
    assert pipeline.accounting.outcomes()["dropped_shutdown"] == CALLS + 1
    once(host, CALLS + 1)


def test_settings_are_replaced_under_load(host: HostSdk) -> None:
    """Handlers that move to another pipeline lose no span of what the one before still evaluates."""
    pipelines = [host.pipeline(Free()) for _ in range(4)]
    for pipeline in pipelines:
        answers(pipeline)
        pipeline.retire()
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    for pipeline in pipelines:
        # Of a retired pipeline's two threads a flush asks one.
        while pipeline.dispatcher.state()["size"] and time.monotonic() < deadline:
            pipeline.flush(1.0)
            pause.wait(0.01)
    once(host, 4 * CALLS)


# --- the host's sampler and limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, TraceIdRatioBased(0.5)])
def test_the_hosts_sampler_drops_it(sampler: Any) -> None:
    """What the host's sampler drops is not written; the calls are evaluated."""
    host = HostSdk(sampler=sampler)
    try:
        pipeline = host.pipeline(Free())
        answers(pipeline)
        assert pipeline.flush(HANG_S)
        assert pipeline.accounting.outcomes()["evaluated"] == CALLS
        written = len(host.spans())
        assert written == 0 if sampler is ALWAYS_OFF else 0 < written < CALLS
        once(host, written)
        assert len(host.spans("evaluation ")) == written
        assert len(host.events()) == CALLS
    finally:
        host.close()


# --- the host's spans come first -------------------------------------------------------------------------------------


def small_queue(exporter: Any) -> BatchSpanProcessor:
    return BatchSpanProcessor(exporter, max_queue_size=128, max_export_batch_size=32, schedule_delay_millis=50)


@pytest.mark.parametrize(
    ("processor", "calls", "evaluators"), [(BatchSpanProcessor, 2_000, 1), (small_queue, 300, 1), (small_queue, 100, 6)]
)
def test_a_burst_loses_none_of_the_hosts_spans_and_none_of_ours(
    processor: Any, calls: int, evaluators: int, promise: Recorder
) -> None:
    """Calls at once beside spans of the application, before an exporter that takes 20 ms: all arrive.

    Of 2,000 calls at the default batch processors; of fewer where the host has set a small queue, also where each
    answer has six result spans besides.
    """
    host = HostSdk(Keeper(takes_s=0.02), processor)
    try:
        failing = [Free(criterion_name=f"failing_{number}", action=raises) for number in range(evaluators - 1)]
        pipeline = host.pipeline(Free(), *failing)
        tracer = host.tracer_provider.get_tracer("application")

        @monitor(agent="support", pipeline=pipeline)
        def handler(question: str) -> str:
            return "An answer to " + question

        for number in range(calls):
            handler(f"question {number}")
            if number % 10 == 0:
                tracer.start_span("application").end()
        assert pipeline.flush(60.0)
        own, agents, runs = host.spans("application"), once(host, calls), host.spans("evaluation support")
        promise("C17", figure=f"burst of {calls} beside {calls // 10} spans of the application: {len(own)} and "
                f"{len(agents)} arrive")  # fmt: skip
        assert (len(own), len(runs)) == (calls // 10, calls)
        assert len(host.spans("evaluation failing_")) == calls * (evaluators - 1)
        assert pipeline.accounting.outcomes()["evaluated"] == calls
        assert len(host.events()) == calls * evaluators
    finally:
        host.close()


def test_a_provider_that_was_shut_down_is_noticed(host: HostSdk, release: threading.Event) -> None:
    """What the application's provider drops because it was shut down first is counted as lost."""
    pipeline = host.pipeline(Free(action=lambda given: release.wait(HANG_S)), dispatcher=PoolDispatcher(stall_s=HANG_S))
    answers(pipeline, 10)
    host.tracer_provider.shutdown()
    release.set()
    assert not pipeline.flush(HANG_S)
    lost = pipeline.telemetry.providers.lost
    assert lost["traces", "provider_shut_down"] == 20, "an agent span and a run span for each"
