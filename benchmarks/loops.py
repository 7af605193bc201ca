"""Two ways of timing a call: tight loops in turns with the bare call, and calls a millisecond
apart; and work to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Numbers, Size

__all__ = ["Wrap", "at_random", "busy", "goes_by", "loops_for", "paced", "paced_async", "sampled"]

_now = time.perf_counter_ns
Wrap = Callable[[Any], Any]


# --- tight loops: calls that go by
# ------------------------------------------------------------------------------------
def goes_by(make: Callable[[], Wrap], size: Size, *, in_span: bool = True) -> Numbers:
    """Microseconds that the wrapper which `make` gives adds, sync and async, in a tight loop."""
    tracer = subjects.use_tracing()
    wrap = make()
    with tracer.start_as_current_span("request") if in_span else contextlib.nullcontext():
        return _tight(wrap, size)


def _tight(wrap: Wrap, size: Size) -> Numbers:
    """The difference of the minima over rounds that take turns, each short enough to go undisturbed
    now and then.
    """
    calls, rounds = 1_000, size.of(15, 100)
    sync, coroutine = wrap(subjects.answer), wrap(subjects.answer_async)
    lows = [float("inf")] * 4

    async def turn() -> tuple[float, float]:
        return await _loop_async(subjects.answer_async, calls), await _loop_async(coroutine, calls)

    for _ in range(rounds):
        row = (_loop(subjects.answer, calls), _loop(sync, calls), *asyncio.run(turn()))
        lows = [min(low, value) for low, value in zip(lows, row, strict=True)]
    return {"sync": lows[1] - lows[0], "async": lows[3] - lows[2]}


def _loop(handler: Callable[[str], Any], calls: int) -> float:
    started = _now()
    for _ in range(calls):
        handler(subjects.QUESTION)
    return (_now() - started) / calls / 1e3


async def _loop_async(handler: Callable[[str], Any], calls: int) -> float:
    started = _now()
    for _ in range(calls):
        await handler(subjects.QUESTION)
    return (_now() - started) / calls / 1e3


def at_random(handler: Any) -> Any:
    """The least that sampling costs: a wrapper that draws a random number."""
    draw = random.random

    def drawn(question: str) -> Any:
        return handler(question) if draw() >= 0.0 else None

    async def drawn_async(question: str) -> Any:
        return await handler(question) if draw() >= 0.0 else None

    return drawn_async if asyncio.iscoroutinefunction(handler) else drawn


# --- calls a millisecond apart: cold caches, as in a service
# ----------------------------------------------------------
def paced(bare: Any, wrapped: Any, calls: int) -> tuple[list[float], list[float]]:
    """Microseconds of each call of the two, in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(2 * calls):
        handler = wrapped if index % 2 else bare
        time.sleep(0.001)
        started = _now()
        handler(subjects.QUESTION)
        times[index % 2].append((_now() - started) / 1e3)
    return times


async def paced_async(bare: Any, wrapped: Any, calls: int) -> tuple[list[float], list[float]]:
    """The same on an event loop."""
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(2 * calls):
        handler = wrapped if index % 2 else bare
        await asyncio.sleep(0.001)
        started = _now()
        await handler(subjects.QUESTION)
        times[index % 2].append((_now() - started) / 1e3)
    return times


def _spread(bare: list[float], wrapped: list[float], mode: str) -> Numbers:
    warm = len(bare) // 10  # the first calls start threads and resolve providers
    quantiles = [statistics.quantiles(values[warm:], n=100) for values in (bare, wrapped)]
    return {
        f"{mode} p50": quantiles[1][49] - quantiles[0][49],
        f"{mode} p99": quantiles[1][98] - quantiles[0][98],
    }


def sampled(make: Callable[[], Any], size: Size) -> Numbers:
    """p50 and p99 that sampled calls in a span add, sync and async; and the share of them that was
    evaluated.
    """
    tracer = subjects.use_tracing()
    calls = size.of(250, 700)
    subject = make()
    with tracer.start_as_current_span("request"):
        numbers = _spread(*paced(subjects.answer, subject.wrap(subjects.answer), calls), "sync")
        wrapped = subject.wrap(subjects.answer_async)
        numbers |= _spread(
            *asyncio.run(paced_async(subjects.answer_async, wrapped, calls)), "async"
        )
    subject.drain()
    return numbers | {"evaluated": subject.evaluated() / (2 * calls)}


# --- work
# -------------------------------------------------------------------------------------------------------------
def busy(loops: int) -> int:
    """Pure Python work."""
    total = 0
    for index in range(loops):
        total += index & 7
    return total


def loops_for(seconds: float) -> int:
    """How many turns take so long here, undisturbed."""
    best = float("inf")
    for _ in range(10):
        began = _now()
        busy(20_000)
        best = min(best, _now() - began)
    return max(1, round(20_000 * seconds * 1e9 / best))
