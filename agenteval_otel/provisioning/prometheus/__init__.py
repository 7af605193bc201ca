"""Prometheus's rules: recording rules, alerts, and their promtool tests.

A new alert is one registered function in `quality` or `monitor`, and its runbook.
"""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.provisioning.delays import page_of
from agenteval_otel.provisioning.files import GeneratedFiles, expect_urls, yaml_text
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
    alerts_of,
)
from agenteval_otel.provisioning.prometheus.summed import INTERVAL_S as FLEET_INTERVAL_S
from agenteval_otel.provisioning.prometheus.summed import STEP_S as FLEET_STEP_S

_FLEET: Final = "agenteval-recording-fleet"
_INTERVAL_S: Final = 15.0
_SLOW_INTERVAL_S: Final = 60.0  # of windows of hours and days

__all__ = ["Alert", "alerts_of", "files_of"]


def files_of(
    plan: MonitoringPlan, *, runbooks: str | None = None, traces: str | None = None
) -> GeneratedFiles:
    """Return the recording rules, the alerts and, unless time is scaled, their tests.

    The tests are for ``promtool test rules``.

    The annotations ``runbook_url`` and ``traces_url`` begin with the addresses of the runbooks'
    folder and of Jaeger. Without an address there is no such annotation: a relative link leads
    nowhere from a message.
    """
    expect_urls(runbooks=runbooks, traces=traces)

    def groups(*of: tuple[str, float, list[dict[str, Any]]]) -> dict[str, Any]:
        return {
            "groups": [
                {
                    "name": name,
                    "interval": plan.duration(interval_s, at_least_s=1.0),
                    "rules": rules,
                }
                for name, interval_s, rules in of
                if rules
            ]
        }

    alerts = alerts_of(plan)
    trees = {
        "rules/agenteval-recording.yaml": (
            groups(
                ("agenteval-recording", _INTERVAL_S, recording_rules(plan, quick=True)),
                ("agenteval-recording-slow", _SLOW_INTERVAL_S, recording_rules(plan, quick=False)),
                (_FLEET, FLEET_INTERVAL_S, fleet_rules(plan)),
            ),
            "Input of the alerts and the dashboards.",
        ),
        "rules/agenteval-dashboards.yaml": (
            groups(
                ("agenteval-dashboards", _SLOW_INTERVAL_S, dashboard_rules(plan)),
            ),
            "Further input of the dashboards; no alert needs it.",
        ),
        "rules/agenteval-alerts.yaml": (
            groups(
                (
                    "agenteval-alerts",
                    _INTERVAL_S,
                    [alert.rule(plan, runbooks, traces) for alert in alerts],
                ),
            ),
            "Alerts; what each means: docs/alerts.md.",
        ),
    }
    if plan.time_scale == 1.0:
        of_fleet = [
            alert._replace(scenarios=alert.fleet_scenarios, step_s=FLEET_STEP_S) for alert in alerts
        ]
        for name, tested, interval_s in (
            ("alerts", [alert for alert in alerts if alert.step_s == STEP_S], HALF_HOUR * STEP_S),
            ("silence", [alert for alert in alerts if alert.step_s == QUICK_STEP_S], 60),
            ("fleet", of_fleet, FLEET_STEP_S),
        ):
            tests = {
                "rule_files": [
                    "../rules/agenteval-recording.yaml",
                    "../rules/agenteval-alerts.yaml",
                ],
                "evaluation_interval": plan.duration(interval_s),
                "group_eval_order": [
                    "agenteval-recording-slow",
                    *([_FLEET] if fleet_rules(plan) else []),
                    "agenteval-recording",
                    "agenteval-alerts",
                ],
                "tests": [alert.test(plan) for alert in tested if alert.scenarios],
            }
            trees[f"tests/agenteval-{name}.test.yaml"] = (
                tests,
                f"Run: promtool test rules agenteval-{name}.test.yaml",
            )
    files = {
        path: yaml_text(tree, command="prometheus", head=head)
        for path, (tree, head) in trees.items()
    }
    return files | (
        {"guide/time-to-page.md": page_of(plan)}
        if any(alert.name == BREACHED for alert in alerts)
        else {}
    )
