"""`python -m benchmarks detectors`: false alarms of healthy agents, and how soon a drop is detected,
where turns of a conversation are alike and where failures come in runs.

Every figure is of `Track`, as `@monitor` uses it, at an objective of 95 %: with its defaults, and
with `independent: true`, which takes each verdict as one that depends on no other. "Eight, summed" is
what the rules of Prometheus make of eight processes that share the same verdicts, one a second; all
turns of a conversation are in one of them. The last table has a limit that is low enough for alarms to
come, at exactly the objective: they must be no more than it allows.
"""

from __future__ import annotations

import argparse
import random
import time
import zlib
from collections.abc import Sequence
from itertools import islice
from statistics import median

from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.objectives.evidence import Evidence, UnitSize
from agenteval_otel.engine.objectives.shared_evidence import SharedEvidence, SharedSums
from agenteval_otel.engine.objectives.simulation import SummedEvidence
from agenteval_otel.engine.objectives.track import ObjectiveVerdict, Track
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
PROCESSES = 8
_LOOK_EVERY = 30  # verdicts, one a second: the interval of the rules


def track_of(*, independent: bool) -> Track:
    return Track(BreachSettings(remind_s=None), OBJECTIVE, independent=independent)


def shown(verdict: Verdict, number: int) -> ObjectiveVerdict:
    """The verdict as `Track` takes it, one a second."""
    return ObjectiveVerdict(
        verdict.passed, unit=verdict.unit, cause=verdict.cause, at_ns=number * 10**9
    )


class Fleet:
    """Processes that share the verdicts of an agent.

    Args:
        enough: The evidence of all together that is an alarm.
    """

    def __init__(self, enough: float) -> None:
        sums = [SharedSums(0.0) for _ in range(PROCESSES)]
        self._evidence = [SharedEvidence(own, worst=1 - OBJECTIVE) for own in sums]
        self._tracks = [
            Track(BreachSettings(remind_s=None), OBJECTIVE, shared=evidence)
            for evidence in self._evidence
        ]
        self.summed = SummedEvidence(sums, enough=enough)
        self._draw = random.Random(0)

    def add(self, verdict: Verdict, number: int) -> bool:
        """Give a verdict to the process of its conversation, and tell whether that process alarms."""
        at = self._draw.randrange(PROCESSES)
        if verdict.unit is not None:
            at = zlib.crc32(verdict.unit.encode()) % PROCESSES
        return self._tracks[at].add(shown(verdict, number), float(number)) is not None

    def is_alarm(self, number: int) -> bool:
        """Tell whether the rules, when they are evaluated, find enough evidence."""
        if number % _LOOK_EVERY:
            return False
        for evidence in self._evidence:
            evidence.settle(float(number))
        return self.summed.look()


def summed_alarms(traffic: Traffic, count: int, *, enough: float, seed: int) -> int:
    """How often the evidence of all processes is enough; it starts anew after each time."""
    fleet, alarms = Fleet(enough), 0
    for number, verdict in enumerate(islice(traffic.verdicts(seed), count)):
        fleet.add(verdict, number)
        if fleet.is_alarm(number):
            alarms += 1
            fleet.summed.restart()
    return alarms


def fleet_delays(traffic: Traffic, rate: float, seed: int) -> tuple[int, int]:
    """How many verdicts of all processes a drop takes to the first process that alarms, and to the
    alarm of all together.
    """
    fleet = Fleet(BreachSettings().false_alarm_every)
    first = summed = _MOST
    warm_up = PROCESSES * _WARM_UP
    verdicts = traffic.verdicts(seed, drop_at=warm_up, drop_to=rate)
    for number, verdict in enumerate(islice(verdicts, warm_up + _MOST), 1):
        delay = max(0, number - warm_up)
        if fleet.add(verdict, number):
            first = min(first, delay)
        if fleet.is_alarm(number):
            summed = min(summed, delay)
        if max(first, summed) < _MOST:
            break
    return first, summed


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
        "| traffic | passes | alarms | with independent: true | eight, summed | us a verdict |\n"
        "|---|---|---|---|---|---|"
    )
    for traffic in HEALTHY:
        started = time.perf_counter()
        alarms = false_alarms(traffic, count, independent=False)
        each_us = (time.perf_counter() - started) / count * 1e6
        others = false_alarms(traffic, count, independent=True)
        enough = BreachSettings().false_alarm_every
        summed = summed_alarms(traffic, count, enough=enough, seed=1)
        print(
            f"| {traffic.name} | {traffic.rate:g} | {alarms} | {others} | {summed} | {each_us:.1f} |",
            flush=True,
        )
    print(
        f"\nVerdicts from a drop to its alarm, median and 90th percentile of {options.runs:,} runs, "
        "97 % before\n\n| traffic | processes | to 85 % | to 50 % |\n|---|---|---|---|"
    )
    for traffic in DROPPING:
        cells: dict[str, list[str]] = {"one": [], "eight, the first": [], "eight, summed": []}
        for rate in DROPS:
            of_one = [delay(traffic, rate, seed, independent=False) for seed in range(options.runs)]
            of_eight = [fleet_delays(traffic, rate, seed) for seed in range(options.runs)]
            cells["one"].append(_median(of_one))
            cells["eight, the first"].append(_median([first for first, _ in of_eight]))
            cells["eight, summed"].append(_median([summed for _, summed in of_eight]))
        for processes, delays in cells.items():
            print(f"| {traffic.name} | {processes} | {' | '.join(delays)} |", flush=True)
    print(
        f"\nAlarms in {count:,} verdicts at exactly the objective, with a limit of {_LOW_LIMIT} (at "
        f"most {count // _LOW_LIMIT:,})\n\n| traffic | alarms | eight, summed |\n|---|---|---|"
    )
    steady = [
        traffic._replace(rate=OBJECTIVE)
        for traffic in HEALTHY
        if not traffic.swing and traffic.run == 1
    ]
    for traffic in dict.fromkeys(steady):
        alarms = alarms_at_a_low_limit(traffic, count)
        summed = summed_alarms(traffic, count, enough=_LOW_LIMIT, seed=2)
        print(f"| {traffic.name} | {alarms:,} | {summed:,} |", flush=True)


def _median(delays: Sequence[int]) -> str:
    """The median of delays and their 90th percentile, in a cell."""
    ordered = sorted(delays)
    return f"{median(ordered):,.0f} ({ordered[int(0.9 * len(ordered))]:,})"
