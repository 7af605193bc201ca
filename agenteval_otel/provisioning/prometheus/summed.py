"""Recording rules that sum the evidence of all processes of a service, and their scenarios.

Each process exports what the bets against an objective gained and lost
(`objectives.shared_evidence`). A rule keeps the wealth of the gamblers who bet on the verdicts of
all processes: what it was, times what was gained and lost since the last evaluation, and a gambler
for each new verdict.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.engine.objectives.evidence import BETS
from agenteval_otel.engine.objectives.simulation import MOST_AT_ONCE
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import (
    GROUP,
    STEPS,
    Scenario,
    Series,
    by,
    figure,
    recorded,
    scenario,
)
from agenteval_otel.provisioning.promql import label_name
from agenteval_otel.semconv import Instrument

INTERVAL_S: Final = 30.0
WEALTH: Final = "objective_wealth"
_SEEN = "objective_seen"
_NET_GAIN = "objective_net_gain"
_RUN_GAIN = "objective_run_gain"
_COUNTER: Final = "counter"
"""The label of what is a metric's own name before it is seen."""
_BET: Final = label_name(names.OBJECTIVE_BET)
_OF_BET: Final = (*GROUP, _BET)
_MEMORY_S: Final = 900.0
"""How long a process, or all, may be away and go on where they were. Not scaled: it is compared with
the age that processes tell.
"""
_MEMORY: Final = f"{round(_MEMORY_S / 60)}m"
_MOST: Final = 100.0
"""How far the evidence goes beyond what is enough: further, it would take longer to recover."""


def is_summed(plan: MonitoringPlan) -> bool:
    """Tell whether the breach of any criterion is decided by evidence."""
    return any(item.of_last is None for item in plan.paged)


def summing_rules(plan: MonitoringPlan) -> dict[str, str]:
    """Return expressions by recorded names, in the order in which they have to be evaluated."""
    if not is_summed(plan):
        return {}
    net = recorded(_NET_GAIN)
    run = recorded(_RUN_GAIN)
    wealth = recorded(WEALTH)
    # One evaluation back and not two.
    last = plan.duration(1.5 * INTERVAL_S, at_least_s=1.5)
    gained = _since_last("gain")
    lost = _since_last("loss")
    of_runs = _since_last("run_gain")
    verdicts = _since_last("verdicts")
    most = figure(_MOST * plan.breach.false_alarm_every)
    # All counters of a process at one moment, which later rules compare with the last such moment. A
    # scrape may end between two rules, and an evaluation may be missed.
    counters = names.METRIC_OBJECTIVE_GAIN.prometheus_name.replace(
        "gain", "(gain|loss|run_gain|verdicts)"
    )
    seen = (
        f'label_replace({{__name__=~"{counters}"}}, "{_COUNTER}", "$1", "__name__", "{counters}")'
    )
    net_gain = f"sum {by(_OF_BET)} (\n{gained}\n)\n- sum {by(_OF_BET)} (\n{lost}\n)"
    # An outage is one piece of evidence, however many processes see it. Their exports spread over a
    # minute, so of two evaluations one counts.
    run_gain = f"max {by(_OF_BET)} (\n{of_runs}\n)\nunless max_over_time({run}[{last}]) > 0"
    before = f"(last_over_time({wealth}[{_MEMORY}]) or 0 * {net})"
    growth = f"exp(clamp_max({net} + ({run} or 0 * {net}), {figure(MOST_AT_ONCE)}))"
    new_gamblers = f"group_left () sum {by(GROUP)} (\n{verdicts}\n)"
    gamblers = (
        "clamp_max(\n"
        f"  {before}\n"
        f"  * {growth}\n"
        f"  + on ({', '.join(GROUP)}) {new_gamblers},\n"
        f"{most})"
    )
    return {recorded(_SEEN): seen, net: net_gain, run: run_gain, wealth: gamblers}


def summed_breach(plan: MonitoringPlan) -> str:
    """Return an expression that is 1 if the evidence of all processes is enough, else 0."""
    enough = figure(plan.breach.false_alarm_every)
    return f"avg {by(GROUP)} ({recorded(WEALTH)}) >= bool {enough}"


