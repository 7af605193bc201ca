"""Grafana: dashboards and data sources for exactly the criteria that are configured.

The dashboards are built with Grafana's own schema library, the extra ``grafana``. It is met in this room only and is
imported when files are asked for.
"""

from __future__ import annotations

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.data_sources import dashboard_provider, data_sources
from agenteval_otel.provisioning.plan import MonitoringPlan


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
        plan: What is scored, and what is asked of it.
        prometheus_url: Where Grafana reaches Prometheus; a URL, or a variable of Grafana's environment (``$NAME``).
        loki_url: Likewise Loki.
        jaeger_url: Likewise Jaeger's query service.
        tempo_url: Likewise Tempo.
        alertmanager_url: Likewise Alertmanager.
        dashboards_path: The folder in which Grafana finds the dashboards' files.

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
    dashboards = {**of_overview(plan), **of_criteria(plan), **of_operations(plan), **of_releases(plan)}
    urls = {"prometheus": prometheus_url, "loki": loki_url, "jaeger": jaeger_url, "tempo": tempo_url,
            "alertmanager": alertmanager_url}  # fmt: skip
    return {
        **dashboards,
        "provisioning/datasources/agenteval.yaml": data_sources(plan, urls),
        "provisioning/dashboards/agenteval.yaml": dashboard_provider(dashboards_path),
    }
