"""Alerts about quality: objectives that are missed, and means below their thresholds.

The multi-window burn rate of service objectives, with factors that can fire where 1 to 50 of 100 answers may fail.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

from agenteval_otel import semconv
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.recording import (
    COUNT,
    FAIL_SHARE,
    HALF_WIDTH,
    MEAN,
    OBJECTIVE,
    THRESHOLD,
    VERDICTS,
    held_thresholds,
)
from agenteval_otel.provisioning.prometheus.rules import GROUP, Alert, figure, recorded, window


class Burn(NamedTuple):
    """One pair of windows in which the budget of failures may burn too fast.

    Attributes:
        factor: How many times the failures that the objective allows.
        towards_all: The most that the limit may lie between what is allowed (0) and everything (1): where many may
            fail the factor would ask for more failures than there are answers.
        least: Verdicts that both windows must hold at least, the long one's first.
    """

    name: str
    severity: Literal["page", "ticket"]
    long: str
    short: str
    factor: float
    towards_all: float
    least: tuple[int, int]
    for_s: float

    def limit(self, objective: float) -> float:
        """The share of failures above which it fires: always above what the objective allows, and below 1."""
        allowed = 1.0 - objective
        return round(min(self.factor * allowed, allowed + self.towards_all * objective), 12)

    def verdicts(self, objective: float) -> tuple[int, int]:
        """How many verdicts both windows must hold: `least`, and so many that chance does not pass the limit.

        A few failures are not enough, and the limit lies `_ERRORS` standard errors above what the objective allows.
        """
        limit, allowed = self.limit(objective), 1.0 - objective
        by_chance = _ERRORS**2 * allowed * objective / (limit - allowed) ** 2
        enough = math.ceil(round(max(_FEW_FAILURES / limit, by_chance), 6))
        return max(self.least[0], enough), self.least[1]


BURNS: Final = (
    Burn("AgentevalObjectiveBurnFast", "page", "6h", "30m", 6.0, 0.4, (50, 10), 120.0),
    Burn("AgentevalObjectiveBurnSlow", "ticket", "1d", "2h", 3.0, 0.2, (100, 20), 300.0),
)

LEAST_SCORES: Final = 30
_FEW_FAILURES = 5
_ERRORS = 3.3
_CRITERION = f"{{{{ $labels.{promql.CRITERION} }}}}"
_AGENT = f"{{{{ $labels.{promql.AGENT} }}}}"
_WHO = f"{_CRITERION} of {_AGENT} ({{{{ $labels.job }}}})"
_VALUE = "{{ $value | humanize }}"
_SHARE = "{{ $value | humanizePercentage }}"


def quality_alerts(plan: MonitoringPlan) -> list[Alert]:
    """All alerts about quality that the plan gives reason to."""
    return [*objective_alerts(plan), *threshold_alerts(plan)]


def objective_alerts(plan: MonitoringPlan) -> list[Alert]:
    """For each objective that is set anywhere: burning fast, burning slowly, or any failure where none is allowed."""
    objectives = sorted({one.objective for one in plan.criteria if one.is_alerted and one.objective})
    alerts: list[Alert] = []
    for objective in objectives:
        alerts += [_failure(plan)] if objective >= 1.0 else [_burning(burn, objective) for burn in BURNS]
    return alerts


def _burning(burn: Burn, objective: float) -> Alert:
    limit = burn.limit(objective)
    times = limit / (1.0 - objective)
    pairs = zip((burn.long, burn.short), burn.verdicts(objective), strict=True)
    shares, counts = [], []
    for name, least in pairs:
        shares.append(f"{recorded(FAIL_SHARE, name)} > {figure(limit)}")
        counts.append(f"{recorded(VERDICTS, name)} >= {least}")
    held = f"{recorded(OBJECTIVE)} == {figure(objective)}"
    return Alert(
        name=burn.name, expression="\nand ".join([*shares, *counts, held]), for_s=burn.for_s, severity=burn.severity,
        labels={"objective": figure(objective)},
        summary=f"{_SHARE} of the answers fail {_WHO}; its objective allows {_percent(1.0 - objective)}",
        description=(
            f"In the last {burn.long} {_SHARE} of the answers failed the criterion {_CRITERION} "
            f"of the agent {_AGENT}. There and in the last {burn.short} it is more than "
            f"{_percent(limit)}, {times:.3g} times what the objective of {figure(objective)} allows."
        ),
    )  # fmt: skip


def _failure(plan: MonitoringPlan) -> Alert:
    """Any failure where none is allowed; a counter that begins with one counts too, one that comes back does not."""
    failures = f'{semconv.METRIC_RESULTS.prometheus_name}{{{promql.LABEL}="{semconv.LABEL_FAIL}"}}'
    size = window(plan, "1h")
    new = f"({failures} > 0 unless present_over_time({failures}[{window(plan, '1d')}] offset {size}))"
    return Alert(
        name="AgentevalFailureSeen", for_s=0.0, severity="ticket", labels={"objective": "1"},
        expression=f"sum by ({', '.join(GROUP)}) (increase({failures}[{size}]) > 0 or {new})\n"
                   f"and {recorded(OBJECTIVE)} == 1",
        summary=f"An answer failed {_WHO}; its objective lets none fail",
        description=(
            f"In the last hour about {_VALUE} answers of the agent {_AGENT} "
            f"failed the criterion {_CRITERION}, whose objective is 1: all have to pass."
        ),
    )  # fmt: skip


def threshold_alerts(plan: MonitoringPlan) -> list[Alert]:
    """For each threshold without an objective: the mean lies below it, and its 95 % interval too."""
    alerts: list[Alert] = []
    for threshold in sorted(set(held_thresholds(plan).values())):
        text = figure(threshold)
        alerts.append(Alert(
            name="AgentevalMeanBelowThreshold", for_s=600.0, severity="ticket", labels={"threshold": text},
            expression=_below(text),
            summary=f"Mean score {_VALUE} in {_WHO}, below the threshold of {threshold:.4g}",
            description=(
                f"The mean of the last hour's normalized scores of the criterion {_CRITERION} of "
                f"the agent {_AGENT} is {_VALUE}. With all of its 95 % interval "
                f"it lies below {threshold:.4g}, from where on an answer passes: the typical answer fails."
            ),
        ))  # fmt: skip
    return alerts


def _below(threshold: str) -> str:
    mean, half, count = (recorded(what, "1h") for what in (MEAN, HALF_WIDTH, COUNT))
    enough, held = f"{count} >= {LEAST_SCORES}", f"{recorded(THRESHOLD)} == {threshold}"
    return "\nand ".join((mean, f"{mean} + {half} < {threshold}", enough, held))


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
