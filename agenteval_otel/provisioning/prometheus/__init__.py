"""Prometheus's rules: recording rules, alerts, and their promtool tests.

A new alert is one registered function in `quality` or `monitor`, and its runbook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agenteval_otel.provisioning.delays import page_of
from agenteval_otel.provisioning.files import GeneratedFiles, expect_urls, yaml_text
from agenteval_otel.provisioning.pages import pages_at
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus import monitor  # noqa: F401 - registers its alerts after those of quality
from agenteval_otel.provisioning.prometheus.quality import (
    BREACHED,
    dashboard_rules,
    fleet_rules,
    recording_rules,
)
from agenteval_otel.provisioning.prometheus.rules import (
    HALF_HOUR,
    QUICK_STEP_S,
    STEP_S,
    Alert,
    Links,
    alerts_of,
)
from agenteval_otel.provisioning.prometheus.summed import INTERVAL_S as FLEET_INTERVAL_S
from agenteval_otel.provisioning.prometheus.summed import STEP_S as FLEET_STEP_S

_FLEET: Final = "agenteval-recording-fleet"
_INTERVAL_S: Final = 15.0
_SLOW_INTERVAL_S: Final = 60.0  # of windows of hours and days
_SLOWEST_INTERVAL_S: Final = 120.0  # below the five minutes for which Prometheus shows a sample

__all__ = ["Alert", "alerts_of", "files_of"]


def files_of(
    plan: MonitoringPlan,
    *,
    runbooks: str | None = None,
    traces: str | None = None,
    pages: str | None = None,
) -> GeneratedFiles:
    """Return the recording rules, the alerts and, unless time is scaled, their tests.

    The tests are for ``promtool test rules``.

    The annotations ``runbook_url``, ``traces_url`` and ``answers_url`` begin with the addresses of
    the runbooks' folder, of Jaeger and of the pages. Without an address there is no such
    annotation: a relative link leads nowhere from a message.
    """
    expect_urls(runbooks=runbooks, traces=traces)
    links = Links(runbooks, traces, pages_at(plan.pages if pages is None else pages))

    alerts = alerts_of(plan)
    quick_rules = recording_rules(plan, quick=True)
    slow_rules = recording_rules(plan, quick=False)
    recording = _rule_groups(
        plan,
        ("agenteval-recording", _INTERVAL_S, quick_rules),
        ("agenteval-recording-slow", _SLOW_INTERVAL_S, slow_rules),
        (_FLEET, FLEET_INTERVAL_S, fleet_rules(plan)),
    )
    dashboards = _rule_groups(
        plan,
        ("agenteval-dashboards", _SLOW_INTERVAL_S, dashboard_rules(plan, quick=True)),
        (
            "agenteval-dashboards-slow",
            _SLOWEST_INTERVAL_S,
            dashboard_rules(plan, quick=False),
        ),
    )
    alert_rules = [alert.rule(plan, links) for alert in alerts]
    alerting = _rule_groups(plan, ("agenteval-alerts", _INTERVAL_S, alert_rules))
    trees = {
        "rules/agenteval-recording.yaml": (recording, "Input of the alerts and the dashboards."),
        "rules/agenteval-dashboards.yaml": (
            dashboards,
            "Further input of the dashboards, which no alert needs.",
        ),
        "rules/agenteval-alerts.yaml": (alerting, "Alerts. docs/alerts.md says what each means."),
    }
    if plan.time_scale == 1.0:
        slow = [alert for alert in alerts if alert.step_s == STEP_S]
        quick = [alert for alert in alerts if alert.step_s == QUICK_STEP_S]
        of_fleet = [
            alert._replace(scenarios=alert.fleet_scenarios, step_s=FLEET_STEP_S) for alert in alerts
        ]
        for name, tested, interval_s in (
            ("alerts", slow, HALF_HOUR * STEP_S),
            ("silence", quick, 60),
            ("fleet", of_fleet, FLEET_STEP_S),
        ):
            head = f"Run: promtool test rules agenteval-{name}.test.yaml"
            tests = _rule_tests(plan, tested, interval_s)
            trees[f"tests/agenteval-{name}.test.yaml"] = (tests, head)
    files = {
        path: yaml_text(tree, command="prometheus", head=head)
        for path, (tree, head) in trees.items()
    }
    if any(alert.name == BREACHED for alert in alerts):
        files["guide/time-to-page.md"] = page_of(plan)
    return files


def _rule_groups(
    plan: MonitoringPlan, *named: tuple[str, float, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return the groups of a rule file, without those that have no rules.

    A group has a name, an interval in seconds and rules.
    """
    groups = []
    for name, interval_s, rules in named:
        if rules:
            interval = plan.duration(interval_s, at_least_s=1.0)
            groups.append({"name": name, "interval": interval, "rules": rules})
    return {"groups": groups}


def _rule_tests(plan: MonitoringPlan, alerts: Sequence[Alert], interval_s: float) -> dict[str, Any]:
    """Return a test file of promtool with the scenarios of the alerts."""
    order = ["agenteval-recording-slow", "agenteval-recording", "agenteval-alerts"]
    if fleet_rules(plan):
        order.insert(1, _FLEET)
    return {
        "rule_files": ["../rules/agenteval-recording.yaml", "../rules/agenteval-alerts.yaml"],
        "evaluation_interval": plan.duration(interval_s),
        "group_eval_order": order,
        "tests": [alert.test(plan) for alert in alerts if alert.scenarios],
    }
