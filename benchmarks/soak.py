"""A soak: does memory grow while the same load goes on and on?"""

from __future__ import annotations

import statistics
import time
from functools import partial

from benchmarks import subjects
from benchmarks.goals import at_most
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine
from benchmarks.memory import resident_mb
from benchmarks.sink import endpoint

__all__ = ["BENCH", "slope"]

_PER_S = 50.0
_BLOCKS = 12
_T_95 = 2.228  # two-sided, ten degrees of freedom: twelve blocks, two parameters
_LIMIT = 0.5


def slope(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope per second, and its 95 % upper bound, of (seconds, value).

    From the means of twelve blocks: neighbouring samples of a process's memory are not independent, and a bound from
    each of them would be far too narrow.
    """
    per_block = len(samples) // _BLOCKS
    blocks = [samples[index * per_block : (index + 1) * per_block] for index in range(_BLOCKS)]
    times = [statistics.fmean(at for at, _ in block) for block in blocks]
    values = [statistics.fmean(value for _, value in block) for block in blocks]
    line = statistics.linear_regression(times, values)
    rest = [value - line.slope * at - line.intercept for at, value in zip(times, values, strict=True)]
    spread = sum((at - statistics.fmean(times)) ** 2 for at in times)
    error = (sum(each * each for each in rest) / (_BLOCKS - 2) / spread) ** 0.5
    return line.slope, line.slope + _T_95 * error


def _soak(size: Size) -> Numbers:
    """Fifty responses a second with eight evaluators over OTLP/HTTP; resident memory twice a second."""
    from benchmarks.evaluators import eight

    subjects.use_tracing()
    seconds = size.of(10, 45, 600)
    samples: list[tuple[float, float]] = []
    with endpoint() as address:
        subject = subjects.Ours(evaluators=eight(), telemetry={"endpoint": address, "protocol": "http/protobuf"})
        handler = subject.wrap(subjects.answer)
        began = time.monotonic()
        warm, due, index = min(60.0, seconds / 3), 0.0, 0
        while due < seconds + warm:
            due += 1 / _PER_S
            index += 1
            time.sleep(max(0.0, began + due - time.monotonic()))
            handler(f"question {index}")
            if due > warm and not index % 10:
                samples.append((due, resident_mb()))
        subject.drain()
    per_s, bound = slope(samples)
    kept = sum(subject.outcomes().values()) == index
    return {
        "slope": per_s * 60, "bound": bound * 60, "seconds": float(seconds), "calls": float(index),
        "evaluated": subject.evaluated() / index, "counted": float(kept), "resident": samples[-1][1],
    }  # fmt: skip


_PHASES = (Phase("soak", "ours", partial(_soak)),)


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    ours = found["soak:ours"]
    words = f"soak of {ours['seconds']:.0f} s, {_PER_S:g}/s"
    return [
        Figure(f"{words}: growth of memory", "MB/min", {"ours": ours["slope"]}),
        Figure("the same: 95 % upper bound", "MB/min", {"ours": ours["bound"]}, at_most(ours["bound"], _LIMIT)),
        Figure("the same: evaluated, of the calls", "share", {"ours": ours["evaluated"]}),
        Figure("the same: resident at the end", "MB", {"ours": ours["resident"]}),
    ]


BENCH = Bench(
    "soak", "Soak", _PHASES, _figures,
    notes=(
        "Soak: eight evaluators, OTLP/HTTP to another process, the warm-up left out (a third, at most a minute). A "
        "line through the means of twelve blocks. A minute is short for a bound of 0.5 MB/min: one step of the "
        "allocator shows; `--full` takes ten.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
