"""Provisioning: Prometheus rules, Alertmanager routes, Grafana dashboards and Collectors from the user's settings.

`MonitoringPlan` is read from what runs; each target is a module or folder of its own whose `files_of` gives the texts.
Nothing here runs in the process that is monitored, and nothing is imported until a target is asked for.
"""

from __future__ import annotations

from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion

__all__ = ["MonitoringPlan", "PlannedCriterion"]
