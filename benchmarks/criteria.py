"""Criteria: processor time of an answer with 1 to 50 of them, from its call to its encoded telemetry,
where the application has no providers; and what each criterion adds, beside a raw span.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from benchmarks.emission import own_providers
from benchmarks.goals import holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.providers import Nowhere
from benchmarks.subjects import QUESTION, Ours, RawSpan, answer

__all__ = ["BENCH"]

_COUNTS = (1, 2, 8, 50)
_MOST_SPANS = 2.0
_RAW = "raw span"
_PATIENCE_S = 300.0


def _measured(size: Size) -> Numbers:
    """The least of several rounds, in which every number of criteria and a raw span take turns."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    from agenteval_otel import accounting, flush
    from agenteval_otel.storage import OtlpStorageProvider
    from agenteval_otel.telemetry.emitter import Emitter

    class Unsent(OtlpStorageProvider, type="benchmark_unsent"):
        @cached_property
        def emitter(self) -> Emitter:
            return Emitter(own_providers())

    storage = Unsent()
    # Providers that are not the process's: ours emits through its own.
    traced = RawSpan(Nowhere(encode=False).traces.get_tracer("host")).wrap(answer)
    answers, rounds = size.of(100, 1_000), size.of(1, 5)
    handlers = {count: _monitored(count, storage) for count in _COUNTS}
    least: Numbers = {}
    for _ in range(rounds + 1):  # the first warms up
        before, least = least, {_RAW: _taken_us(traced, lambda: None, 5 * answers)}
        for count, handler in handlers.items():
            calls = max(50, 4 * answers // max(4, count))
            least[str(count)] = _taken_us(handler, lambda: flush(_PATIENCE_S), calls)
        least = {name: min(taken, before.get(name, taken)) for name, taken in least.items()}
    outcomes = accounting()
    assert outcomes["evaluated"] == sum(outcomes.values()), outcomes
    assert not storage.emitter.providers.lost
    return least


def _monitored(count: int, storage: Any) -> Callable[[str], str]:
    from agenteval_otel import monitor
    from benchmarks.evaluators import Busy

    evaluators = [
        Busy(criterion_name=f"criterion_{number}", loops=0, execution="inline")
        for number in range(count)
    ]
    if count == _COUNTS[0]:
        Ours(evaluators=evaluators, shedding=False, storage=[storage])

    def handler(question: str) -> str:
        return answer(question)

    handler.__name__ = handler.__qualname__ = f"answer_{count}"
    return monitor(evaluators=evaluators)(handler)


def _taken_us(handler: Callable[[str], str], drain: Callable[[], Any], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        handler(QUESTION)
    drain()
    return (time.process_time() - began) / calls * 1e6


def _figures(medians: dict[str, Numbers]) -> list[Figure]:
    taken = medians["criteria:ours"]
    raw, first = taken[_RAW], taken[str(_COUNTS[0])]
    lines = [Figure(f"answer with {_COUNTS[0]}", "us", {"ours": first, "raw": raw})]
    for count in _COUNTS[1:]:
        added = (taken[str(count)] - first) / (count - _COUNTS[0])
        met = added <= _MOST_SPANS * raw
        goal = holds(f"<= {_MOST_SPANS:g} x raw", met)
        lines.append(
            Figure(f"each further criterion, of {count}", "us", {"ours": added, "raw": raw}, goal)
        )
    return lines


BENCH = Bench(
    "criteria",
    "Criteria: processor time",
    (Phase("criteria", "ours", _measured),),
    _figures,
    rounds=3,
    notes=("Criteria, raw: a span of the SDK with five attributes, in the same process.",),
)

if __name__ == "__main__":
    standalone(BENCH)
