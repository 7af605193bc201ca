"""A2: evaluators that compute do not hold up the host's event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import run_program

P50_MS, P99_MS, MAX_MS = 0.1, 5.0, 50.0
SHORT_S, FULL_S, ATTEMPTS = 3.0, 20.0, 3
PROGRAM = """
    import asyncio, json, sys, threading, time
    seconds = float(sys.argv[1])
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.storage import JsonFileStorageProvider
    from tests.testing.computing import Computing, compute

    CPU_S, EVALUATORS, PER_S = 0.005, 4, 50
    configure(
        evaluators=[Computing(criterion_name=f"c{number}", cpu_s=CPU_S) for number in range(EVALUATORS)],
        storage=[JsonFileStorageProvider(path="/dev/null")], sample_rate=1.0, load_shedding={"enabled": False},
    )

    @monitor
    async def answer(question):
        return "an answer to " + question

    async def lags(for_s):
        # A timer of one millisecond, and how late it comes.
        late_ms, end = [], time.perf_counter() + for_s
        while (begun := time.perf_counter()) < end:
            await asyncio.sleep(0.001)
            late_ms.append((time.perf_counter() - begun - 0.001) * 1000)
        late_ms.sort()
        return [late_ms[len(late_ms) // 2], late_ms[len(late_ms) * 99 // 100], late_ms[-1]]

    async def calls(evaluated):
        # The same responses with and without evaluation: what answering costs itself is in both.
        handler = answer if evaluated else answer.__wrapped__
        while True:
            await handler("a question")
            await asyncio.sleep(1 / PER_S)

    async def beside(evaluated, for_s):
        load = asyncio.ensure_future(calls(evaluated))
        await asyncio.sleep(for_s / 5)
        measured = await lags(for_s)
        load.cancel()
        return measured

    async def main():
        await beside(True, 2.0)  # starts what is to be started
        idle = await beside(False, seconds)
        child = await beside(True, seconds)
        idle = [min(pair) for pair in zip(idle, await beside(False, seconds), strict=True)]
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                compute(CPU_S)
        threads = [threading.Thread(target=busy) for _ in range(EVALUATORS)]
        for thread in threads:
            thread.start()
        on_threads = await beside(False, seconds / 2)
        stop.set()
        for thread in threads:
            thread.join()
        return {"idle": idle, "child": child, "threads": on_threads}

    report = asyncio.run(main())
    flush(0.1)
    report["evaluated"] = accounting()["evaluated"]
    print("report", json.dumps(report), flush=True)
    print("main_ended", time.monotonic(), flush=True)
"""


class Lags(NamedTuple):
    """How late a timer of one millisecond came, in milliseconds."""

    p50: float
    p99: float
    max: float


class Measured(NamedTuple):
    idle: Lags
    child: Lags
    threads: Lags

    @property
    def in_words(self) -> str:
        idle, child, threads = map(_in_words, self)
        return f"loop lag p50/p99/max {child} ms, idle {idle} ms, the same on threads {threads} ms"


def _in_words(lags: Lags) -> str:
    return f"{lags.p50:.2f}/{lags.p99:.1f}/{lags.max:.0f}"


def is_little(lag: Measured) -> bool:
    """Tell whether evaluators add little, where the same work on threads adds much.

    Where other programs make the idle loop late too, the threads are the measure.
    """
    idle, child, threads = lag
    p99 = max(P99_MS, (threads.p99 - idle.p99) / 3)
    p50 = max(1.0, (threads.p50 - idle.p50) / 3)
    return child.p99 - idle.p99 <= p99 and child.p50 - idle.p50 <= p50


def is_as_idle(lag: Measured) -> bool:
    """Tell whether p99 is idle + 5 ms at most, the maximum 50 ms or idle's, the median idle + 0.1 ms."""
    idle, child, _ = lag
    return (
        child.p50 - idle.p50 <= P50_MS
        and child.p99 - idle.p99 <= P99_MS
        # A machine that stalls an idle process stalls this one too.
        and child.max <= max(MAX_MS, idle.max)
    )


@pytest.mark.parametrize(
    ("seconds", "is_kept"),
    [(SHORT_S, is_little), pytest.param(FULL_S, is_as_idle, marks=pytest.mark.full)],
)
def test_evaluators_that_compute_are_not_felt(
    seconds: float, is_kept: Callable[[Measured], bool], promise: Recorder
) -> None:
    """Four evaluators at full load hardly add to the lag of the host's event loop.

    A machine that is busy with other things may spoil a measurement: the third one counts in any
    case.
    """
    for _ in range(ATTEMPTS):
        report = run_program(PROGRAM, str(seconds), timeout_s=60 + 10 * seconds).report()
        assert report["evaluated"] >= 10, "a load that does not compute proves nothing"
        lag = Measured(*(Lags(*report[name]) for name in ("idle", "child", "threads")))
        if is_kept(lag):
            break
    promise("A2", figure=lag.in_words)
    assert is_kept(lag), lag.in_words
