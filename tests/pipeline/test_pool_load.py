"""Load shedding in a pipeline: when it looks, when that ends, and what it does to a call."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.load_shedding import FULL, LOOK_EVERY_S, REDUCED, LoadShedder, LoopLag
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


def test_the_pool_looks_while_there_is_work_and_then_no_more(
    make: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It recovers by itself without further calls, and is then left alone."""
    looks_on: list[bool] = []
    look = LoadShedder.look

    def noted(shedder: LoadShedder) -> bool:
        looks_on.append(look(shedder))
        return looks_on[-1]

    monkeypatch.setattr(LoadShedder, "look", noted)
    pipeline = make()
    assert looks_on == []
    shedder = pipeline.load_shedder
    shedder.level = REDUCED
    shedder.keep = 0.5
    for _ in range(20):  # one of them goes on, but for a millionth
        answering(pipeline)()
    assert pipeline.flush(DEADLINE_S)
    assert eventually(lambda: looks_on[-1:] == [False])
    assert pipeline.load_shedder.gauges()["level"] == FULL
    assert pipeline.load_shedder.keep is None
    count = len(looks_on)
    assert not threading.Event().wait(2 * LOOK_EVERY_S)
    assert len(looks_on) == count


@pytest.mark.parametrize(
    ("sampler", "share", "probability"),
    [
        (RatioSampler(ratio=0.8), 0.5, {0.4}),
        # decided on the background thread
        (FunctionSampler(function=lambda value: 1.0), 0.5, {0.5}),
        (RatioSampler(), 0.0, set()),
    ],
)
def test_a_share_goes_on_with_its_probability(
    make: Callable[..., Pipeline], sampler: Sampler, share: float, probability: set[float]
) -> None:
    """Of 300 answers as many as expected, within a tenth: three and a half deviations."""
    pipeline = make(sampler, dispatcher=InlineDispatcher())
    pipeline.load_shedder.keep = share
    answer = answering(pipeline)
    for _ in range(300):
        pipeline.load_shedder.look()
        assert answer() == "An answer."
    outcomes = pipeline.accounting.outcomes()
    assert sum(outcomes.values()) == 300
    expected = share * getattr(sampler, "ratio", 1.0)
    assert abs(outcomes["evaluated"] / 300 - expected) < 0.1
    assert outcomes["evaluated"] + outcomes["shed"] + outcomes["not_sampled"] == 300
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
    """A loop whose timers ring when a test says so; `delays_s` are those that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Callable[[], None]] = []
        self.delays_s: list[float] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self.delays_s.append(delay)
        self.timers.append(lambda: callback(*args))


@pytest.fixture
def held() -> Iterator[HeldLoop]:
    loop = HeldLoop()
    yield loop
    loop.close()


def test_lateness_is_what_the_timer_came_late(held: HeldLoop) -> None:
    """However many calls a loop has, it has one timer, which ends when no call came for five seconds; a
    pause of a minute between two runs of it is left out.
    """
    clock = ManualClock(100.0)
    loops = LoopLag(clock)
    for _ in range(100):
        loops.note(held)
    assert len(held.timers) == 1
    clock.advance(held.delays_s[0] + 0.03)
    held.timers.pop()()
    assert loops.since(0.0) == [pytest.approx(0.03)]
    clock.advance(60.0)
    held.timers.pop()()
    assert len(loops.since(0.0)) == 1
    assert held.timers == []
    held.delays_s.clear()
    loops.note(held)
    while held.timers:
        clock.advance(held.delays_s[-1])
        held.timers.pop()()
    assert sum(held.delays_s) == 5.0
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
        time.sleep(0.3)  # noqa: ASYNC251 - the host's own code holds its loop
        async with asyncio.timeout(DEADLINE_S):
            while not loops.since(0.0):  # noqa: ASYNC110 - a timer of its own measures
                await asyncio.sleep(0.01)
        gone.append(weakref.ref(asyncio.get_running_loop()))

    gone: list[Any] = []
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG, "asyncio"):
        warnings.simplefilter("error")
        asyncio.run(host(), debug=False)
        gc.collect()
    assert max(loops.since(0.0)) >= 0.04
    assert gone[0]() is None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
