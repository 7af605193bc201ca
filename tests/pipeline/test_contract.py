"""The contract of dispatchers, and the inline one."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import (
    Dispatcher,
    InlineDispatcher,
    PoolDispatcher,
    process_each,
)
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import OUTCOMES
from agenteval_otel.testing import check_component
from tests.pipeline.support import Record
from tests.pipelines import pipeline_with

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


@pytest.mark.parametrize("name", ["inline", "pool"])
def test_every_dispatcher_keeps_the_contract(name: str) -> None:
    """Each call is settled once, a flush is truthful, and nothing is taken after shutdown."""
    record, dispatcher = Record(), Dispatcher.registry[name]()
    check_component(dispatcher, Dispatcher)
    dispatcher.start(process_each(record.process), record.settle)
    calls = ["broken", *map(str, range(200))]
    for call in calls:
        dispatcher.submit(call, 1)
    assert dispatcher.flush(10.0)
    assert sorted(call for call, _ in record.settled) == sorted(calls)
    assert {outcome for _, outcome in record.settled} <= set(OUTCOMES)
    assert dispatcher.shutdown(10.0)
    assert not dispatcher.submit("late", 1)
    assert record.outcome_of("late") == "dropped_shutdown"
    assert dispatcher.state()["size"] == 0


def test_inline_is_done_when_submit_returns() -> None:
    record = Record()
    dispatcher = InlineDispatcher()
    dispatcher.start(process_each(record.process), record.settle)
    assert dispatcher.submit("a", 1)
    assert record.settled == [("a", "evaluated")]
    assert {thread.name for thread in record.threads} == {"agenteval-inline"}

    async def caller() -> None:
        assert dispatcher.submit("in a running loop", 1)

    asyncio.run(caller())
    assert record.outcome_of("in a running loop") == "evaluated"
    assert dispatcher.state() == {"size": 0, "waiting": 0, "bytes": 0, "max_bytes": 0}


@pytest.mark.parametrize(
    "made", [InlineDispatcher(), PoolDispatcher(linger_s=0)], ids=lambda made: made.type
)
def test_the_callers_context_stays_the_callers(made: Dispatcher) -> None:
    seen: list[str] = []

    async def process(call: Any) -> str:
        seen.append(PLACE.get())
        return "evaluated"

    made.start(process_each(process), lambda call, outcome: None)
    token = PLACE.set("request 7")
    try:
        made.submit("a", 1)
        assert made.flush(10)
    finally:
        PLACE.reset(token)
    assert seen == ["nowhere"]
    assert made.shutdown(10)


class RaisingFirst(InlineDispatcher):
    """Raises before it takes a call."""

    def submit(self, queued: Any, size_bytes: int) -> bool:
        raise RuntimeError("no thread can be started")


class RaisingLast(InlineDispatcher):
    """Raises when it has settled a call already."""

    def submit(self, queued: Any, size_bytes: int) -> bool:
        super().submit(queued, size_bytes)
        raise RuntimeError("after all")


class RaisingBetween(PoolDispatcher):
    """Raises when it has taken a call, which another thread settles later."""

    def submit(self, queued: Any, size_bytes: int) -> bool:
        super().submit(queued, size_bytes)
        raise RuntimeError("after it was queued")


@pytest.mark.parametrize(
    ("made", "outcomes"),
    [
        (RaisingFirst(), {"pipeline_failed": 1}),
        (RaisingLast(), {"evaluated": 1}),
        (RaisingBetween(linger_s=0.2), {"pipeline_failed": 1}),
    ],
    ids=["first", "last", "between"],
)
def test_a_call_is_counted_once_where_its_dispatcher_raises(
    made: Dispatcher, outcomes: dict[str, int]
) -> None:
    """The caller has its answer, and the failure is counted beside the call's one outcome."""
    pipeline = pipeline_with(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), dispatcher=made
    )

    @monitor(pipeline=pipeline, agent="shop")
    def answer(question: str) -> str:
        return f"an answer to {question}"

    assert answer("when") == "an answer to when"
    assert pipeline.dispatcher.flush(10.0)
    counted = {name: count for name, count in pipeline.accounting.outcomes().items() if count}
    assert counted == outcomes
    assert pipeline.accounting.failures["dispatcher"] == 1
    assert pipeline.shutdown(10.0)
