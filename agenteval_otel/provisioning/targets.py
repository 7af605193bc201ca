"""Targets: what can be provisioned, each with the folder that its files have and the options that it takes.

One layout for all: ``provision prometheus`` writes the same files to the same places as ``provision all``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan

ALL = "all"


class Target(NamedTuple):
    """Something that can be provisioned.

    Attributes:
        summary: What it gives, in a line.
        module: Whose ``files_of(plan, **options)`` gives the texts; imported when asked for.
        folder: Where its files are, below the folder that the user chooses; empty for that folder itself.
        options: Names of the options that ``files_of`` takes besides the plan, each with what it means.
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
        {"webhook": "where alerts are posted, such as http://127.0.0.1:9000/alerts; without it nobody is notified"},
    ),
    "collector": Target(
        "Collectors, and what stands around them: Jaeger, Tempo, Loki, Prometheus, compose, Kubernetes",
        "agenteval_otel.provisioning.collector", "",
    ),
}  # fmt: skip


def options_of(target: str) -> dict[str, str]:
    """The options of a target, or of all."""
    chosen = TARGETS.values() if target == ALL else (TARGETS[target],)
    return {name: says for member in chosen for name, says in member.options.items()}


def files_for(target: str, plan: MonitoringPlan, options: Mapping[str, Any] | None = None) -> GeneratedFiles:
    """The files of a target, or of all, by their paths below the folder that the user chooses.

    Args:
        target: A name of `TARGETS`, or `ALL`.
        plan: What is scored.
        options: Those of `options_of`; what is left out or None has the target's default.

    Raises:
        ConfigurationError: An extra that the target needs is not installed.
    """
    chosen = {name: value for name, value in (options or {}).items() if value is not None}
    files: dict[str, str] = {}
    for name in TARGETS if target == ALL else (target,):
        member = TARGETS[name]
        of_target = {key: value for key, value in chosen.items() if key in member.options}
        texts = importlib.import_module(member.module).files_of(plan, **of_target)
        files |= {f"{member.folder}/{path}" if member.folder else path: text for path, text in texts.items()}
    return files
