"""Load shedding in a pipeline: when it looks, when that ends, and what it does to a call."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.load_shedding import _TIMER_S as EVERY_S
from agenteval_otel.engine.load_shedding import FULL, OFF, REDUCED, LoopLag
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.sampling import FunctionSampler, RatioSampler, Sampler
from agenteval_otel.testing import ManualClock
from tests.pipeline.support import eventually
from tests.pipelines import pipeline_with
from tests.testing.doubles import Keeping

DEADLINE_S = 20.0


async def judged(value: Any) -> bool:
    return True


@pytest.fixture
def make() -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(sampler: Sampler | None = None, **more: Any) -> Pipeline:
        parts: dict[str, Any] = {"dispatcher": PoolDispatcher(linger_s=0.0), **more}
        made.append(
            pipeline_with(
                sampler=sampler or RatioSampler(),
                storage=(Keeping(),),
                **{"evaluators": (ResponseHealth(), Func.of(judged)), **parts},
            )
        )
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.shutdown(5.0)


def answering(pipeline: Pipeline) -> Callable[[], str]:
    return monitor(pipeline=pipeline, agent="support")(lambda: "An answer.")


def reduce(pipeline: Pipeline, level: int, rate: float) -> None:
    shedder = pipeline.load_shedder
    shedder._set(level, rate)
    shedder._moved_at = time.monotonic()
    # however slow this machine is, somebody has just looked
    shedder._looked_at = time.monotonic() + 3_600


def is_attended(pipeline: Pipeline) -> bool:
    return pipeline._load._looking is not None


def test_the_pool_looks_while_there_is_work_and_then_no_more(make: Callable[..., Pipeline]) -> None:
    pipeline = make()
    assert not is_attended(pipeline)
    answering(pipeline)()
    assert pipeline.flush(DEADLINE_S)
    assert is_attended(pipeline)
    assert eventually(lambda: not is_attended(pipeline))


def test_it_recovers_by_itself_without_calls(make: Callable[..., Pipeline]) -> None:
    pipeline = make()
    answering(pipeline)()
    assert pipeline.flush(DEADLINE_S)
    reduce(pipeline, REDUCED, 0.6)
    assert eventually(lambda: pipeline.load_shedder.keep is None)
    assert pipeline.load_shedder.level == FULL


@pytest.mark.parametrize(
    ("sampler", "level", "share", "probability"),
    [
        (RatioSampler(ratio=0.8), REDUCED, 0.5, {0.4}),
        # decided on the background thread
        (FunctionSampler(function=lambda value: 1.0), REDUCED, 0.5, {0.5}),
        (RatioSampler(), OFF, 0.0, set()),
    ],
)
def test_a_share_goes_on_with_its_probability(
    make: Callable[..., Pipeline],
    sampler: Sampler,
    level: int,
    share: float,
    probability: set[float],
) -> None:
    pipeline = make(sampler, dispatcher=InlineDispatcher())
    reduce(pipeline, level, share)
    answer = answering(pipeline)
    for _ in range(600):
        assert answer() == "An answer."
    outcomes = pipeline.accounting.outcomes()
    assert sum(outcomes.values()) == 600
    expected = share * getattr(sampler, "ratio", 1.0)
    assert abs(outcomes["evaluated"] / 600 - expected) < 0.1
    assert outcomes["evaluated"] + outcomes["shed"] + outcomes["not_sampled"] == 600
    (kept,) = pipeline.providers
    assert {result.sampling_probability for result in kept.saved} == probability


def test_no_model_calls_skips_evaluators_that_call_a_model(make: Callable[..., Pipeline]) -> None:
    pipeline = make(dispatcher=InlineDispatcher())
    pipeline.load_shedder.skip_models = True
    answering(pipeline)()
    (kept,) = pipeline.providers
    assert {result.criterion_name: result.skip_reason for result in kept.results} == {
        "response_health": None,
        "judged": "load_shed",
    }


class HeldLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Callable[[], None]] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self.timers.append(lambda: callback(*args))


@pytest.fixture
def held() -> Iterator[HeldLoop]:
    loop = HeldLoop()
    yield loop
    loop.close()


def test_lateness_is_what_the_timer_came_late(held: HeldLoop) -> None:
    """However many calls a loop has, it has one timer; a pause of a minute between two runs of it
    is left out.
    """
    clock = ManualClock(100.0)
    loops = LoopLag(clock)
    for _ in range(100):
        loops.note(held)
    (ring,) = held.timers
    held.timers.clear()
    clock.advance(EVERY_S + 0.03)
    ring()
    assert loops.since(0.0) == [pytest.approx(0.03)]
    (ring,) = held.timers
    clock.advance(60.0)
    ring()
    assert len(loops.since(0.0)) == 1


def test_it_ends_when_no_call_came_for_a_while(held: HeldLoop) -> None:
    clock = ManualClock(100.0)
    loops = LoopLag(clock)
    loops.note(held)
    rings = 0
    while held.timers:
        clock.advance(EVERY_S)
        held.timers.pop()()
        rings += 1
    assert rings == 5 / EVERY_S
    loops.note(held)
    assert len(held.timers) == 1


def test_loops_are_few_and_those_that_are_gone_make_room() -> None:
    loops, made = LoopLag(ManualClock()), [HeldLoop() for _ in range(10)]
    for loop in made:
        loops.note(loop)
    assert sum(len(loop.timers) for loop in made) == 8
    made[0].close()
    loops.note(made[9])
    assert len(made[9].timers) == 1
    for loop in made:
        loop.close()


def test_a_real_loop_is_measured_and_ends_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that is held up for a moment says so; it closes with its timer set, without a word,
    and is let go.
    """
    loops = LoopLag()

    async def host() -> None:
        loops.note(asyncio.get_running_loop())
        measured = asyncio.Event()
        asyncio.get_running_loop().call_later(EVERY_S + 0.1, measured.set)
        end = time.monotonic() + EVERY_S + 0.05
        while time.monotonic() < end:  # the host's own code holds its loop
            pass
        await asyncio.wait_for(measured.wait(), DEADLINE_S)
        gone.append(weakref.ref(asyncio.get_running_loop()))

    gone: list[Any] = []
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG, "asyncio"):
        warnings.simplefilter("error")
        started = time.monotonic()
        asyncio.run(host(), debug=False)
        assert time.monotonic() - started < DEADLINE_S
        gc.collect()
    assert max(loops.since(0.0)) >= 0.04
    assert gone[0]() is None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
