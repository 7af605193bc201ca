"""How long until the page: from a drop of a criterion's quality to the notification, computed from the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agenteval_otel.objectives.simulation import verdicts_to_alarm
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.plan import MonitoringPlan

RATES = 0.3, 0.7, 0.85, 0.9
_SCRAPE_S, _RULES_S, _WAIT_S = 5.0, 15.0, 10.0
"""Intervals of prometheus.yml and of the rules, and Alertmanager's wait."""
_STREAMS, _MOST = 400, 50_000


class Delay(NamedTuple):
    """Seconds from a drop to its notification: half of all drops take at most `median_s`, nine of ten `most_s`."""

    median_s: float
    most_s: float


def delays_of(
    plan: MonitoringPlan, objective: float, *, verdicts_per_s: float, processes: int, export_s: float
) -> list[Delay | None]:
    """The delay of a fall to each of `RATES`; None where that meets the objective.

    Args:
        verdicts_per_s: Of the criterion and agent, in all processes together, evenly sampled.
        processes: Which share them evenly; the first that detects the breach raises the page.
        export_s: Their metric export interval.
    """
    return [
        None if rate >= objective else _delay(plan, objective, rate, verdicts_per_s / processes, processes, export_s)
        for rate in RATES
    ]


def _delay(plan: MonitoringPlan, objective: float, rate: float, per_s: float, processes: int, export_s: float) -> Delay:
    counts = verdicts_to_alarm(plan.breach, objective, rate, streams=_STREAMS * processes, most=_MOST)
    first = np.random.default_rng(0).permutation(counts).reshape(_STREAMS, processes).min(axis=1) / per_s
    intervals = export_s + _SCRAPE_S + _RULES_S
    median, most = (float(np.quantile(first, share)) for share in (0.5, 0.9))
    return Delay(median + intervals / 2 + _WAIT_S, most + intervals + _WAIT_S)


def table_of(plan: MonitoringPlan, *, verdicts_per_s: float, processes: int = 1, export_s: float = 60.0) -> list[str]:
    """The lines of a table: a row for each criterion with an objective below 1, where processes detect breaches."""
    rows: list[Sequence[str]] = [("criterion", "objective", *(f"to {rate * 100:g} %" for rate in RATES))]
    by_objective: dict[float, Sequence[str]] = {}
    for item in plan.criteria if plan.breach.enabled else ():
        if not item.is_alerted or (objective := item.objective or 1.0) >= 1.0:
            continue
        if objective not in by_objective:
            delays = delays_of(plan, objective, verdicts_per_s=verdicts_per_s, processes=processes, export_s=export_s)
            by_objective[objective] = [_shown(delay) for delay in delays]
        of_agents = f" of {', '.join(item.agents)}" if item.agents else ""
        rows.append((f"{item.name}{of_agents}", f"{objective * 100:g} %", *by_objective[objective]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def page_of(plan: MonitoringPlan) -> str:
    """A page of Markdown: the tables for services with many verdicts, some and few."""
    tables = "".join(
        f"\n{title}:\n\n```text\n" + "\n".join(table_of(plan, verdicts_per_s=per_s)) + "\n```\n"
        for title, per_s in (("A verdict a second", 1.0), ("Ten a minute", 1 / 6), ("One a minute", 1 / 60))
    )
    return (
        "# How long until the page\n\nFrom a fall of the share of answers that pass to the notification of "
        "`AgentevalObjectiveBreached`: half of all\nfalls take at most so long, nine of ten what stands in "
        "parentheses. One process, metrics exported every minute; for\nother numbers: `agenteval-otel explain "
        f"--alerts`.\n{tables}\n{MARK} prometheus`.\n"
    )


def _shown(delay: Delay | None) -> str:
    return "-" if delay is None else f"{_duration(delay.median_s)} (90 %: {_duration(delay.most_s)})"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
