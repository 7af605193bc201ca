"""A17: nothing grows under a long load: memory, threads and descriptors stay, and the accounting is
exact at its end.

Memory is judged by the slope of what the process holds, after a warm-up, at the upper end of its
confidence interval: measured while nothing waits and what was freed is with the system again, since
a busy machine lets answers wait. What single evaluations leave behind is measured at the end, under
`tracemalloc`, which would falsify the rest.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from tests.promises.programs import run_program

LONG_S = float(os.environ.get("AGENTEVAL_A17_SECONDS", "600"))
SHORT_S = 20.0
WARM_UP = 0.2
EVALUATIONS_A_SECOND = 80
MB_A_MINUTE, SHORT_MB_A_MINUTE = 0.5, 25.0
BYTES_AN_EVALUATION, SHORT_BYTES_AN_EVALUATION = 8.0, 200.0
MEMOS = 512 * 1024
"""What bounded memos may take: words and ids that were seen to hold nobody's data are remembered up
to a number, and then forgotten at once."""
BLOCKS = 12

PROGRAM = r"""
    import asyncio, ctypes, gc, itertools, json, math, os, random, sys, threading, time, tracemalloc
    seconds = float(sys.argv[1])
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from agenteval_otel import accounting, annotate, configure, flush, monitor, shutdown
    from agenteval_otel.evaluators import Func, ResponseHealth
    from agenteval_otel.config import current_pipeline
    from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider
    from tests.promises.programs import rss
    RATE, SHARE, BURST_S = 2_000, 0.04, 0.02
    turn, stored, unsaved = itertools.count(), itertools.count(), 0

    class Nowhere:
        def export(self, items): return None
        def shutdown(self): pass
        def force_flush(self, timeout_millis=0): return True

    tracers, loggers = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(Nowhere()))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(Nowhere()))
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)

    class FaultyStorage:
        type = "faulty"
        async def save_result(self, aggregated):
            global unsaved
            if next(stored) % 20 == 0:
                unsaved += 1
                raise OSError("disk full")

    def blocking(value):
        if next(turn) % 20 == 0:
            raise ValueError("bad answer")
        return len(value.response_text) > 5

    async def judge(value):
        number = next(turn)
        if number % 40 == 0:
            await asyncio.Event().wait()
        if number % 20 == 7:
            raise RuntimeError("overloaded")
        return 0.5

    configure(
        sample_rate=SHARE,
        evaluators=[ResponseHealth(), Func.of(blocking), Func.of(judge, timeout_s=0.05)],
        storage=[FaultyStorage(), JsonFileStorageProvider(path="/dev/null"),
                 OtlpStorageProvider(tracer_provider=tracers, logger_provider=loggers, meter_provider=meters)],
    )
    dice, calls = random.Random(17), 0
    tracer = tracers.get_tracer("host")

    def new_text():
        size = 10 ** dice.choice([1, 1, 1, 2, 2, 2, 3, 3, 4, 5])
        return "answer " * (max(1, (size if dice.random() < 0.9 else size * 10) // 7))

    @monitor
    def plain(kind):
        if kind == 0:
            raise ValueError("the host's own")
        annotate(response_id=f"r-{calls}", conversation_id=f"c-{calls}")
        return new_text()

    @monitor
    def stream():
        text = new_text()
        yield text[: len(text) // 2]
        yield text[len(text) // 2 :]

    @monitor
    async def later():
        return new_text()

    def call():
        global calls
        calls += 1
        kind = dice.randrange(100)
        if kind < 80:
            try:
                plain(kind)
            except ValueError:
                pass
        elif kind < 90:
            chunks = stream()
            next(chunks)
            if kind < 85:
                chunks.close()
            else:
                for _ in chunks:
                    pass
        else:
            with tracer.start_as_current_span("request"):
                try:
                    later().send(None)
                except StopIteration:
                    pass

    def sample():
        return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]

    def rest():
        flush(20.0)
        gc.collect()
        return accounting()["evaluated"]

    def hold():
        evaluated = rest()
        ctypes.CDLL(None).malloc_trim(0)
        return [time.monotonic(), rss(), evaluated]

    def load(until, samples, held, every_s=math.inf):
        due, pause = time.monotonic(), threading.Event()
        sampled = held_at = due
        while (now := time.monotonic()) < until:
            if now < due:
                pause.wait(due - now)
            due = max(due + BURST_S, time.monotonic() - 1.0)
            for _ in range(int(RATE * BURST_S)):
                call()
            if now >= sampled:
                sampled = now + 0.5
                samples.append(sample())
                reader.get_metrics_data()
            if now >= held_at + every_s:
                held.append(hold())
                held_at = time.monotonic()

    samples, held = [], []
    began, used = time.monotonic(), time.process_time()
    load(began + seconds, samples, held, max(1.0, seconds / 60))
    busy = (time.process_time() - used) / (time.monotonic() - began)
    calls_s = calls / (time.monotonic() - began)
    traced_s = min(60.0, seconds / 3)
    tracemalloc.start()
    load(time.monotonic() + traced_s / 3, [], [])
    before, evaluated = rest(), None
    bytes_before, evaluated = tracemalloc.get_traced_memory()[0], before
    first = tracemalloc.take_snapshot()
    load(time.monotonic() + traced_s, [], [])
    after = rest()
    second = tracemalloc.take_snapshot()
    grown = [
        [str(entry.traceback), entry.size_diff] for entry in second.compare_to(first, "lineno")
        if "tracemalloc" not in str(entry.traceback)
    ]
    tracemalloc.stop()
    done = flush(20.0)
    outcomes, results = accounting(), current_pipeline().accounting.results
    failures = current_pipeline().accounting.failures
    print("report", json.dumps({
        "samples": samples, "held": held, "calls": calls, "calls_s": calls_s, "busy": busy, "outcomes": outcomes,
        "results": results, "failures": failures, "unsaved": unsaved, "evaluations": after - before,
        "grown": sum(size for _, size in grown), "places": grown[:12], "done": done,
        "queue": current_pipeline().dispatcher.state(),
    }), flush=True)
    shutdown(5.0)
"""


class Slope(NamedTuple):
    """The growth of a series of samples, by least squares on the means of blocks, which are all but
    independent.

    `upper` is the upper end of the 95 % confidence interval, with Student's factor for about ten
    blocks.
    """

    value: float
    upper: float

    @classmethod
    def of(cls, times: Sequence[float], values: Sequence[float]) -> Slope:
        size = max(1, len(times) // BLOCKS)
        blocks = [slice(start, start + size) for start in range(0, len(times) - size + 1, size)]
        xs, ys = (
            [statistics.fmean(series[block]) for block in blocks] for series in (times, values)
        )
        value, start = statistics.linear_regression(xs, ys)
        off = sum((y - start - value * x) ** 2 for x, y in zip(xs, ys, strict=True))
        error = math.sqrt(off / max(1, len(xs) - 2) / (statistics.pvariance(xs) * len(xs)))
        return cls(value, value + 2.2 * error)


def warm(held: list[list[float]], seconds: float) -> list[list[float]]:
    """Return the samples after the first fifth of the time, and of the evaluations of a free core.

    What fills while a process gets warm fills with evaluations: a busy machine takes longer for it.
    """
    least = WARM_UP * seconds * EVALUATIONS_A_SECOND
    by_time = held[int(len(held) * WARM_UP) :]
    by_evaluations = [sample for sample in by_time if sample[2] >= least]
    return by_evaluations if len(by_evaluations) >= BLOCKS else by_time[len(by_time) // 2 :]


class Soak:
    def __init__(self, seconds: float) -> None:
        self.report = run_program(PROGRAM, str(seconds), timeout_s=3 * seconds + 240).report()
        samples = self.report["samples"]
        self.threads, self.descriptors = (
            [row[at] for row in samples[int(len(samples) * WARM_UP) :]] for at in (0, 1)
        )
        held = warm(self.report["held"], seconds)
        times = [at_s / 60 for at_s, _, _ in held]
        self.memory = Slope.of(times, [size / 2**20 for _, size, _ in held])
        grown = self.report["grown"] - MEMOS - self.report["queue"]["bytes"]
        self.bytes_an_evaluation = max(0, grown) / max(1, self.report["evaluations"])

    def check_rest(self) -> None:
        """Threads and descriptors stay; every call and every result is accounted for."""
        half = len(self.threads) // 2
        assert max(self.threads[half:]) <= max(self.threads[:half]) + 1
        assert max(self.descriptors[half:]) <= max(self.descriptors[:half]) + 1
        outcomes, results, failures = (
            self.report[name] for name in ("outcomes", "results", "failures")
        )
        pending = self.report["queue"]["size"]  # of a machine that had no time for us
        assert sum(outcomes.values()) + pending == self.report["calls"], (outcomes, pending)
        assert sum(results.values()) == 3 * outcomes["evaluated"], (results, outcomes)
        assert min(results["scored"], results["failed"]) > 0
        # A thread that a busy machine held is replaced, and what it was saving counts as not saved
        # in either storage.
        held, unsaved = failures.pop("background_thread", 0), failures.pop("storage:json_file", 0)
        assert bool(held) >= bool(unsaved)
        assert failures == {"storage:faulty": self.report["unsaved"] + unsaved}

    def figure(self, seconds: float) -> str:
        report = self.report
        return (
            f"{seconds:g} s, {report['calls_s']:.0f} calls/s of which {report['outcomes']['evaluated']} evaluated, "
            f"{report['busy']:.0%} of a core: memory {self.memory.value:+.2f} MB/min (upper {self.memory.upper:+.2f}), "
            f"{self.bytes_an_evaluation:.1f} bytes/evaluation, threads <= {max(self.threads)}, "
            f"descriptors <= {max(self.descriptors)}, accounting exact"
        )


@pytest.mark.parametrize(
    ("seconds", "mb_a_minute", "bytes_an_evaluation"),
    [
        (SHORT_S, SHORT_MB_A_MINUTE, SHORT_BYTES_AN_EVALUATION),
        pytest.param(LONG_S, MB_A_MINUTE, BYTES_AN_EVALUATION, marks=pytest.mark.full),
    ],
)
def test_nothing_grows(
    seconds: float, mb_a_minute: float, bytes_an_evaluation: float, promise: Callable[..., None]
) -> None:
    """Twenty seconds, and in the long form ten minutes (or `AGENTEVAL_A17_SECONDS`), leave nothing
    behind.
    """
    soak = Soak(seconds)
    promise("A17", figure=soak.figure(seconds))
    soak.check_rest()
    assert soak.memory.upper <= mb_a_minute, soak.report["held"]
    assert soak.bytes_an_evaluation <= bytes_an_evaluation, soak.report["places"]
