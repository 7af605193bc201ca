"""Memory while a judge is stalled: calls of one megabyte each."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import subjects
from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine

__all__ = ["BENCH", "resident_mb"]

_MB = 1_000_000
_QUEUE_MB, _BESIDE_MB = 64, 32


def resident_mb() -> float:
    """Resident memory of this process in MiB; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _ours() -> subjects.Ours:
    from benchmarks.evaluators import Hung

    return subjects.Ours(evaluators=[Hung()])


def _rival() -> subjects.Rival:
    from benchmarks.evaluators import Hung

    return subjects.Rival(evaluators=[subjects.same_as(Hung())])


def _stalled(make: Any, size: Size) -> Numbers:
    """Growth of the resident memory over the calls, at its highest, and how many calls are accounted for."""
    subjects.use_tracing()
    subject = make()
    counter = iter(range(1 << 40))

    async def answer(question: str) -> str:
        return f"{next(counter)} " + "x" * _MB

    handler, calls = subject.wrap(answer), size.of(1_000, 20_000, 100_000)
    seen: Numbers = {}

    async def serve() -> None:
        plain = subjects.ANSWER * 1_000  # the host's own answers of that size are not ours
        await handler(plain)
        seen["before"] = highest = resident_mb()
        for index in range(calls - 1):
            await handler(subjects.QUESTION)
            if not index % 20:
                await asyncio.sleep(0)
                highest = max(highest, resident_mb())
        until = time.monotonic() + 2
        while time.monotonic() < until:  # the pool builds its inputs
            await asyncio.sleep(0.02)
            highest = max(highest, resident_mb())
        seen["growth"] = highest - seen["before"]
        seen.update(_held(subject))
        seen["calls"] = float(calls)

    async def run() -> None:
        await asyncio.wait_for(serve(), 600)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())  # not asyncio.run: its end would wait for the hung
    return seen


def _held(subject: Any) -> Numbers:
    """Calls that are held, and those together with what is counted as dropped."""
    if isinstance(subject, subjects.Ours):
        held = subject.waiting()
        return {"held": float(held), "known": float(held + sum(subject.outcomes().values()))}
    from benchmarks.evaluators import Hung

    entered = float(next(Hung.entered))
    return {"held": entered, "known": entered}


_PHASES = (Phase("stalled", "ours", partial(_stalled, _ours)), Phase("stalled", "rival", partial(_stalled, _rival)))


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    ours, rival = found["stalled:ours"], found["stalled:rival"]
    calls = ours["calls"]
    return [
        Figure(f"judge stalled, {calls:,.0f} calls of 1 MB: growth of memory", "MiB",
               {"ours": ours["growth"], "rival": rival["growth"]}, at_most(ours["growth"], _QUEUE_MB + _BESIDE_MB)),
        Figure("the same: calls held", "calls", {"ours": ours["held"], "rival": rival["held"]}),
        Figure("the same: held + counted as dropped", "calls", {"ours": ours["known"], "rival": rival["known"]},
               holds("all", ours["known"] == calls)),
    ]  # fmt: skip


BENCH = Bench(
    "memory", "Memory", _PHASES, _figures,
    notes=(
        "Memory: answers of 1 MB of text, each its own, and a judge that never answers; resident memory after the "
        "first call and at its highest. The rival holds the ten that its limit lets in and counts none of the rest.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
