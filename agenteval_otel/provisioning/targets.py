"""Targets: what can be provisioned; ``provision prometheus`` writes the same files as ``provision all``, its own."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan

ALL = "all"


class Target(NamedTuple):
    """Something that can be provisioned.

    Attributes:
        summary: One line.
        module: Whose ``files_of(plan, **options)`` returns the texts; imported late.
        folder: Where its files are, below the folder that the user chooses; empty for that folder itself.
        options: Options of ``files_of`` besides the plan, each with its meaning.
    """

    summary: str
    module: str
    folder: str
    options: Mapping[str, str] = {}


TARGETS: Mapping[str, Target] = {
    "grafana": Target(
        "dashboards and data sources for Grafana", "agenteval_otel.provisioning.grafana", "grafana",
    ),
    "prometheus": Target(
        "recording rules, alerts and their promtool tests", "agenteval_otel.provisioning.prometheus", "prometheus",
        {"runbooks": "where the runbooks are read, such as https://wiki.example.com/runbooks"},
    ),
    "alertmanager": Target(
        "routes and inhibitions for those alerts", "agenteval_otel.provisioning.alertmanager", "alertmanager",
        {"webhook": "where alerts are posted, such as http://127.0.0.1:9000/alerts; no notifications without it"},
    ),
    "collector": Target(
        "Collectors, and what stands around them: Jaeger, Tempo, Loki, Prometheus, compose, Kubernetes",
        "agenteval_otel.provisioning.collector", "",
    ),
}  # fmt: skip


def options_of(target: str) -> dict[str, str]:
    return {name: meaning for member in _members(target) for name, meaning in member.options.items()}


def files_for(target: str, plan: MonitoringPlan, options: Mapping[str, Any] | None = None) -> GeneratedFiles:
    """The files of a target, or of all, by their paths below the folder that the user chooses.

    Raises:
        ConfigurationError: A wrong option, or an extra that the target needs is not installed.
    """
    files: dict[str, str] = {}
    for member in _members(target):
        of_target = {
            name: value for name, value in (options or {}).items() if name in member.options and value is not None
        }
        texts = importlib.import_module(member.module).files_of(plan, **of_target)
        files |= {f"{member.folder}/{path}" if member.folder else path: text for path, text in texts.items()}
    return files


def _members(target: str) -> Collection[Target]:
    return TARGETS.values() if target == ALL else (TARGETS[target],)
