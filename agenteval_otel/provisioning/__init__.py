"""What is provisioned from the user's settings.

It is Prometheus rules, Alertmanager routes, Grafana dashboards and Collectors.
``provision prometheus`` writes the same files as ``provision all``, its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.pages import PAGES, WITHOUT
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion

__all__ = [
    "ALL",
    "TARGETS",
    "MonitoringPlan",
    "PlannedCriterion",
    "ProvisioningTarget",
    "files_for",
    "options_of",
]

ALL = "all"
_PAGES = (
    f"where the pages are opened: alerts about quality and panels link to the answers there (default: "
    f"pages_url of the settings' notify, else {PAGES}, where `ui` listens. {WITHOUT}: no links)"
)


class ProvisioningTarget(NamedTuple):
    """Describes what can be provisioned.

    ``files_of(plan, **options)`` of the module of its name does it. The module is imported late.

    Attributes:
        folder: Where its files are, below the folder that the user chooses. Empty for that folder
            itself.
        options: Options of ``files_of`` besides the plan, each with its meaning.
    """

    summary: str
    folder: str
    options: Mapping[str, str] = {}


TARGETS: Mapping[str, ProvisioningTarget] = {
    "grafana": ProvisioningTarget(
        "dashboards and data sources for Grafana",
        "grafana/",
        {
            "queries": "recorded (default) reads what Prometheus records, raw does without, by Grafana's expressions",
            "pages": _PAGES,
        },
    ),
    "prometheus": ProvisioningTarget(
        "recording rules, alerts and their promtool tests",
        "prometheus/",
        {
            "runbooks": "where the runbooks are read, such as https://wiki.example.com/runbooks",
            "traces": "Jaeger, such as http://127.0.0.1:16686: alerts about quality link to the failing answers there",
            "pages": _PAGES,
        },
    ),
    "alertmanager": ProvisioningTarget(
        "routes and inhibitions for those alerts",
        "alertmanager/",
        {
            "webhook": "where alerts are posted, such as http://127.0.0.1:9000/alerts (no notifications without it)",
            "idle": "hours in which a service may be silent, such as '22:00-06:00 Europe/Berlin' (UTC without a zone)",
        },
    ),
    "collector": ProvisioningTarget(
        "Collectors, the sidecar, and what stands around them: Jaeger, Tempo, Loki, Prometheus, compose, Kubernetes, "
        "systemd",
        "",
        {
            "scrape": "where Prometheus scrapes the Collector, instead of 127.0.0.1:8889",
            "alertmanager": "where Prometheus sends alerts, instead of 127.0.0.1:9093",
            "sidecars": "how many sidecars one machine has, 1 to 64 (default: 1). Traces are spread over several",
        },
    ),
}


def options_of(target: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for member in _members(target):
        options |= TARGETS[member].options
    return options


def files_for(
    target: str, plan: MonitoringPlan, options: Mapping[str, Any] | None = None
) -> GeneratedFiles:
    """Return the files of a target, or of all.

    Their paths are below the folder that the user chooses.
    """
    set_options = {name: value for name, value in (options or {}).items() if value is not None}
    files: dict[str, str] = {}
    for name in _members(target):
        folder = TARGETS[name].folder
        known = TARGETS[name].options
        chosen = {option: value for option, value in set_options.items() if option in known}
        module = importlib.import_module(f"agenteval_otel.provisioning.{name}")
        texts = module.files_of(plan, **chosen)
        files |= {folder + path: text for path, text in texts.items()}
    return files


def _members(target: str) -> Collection[str]:
    return TARGETS if target == ALL else (target,)
