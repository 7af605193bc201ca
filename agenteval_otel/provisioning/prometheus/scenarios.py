"""Scenarios: tests of the rules for ``promtool test rules``, generated with them: a day of measurements.

A scenario is a service (its name is the label ``job``) whose series move as the scenario says. All scenarios happen on
the same day, so promtool checks each alert once: the services that it fires for are those whose scenario says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import quoted
from agenteval_otel.semconv import Instrument

STEP_S: Final = 600
"""Between two measurements. The rules are evaluated every half an hour: often enough for their waiting times."""
STEPS: Final = 156
"""26 hours: the longest window, and the waiting time."""
HALF_HOUR, HOUR, DAY = 3, 6, 144
"""In steps."""
_PER_DAY: Final = 250


class Series(NamedTuple):
    """One series: a metric's name, its labels besides ``job``, and its values in promtool's notation."""

    name: str
    labels: Mapping[str, str]
    values: str

    def of(self, job: str) -> dict[str, str]:
        """As promtool reads it."""
        pairs = {"job": job, "instance": "1", **self.labels}
        return {
            "series": f"{self.name}{{{', '.join(f'{k}={quoted(v)}' for k, v in pairs.items())}}}",
            "values": self.values,
        }


class Scenario(NamedTuple):
    """What happens in a service, and the names of the alerts that fire for it at the day's end.

    Attributes:
        job: Describes what happens; unique.
    """

    job: str
    series: tuple[Series, ...]
    fires: frozenset[str] = frozenset()


Row = tuple[str, bool, Series | tuple[Series, ...]]


def table(alert: str, title: str, *rows: Row) -> tuple[Scenario, ...]:
    """The scenarios of one alert: what happens (for the ``{}`` of the title), whether the alert fires, the series."""
    return tuple(
        Scenario(
            title.format(case), (series,) if isinstance(series, Series) else series,
            frozenset({alert} if fires else ()),
        )
        for case, fires, series in rows
    )  # fmt: skip


def gauge(instrument: Instrument, values: str, labels: Mapping[str, str] = {}) -> Series:
    """A gauge with values in promtool's notation."""
    return Series(instrument.prometheus_name, labels, values)


def counter(
    instrument: Instrument | str, labels: Mapping[str, str], *pieces: tuple[float, int], begins: int = 0
) -> Series:
    """A counter that grows piece by piece and then stays the same for the rest of the day.

    Args:
        instrument: The metric, or its name in Prometheus.
        labels: Its labels besides ``job``.
        pieces: Growth per step, and number of steps.
        begins: The step of its first value.
    """
    name = instrument if isinstance(instrument, str) else instrument.prometheus_name
    left = STEPS - begins - sum(steps for _, steps in pieces)
    value, values = 0.0, ([f"_x{begins}"] if begins else []) + ["0"]
    for growth, steps in (*pieces, (0.0, left)):
        if steps:
            values.append(f"{value + growth:.12g}+{growth:.12g}x{steps - 1}")
            value += growth * steps
    return Series(name, labels, " ".join(values))


def scenario_tests(plan: MonitoringPlan, alerts: Iterable[str], scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """A file for promtool: the scenarios as one day, and for each alert the services that it fires for.

    Very many scenarios become several days: promtool loads at most ten thousand samples for a query.
    """
    every = list({scenario.job: scenario for scenario in scenarios}.values())
    names = list(dict.fromkeys(alerts))
    days = [every[begin : begin + _PER_DAY] for begin in range(0, len(every), _PER_DAY)]
    return {
        "rule_files": ["../rules/agenteval-recording.yaml", "../rules/agenteval-alerts.yaml"],
        "evaluation_interval": plan.duration(HALF_HOUR * STEP_S),
        "group_eval_order": ["agenteval-recording", "agenteval-alerts"],
        "tests": [_day(plan, names, day) for day in days] if names else [],
    }


def _day(plan: MonitoringPlan, names: list[str], day: list[Scenario]) -> dict[str, Any]:
    return {
        "name": "a day of measurements", "interval": plan.duration(STEP_S),
        "input_series": [series.of(scenario.job) for scenario in day for series in scenario.series],
        "promql_expr_test": [{
            "expr": f'group by (job) (ALERTS{{alertname="{name}", alertstate="firing"}})',
            "eval_time": plan.duration(STEPS * STEP_S),
            "exp_samples": [
                {"labels": f"{{job={quoted(scenario.job)}}}", "value": 1} for scenario in day if name in scenario.fires
            ],
        } for name in names],
    }  # fmt: skip
