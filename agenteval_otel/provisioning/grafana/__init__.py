"""Grafana: dashboards and data sources.

Dashboards are built with Grafana's schema library, an extra that is imported late.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.pages import pages_at
from agenteval_otel.provisioning.plan import MonitoringPlan

_EXPORT_INTERVAL_S: Final = 60.0  # of the applications: nothing new happens between two exports


def files_of(
    plan: MonitoringPlan, *, queries: str = "recorded", pages: str | None = None
) -> GeneratedFiles:
    """Return the dashboards and what Grafana reads at its start, by path.

    Raises `ConfigurationError` without the extra.

    `queries` are ``recorded``, on top of the recording rules of Prometheus, or ``raw``, without
    them. Links to answers begin with the address of the pages.
    """
    address = pages_at(plan.pages if pages is None else pages)
    if queries not in ("recorded", "raw"):
        raise ConfigurationError(f"is {queries!r}. Known: recorded, raw", path="--queries")
    try:
        from agenteval_otel.provisioning.grafana.boards import BoardOptions
        from agenteval_otel.provisioning.grafana.dashboards import files_of as dashboards_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "grafana_foundation_sdk":
            raise
        raise ConfigurationError(
            'dashboards need the extra grafana: pip install "agenteval-otel[grafana]"'
        ) from None
    folder = files(__package__).joinpath("files")
    datasources = folder.joinpath("datasources.yaml").read_text("utf-8")
    dashboards = folder.joinpath("dashboards.yaml").read_text("utf-8")
    interval = f'"{plan.duration(_EXPORT_INTERVAL_S)}"'
    return {
        **dashboards_of(plan, BoardOptions(is_raw=queries == "raw", pages=address)),
        "provisioning/datasources/agenteval.yaml": datasources.replace("@interval@", interval),
        "provisioning/dashboards/agenteval.yaml": dashboards,
    }
