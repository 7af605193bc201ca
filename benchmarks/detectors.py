"""`python -m benchmarks detectors`: false alarms of healthy agents, and how soon a drop is detected,
where turns of a conversation are alike and where failures come in runs.

Every figure is of `Track`, as `@monitor` uses it, at an objective of 95 %: with its defaults, and
with `independent: true`, which takes each verdict as one that depends on no other. The last table
has a limit that is low enough for alarms to come, at exactly the objective: they must be no more
than it allows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import islice
from statistics import median

from agenteval_otel.objectives import BreachSettings
from agenteval_otel.objectives.evidence import Evidence, UnitSize
from agenteval_otel.objectives.track import ObjectiveVerdict, Track
from benchmarks.turns import Traffic, Verdict

OBJECTIVE = 0.95
HEALTHY = (
    Traffic("independent", 0.95),
    Traffic("independent, days from 94 to 98 %", 0.96, swing=0.02),
    Traffic("conversations of 10, alike by 0.3", 0.95, 10, 0.3),
    Traffic("conversations of 10, alike by 0.3", 0.97, 10, 0.3),
    Traffic("the same, days from 96 to 98 %", 0.97, 10, 0.3, swing=0.01),
    Traffic("conversations of 5, one verdict for all turns", 0.97, 5, 1.0),
    Traffic("conversations of 10, one verdict for all turns", 0.97, 10, 1.0),
    Traffic("conversations of 10, alike by 0.3, 5 at a time", 0.95, 10, 0.3, beside=5),
    Traffic("conversations of 10, alike by 0.6, 5 at a time", 0.97, 10, 0.6, beside=5),
    Traffic("conversations of 10, alike by 0.3, 20 at a time", 0.95, 10, 0.3, beside=20),
    Traffic("failures in runs of 3, of one reason", 0.97, run=3),
    Traffic("failures in runs of 10, of one reason", 0.98, run=10),
)
BEFORE_DROP = 0.97
DROPS = 0.85, 0.5
DROPPING = (
    Traffic("independent", BEFORE_DROP),
    Traffic("conversations of 5, alike by 0.3", BEFORE_DROP, 5, 0.3),
    Traffic("conversations of 10, alike by 0.3", BEFORE_DROP, 10, 0.3),
    Traffic("the same, 20 at a time", BEFORE_DROP, 10, 0.3, beside=20),
    Traffic("conversations of 10, one verdict for all turns", BEFORE_DROP, 10, 1.0),
)
_WARM_UP = 600
_MOST = 20_000
_LOW_LIMIT = 100


def track_of(*, independent: bool) -> Track:
    return Track(BreachSettings(remind_s=None), OBJECTIVE, independent=independent)


def shown(verdict: Verdict, number: int) -> ObjectiveVerdict:
    """The verdict as `Track` takes it, one a second."""
    return ObjectiveVerdict(
        verdict.passed, unit=verdict.unit, cause=verdict.cause, at_ns=number * 10**9
    )


def false_alarms(traffic: Traffic, count: int, *, independent: bool) -> int:
    """How often a healthy agent breaches its objective in so many verdicts."""
    track, breaches = track_of(independent=independent), 0
    for number, verdict in enumerate(islice(traffic.verdicts(1), count)):
        crossing = track.add(shown(verdict, number), float(number))
        breaches += crossing is not None and crossing.kind == "breached"
    return breaches


def delay(traffic: Traffic, rate: float, seed: int, *, independent: bool) -> int:
    """How many verdicts a drop to this rate takes to its alarm; at most 20,000, and 0 for an alarm
    before it.
    """
    track = track_of(independent=independent)
    verdicts = traffic.verdicts(seed, drop_at=_WARM_UP, drop_to=rate)
    for number, verdict in enumerate(islice(verdicts, _WARM_UP + _MOST), 1):
        if track.add(shown(verdict, number), float(number)) is not None:
            return max(0, number - _WARM_UP)
    return _MOST


def alarms_at_a_low_limit(traffic: Traffic, count: int) -> int:
    """How often the evidence reaches 100 in so many verdicts; it starts anew after each time."""

    def new() -> Evidence:
        return Evidence(worst=1 - OBJECTIVE, enough=_LOW_LIMIT, size=size)

    size = UnitSize()
    evidence, alarms = new(), 0
    for verdict in islice(traffic.verdicts(2), count):
        if evidence.add(OBJECTIVE - verdict.passed, unit=verdict.unit, cause=verdict.cause):
            evidence, alarms = new(), alarms + 1
    return alarms


def main(arguments: Sequence[str]) -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks detectors", description=__doc__)
    parser.add_argument(
        "--verdicts", type=float, default=400_000, help="of each healthy agent (default: 400000)"
    )
    parser.add_argument("--runs", type=int, default=200, help="of each drop (default: 200)")
    options = parser.parse_args(arguments)
    count = int(options.verdicts)
    print(
        f"False alarms in {count:,} verdicts, objective 95 % (promised: one in 20,000,000)\n\n"
        "| traffic | passes | alarms | with independent: true | us a verdict |\n|---|---|---|---|---|"
    )
    for traffic in HEALTHY:
        started = time.perf_counter()
        alarms = false_alarms(traffic, count, independent=False)
        each_us = (time.perf_counter() - started) / count * 1e6
        others = false_alarms(traffic, count, independent=True)
        print(
            f"| {traffic.name} | {traffic.rate:g} | {alarms} | {others} | {each_us:.1f} |",
            flush=True,
        )
    print(
        f"\nVerdicts from a drop to its alarm, median and 90th percentile of {options.runs:,} runs, "
        "97 % before\n\n| traffic | to 85 % | to 50 % |\n|---|---|---|"
    )
    for traffic in DROPPING:
        cells = []
        for rate in DROPS:
            delays = sorted(
                delay(traffic, rate, seed, independent=False) for seed in range(options.runs)
            )
            cells.append(f"{median(delays):,.0f} ({delays[int(0.9 * len(delays))]:,})")
        print(f"| {traffic.name} | {' | '.join(cells)} |", flush=True)
    print(
        f"\nAlarms in {count:,} verdicts at exactly the objective, with a limit of {_LOW_LIMIT} (at "
        f"most {count // _LOW_LIMIT:,})\n\n| traffic | alarms |\n|---|---|"
    )
    steady = [
        traffic._replace(rate=OBJECTIVE)
        for traffic in HEALTHY
        if not traffic.swing and traffic.run == 1
    ]
    for traffic in dict.fromkeys(steady):
        alarms = alarms_at_a_low_limit(traffic, count)
        print(f"| {traffic.name} | {alarms:,} |", flush=True)
