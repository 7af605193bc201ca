"""Grafana: dashboards and data sources for exactly the criteria that are configured.

The dashboards are built with Grafana's own schema library, the extra ``grafana``; it is imported here only, when files
are asked for. What Grafana reads at its start are the texts in ``files``: Grafana replaces ``$NAME`` in them by
variables of its environment, so its own placeholders have two dollars.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Final

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan

_EXPORTED_EVERY_S: Final = 60.0
"""Interval of the applications' exports: nothing new happens between two of them."""


def files_of(
    plan: MonitoringPlan,
    *,
    prometheus_url: str = "http://prometheus:9090",
    loki_url: str = "http://loki:3100",
    jaeger_url: str = "http://jaeger:16686",
    tempo_url: str = "http://tempo:3200",
    alertmanager_url: str = "http://alertmanager:9093",
    dashboards_path: str = "/var/lib/grafana/dashboards",
) -> GeneratedFiles:
    """The dashboards and what Grafana reads at its start, by path.

    Args:
        plan: What is scored, with objectives and thresholds.
        prometheus_url: Address of Prometheus for Grafana; a URL, or a variable of Grafana's environment (``$NAME``).
        loki_url: Likewise Loki.
        jaeger_url: Likewise Jaeger's query service.
        tempo_url: Likewise Tempo.
        alertmanager_url: Likewise Alertmanager.
        dashboards_path: Folder of the dashboards' files for Grafana.

    Raises:
        ConfigurationError: The extra is missing.
    """
    try:
        from agenteval_otel.provisioning.grafana.criterion import files_of as of_criteria
        from agenteval_otel.provisioning.grafana.operations import files_of as of_operations
        from agenteval_otel.provisioning.grafana.overview import files_of as of_overview
        from agenteval_otel.provisioning.grafana.releases import files_of as of_releases
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "grafana_foundation_sdk":
            raise
        raise ConfigurationError('dashboards need the extra grafana: pip install "agenteval-otel[grafana]"') from None
    values = {
        "prometheus": prometheus_url, "loki": loki_url, "jaeger": jaeger_url, "tempo": tempo_url,
        "alertmanager": alertmanager_url, "path": dashboards_path, "interval": plan.duration(_EXPORTED_EVERY_S),
    }  # fmt: skip
    started_with = {
        f"provisioning/{name}/agenteval.yaml": re.sub(r"@(\w+)@", lambda match: json.dumps(values[match[1]]), text)
        for name in ("datasources", "dashboards")
        for text in (files(__package__).joinpath("files", f"{name}.yaml").read_text(encoding="utf-8"),)
    }
    return {**of_overview(plan), **of_criteria(plan), **of_operations(plan), **of_releases(plan), **started_with}
