"""Prometheus's rules: recording rules, alerts, and their promtool tests.

A new alert is one registered function in `quality` or `monitor`, and its runbook.
"""

from __future__ import annotations

from typing import Any

from agenteval_otel.provisioning.files import GeneratedFiles, yaml_text
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus import monitor  # noqa: F401 - registers its alerts after those of quality
from agenteval_otel.provisioning.prometheus.quality import recording_rules
from agenteval_otel.provisioning.prometheus.rules import HALF_HOUR, STEP_S, Alert, alerts_of

__all__ = ["Alert", "alerts_of", "files_of"]


def files_of(plan: MonitoringPlan, *, runbooks: str = "docs/runbooks") -> GeneratedFiles:
    """The recording rules, the alerts and, unless time is scaled, their tests for ``promtool test rules``.

    `runbooks` is the folder or address of the runbooks; the annotation ``runbook_url`` begins with it.
    """

    def group(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
        interval = plan.duration(60.0, at_least_s=1.0)
        return {"groups": [{"name": name, "interval": interval, "rules": rules}] if rules else []}

    alerts = alerts_of(plan)
    recording = group("agenteval-recording", recording_rules(plan))
    alerting = group("agenteval-alerts", [alert.rule(plan, runbooks) for alert in alerts])
    trees = {
        "rules/agenteval-recording.yaml": (recording, "Input of the alerts and dashboards."),
        "rules/agenteval-alerts.yaml": (alerting, "Alerts; what each means: docs/alerts.md."),
    }
    if plan.time_scale == 1.0:
        tests = {
            "rule_files": [f"../{path}" for path in trees],
            "evaluation_interval": plan.duration(HALF_HOUR * STEP_S),
            "group_eval_order": ["agenteval-recording", "agenteval-alerts"],
            "tests": [alert.test(plan) for alert in alerts if alert.scenarios],
        }
        trees["tests/agenteval-alerts.test.yaml"] = (tests, "Run: promtool test rules agenteval-alerts.test.yaml")
    return {path: yaml_text(tree, command="prometheus", head=head) for path, (tree, head) in trees.items()}