def _since_last(counter: str) -> str:
    """Return an expression of what a counter of each process gained since the last evaluation.

    The difference of two samples, not `increase`, which extrapolates: differences add up to what
    the process counted. A young process that was not seen before, or began anew, has gained all
    that it has. An older one was away, and what it counted meanwhile is left out.
    """
    seen = f'{recorded(_SEEN)}{{{_COUNTER}="{counter}"}}'
    before = f"last_over_time({seen}[{_MEMORY}] offset 1ms)"
    is_young = f"{names.METRIC_OBJECTIVE_AGE.prometheus_name} < {figure(_MEMORY_S)}"
    return f"  {seen} - {before} >= 0\n  or\n  {seen} and ignoring ({_COUNTER}, {_BET}) {is_young}"


# --- scenarios, in steps of an evaluation

STEP_S: Final = round(INTERVAL_S)
_PROCESSES: Final = 8
_OBJECTIVE: Final = 0.95
_HEALTHY = 0.97
_FALLEN = 0.7
_Pieces = tuple[tuple[float | None, int], ...]
"""Shares that pass, and steps. With None nothing happens."""


def summed_scenarios(
    plan: MonitoringPlan, fires: str, labels: Mapping[str, str]
) -> tuple[Scenario, ...]:
    """Return scenarios of eight processes, each of which has an eighth of the verdicts.

    The eight have eight verdicts in a step together.
    """
    fallen = _steps_to_page(plan)
    well = STEPS - fallen
    half = fallen // 2

    def fleet(job: str, expected: str, *pieces: tuple[float | None, int]) -> Scenario:
        return scenario(job, expected, *_fleet(labels, pieces))

    falling = ((_HEALTHY, well), (_FALLEN, fallen))
    one_falls = _process(labels, "1", falling)
    replaced = _fleet(labels, ((_HEALTHY, well), (_FALLEN, half)))
    replaced += _fleet(labels, ((_FALLEN, half),), prefix="new ", since=STEPS - half + 1)
    unscraped = _fleet(labels, falling, away=range(STEPS - half - 2, STEPS - half + 3))
    workers: list[Series] = []
    for step in range(well + 1, STEPS + 1):
        workers += _process(labels, f"{step}", ((_FALLEN, 1),), since=step, verdicts=_PROCESSES)
    returned = _fleet(labels, ((_HEALTHY, STEPS),))
    returned += _process(
        labels,
        "away",
        ((_FALLEN, 1), (_HEALTHY, 4)),
        since=STEPS - 4,
        verdicts=1_000.0,
        age_s=2 * _MEMORY_S,
    )
    short_outage = _fleet(labels, ((_HEALTHY, STEPS - 1), (None, 1)), runs=[STEPS - 1])
    return (
        fleet("eight are well", "", (_HEALTHY, STEPS)),
        fleet("eight at their objective", "", (_OBJECTIVE, STEPS)),
        fleet("eight fall", fires, *falling),
        fleet("eight fall for half the time", "", (_HEALTHY, well + half), (_FALLEN, half)),
        fleet("eight fell and recovered", "", (_FALLEN, STEPS // 2), (_HEALTHY, STEPS // 2)),
        scenario("one of the eight falls", "", *one_falls),
        scenario("eight are replaced in the fall", fires, *replaced),
        scenario("not scraped for minutes in the fall", fires, *unscraped),
        scenario("workers of one export", fires, *workers),
        scenario("an old one comes back", "", *returned),
        scenario("a short outage in eight", "", *short_outage),
        _long_outage(plan, labels),
    )


def _long_outage(plan: MonitoringPlan, labels: Mapping[str, str]) -> Scenario:
    """Return an outage of minutes, of which all steps together would be enough.

    Half of the processes tell of it in one step and half in the next.
    """
    needed = math.log(len(BETS) * plan.breach.false_alarm_every / _PROCESSES)
    lasts = 2 * math.ceil(needed / _gain(0.5) / 2)
    pieces = ((_HEALTHY, STEPS - lasts), (None, lasts))
    series: list[Series] = []
    for number in range(_PROCESSES):
        runs = range(STEPS - lasts + number % 2, STEPS, 2)
        series += _process(labels, f"{number}", pieces, runs=runs)
    return scenario("an outage of minutes", "", *series)


def _steps_to_page(plan: MonitoringPlan) -> int:
    """Return how many steps the fall of eight processes takes by the bet of 0.2, and a few more.

    The number is even.
    """
    grown_by = _PROCESSES * (_gain(0.2) * (1 - _FALLEN) - _loss(0.2) * _FALLEN)
    needed = math.log(len(BETS) * plan.breach.false_alarm_every)
    return 2 * math.ceil(needed / grown_by / 2) + 2


def _gain(bet: float) -> float:
    return math.log1p(bet * _OBJECTIVE / (1 - _OBJECTIVE))


def _loss(bet: float) -> float:
    return -math.log1p(-bet)


def _fleet(
    labels: Mapping[str, str],
    pieces: _Pieces,
    *,
    prefix: str = "",
    since: int = 0,
    runs: Collection[int] = (),
    away: Collection[int] = (),
) -> list[Series]:
    series: list[Series] = []
    for number in range(_PROCESSES):
        instance = f"{prefix}{number}"
        series += _process(labels, instance, pieces, since=since, runs=runs, away=away)
    return series


def _process(
    labels: Mapping[str, str],
    instance: str,
    pieces: _Pieces,
    *,
    since: int = 0,
    verdicts: float = 1.0,
    age_s: float = 0.0,
    runs: Collection[int] = (),
    away: Collection[int] = (),
) -> list[Series]:
    """Return the series of a process.

    Args:
        pieces: What happens. Then the process ends.
        since: The step at which it begins.
        verdicts: How many it has in each step.
        age_s: Its age when it begins.
        runs: The steps in which a run of failures begins.
        away: The steps at whose end nothing was scraped.
    """
    rates: list[float | None] = []
    for rate, steps in pieces:
        rates += [rate] * steps

    def series(metric: Instrument, growth: Sequence[float], more: Mapping[str, str] = {}) -> Series:
        # It begins with what it has after its first step, or at 0 if it was there from the start.
        # Multiples of 1/1024 are added without an error: a counter that falls is another process's.
        total = 0.0
        samples = [] if since else [0.0]
        for each in growth:
            total += round(each * 1024) / 1024
            samples.append(total)
        return shown(metric, samples, more)

    def shown(metric: Instrument, samples: Sequence[float], more: Mapping[str, str] = {}) -> Series:
        seen = [None if at in away else sample for at, sample in enumerate(samples)]
        own = {**labels, "instance": instance, **more}
        return Series(metric.prometheus_name, own, _text([*[None] * since, *seen]))

    counts = [0.0 if rate is None else verdicts for rate in rates]
    failed = [0.0 if rate is None else (1 - rate) * verdicts for rate in rates]
    passed = [0.0 if rate is None else rate * verdicts for rate in rates]
    # One that was there from the start has a sample before its first step too.
    samples = len(rates) if since else len(rates) + 1
    ages = [age_s + STEP_S * step for step in range(samples)]
    made = [
        shown(names.METRIC_OBJECTIVE_AGE, ages),
        series(names.METRIC_OBJECTIVE_VERDICTS, counts),
    ]
    for bet in BETS:
        gain = _gain(bet)
        loss = _loss(bet)
        of_bet = {_BET: f"{bet:g}"}
        gains = [count * gain for count in failed]
        losses = [count * loss for count in passed]
        made.append(series(names.METRIC_OBJECTIVE_GAIN, gains, of_bet))
        made.append(series(names.METRIC_OBJECTIVE_LOSS, losses, of_bet))
        if runs:
            of_runs = [gain if step in runs else 0.0 for step in range(len(rates))]
            made.append(series(names.METRIC_OBJECTIVE_RUN_GAIN, of_runs, of_bet))
    return made


def _text(samples: Sequence[float | None]) -> str:
    """Return samples in promtool's notation. A sample that is missing after others is stale."""
    words: list[str] = []
    at = 0
    while at < len(samples):
        first = samples[at]
        end = at + 1
        if first is None:
            while end < len(samples) and samples[end] is None:
                end += 1
            missing = end - at
            if at:
                words.append("stale")
                missing -= 1
            if missing > 0:
                words.append(f"_x{missing}")
        else:
            second = samples[end] if end < len(samples) else None
            growth = 0.0 if second is None else second - first
            while end < len(samples) and samples[end] == first + growth * (end - at):
                end += 1
            words.append(f"{first:.14g}+{growth:.14g}x{end - at - 1}")
        at = end
    return " ".join(words)
