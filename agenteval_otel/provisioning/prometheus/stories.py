"""Tests of the rules for ``promtool test rules``, written with them: a day of measurements for each way to go wrong.

A story is a service (its name is the label ``job``) whose counters grow as the story says. All stories happen on one
day, so each alert is asked once which services it fires for: those whose story says so, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import Alert
from agenteval_otel.provisioning.promql import quoted

STEP_S: Final = 600
"""Between two measurements. The rules are evaluated every half an hour: often enough for what they wait for."""
STEPS: Final = 156
"""26 hours: the longest window, and what alerts wait for."""
HALF_HOUR, HOUR, DAY = 3, 6, 144
"""In steps."""
_OF_A_DAY: Final = 250


class Series(NamedTuple):
    """One series: a metric's name, its labels besides ``job``, and its values as promtool notes them."""

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


class Story(NamedTuple):
    """What happens in a service, and which alerts fire for it at the day's end.

    Attributes:
        job: Says what happens; unique.
        fires: Names of alerts.
    """

    job: str
    series: tuple[Series, ...]
    fires: frozenset[str] = frozenset()


def counter(name: str, labels: Mapping[str, str], *pieces: tuple[float, int], begins: int = 0) -> Series:
    """A counter that grows by so much a step for so many steps, piece by piece; the rest of the day it stands still.

    Args:
        name: The metric.
        labels: Its labels besides ``job``.
        pieces: Growth a step, and steps.
        begins: The step that it begins with; before, there is no such series.
    """
    left = STEPS - begins - sum(steps for _, steps in pieces)
    value, words = 0.0, ([f"_x{begins}"] if begins else []) + ["0"]
    for growth, steps in (*pieces, (0.0, left)):
        if steps:
            words.append(f"{value + growth:.12g}+{growth:.12g}x{steps - 1}")
            value += growth * steps
    return Series(name, labels, " ".join(words))


def story_tests(plan: MonitoringPlan, alerts: Iterable[Alert], stories: Iterable[Story]) -> dict[str, Any]:
    """A file for promtool: the stories as one day, and of each alert the services that it fires for.

    Very many stories are several days: promtool loads no more than ten thousand samples for a query.
    """
    told = list(stories)
    names = list(dict.fromkeys(alert.name for alert in alerts))
    days = [told[begin : begin + _OF_A_DAY] for begin in range(0, len(told), _OF_A_DAY)]
    tests = [
        {
            "name": "a day of measurements", "interval": plan.duration(STEP_S),
            "input_series": [one.of(story.job) for story in day for one in story.series],
            "promql_expr_test": list(_expected(plan, names, day)),
        }
        for day in days
    ]  # fmt: skip
    return {
        "rule_files": ["../rules/agenteval-recording.yaml", "../rules/agenteval-alerts.yaml"],
        "evaluation_interval": plan.duration(HALF_HOUR * STEP_S),
        "group_eval_order": ["agenteval-recording", "agenteval-alerts"],
        "tests": tests if names else [],
    }  # fmt: skip


def _expected(plan: MonitoringPlan, names: list[str], stories: list[Story]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield {
            "expr": f'group by (job) (ALERTS{{alertname="{name}", alertstate="firing"}})',
            "eval_time": plan.duration(STEPS * STEP_S),
            "exp_samples": [
                {"labels": f"{{job={quoted(story.job)}}}", "value": 1} for story in stories if name in story.fires
            ],
        }
