"""Prometheus's rules from the user's settings: recording rules, alerts, and promtool tests of both.

Only what is configured has a rule: no objective alerts without objectives, none about judges without judges. A new
alert is one registered function in `quality` or `monitor`, and its runbook.
"""

from __future__ import annotations

from agenteval_otel.provisioning.files import GeneratedFiles, yaml_text
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus import (
    monitor,  # noqa: F401 - registers its alerts
    quality,  # noqa: F401 - registers its alerts before the others
)
from agenteval_otel.provisioning.prometheus.recording import recording_rules
from agenteval_otel.provisioning.prometheus.rules import Alert, group, registered_alerts
from agenteval_otel.provisioning.prometheus.scenarios import scenario_tests

__all__ = ["Alert", "alerts_of", "files_of"]

_RECORDING, _ALERTS = "rules/agenteval-recording.yaml", "rules/agenteval-alerts.yaml"
_TESTS = "tests/agenteval-alerts.test.yaml"


def files_of(plan: MonitoringPlan, *, runbooks: str = "docs/runbooks") -> GeneratedFiles:
    """Rules and their tests.

    Args:
        plan: What is scored.
        runbooks: Folder or address of the runbooks; the annotation ``runbook_url`` begins with it.

    Returns:
        The recording rules, the alerts, and, unless time is scaled, a file for ``promtool test rules``: scenarios in
        which each alert fires or does not, a day of measurements in seconds.
    """
    alerts = alerts_of(plan)
    rules = [alert.rule(plan, runbooks) for alert in alerts]
    trees = {
        _RECORDING: (group(plan, "agenteval-recording", recording_rules(plan)), "Input of the alerts and dashboards."),
        _ALERTS: (group(plan, "agenteval-alerts", rules), "Alerts; what each means: docs/alerts.md."),
    }
    if plan.time_scale == 1.0:
        scenarios = (scenario for alert in alerts for scenario in alert.scenarios)
        tests = scenario_tests(plan, (alert.name for alert in alerts), scenarios)
        trees[_TESTS] = (tests, f"Run: promtool test rules {_TESTS.rpartition('/')[2]}")
    return {path: yaml_text(tree, command="prometheus", says=says) for path, (tree, says) in trees.items()}


def alerts_of(plan: MonitoringPlan) -> list[Alert]:
    """Every alert that the plan needs, those about quality first."""
    return registered_alerts(plan)
