"""Evaluations a second on one core: one trivial evaluator, everything emitted, with OTLP encoding and without."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.calibrate import on_one_core, signals_only
from benchmarks.goals import at_least
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine
from benchmarks.providers import Nowhere

__all__ = ["BENCH", "ours", "rival"]

_now = time.perf_counter
_WARM = 200


def ours(
    size: Size, *, encode: bool, evaluators: Any = None, calls: tuple[int, int] = (2_000, 8_000), events: int = 1
) -> Numbers:
    """Calls, evaluations and emission of ours on one core; the caller waits while the queue is well filled.

    So that nothing is dropped; whatever is, is counted, and evaluated and dropped add up to the calls.
    """
    on_one_core()
    providers = Nowhere(encode=encode)
    subject = subjects.Ours(
        evaluators=evaluators, storage=[providers.storage()], own_span="never", **subjects.UNRESTRAINED
    )
    handler, total = subject.wrap(subjects.answer), size.of(*calls)
    for _ in range(_WARM):
        handler(subjects.QUESTION)
    subject.drain()
    providers.flush()
    before, began, cpu = dict(providers.counts), _now(), time.process_time()
    for index in range(total):
        while not index % 50 and subject.waiting() > 1_000:
            time.sleep(0.002)
        handler(subjects.QUESTION)
    subject.drain()
    providers.flush()
    took, used = _now() - began, time.process_time() - cpu
    emitted = providers.counts["events"] - before["events"]
    evaluated = subject.evaluated() - _WARM
    return {
        "per s": evaluated / took, "per cpu s": evaluated / used, "evaluated": evaluated / total,
        "dropped": subject.dropped() / total, "events": emitted / total / events,
        "bytes": (providers.counts["bytes"] - before["bytes"]) / total,
    }  # fmt: skip


def rival(
    size: Size, *, encode: bool, sync: bool = False, evaluators: Any = (), calls: tuple[int, int] = (500, 3_000)
) -> Numbers:
    """The same of pydantic-evals, its limit raised so that it loses none: 50 calls at a time where they are async."""
    on_one_core()
    providers = Nowhere(encode=encode)
    providers.set_globally()
    subject = subjects.Rival(evaluators=evaluators, limit=100_000)
    total = size.of(*calls)
    coroutine, plain = subject.wrap(subjects.answer_async), subject.wrap(subjects.answer)

    async def run() -> None:
        for _ in range(total // 50):
            await asyncio.gather(*(coroutine(subjects.QUESTION) for _ in range(50)))
        await subject.wait()

    began, cpu = _now(), time.process_time()
    if sync:
        for _ in range(total):
            plain(subjects.QUESTION)
        subject.drain()
    else:
        asyncio.run(run())
    providers.flush()
    took, used = _now() - began, time.process_time() - cpu
    results = subject.evaluated() / max(1, len(evaluators))
    return {"per s": results / took, "per cpu s": results / used, "evaluated": results / total}


_PHASES = (
    Phase("no_op", "ours", partial(ours, encode=False)),
    Phase("no_op", "rival", partial(rival, encode=False)),
    Phase("no_op_sync", "rival", partial(rival, encode=False, sync=True, calls=(300, 1_000))),
    Phase("encoded", "ours", partial(ours, encode=True)),
    Phase("encoded", "raw", partial(signals_only, events=1, records=3)),
    Phase("encoded", "rival", partial(rival, encode=True)),
)


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    no_op, encoded, floor = found["no_op:ours"], found["encoded:ours"], found["encoded:raw"]
    rivals = found["no_op:rival"]["per s"], found["encoded:rival"]["per s"]
    sync = found["no_op_sync:rival"]["per s"]
    return [
        Figure("one trivial evaluator, no-op exporter, one core", "1/s", {"ours": no_op["per s"], "rival": rivals[0]},
               at_least(no_op["per s"], 10_000, times=machine.span)),
        Figure("the same, the rival's sync handler", "1/s", {"ours": no_op["per s"], "rival": sync}),
        Figure("one trivial evaluator, OTLP encoding, one core", "1/s",
               {"ours": encoded["per s"], "raw": floor["per s"], "rival": rivals[1]},
               at_least(encoded["per s"], 5_000, times=machine.emission)),
        Figure("the same, by CPU time", "1/s", {"ours": encoded["per cpu s"], "raw": floor["per cpu s"],
               "rival": found["encoded:rival"]["per cpu s"]}),
        Figure("the same: evaluated, of the calls", "share",
               {"ours": encoded["evaluated"], "rival": found["encoded:rival"]["evaluated"]}),
    ]  # fmt: skip


BENCH = Bench(
    "throughput", "Evaluations a second", _PHASES, _figures,
    notes=(
        "Evaluations a second: the whole process, caller included, pinned to one core; ours emits a run span, an "
        "event and metrics for each response, the rival a span and an event; its limit of ten at once is raised, so "
        "that it loses none. Raw: the SDK emitting and encoding the same number of signals, without any evaluation: "
        "the ceiling.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
