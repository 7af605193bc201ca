"""How long until the page, from a drop of quality to its notification, and how often chance pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from agenteval_otel.engine.objectives import Objective
from agenteval_otel.engine.objectives.simulation import (
    allowed_failures,
    by_chance,
    verdicts_to_alarm,
)
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion

RATES = 0.3, 0.7, 0.85, 0.9
_SCRAPE_S = 5.0
"""Interval of prometheus.yml."""
_RULES_S = 15.0
"""Interval of the rules."""
_SUM_S = 30.0
"""Interval of the rules that sum processes."""
_WAIT_S = 10.0
"""Alertmanager's wait."""
KEEP_S: Final = 900.0
"""A page lasts so much longer than its breach: as long as a restarted process takes to detect the
same one anew.
"""
_STREAMS = 400
_MOST = 50_000
_VERDICTS = 1_000_000  # of a simulation of false pages, at least
_WINDOWS = 20  # of each process in it, at least
_ONE_BY_ONE = (
    "These are the delays of answers that do not depend on one another. Conversations whose turns are alike take two "
    "to eight times as many verdicts. A total outage for one reason takes about seven minutes, however many answers "
    "there are. Of several processes, conversations count a minute after they began, and up to ten where they last "
    "longer"
)
_WRONG = 0.001  # where no failure is allowed: the share that an evaluator gets wrong


class Delay(NamedTuple):
    """Seconds from a drop to its notification.

    Half of all drops take at most `median_s`, nine of ten `most_s`.
    """

    median_s: float
    most_s: float


def delays_of(
    plan: MonitoringPlan,
    objective: Objective,
    *,
    verdicts_per_s: float,
    processes: int,
    export_s: float,
) -> list[Delay | None]:
    """Return the delay of a fall to each of `RATES`.

    A delay is None if that rate meets the objective.

    Args:
        verdicts_per_s: Of the criterion and agent, in all processes together, evenly sampled.
        processes: Which share them evenly. The page comes from the first of them that detects the
            breach, or from the evidence of all, whichever is sooner.
        export_s: Their metric export interval.
    """
    per_s = verdicts_per_s / processes
    delays: list[Delay | None] = []
    for rate in RATES:
        if rate >= objective.share:
            delays.append(None)
        else:
            delays.append(_delay(plan, objective, rate, per_s, processes, export_s))
    return delays


def _delay(
    plan: MonitoringPlan,
    objective: Objective,
    rate: float,
    per_s: float,
    processes: int,
    export_s: float,
) -> Delay:
    def alarms_of(streams: int) -> npt.NDArray[np.int64]:
        return verdicts_to_alarm(
            plan.breach,
            objective.share,
            rate,
            of_last=objective.of_last,
            streams=streams,
            most=_MOST,
        )

    # `alarms_of` sorts: shuffled, so that each row has independent processes.
    counts = np.random.default_rng(0).permutation(alarms_of(_STREAMS * processes))
    first_s = counts.reshape(_STREAMS, processes).min(axis=1) / per_s
    delay = _to_notification(first_s, export_s + _SCRAPE_S + _RULES_S)
    if processes == 1 or objective.of_last is not None:
        return delay
    summed_s = alarms_of(_STREAMS) / (per_s * processes)
    summed = _to_notification(summed_s, export_s + _SCRAPE_S + _SUM_S + _RULES_S)
    return Delay(min(delay.median_s, summed.median_s), min(delay.most_s, summed.most_s))


def _to_notification(alarms_s: npt.NDArray[np.float64], intervals_s: float) -> Delay:
    """Add what passes from the alarm to its notification: at most these intervals, half on average."""
    median_s = float(np.quantile(alarms_s, 0.5))
    most_s = float(np.quantile(alarms_s, 0.9))
    return Delay(median_s + intervals_s / 2 + _WAIT_S, most_s + intervals_s + _WAIT_S)


class FalsePages(NamedTuple):
    """Says what chance does at exactly the objective.

    It has the seconds from one page to the next, and the share of time they fire.
    """

    every_s: float
    firing: float


