"""Prometheus's rules from the user's settings: recording rules, alerts, and promtool tests of both.

What is not configured has no rule: no objective alerts without objectives, none about judges without judges.
"""

from __future__ import annotations

from agenteval_otel.provisioning.files import GeneratedFiles, yaml_text
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.monitor import monitor_alerts
from agenteval_otel.provisioning.prometheus.monitor_stories import monitor_stories
from agenteval_otel.provisioning.prometheus.quality import quality_alerts
from agenteval_otel.provisioning.prometheus.quality_stories import quality_stories
from agenteval_otel.provisioning.prometheus.recording import recording_rules
from agenteval_otel.provisioning.prometheus.rules import Alert, group
from agenteval_otel.provisioning.prometheus.stories import story_tests

__all__ = ["Alert", "alerts_of", "files_of"]

_RECORDING, _ALERTS = "rules/agenteval-recording.yaml", "rules/agenteval-alerts.yaml"
_TESTS = "tests/agenteval-alerts.test.yaml"


def files_of(plan: MonitoringPlan, *, runbooks: str = "docs/runbooks") -> GeneratedFiles:
    """Rules and their tests.

    Args:
        plan: What is scored.
        runbooks: The folder or address that the runbooks are read at; the annotation ``runbook_url`` begins with it.

    Returns:
        The recording rules, the alerts, and, unless time is scaled, a file for ``promtool test rules``: what makes each
        alert fire in a day of measurements, and what does not, does not do so in seconds.
    """
    alerts = alerts_of(plan)
    rules = [alert.rule(plan, runbooks) for alert in alerts]
    trees = {
        _RECORDING: (group(plan, "agenteval-recording", recording_rules(plan)), "What the alerts and dashboards read."),
        _ALERTS: (group(plan, "agenteval-alerts", rules), "Alerts; what each means: docs/alerts.md."),
    }
    if plan.time_scale == 1.0:
        stories = (*quality_stories(plan), *monitor_stories(plan))
        trees[_TESTS] = (story_tests(plan, alerts, stories), f"Run: promtool test rules {_TESTS.rpartition('/')[2]}")
    return {path: yaml_text(tree, command="prometheus", says=says) for path, (tree, says) in trees.items()}


def alerts_of(plan: MonitoringPlan) -> list[Alert]:
    """Every alert that the plan gives reason to, those about quality first."""
    return [*quality_alerts(plan), *monitor_alerts(plan)]
