"""What the host's requests and its event loop feel while evaluators work hard."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.goals import Goal, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine
from benchmarks.sink import endpoint

__all__ = ["BENCH"]

_now = time.perf_counter
_RATE = 50.0
_CPU_S = 0.005
_SLOW_S = 0.02


# --- requests: fifty a second, Poisson --------------------------------------------------------------------------------
def _serve(question: str) -> str:
    time.sleep(0.002)
    return subjects.ANSWER


async def _serve_async(question: str) -> str:
    await asyncio.sleep(0.002)
    return subjects.ANSWER


def _arrivals(seconds: int) -> list[float]:
    draw, at, arrivals = random.Random(7), 0.0, []
    while at < seconds:
        at += draw.expovariate(_RATE)
        arrivals.append(at)
    return arrivals


def _spread(latencies: list[float]) -> Numbers:
    settled = latencies[20:]  # the first ones start threads, children, connections
    return {"p50": _quantile(settled, 0.5) * 1e3, "p99": _quantile(settled, 0.99) * 1e3}


def _quantile(values: list[float], share: float) -> float:
    # One that occurred: between few values far apart an interpolated p99 may lie beyond all of them.
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _requests(make: Callable[[], Any], size: Size) -> Numbers:
    """Milliseconds from the scheduled arrival to the answer, on a pool of threads."""
    subjects.use_tracing()
    handler, latencies = make()(_serve), []

    def request(due: float) -> None:
        handler(subjects.QUESTION)
        latencies.append(_now() - due)

    with ThreadPoolExecutor(32) as pool:
        began = _now()
        for at in _arrivals(size.of(2, 8, 30)):
            time.sleep(max(0.0, began + at - _now()))
            pool.submit(request, began + at)
    return _spread(latencies)


def _requests_async(make: Callable[[], Any], size: Size) -> Numbers:
    """The same on one event loop."""
    subjects.use_tracing()
    handler, latencies = make()(_serve_async), []

    async def request(due: float) -> None:
        await handler(subjects.QUESTION)
        latencies.append(_now() - due)

    async def serve() -> None:
        began, tasks = _now(), []
        for at in _arrivals(size.of(2, 8, 30)):
            await asyncio.sleep(max(0.0, began + at - _now()))
            tasks.append(asyncio.create_task(request(began + at)))
        await asyncio.gather(*tasks)

    asyncio.run(serve())
    return _spread(latencies)


def _bare() -> Any:
    return lambda handler: handler


def _ours() -> Any:
    from benchmarks.evaluators import Busy, loops_for

    return subjects.Ours(evaluators=[Busy(loops=loops_for(_CPU_S))]).wrap


def _rival() -> Any:
    from benchmarks.evaluators import Busy, loops_for

    return subjects.Rival(evaluators=[subjects.same_as(Busy(loops=loops_for(_CPU_S)))]).wrap


# --- the loop: a timer of one millisecond -----------------------------------------------------------------------------
async def _probe(lags: list[float], until: float) -> None:
    while (began := _now()) < until:
        await asyncio.sleep(0.001)
        lags.append(_now() - began - 0.001)


async def _at_rate(handler: Callable[[str], Any], per_s: float, until: float) -> None:
    due, index = _now(), 0
    while due < until:
        due += 1 / per_s
        index += 1
        await asyncio.sleep(max(0.0, due - _now()))
        await handler(f"question {index}")


def _lag(make: Callable[[Any, str], list[tuple[Any, float]]], size: Size) -> Numbers:
    """p50, p99 and longest lag of the host's loop, in milliseconds, while its handlers are called at their rates."""
    subjects.use_tracing()
    lags: list[float] = []
    with contextlib.ExitStack() as stack:
        made: list[Any] = []
        handlers = make(made, stack.enter_context(endpoint()))

        async def host() -> float:
            warm_until = _now() + 2.0
            await asyncio.gather(*(_at_rate(handler, rate, warm_until) for handler, rate in handlers))
            before = sum(subject.evaluated() for subject in made)
            began = _now()
            until = began + size.of(2, 8, 30)
            await asyncio.gather(_probe(lags, until), *(_at_rate(handler, rate, until) for handler, rate in handlers))
            return (sum(subject.evaluated() for subject in made) - before) / (_now() - began)

        per_s = asyncio.run(host())
    p50, p99 = _quantile(lags, 0.5) * 1e3, _quantile(lags, 0.99) * 1e3
    return {"p50": p50, "p99": p99, "max": max(lags) * 1e3, "emitted": per_s}


def _idle(made: list[Any], address: str) -> list[tuple[Any, float]]:
    return [(subjects.answer_async, _RATE)]


