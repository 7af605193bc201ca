"""What the caller of a monitored handler pays, in microseconds on top of the bare call."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from opentelemetry import trace

from benchmarks import streams, subjects
from benchmarks.harness import Bench, Figure, Numbers, Phase, standalone

__all__ = ["BENCH"]

_now = time.perf_counter_ns
Mode = Literal["sync", "async"]
Wrap = Callable[[Any], Any]


# --- tight loops: calls that go by ------------------------------------------------------------------------------------
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


def _tight(wrap: Wrap, quick: bool) -> Numbers:
    """Microseconds added by `wrap`, sync and async: the difference of the minima over rounds that take turns."""
    calls, rounds = (2_000, 5) if quick else (10_000, 9)
    sync, coroutine = wrap(subjects.answer), wrap(subjects.answer_async)
    lows = [float("inf")] * 4

    async def turn() -> tuple[float, float]:
        return await _loop_async(subjects.answer_async, calls), await _loop_async(coroutine, calls)

    for _ in range(rounds):
        row = (_loop(subjects.answer, calls), _loop(sync, calls), *asyncio.run(turn()))
        lows = [min(low, value) for low, value in zip(lows, row, strict=True)]
    return {"sync": lows[1] - lows[0], "async": lows[3] - lows[2]}


def _at_random(handler: Any) -> Any:
    """The least that sampling costs: a wrapper that draws a random number."""
    draw = random.random

    def drawn(question: str) -> Any:
        return handler(question) if draw() >= 0.0 else None

    async def drawn_async(question: str) -> Any:
        return await handler(question) if draw() >= 0.0 else None

    return drawn_async if asyncio.iscoroutinefunction(handler) else drawn


def _goes_by(make: Callable[[], Wrap], quick: bool, *, in_span: bool = True) -> Numbers:
    tracer = subjects.use_tracing()
    wrap = make()
    if not in_span:
        return _tight(wrap, quick)
    with tracer.start_as_current_span("request"):
        return _tight(wrap, quick)


# --- calls a millisecond apart: cold caches, as in a service ----------------------------------------------------------
def _paced(bare: Any, wrapped: Any, calls: int) -> tuple[list[float], list[float]]:
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(2 * calls):
        handler = wrapped if index % 2 else bare
        time.sleep(0.001)
        started = _now()
        handler(subjects.QUESTION)
        times[index % 2].append((_now() - started) / 1e3)
    return times


async def _paced_async(bare: Any, wrapped: Any, calls: int) -> tuple[list[float], list[float]]:
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
    return {f"{mode} p50": quantiles[1][49] - quantiles[0][49], f"{mode} p99": quantiles[1][98] - quantiles[0][98]}


def _sampled(make: Callable[[], Any], quick: bool, *, in_span: bool) -> Numbers:
    """p50 and p99 that sampled calls add, sync and async; and the share of them that was evaluated."""
    tracer = subjects.use_tracing()
    calls = 250 if quick else 1_000
    subject = make()
    span = tracer.start_span("request") if in_span else trace.INVALID_SPAN
    with trace.use_span(span):
        numbers = _spread(*_paced(subjects.answer, subject.wrap(subjects.answer), calls), "sync")
        wrapped = subject.wrap(subjects.answer_async)
        numbers |= _spread(*asyncio.run(_paced_async(subjects.answer_async, wrapped, calls)), "async")
    subject.drain()
    return numbers | {"evaluated": subject.evaluated() / (2 * calls)}


class _RawSpan:
    """The raw span in the same harness."""

    def wrap(self, handler: Any) -> Any:
        tracer = trace.get_tracer("host")
        wrap = subjects.raw_span_async if asyncio.iscoroutinefunction(handler) else subjects.raw_span
        return wrap(tracer, handler)

    def drain(self) -> None:
        """Nothing waits."""

    def evaluated(self) -> int:
        """Nothing is evaluated."""
        return 0


# --- the size of an answer --------------------------------------------------------------------------------------------
def _sizes(quick: bool) -> Numbers:
    """p50 of a sampled call that answers with 1 KB and with 10 MB of text, in turns."""
    tracer = subjects.use_tracing()
    subject = subjects.Ours(dispatcher={"type": "pool", "max_bytes": 1 << 40})
    small, large = "a" * 1_000, "a" * 10_000_000
    calls = 200 if quick else 500
    with tracer.start_as_current_span("request"):
        handlers = subject.wrap(lambda question: small), subject.wrap(lambda question: large)
        times = _paced(*handlers, calls)
    subject.drain()
    return {"small": statistics.median(times[0]), "large": statistics.median(times[1])}


def _ours(**settings: Any) -> Wrap:
    return subjects.Ours(**settings).wrap


def _rival(**settings: Any) -> Wrap:
    return subjects.Rival(**settings).wrap


# Failures all, slow answers by half, next to nothing of the rest: decided after each answer.
_RULES = {
    "type": "first_of",
    "samplers": [
        {"type": "error"}, {"type": "slow", "over_s": 5.0, "ratio": 0.5},
        {"type": "ratio", "ratio": subjects.SAMPLED_OUT_RATE},
    ],
}  # fmt: skip

_PHASES = (
    Phase("disabled", "ours", partial(_goes_by, partial(_ours, enabled=False))),
    Phase("disabled", "rival", partial(_goes_by, partial(_rival, enabled=False))),
    Phase("rate_0", "raw", partial(_goes_by, lambda: _at_random)),
    Phase("rate_0", "ours", partial(_goes_by, partial(_ours, rate=0.0))),
    Phase("rate_0", "rival", partial(_goes_by, partial(_rival, rate=0.0))),
    Phase("not_sampled", "ours", partial(_goes_by, partial(_ours, rate=subjects.SAMPLED_OUT_RATE))),
    Phase("not_sampled", "rival", partial(_goes_by, partial(_rival, rate=1e-12))),
    Phase("no_span", "ours", partial(_goes_by, partial(_ours, rate=1e-12), in_span=False)),
    Phase("no_span", "rival", partial(_goes_by, partial(_rival, rate=1e-12), in_span=False)),
    Phase("rules", "ours", partial(_goes_by, partial(_ours, rate=None, sampler=_RULES))),
    Phase("current_span", "raw", partial(_sampled, _RawSpan, in_span=True)),
    Phase("current_span", "ours", partial(_sampled, subjects.Ours, in_span=True)),
    Phase("current_span", "rival", partial(_sampled, subjects.Rival, in_span=True)),
    Phase("own_span", "raw", partial(_sampled, _RawSpan, in_span=False)),
    Phase("own_span", "ours", partial(_sampled, subjects.Ours, in_span=False)),
    Phase("own_span", "rival", partial(_sampled, subjects.Rival, in_span=False)),
    Phase("chunk", "raw", partial(streams.chunks, ours=False)),
    Phase("chunk", "ours", partial(streams.chunks, ours=True)),
    Phase("chunk_own_span", "ours", partial(streams.chunks, ours=True, in_span=False)),
    Phase("size", "ours", _sizes),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    lines: list[Figure] = []
    for case, phase, limit in (
        ("disabled by the kill switch", "disabled", None), ("rate 0, in a span", "rate_0", None),
        ("not sampled, in a span", "not_sampled", 1.0), ("not sampled, no span", "no_span", None),
        ("passed over by rules, in a span", "rules", None),
    ):  # fmt: skip
        for mode in ("sync", "async"):
            lines.append(_against_limit(found, f"{case}, {mode}", phase, mode, limit))
    for mode in ("sync", "async"):
        lines.append(_against_limit(found, f"sampled, in a span, {mode} p50", "current_span", f"{mode} p50", 15.0))
        lines.append(_against_limit(found, f"sampled, in a span, {mode} p99", "current_span", f"{mode} p99", None))
    for mode in ("sync", "async"):
        for point in ("p50", "p99"):
            lines.append(_against_span(found, mode, point))
    for mode in ("sync", "async"):
        lines.append(_against_limit(found, f"a chunk of a stream, {mode}", "chunk", mode, 0.2))
    for mode in ("sync", "async"):
        lines.append(_against_limit(found, f"a chunk, under an own span, {mode}", "chunk_own_span", mode, None))
    sizes = found["size:ours"]
    for name, size in (("small", "1 KB"), ("large", "10 MB")):
        goal = "<= 1.5 x 1 KB" if name == "large" else ""
        met = sizes["large"] <= 1.5 * sizes["small"] if goal else None
        lines.append(Figure(f"sampled answer of {size}, sync p50", "us", {"ours": sizes[name]}, goal, met))
    return lines


def _values(found: dict[str, Numbers], phase: str, name: str) -> dict[str, float | None]:
    return {
        subject: found[f"{phase}:{subject}"][name]
        for subject in ("ours", "raw", "rival") if f"{phase}:{subject}" in found
    }  # fmt: skip


def _against_limit(found: dict[str, Numbers], case: str, phase: str, name: str, limit: float | None) -> Figure:
    values = _values(found, phase, name)
    ours, rival = values["ours"] or 0.0, values.get("rival")
    goal = "" if limit is None else f"<= {limit:g}"
    if rival is not None:
        goal = f"{goal}, below the rival" if goal else "below the rival"
    met = (limit is None or ours <= limit) and (rival is None or ours < rival) if goal else None
    return Figure(case, "us", values, goal, met)


def _against_span(found: dict[str, Numbers], mode: Mode | str, point: str) -> Figure:
    values = _values(found, "own_span", f"{mode} {point}")
    ours, raw, rival = values["ours"] or 0.0, values["raw"] or 0.0, values["rival"] or 0.0
    goal = "<= 2 x a raw span, below the rival" if point == "p50" else "below the rival"
    met = ours < rival and (point != "p50" or ours <= 2 * raw)
    return Figure(f"sampled, own span, {mode} {point}", "us", values, goal, met)


BENCH = Bench(
    "caller", "Added to the caller", _PHASES, _figures,
    notes=(
        "Raw: `start_as_current_span` with five attributes; at rate 0 a wrapper that draws `random()`; for chunks a "
        "generator that passes them on.",
        "pydantic-evals always opens a span of its own around a sampled call, and takes a generator's object for its "
        "answer: it follows no stream.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
