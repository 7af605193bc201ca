"""D4: overload lowers sampling before calls are lost, sampling recovers afterwards, and a burst
keeps every call.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import (
    METRIC_QUEUE_DRAIN_TIME,
    METRIC_SAMPLING_LEVEL,
    SAMPLING_PROBABILITY,
)
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder, sized

LOAD_S = sized(12, 60)
SETTLED_AFTER_S = sized(6, 15)
MAX_DRAIN_S = 2.0
PLACES, TAKES_S = 4, 0.02
MANAGED_PER_S = PLACES / TAKES_S
RECOVERS_S = 30.0
LOST_SHARE = 0.05


async def takes_its_time(value: Any) -> bool:
    """An evaluator of known speed, as a judge is: it waits for somebody else."""
    await asyncio.sleep(TAKES_S)
    return True


@pytest.fixture
def pipeline(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    """A capacity that is known, and a bound on drain time that twice the load reaches after two
    seconds.
    """
    made = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(Func.of(takes_its_time),),
        storage=(telemetry.storage(),),
        dispatcher=PoolDispatcher(concurrency=PLACES),
        load_shedding=LoadSheddingSettings(max_drain_s=MAX_DRAIN_S),
    )
    yield made
    made.shutdown(5.0)


class Load:
    def __init__(self, pipeline: Pipeline) -> None:
        self._handler = monitor(pipeline=pipeline, agent="support")(lambda question: "An answer.")
        self._pipeline = pipeline
        self.calls = 0

    def go_on(self, seconds: float, calls_per_s: float) -> dict[str, int]:
        before, pause = self._pipeline.accounting.outcomes(), threading.Event()
        began, made = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while made < passed * calls_per_s:
                made += 1
                self._handler("A question?")
            pause.wait(0.5 / calls_per_s)
        self.calls += made
        after = self._pipeline.accounting.outcomes()
        return {"calls": made, **{outcome: after[outcome] - before[outcome] for outcome in after}}


@pytest.mark.sized
def test_twice_the_load_lowers_sampling_and_passes(
    pipeline: Pipeline, telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """Sampling is reduced and says so, no call is lost, results are weighted, and sampling recovers
    after the load.
    """
    load = Load(pipeline)
    first = load.go_on(SETTLED_AFTER_S, 2 * MANAGED_PER_S)
    then, levels, drain_s = Counter[str](), set(), []
    for _ in range(2 * (LOAD_S - SETTLED_AFTER_S)):
        then.update(load.go_on(0.5, 2 * MANAGED_PER_S))
        (level,), (drain,) = map(
            telemetry.points, (METRIC_SAMPLING_LEVEL.name, METRIC_QUEUE_DRAIN_TIME.name)
        )
        levels.add(level.value)
        drain_s.append(drain.value)
    began = time.monotonic()
    while pipeline.load_shedder.level and time.monotonic() - began < RECOVERS_S:
        load.go_on(0.5, MANAGED_PER_S / 10)
    recovered_s = time.monotonic() - began
    lost = then["dropped_queue_full"] / then["calls"]
    evaluated_per_s = then["evaluated"] / (LOAD_S - SETTLED_AFTER_S)
    # A busy machine manages less than the evaluator allows, and more piles up until it is noticed.
    slowness = max(1.0, MANAGED_PER_S / max(1.0, evaluated_per_s))
    promise(
        "D4",
        figure=f"{LOAD_S} s of {2 * MANAGED_PER_S:.0f} calls/s where {MANAGED_PER_S:.0f} are managed: "
        f"{lost:.1%} lost after {SETTLED_AFTER_S} s, {evaluated_per_s:.0f}/s evaluated, "
        f"drain time at most {max(drain_s):.1f} s, "
        f"full again {recovered_s:.1f} s after the load",
    )
    assert 1 <= max(levels) <= 2  # it may be full again for moments
    # What nobody lowers reaches twice that, or more.
    assert max(drain_s) <= 4 * MAX_DRAIN_S * slowness
    assert then["shed"] > 0.2 * then["calls"]
    assert lost <= LOST_SHARE
    assert then["evaluated"] > 0
    assert recovered_s < RECOVERS_S
    assert pipeline.flush(10.0)
    outcomes = pipeline.accounting.outcomes()
    assert sum(outcomes.values()) == load.calls >= first["calls"] + then["calls"]
    # Not of events: those whose model calls were left out have none.
    weights = [
        1 / span.attributes[SAMPLING_PROBABILITY] for span in telemetry.spans("evaluation support")
    ]
    assert max(weights) >= 2
    assert len(weights) == outcomes["evaluated"]
    # Each evaluated answer stands for 1/probability calls; nobody stands for those that the queue
    # lost.
    stood_for = sum(weights) / (load.calls - outcomes["dropped_queue_full"])
    assert 0.8 <= stood_for <= 1.25


@pytest.mark.parametrize("calls", [5_000, 20_000])
def test_a_burst_keeps_every_call(
    telemetry: RecordedTelemetry, promise: Recorder, calls: int
) -> None:
    """Calls made all at once, that the queue has room for, are all evaluated at full probability."""
    trivial = Func.of(lambda value: True, criterion_name="trivial")
    dispatcher = PoolDispatcher(max_items=calls + 100)
    made = pipeline_of(trivial, storage=(telemetry.storage(),), dispatcher=dispatcher)
    handler = monitor(pipeline=made, agent="support")(lambda question: "An answer.")
    for _ in range(calls):
        handler("A question?")
    assert made.flush(120.0)
    outcomes = made.accounting.outcomes()
    made.shutdown(5.0)
    promise("D4", figure=f"burst of {calls}: {outcomes['evaluated']} evaluated")
    assert outcomes["evaluated"] == calls, outcomes
    assert {event.attributes[SAMPLING_PROBABILITY] for event in telemetry.events()} == {1.0}


def test_first_requests_on_a_late_loop_keep_every_call(promise: Recorder) -> None:
    """A newcomer's first calls: imports and a busy machine hold up the event loop, and each answer
    has its score.
    """
    never, calls, held_s = threading.Event(), 40, 0.15
    made = pipeline_of(Func.of(takes_its_time))

    @monitor(pipeline=made, agent="support")
    async def answer(question: str) -> str:
        never.wait(held_s)  # holds the loop, as an import in a handler does
        await asyncio.sleep(0)
        return "An answer."

    async def ask() -> None:
        for _ in range(calls):
            await answer("A question?")

    asyncio.run(ask())
    assert made.flush(30.0)
    outcomes = made.accounting.outcomes()
    lag_s = max(made.load_shedder.gauges().get("loop_lag", 0.0), 0.0)
    made.shutdown(5.0)
    promise(
        "D4",
        figure=f"first {calls} calls on a loop up to {lag_s:.2f} s late: {outcomes['evaluated']} evaluated",
    )
    assert lag_s > 0.05, "the loop was not late"
    assert outcomes["evaluated"] == calls, outcomes
