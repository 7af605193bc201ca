"""Many calls at once: who evaluates them all, who counts what it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.goals import Goal, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine

__all__ = ["BENCH"]

_now = time.perf_counter
_JUDGED, _MANY, _BOUND = 200, 5_000, 2_048
_WAIT_S = 0.02
_UNBOUNDED = 100_000


def _ours(*, judge: bool) -> subjects.Ours:
    from benchmarks.evaluators import Waiting

    return subjects.Ours(evaluators=[Waiting(wait_s=_WAIT_S)] if judge else None)


def _rival(*, judge: bool, limit: int = 10) -> subjects.Rival:
    from benchmarks.evaluators import Waiting

    return subjects.Rival(evaluators=[subjects.same_as(Waiting(wait_s=_WAIT_S) if judge else None)], limit=limit)


def _numbers(subject: Any, calls: int, began: float, handed_over: float) -> Numbers:
    counted = subject.outcomes() if isinstance(subject, subjects.Ours) else {}
    evaluated = float(subject.evaluated())
    return {
        "evaluated": evaluated,
        "counted": evaluated + sum(count for outcome, count in counted.items() if outcome != "evaluated"),
        "caller us": (handed_over - began) / calls * 1e6,
        "per s": evaluated / (_now() - began),
    }


def _sync(make: Callable[[], Any], size: Size, *, calls: int) -> Numbers:
    """The calls one right after the other."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer)
    began = _now()
    for _ in range(calls):
        handler(subjects.QUESTION)
    handed_over = _now()
    subject.drain()
    return _numbers(subject, calls, began, handed_over)


def _async(make: Callable[[], Any], size: Size, *, calls: int) -> Numbers:
    """The calls at once on one event loop."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer_async)

    async def burst() -> tuple[float, float]:
        began = _now()
        await asyncio.gather(*(handler(subjects.QUESTION) for _ in range(calls)))
        handed_over = _now()
        if isinstance(subject, subjects.Rival):
            await subject.wait()
        return began, handed_over

    began, handed_over = asyncio.run(burst())
    if isinstance(subject, subjects.Ours):
        subject.drain()
    return _numbers(subject, calls, began, handed_over)


_PHASES = tuple(
    Phase(f"{'judge' if judge else 'trivial'}_{mode}", subject,
          partial(run, partial(make, judge=judge), calls=_JUDGED if judge else _MANY))
    for judge in (True, False)
    for mode, run in (("sync", _sync), ("async", _async))
    for subject, make in (
        ("ours", _ours), ("rival", _rival), ("raised", partial(_rival, limit=_UNBOUNDED)),
    )
)  # fmt: skip


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    lines: list[Figure] = []
    for mode in ("sync", "async"):
        kept = _three(found, f"judge_{mode}", "evaluated")
        lines.append(Figure(f"{_JUDGED} {mode} calls at once, 20 ms judge: evaluated", f"of {_JUDGED}", kept,
                            holds("all", kept["ours"] == _JUDGED)))  # fmt: skip
        lines.append(Figure("the same: caller", "us/call", _three(found, f"judge_{mode}", "caller us")))
    for mode in ("sync", "async"):
        phase = f"trivial_{mode}"
        kept = _three(found, phase, "evaluated")
        lines.append(Figure(f"{_MANY:,} {mode} calls at once, trivial: evaluated", f"of {_MANY:,}", kept,
                            _within_bound(kept["ours"] or 0)))  # fmt: skip
        counted = _three(found, phase, "counted")
        lines.append(Figure("the same: evaluated + counted as not evaluated", f"of {_MANY:,}", counted,
                            holds("all", counted["ours"] == _MANY)))  # fmt: skip
        lines.append(Figure("the same: caller", "us/call", _three(found, phase, "caller us")))
        lines.append(Figure("the same: evaluated, until done", "1/s", _three(found, phase, "per s")))
    return lines


def _within_bound(evaluated: float) -> Goal:
    return holds(f">= {_BOUND:,}, the bound", evaluated >= _BOUND)


def _three(found: dict[str, Numbers], phase: str, name: str) -> dict[str, float | None]:
    return {
        "ours": found[f"{phase}:ours"][name], "raw": found[f"{phase}:raised"][name],
        "rival": found[f"{phase}:rival"][name],
    }  # fmt: skip


BENCH = Bench(
    "burst", "Bursts", _PHASES, _figures, rounds=1,
    notes=(
        f"Bursts, raw: pydantic-evals with its limit of ten at once raised to {_UNBOUNDED:,}, by hand; rival: as it "
        f"comes. Ours takes {_BOUND:,} calls into its queue as it comes, whatever is beyond is counted as dropped.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
