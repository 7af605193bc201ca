"""The timer on the host's loop: it measures, it ends, and it leaves nothing behind."""

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

from agenteval_otel.pipeline.load_shedding import _TIMER_S as EVERY_S
from agenteval_otel.pipeline.load_shedding import LoopLag
from agenteval_otel.testing import ManualClock

DEADLINE_S = 10.0


class HeldLoop(asyncio.SelectorEventLoop):
    """A loop that keeps its timers for the test to ring."""

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
    """However many calls a loop has, it has one timer; a pause of a minute between two runs of it is left out."""
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
    """Five seconds after the last call no timer is set any more; a new call sets one again."""
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
    """A loop that is held up for a moment says so; it closes with its timer set, without a word, and is let go."""
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
