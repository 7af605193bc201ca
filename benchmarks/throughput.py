"""What the background manages: bursts without loss, and responses a second with everything encoded for OTLP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import four, subjects
from benchmarks.harness import Bench, Figure, Numbers, Phase, standalone

__all__ = ["BENCH"]

_now = time.perf_counter
_BURST = 1_000
_WAIT_S = 0.02


# --- bursts -----------------------------------------------------------------------------------------------------------
async def waiting(evaluation_input: Any) -> float:
    await asyncio.sleep(_WAIT_S)
    return 1.0


def _ours(*, waits: bool) -> subjects.Ours:
    return subjects.Ours(evaluators=[waiting] if waits else None)


def _rival(*, waits: bool, limit: int = 10) -> subjects.Rival:
    return subjects.Rival(evaluator=subjects.Rival.trivial(_WAIT_S if waits else 0.0), limit=limit)


def _numbers(subject: Any, began: float, handed_over: float) -> Numbers:
    return {
        "evaluated": float(subject.evaluated()),
        "caller us": (handed_over - began) / _BURST * 1e6,
        "per s": subject.evaluated() / (_now() - began),
    }


def _sync(make: Callable[[], Any], quick: bool) -> Numbers:
    """A thousand calls one right after the other."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer)
    began = _now()
    for _ in range(_BURST):
        handler(subjects.QUESTION)
    handed_over = _now()
    subject.drain()
    return _numbers(subject, began, handed_over)


def _async(make: Callable[[], Any], quick: bool) -> Numbers:
    """A thousand calls at once on one event loop."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer_async)

    async def burst() -> tuple[float, float]:
        began = _now()
        await asyncio.gather(*(handler(subjects.QUESTION) for _ in range(_BURST)))
        handed_over = _now()
        if isinstance(subject, subjects.Rival):
            await subject.wait()
        return began, handed_over

    began, handed_over = asyncio.run(burst())
    if isinstance(subject, subjects.Ours):
        subject.drain()
    return _numbers(subject, began, handed_over)


_PHASES = (
    Phase("trivial_sync", "ours", partial(_sync, partial(_ours, waits=False))),
    Phase("trivial_sync", "rival", partial(_sync, partial(_rival, waits=False, limit=100_000))),
    Phase("trivial_async", "ours", partial(_async, partial(_ours, waits=False))),
    Phase("trivial_async", "rival", partial(_async, partial(_rival, waits=False, limit=100_000))),
    Phase("waiting_sync", "ours", partial(_sync, partial(_ours, waits=True))),
    Phase("waiting_sync", "rival", partial(_sync, partial(_rival, waits=True))),
    Phase("waiting_async", "ours", partial(_async, partial(_ours, waits=True))),
    Phase("waiting_async", "rival", partial(_async, partial(_rival, waits=True))),
    Phase("waiting_async", "unbounded", partial(_async, partial(_rival, waits=True, limit=100_000))),
    Phase("four", "ours", four.ours),
    Phase("four", "raw", four.signals_only),
    Phase("four", "rival", four.rivals),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    lines: list[Figure] = []
    for phase, words in (
        ("waiting_async", "1,000 async calls at once, 20 ms evaluator"),
        ("waiting_sync", "1,000 sync calls at once, 20 ms evaluator"),
    ):
        kept = _pair(found, phase, "evaluated")
        lines.append(Figure(f"{words}: evaluated", "of 1,000", kept, "all", kept["ours"] == _BURST))
        costs = _pair(found, phase, "caller us")
        lines.append(Figure(f"{words}: caller", "us/call", costs, "below the rival", _below(costs)))
    for phase, words in (("trivial_sync", "sync"), ("trivial_async", "async")):
        rates = _pair(found, phase, "per s")
        lines.append(Figure(f"burst of 1,000 {words}, trivial evaluator", "evaluations/s", rates, "above the rival",
                            (rates["ours"] or 0) > (rates["rival"] or 0)))  # fmt: skip
        costs = _pair(found, phase, "caller us")
        lines.append(Figure(f"the same: caller, {words}", "us/call", costs, "below the rival", _below(costs)))
    ours = found["four:ours"]
    rates = {**_pair(found, "four", "per s"), "raw": found["four:raw"]["per s"]}
    lines.append(Figure("four evaluators, 1 KB, OTLP encoding, one core", "responses/s", rates, ">= 2,000",
                        (rates["ours"] or 0) >= 2_000))  # fmt: skip
    lines.append(Figure("the same, by CPU time", "responses/s", {**_pair(found, "four", "per cpu s"),
                        "raw": found["four:raw"]["per cpu s"]}))  # fmt: skip
    lines.append(Figure("the same: evaluated and exported", "share", {"ours": min(ours["evaluated"], ours["events"]),
                        "rival": found["four:rival"]["evaluated"]}, "1", ours["evaluated"] == 1))  # fmt: skip
    lines.append(Figure("the four evaluators by themselves", "us", {"ours": ours["evaluators us"]}, "<= 100",
                        ours["evaluators us"] <= 100))  # fmt: skip
    return lines


def _pair(found: dict[str, Numbers], phase: str, name: str) -> dict[str, float | None]:
    return {subject: found[f"{phase}:{subject}"][name] for subject in ("ours", "rival")}


def _below(values: dict[str, float | None]) -> bool:
    return (values["ours"] or 0.0) < (values["rival"] or 0.0)


BENCH = Bench(
    "throughput", "In the background", _PHASES, _figures, rounds=3,
    notes=(
        "pydantic-evals runs at most ten evaluations at once and drops the rest. In the trivial bursts and with four "
        "evaluators its limit is raised so that it loses none; the bursts with 20 ms evaluators show its defaults.",
        "Four evaluators: `ResponseHealth`, `RuleBased` (length, includes), `KeywordCoverage` twice: five results a "
        "response, each an event; one run span; histograms. The process is pinned to one core, the caller included. "
        "Raw: the SDK emitting and encoding the same number of signals, without any evaluation: the ceiling.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
