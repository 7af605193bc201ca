"""What the caller of a monitored handler pays, in microseconds on top of the bare call."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from benchmarks import streams, subjects
from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.loops import Wrap, at_random, goes_by, paced, sampled

__all__ = ["BENCH"]


def _sizes(size: Size) -> Numbers:
    """p50 of a sampled call that answers with 1 KB and with 10 MB of text, in turns."""
    tracer = subjects.use_tracing()
    subject = subjects.Ours(dispatcher={"type": "pool", "max_bytes": 1 << 40}, shedding=False)
    small, large = "a" * 1_000, "a" * 10_000_000
    with tracer.start_as_current_span("request"):
        handlers = subject.wrap(lambda question: small), subject.wrap(lambda question: large)
        times = paced(*handlers, size.of(200, 400))
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
        {"type": "error"},
        {"type": "slow", "above_s": 5.0, "ratio": 0.5},
        {"type": "ratio", "ratio": subjects.SAMPLED_OUT_RATE},
    ],
}

# Sampling that stepped down under load would flatter what a sampled call costs.
_SAMPLED = partial(subjects.Ours, shedding=False)

_PHASES = (
    Phase("rate_0", "raw", partial(goes_by, lambda: at_random)),
    Phase("rate_0", "ours", partial(goes_by, partial(_ours, rate=0.0))),
    Phase("rate_0", "rival", partial(goes_by, partial(_rival, rate=0.0))),
    Phase("no_span", "ours", partial(goes_by, partial(_ours, rate=0.0), in_span=False)),
    Phase("no_span", "rival", partial(goes_by, partial(_rival, rate=0.0), in_span=False)),
    Phase("not_sampled", "ours", partial(goes_by, partial(_ours, rate=subjects.SAMPLED_OUT_RATE))),
    Phase("not_sampled", "rival", partial(goes_by, partial(_rival, rate=1e-12))),
    Phase("disabled", "ours", partial(goes_by, partial(_ours, enabled=False))),
    Phase("disabled", "rival", partial(goes_by, partial(_rival, enabled=False))),
    Phase("rules", "ours", partial(goes_by, partial(_ours, rate=None, sampler=_RULES))),
    Phase("current_span", "raw", partial(sampled, subjects.RawSpan)),
    Phase("current_span", "ours", partial(sampled, _SAMPLED)),
    Phase("current_span", "rival", partial(sampled, subjects.Rival)),
    Phase("chunk", "raw", partial(streams.chunks, ours=False)),
    Phase("chunk", "ours", partial(streams.chunks, ours=True)),
    Phase("chunk_own_span", "ours", partial(streams.chunks, ours=True, in_span=False)),
    Phase("size", "ours", _sizes),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    lines: list[Figure] = []
    for case, phase, limit in (
        ("rate 0, in a span", "rate_0", 0.5),
        ("rate 0, no span", "no_span", 0.5),
        ("not sampled, in a span", "not_sampled", 1.0),
        ("disabled by the kill switch", "disabled", 0.3),
        ("passed over by rules, in a span", "rules", None),
        ("a chunk of a stream, in a span", "chunk", 0.1),
        ("a chunk of a stream, own span", "chunk_own_span", None),
    ):
        for mode in ("sync", "async"):
            values = _values(found, phase, mode)
            goal = None if limit is None else at_most(values["ours"], limit)
            lines.append(Figure(f"{case}, {mode}", "us", values, goal))
    for mode in ("sync", "async"):
        for point, limit in (("p50", 10.0), ("p99", 60.0)):
            values = _values(found, "current_span", f"{mode} {point}")
            goal = at_most(values["ours"], limit)
            lines.append(Figure(f"sampled, current span, {mode} {point}", "us", values, goal))
    sizes = found["size:ours"]
    lines.append(Figure("sampled answer of 1 KB, sync p50", "us", {"ours": sizes["small"]}))
    goal = holds("<= 1.5 x 1 KB", sizes["large"] <= 1.5 * sizes["small"])
    lines.append(Figure("sampled answer of 10 MB, sync p50", "us", {"ours": sizes["large"]}, goal))
    kept = found["current_span:ours"]["evaluated"], found["current_span:rival"]["evaluated"]
    lines.append(
        Figure(
            "of the sampled calls, 1 ms apart: evaluated",
            "share",
            {"ours": kept[0], "rival": kept[1]},
        )
    )
    return lines


def _values(found: dict[str, Numbers], phase: str, name: str) -> dict[str, float | None]:
    return {
        subject: found[f"{phase}:{subject}"][name]
        for subject in ("ours", "raw", "rival")
        if f"{phase}:{subject}" in found
    }


BENCH = Bench(
    "caller",
    "Added to the caller",
    _PHASES,
    _figures,
    rounds=2,
    notes=(
        "Added to the caller, raw: `start_as_current_span` with five attributes; at rate 0 a wrapper that draws "
        "`random()`; for chunks a generator that passes them on.",
        "pydantic-evals always opens a span of its own around a sampled call, and takes a generator's object for its "
        "answer: it follows no stream.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
