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
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.promises.figures import Recorder
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
        xs, ys = _means(times), _means(values)
        value, start = statistics.linear_regression(xs, ys)
        off = sum((y - start - value * x) ** 2 for x, y in zip(xs, ys, strict=True))
        error = math.sqrt(off / max(1, len(xs) - 2) / (statistics.pvariance(xs) * len(xs)))
        return cls(value, value + 2.2 * error)


def _means(series: Sequence[float]) -> list[float]:
    """Return the mean of each block."""
    size = max(1, len(series) // BLOCKS)
    starts = range(0, len(series) - size + 1, size)
    return [statistics.fmean(series[start : start + size]) for start in starts]


def warm(held: list[list[float]], seconds: float) -> list[list[float]]:
    """Return the samples after the first fifth of the time, and of the evaluations of a free core.

    What fills while a process gets warm fills with evaluations: a busy machine takes longer for it.
    """
    least = WARM_UP * seconds * EVALUATIONS_A_SECOND
    by_time = held[int(len(held) * WARM_UP) :]
    by_evaluations = [sample for sample in by_time if sample[2] >= least]
    return by_evaluations if len(by_evaluations) >= BLOCKS else by_time[len(by_time) // 2 :]


def growth_of(held: list[list[float]], seconds: float) -> Slope:
    """Return how the memory grows, in MB a minute."""
    samples = warm(held, seconds)
    minutes = [at_s / 60 for at_s, _, _ in samples]
    return Slope.of(minutes, [size / 2**20 for _, size, _ in samples])


def assert_constant(counts: Sequence[int]) -> None:
    """In its second half the load has no more of them than in its first."""
    half = len(counts) // 2
    assert max(counts[half:]) <= max(counts[:half]) + 1


def assert_accounted(report: dict[str, Any]) -> None:
    """Every call and every result is accounted for."""
    outcomes, results, failures = report["outcomes"], report["results"], report["failures"]
    pending = report["queue"]["size"]  # of a machine that had no time for us
    assert sum(outcomes.values()) + pending == report["calls"], (outcomes, pending)
    assert sum(results.values()) == 3 * outcomes["evaluated"], (results, outcomes)
    assert min(results["scored"], results["failed"]) > 0
    # A thread that a busy machine held is replaced, and what it was saving counts as not saved
    # in either storage.
    held, unsaved = failures.pop("background_thread", 0), failures.pop("storage:json_file", 0)
    assert bool(held) >= bool(unsaved)
    assert failures == {"storage:faulty": report["unsaved"] + unsaved}


@pytest.mark.parametrize(
    ("seconds", "mb_a_minute", "bytes_an_evaluation"),
    [
        (SHORT_S, SHORT_MB_A_MINUTE, SHORT_BYTES_AN_EVALUATION),
        pytest.param(LONG_S, MB_A_MINUTE, BYTES_AN_EVALUATION, marks=pytest.mark.full),
    ],
)
def test_nothing_grows(
    seconds: float, mb_a_minute: float, bytes_an_evaluation: float, promise: Recorder
) -> None:
    """Twenty seconds, and in the long form ten minutes (or `AGENTEVAL_A17_SECONDS`), leave nothing
    behind.
    """
    report = run_program(PROGRAM, str(seconds), timeout_s=3 * seconds + 240).report()
    samples = report["samples"]
    threads, descriptors = zip(*samples[int(len(samples) * WARM_UP) :], strict=True)
    memory = growth_of(report["held"], seconds)
    grown = max(0, report["grown"] - MEMOS - report["queue"]["bytes"])
    left_bytes = grown / max(1, report["evaluations"])
    promise(
        "A17",
        figure=f"{seconds:g} s, {report['calls_s']:.0f} calls/s of which {report['outcomes']['evaluated']} evaluated, "
        f"{report['busy']:.0%} of a core: memory {memory.value:+.2f} MB/min (upper {memory.upper:+.2f}), "
        f"{left_bytes:.1f} bytes/evaluation, threads <= {max(threads)}, "
        f"descriptors <= {max(descriptors)}, accounting exact",
    )
    assert_constant(threads)
    assert_constant(descriptors)
    assert_accounted(report)
    assert memory.upper <= mb_a_minute, report["held"]
    assert left_bytes <= bytes_an_evaluation, report["places"]