def _loaded(made: list[Any], address: str, *, per_s: float, cpu: bool = True) -> list[tuple[Any, float]]:
    """Four evaluators that take a whole core, and other responses with four light ones that are emitted."""
    from benchmarks.evaluators import Busy, eight, loops_for

    emits = {"telemetry": {"endpoint": address, "protocol": "http/protobuf"}}
    light = subjects.Ours(evaluators=[each for each in eight() if each.resolved_execution == "inline"][:4], **emits)
    made.append(light)
    handlers = [(light.wrap(subjects.answer_async), per_s)]
    if cpu:
        loops = loops_for(_SLOW_S)
        four = [Busy(criterion_name=f"busy_{index}", loops=loops) for index in range(4)]
        heavy = subjects.Ours(evaluators=four, **emits)
        handlers.append((heavy.wrap(subjects.answer_async), 1 / (4 * _SLOW_S)))
    return handlers


def _rivals_load(made: list[Any], address: str) -> list[tuple[Any, float]]:
    from benchmarks.evaluators import Busy, eight, loops_for

    loops = loops_for(_SLOW_S)
    inline = [each for each in eight() if each.resolved_execution == "inline"][:4]
    light = subjects.Rival(evaluators=[subjects.same_as(each) for each in inline])
    made.append(light)
    four = [subjects.same_as(Busy(criterion_name=f"busy_{index}", loops=loops)) for index in range(4)]
    heavy = subjects.Rival(evaluators=four)
    return [(light.wrap(subjects.answer_async), _RATE), (heavy.wrap(subjects.answer_async), 1 / (4 * _SLOW_S))]


_PHASES = (
    *(
        Phase(f"requests_{mode}", subject, partial(run, make))
        for mode, run in (("sync", _requests), ("async", _requests_async))
        for subject, make in (("raw", _bare), ("ours", _ours), ("rival", _rival))
    ),
    Phase("lag", "raw", partial(_lag, _idle)),
    Phase("lag", "ours", partial(_lag, partial(_loaded, per_s=50.0))),
    Phase("lag", "rival", partial(_lag, _rivals_load)),
    Phase("lag_200", "ours", partial(_lag, partial(_loaded, per_s=200.0))),
    Phase("emission_50", "ours", partial(_lag, partial(_loaded, per_s=50.0, cpu=False))),
    Phase("emission_200", "ours", partial(_lag, partial(_loaded, per_s=200.0, cpu=False))),
)


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    lines: list[Figure] = []
    for mode in ("sync", "async"):
        for point in ("p50", "p99"):
            values = {
                subject: found[f"requests_{mode}:{subject}"][point] for subject in ("ours", "raw", "rival")
            }  # fmt: skip
            met = values["ours"] <= 1.3 * values["raw"]
            goal = holds("<= 1.3 x bare", met) if point == "p99" else None
            lines.append(Figure(f"requests, 5 ms CPU evaluator, {mode} {point}", "ms", dict(values), goal))
    idle = found["lag:raw"]
    for words, phase, rivals in (
        ("loop lag, 4 CPU evaluators, 50/s emitted", "lag", True), ("the same, 200/s emitted", "lag_200", False),
        ("loop lag, light evaluators, 50/s emitted", "emission_50", False),
        ("the same, 200/s emitted", "emission_200", False),
    ):  # fmt: skip
        ours = found[f"{phase}:ours"]
        for point in ("p99", "max"):
            values: dict[str, float | None] = {"ours": ours[point], "raw": idle[point]}
            if rivals:
                values["rival"] = found["lag:rival"][point]
            goal = _near(ours[point], idle[point]) if point == "p99" and "200" not in words else None
            lines.append(Figure(f"{words}: {point}", "ms", values, goal))
        if phase.startswith("lag"):
            rate: dict[str, float | None] = {"ours": ours["emitted"]}
            if rivals:
                rate["rival"] = found["lag:rival"]["emitted"]
            lines.append(Figure("the same: light responses evaluated", "1/s", rate))
    return lines


def _near(ours: float, idle: float) -> Goal:
    return holds("<= idle + 5 ms", ours <= idle + 5)


BENCH = Bench(
    "host", "What the host feels", _PHASES, _figures,
    notes=(
        "Requests: 50 a second, Poisson, a handler of 2 ms I/O, one evaluator of 5 ms pure Python on each; from the "
        "scheduled arrival. Raw: the bare handler.",
        "Loop lag: a timer of 1 ms in the host's loop. Four evaluators of 20 ms pure Python each on 12.5 responses a "
        "second (a whole core), beside them 50 or 200 responses a second with four light evaluators, all emitted "
        "over OTLP/HTTP to another process. Raw: the same loop and handler without evaluation.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
