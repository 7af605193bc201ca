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


def _stream(value: Any) -> Iterator[Any]:
    yield value


PLACES: dict[str, Callable[[Any], Any]] = {
    "answer": lambda answer: answer,
    "prompt": lambda prompt: "short",
    "streamed": _stream,
}


async def hangs(value: Any) -> bool:
    await asyncio.Event().wait()
    return True


async def answers(value: Any) -> bool:
    return True


def judged_by(judge: Any, telemetry: RecordedTelemetry, **dispatcher: Any) -> Pipeline:
    return pipeline_of(
        Func.of(judge, timeout_s=3600.0),  # a judge that is given up makes room
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
@pytest.mark.parametrize("place", PLACES)
def test_the_price_of_a_call_does_not_grow_with_its_payload(
    hung: Pipeline, place: str, kind: str, promise: Recorder
) -> None:
    """A call with megabytes costs about as much as one with a kilobyte of the same build."""
    large = LARGE[kind]
    small = TEXT if isinstance(large, str | bytes) else SMALL
    monitored = monitor(pipeline=hung)(PLACES[place])

    def run(value: Any) -> None:
        answer = monitored(value)
        if place == "streamed":
            list(answer)

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


def test_what_hangs_behind_a_call_does_not_make_it_dearer(
    hung: Pipeline, telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """A call costs the same behind a judge that hangs as behind one that answers, and one that a
    full queue drops is not dearer than one that is taken.
    """
    full = judged_by(hangs, telemetry, max_items=1)
    monitor(pipeline=full)(lambda: "fills it")()
    quick = judged_by(answers, telemetry, max_items=1_000_000)
    handlers = [monitor(pipeline=pipeline)(lambda: TEXT) for pipeline in (quick, hung, full)]
    # without a flush the quick evaluations would compete with the calls behind the others
    free, stuck, dropped = medians(*handlers, between=lambda: quick.flush(10.0))
    quick.shutdown(10.0)
    full.shutdown(0.1)
    promise("A4", figure=f"judge hung: p50 {stuck * 1e6:.1f} us, answering {free * 1e6:.1f} us")
    promise("A4", figure=f"queue full: p50 {dropped * 1e6:.1f} us, with room {stuck * 1e6:.1f} us")
    assert stuck <= 3 * free
    assert full.accounting.outcomes()["dropped_queue_full"] == ROUNDS * CALLS
    assert dropped <= 3 * stuck
