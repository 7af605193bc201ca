"""A4: what a call pays does not depend on how large its answer and prompt are, nor on what hangs
behind it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder

ROUNDS, CALLS = 30, 15
TEXT = "x" * 1024
LARGE_TEXT = "x" * (10 * 1024 * 1024)
SMALL = [
    {"role": "user", "content": TEXT, "parts": [{"text": TEXT, "index": index}]}
    for index in range(32)
]
LARGE: dict[str, Any] = {
    "10 MB of text": LARGE_TEXT,
    "10 MB of bytes": LARGE_TEXT.encode(),
    "10 MB in a message": [{"role": "user", "content": LARGE_TEXT}],
    "100,000 items": [{"role": "user", "content": TEXT}] * 100_000,
    "100,000 keys": {str(index): [index] for index in range(100_000)},
    "lists 40 wide, 4 deep": [
        [[[1] * 40 for _ in range(40)] for _ in range(40)] for _ in range(40)
    ],
    "dictionaries 20 wide, 3 deep": {
        i: {j: {k: [TEXT] for k in range(20)} for j in range(20)} for i in range(20)
    },
}


async def hangs(value: Any) -> bool:
    await asyncio.Event().wait()
    return True


async def answers(value: Any) -> bool:
    return True


def judged_by(judge: Any, telemetry: RecordedTelemetry, **dispatcher: Any) -> Pipeline:
    return pipeline_of(
        Func.of(judge),
        storage=(telemetry.storage(),),
        dispatcher=PoolDispatcher(**dispatcher),
        sheds=False,
    )


@pytest.fixture
def hung(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    """One with room for every call of a test."""
    made = judged_by(hangs, telemetry, max_items=1_000_000, max_bytes=1 << 50, concurrency=4)
    warm = monitor(pipeline=made)(lambda: TEXT)
    for _ in range(8):
        warm()
    assert not made.flush(0.2), "from now on the worker waits and does not compete"
    yield made
    made.shutdown(0.1)


@pytest.fixture
def full(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    """One whose queue is full."""
    made = judged_by(hangs, telemetry, max_items=1)
    monitor(pipeline=made)(lambda: "fills it")()
    yield made
    made.shutdown(0.1)


def medians(
    *works: Callable[[], Any],
    between: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median time of each work; they take turns, so that what disturbs one disturbs all, with a
    pause in `between`.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, taken in zip(works, times, strict=True):
            began = clock()
            for _ in range(CALLS):
                work()
            taken.append(clock() - began)
            between()
    return [statistics.median(taken) / CALLS for taken in times]


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("place", ["answer", "prompt", "streamed"])
def test_the_price_of_a_call_does_not_grow_with_its_payload(
    hung: Pipeline, place: str, kind: str, promise: Recorder
) -> None:
    """A call with megabytes costs about as much as one with a kilobyte of the same build."""
    large = LARGE[kind]
    small = TEXT if isinstance(large, str | bytes) else SMALL
    identity = monitor(pipeline=hung)(lambda answer: answer)
    prompt = monitor(pipeline=hung)(lambda prompt: "short")
    stream = monitor(pipeline=hung)(_stream)
    run = {"answer": identity, "prompt": prompt, "streamed": lambda value: list(stream(value))}[
        place
    ]
    # By the thread's own time: the queue behind it reads megabytes, and on a busy machine the caller
    # waits for the interpreter meanwhile.
    cheap, expensive = medians(lambda: run(small), lambda: run(large), clock=time.thread_time)
    promise(
        "A4",
        figure=f"large against small payload: p50 {expensive * 1e6:.1f} us, {expensive / cheap:.2f} times",
    )
    assert expensive <= 10 * cheap, (
        "a payload that is read as a whole costs hundreds of times as much"
    )


def _stream(value: Any) -> Iterator[Any]:
    yield value


def test_a_full_queue_costs_no_more_than_one_with_room(
    hung: Pipeline, full: Pipeline, promise: Recorder
) -> None:
    """Dropping is not dearer than taking."""
    taken, dropped = (monitor(pipeline=pipeline)(lambda: TEXT) for pipeline in (hung, full))
    with_room, without = medians(taken, dropped)
    promise(
        "A4", figure=f"queue full: p50 {without * 1e6:.1f} us, with room {with_room * 1e6:.1f} us"
    )
    assert full.accounting.outcomes()["dropped_queue_full"] == ROUNDS * CALLS
    assert without <= 3 * with_room


def test_a_hung_judge_costs_the_caller_nothing(
    hung: Pipeline, telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """Calls are as cheap behind a judge that hangs as behind one that answers."""
    quick = judged_by(answers, telemetry, max_items=1_000_000)
    free, stuck = medians(
        monitor(pipeline=quick)(lambda: TEXT),
        monitor(pipeline=hung)(lambda: TEXT),
        # or its evaluations would compete with the calls behind the other judge
        between=lambda: quick.flush(10.0),
    )
    quick.shutdown(10.0)
    promise("A4", figure=f"judge hung: p50 {stuck * 1e6:.1f} us, answering {free * 1e6:.1f} us")
    assert stuck <= 3 * free