def false_pages(objective: Objective, *, verdicts_per_s: float, processes: int) -> FalsePages:
    """Return the false pages of an objective, simulated.

    The objective has `of_last`, or it is 1. For 1 the evaluator is wrong in 0.1 % of verdicts.
    """
    size = objective.of_last or 1
    failing = _failing_at(objective)
    steps = max(_VERDICTS // processes, _WINDOWS * size)
    random = np.random.default_rng(0)
    breached = np.zeros(steps, dtype=np.bool_)
    for _ in range(processes):
        failures = np.cumsum(random.random(steps + size) < failing, dtype=np.int32)
        breached |= failures[size:] - failures[:-size] > allowed_failures(objective)
    per_s = verdicts_per_s / processes
    keep = max(1.0, KEEP_S * per_s)
    if not breached.any():
        return FalsePages(math.inf, 0.0)
    gaps = np.diff(np.flatnonzero(breached))
    pages = 1 + int((gaps > keep).sum())
    firing = float((np.minimum(gaps, keep).sum() + keep) / steps)
    return FalsePages(steps / per_s / pages, min(1.0, firing))


def _failing_at(objective: Objective) -> float:
    return _WRONG if objective.share >= 1.0 else 1.0 - objective.share


def table_of(
    plan: MonitoringPlan, *, verdicts_per_s: float, processes: int = 1, export_s: float = 60.0
) -> list[str]:
    """Return the lines of a table: a row for each criterion whose breach processes detect and page.

    There is a column of false pages if there is an objective with `of_last`.
    """
    last = _has_of_last(plan)
    head = ["criterion", "objective", *(f"to {rate * 100:g} %" for rate in RATES)]
    if last:
        head.append("false pages")
    rows = [head]
    by_objective: dict[Objective, list[str]] = {}
    for item in plan.paged:
        objective = Objective(item.objective or 1.0, item.of_last)
        if objective not in by_objective:
            delays = delays_of(
                plan,
                objective,
                verdicts_per_s=verdicts_per_s,
                processes=processes,
                export_s=export_s,
            )
            cells = [_shown(delay) for delay in delays]
            if objective.of_last is not None:
                chance = false_pages(objective, verdicts_per_s=verdicts_per_s, processes=processes)
                cells.append(_shown_pages(chance))
            elif last:
                every_s = plan.breach.false_alarm_every / verdicts_per_s
                cells.append(f"every {_duration(every_s)}")
            by_objective[objective] = cells
        of_last = "" if objective.of_last is None else f" of last {objective.of_last:,}"
        name = f"{item.name}{_of(item)}"
        share = f"{objective.share * 100:g} %{of_last}"
        rows.append([name, share, *by_objective[objective]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return lines


def _of(item: PlannedCriterion) -> str:
    return f" of {', '.join(item.agents)}" if item.agents else ""


def warnings_of(plan: MonitoringPlan) -> Iterator[str]:
    """Yield the warnings on the objectives.

    They say which objectives cannot page, and how often those with `of_last` breach by chance.
    """
    alerted = [item for item in plan.criteria if item.is_alerted]
    if alerted and not plan.breach.enabled:
        unwatched = ", ".join(f"{item.name}{_of(item)}" for item in alerted)
        yield (
            "breach.enabled is false: no process watches the objectives, and no page comes for "
            f"{unwatched}"
        )
    for item in plan.criteria:
        if item.cannot_be_missed:
            yield f"criterion {item.name!r}{_of(item)}: an objective of 0 cannot be missed, so no alert comes from it"
    statistics = f"at most one false page in {plan.breach.false_alarm_every:,} verdicts"
    for item in plan.paged:
        if item.of_last is None:
            continue
        objective = Objective(item.objective or 1.0, item.of_last)
        who = f"criterion {item.name!r}{_of(item)}"
        failing = _failing_at(objective)
        exact = by_chance(objective, failing)
        half = by_chance(objective, failing / 2)
        if objective.share >= 1.0:
            yield (
                f"{who}: with `of_last: {item.of_last}` any failure is a breach. An evaluator that is wrong in one of "
                f"{1 / failing:,.0f} verdicts breaches it every {_rounded(exact.verdicts)} verdicts. Without `of_last` "
                f"a failure is a ticket. An objective below 1 has {statistics}"
            )
            continue
        yield (
            f"{who}: `of_last: {item.of_last}` does not rule out chance. An agent exactly at this objective of "
            f"{objective.share * 100:g} % is in breach {exact.in_breach * 100:.0f} % of the time, anew every "
            f"{_rounded(exact.verdicts)} verdicts. One with half as many failures is in breach every "
            f"{_rounded(half.verdicts)}. Without `of_last`: {statistics}"
        )


def notes_of(plan: MonitoringPlan) -> list[str]:
    """Return the notes below a table: `warnings_of`, and what false pages are."""
    means = (
        "False pages: how often chance alone pages for an agent exactly at its objective (of 100 %: with an evaluator "
        "that is wrong in one of 1,000 verdicts), and how much of the time the alert fires"
    )
    notes = []
    if any(item.of_last is None for item in plan.paged):
        notes.append(_ONE_BY_ONE)
    if _has_of_last(plan):
        notes.append(means)
    return [*notes, *warnings_of(plan)]


def _has_of_last(plan: MonitoringPlan) -> bool:
    return any(item.of_last is not None for item in plan.paged)


def _rounded(count: float) -> str:
    if count >= 1e9:
        return "1,000,000,000 or more"
    rounded = float(f"{count:.3g}")
    return f"{rounded:,.0f}"


def page_of(plan: MonitoringPlan) -> str:
    """Return a page of Markdown: the tables for services with many verdicts, some and few."""
    rates_of_verdicts = (
        ("A verdict a second", 1.0),
        ("Ten a minute", 1 / 6),
        ("One a minute", 1 / 60),
    )
    tables = ""
    for title, per_s in rates_of_verdicts:
        table = "\n".join(table_of(plan, verdicts_per_s=per_s))
        tables += f"\n{title}:\n\n```text\n{table}\n```\n"
    notes = "".join(f"\n{line}.\n" for line in notes_of(plan))
    return (
        "# How long until the page\n\nFrom a fall of the share of answers that pass to the notification of "
        "`AgentevalObjectiveBreached`: half of all\nfalls take at most so long, nine of ten what stands in "
        "parentheses. One process, metrics exported every minute. For\nother numbers: `agenteval-otel explain "
        f"--alerts`.\n{tables}{notes}\n{MARK} prometheus`.\n"
    )


def _shown(delay: Delay | None) -> str:
    if delay is None:
        return "-"
    return f"{_duration(delay.median_s)} (90 %: {_duration(delay.most_s)})"


def _shown_pages(chance: FalsePages) -> str:
    if not math.isfinite(chance.every_s):
        return "hardly any"
    if chance.firing >= 0.995:
        return "fires all the time"
    return f"every {_duration(chance.every_s)}, {chance.firing * 100:.0f} % of the time"


def _duration(seconds: float) -> str:
    for unit, size in (("years", 31_557_600.0), ("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
