"""How fast this machine is, measured in the same run, against the machine on which the goals were set.

One factor for each kind of work, because a slow machine is not slow in everything alike: tight loops, calls with cold
caches (a millisecond apart), their tails, and the SDK emitting and encoding. Minima and CPU time where the work allows:
it is the machine's speed that is asked for, not who else was on it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFERENCE", "Machine", "machine_of"]

Numbers = dict[str, float]

REFERENCE: dict[str, tuple[str, str, float]] = {
    "random sync": ("a wrapper that draws `random()`, sync, tight loop", "us", 0.05),
    "random async": ("a wrapper that draws `random()`, async, tight loop", "us", 0.10),
    "span tight": ("a span with five attributes, 5,000 in a row; by CPU time", "us", 22.8),
    "put p50": ("`SimpleQueue.put` to a waiting thread, 1 ms apart, p50", "us", 2.23),
    "span sync p50": ("a span with five attributes, 1 ms apart, sync p50", "us", 26.0),
    "span async p50": ("a span with five attributes, 1 ms apart, async p50", "us", 26.2),
    "span sync p99": ("a span with five attributes, 1 ms apart, sync p99", "us", 134.0),
    "span async p99": ("a span with five attributes, 1 ms apart, async p99", "us", 117.0),
    "floor per s": ("SDK: run span, 8 events, metrics, encoded; by CPU time", "1/s", 1_416.0),
}
"""What is measured: in words, its unit, and the figure of the machine on which the goals were set."""


@dataclass(frozen=True)
class Machine:
    """Times slower than the machine of the goals, never below 1: a faster machine makes no goal stricter.

    Attributes:
        tight: In tight loops: the wrapper that draws `random()`.
        cold: In calls a millisecond apart: p50 of a raw span.
        tail: In the p99 of such calls.
        span: In spans one right after the other: what a background that emits does.
        emission: In the SDK's emission with OTLP encoding.
    """

    tight: float
    cold: float
    tail: float
    span: float
    emission: float
    found: Numbers

    def rows(self) -> list[list[str]]:
        """Each calibration: words, unit, there, here, times slower."""
        rows = []
        for name, (words, unit, there) in REFERENCE.items():
            here = self.found[name]
            rows.append([words, unit, f"{there:,g}", f"{here:,.3g}" if here < 1_000 else f"{here:,.0f}",
                         f"{_times(name, self.found):.1f}"])  # fmt: skip
        return rows


def machine_of(found: Numbers) -> Machine:
    """The factors from what the calibration found."""

    def factor(*names: str) -> float:
        times = [_times(name, found) for name in names]
        return max(1.0, sum(times) / len(times))

    return Machine(
        tight=factor("random sync", "random async"), cold=factor("span sync p50", "span async p50"),
        tail=factor("span sync p99", "span async p99"), span=factor("span tight"), emission=factor("floor per s"),
        found=found,
    )  # fmt: skip


def _times(name: str, found: Numbers) -> float:
    _, unit, there = REFERENCE[name]
    return there / found[name] if unit == "1/s" else found[name] / there
