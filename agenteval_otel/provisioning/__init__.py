"""Prometheus rules, Alertmanager routes, Grafana dashboards and Collectors from the user's settings."""

from __future__ import annotations

from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion

__all__ = ["MonitoringPlan", "PlannedCriterion"]
