"""Dashboards: title, variables, links from one to another, and their text as JSON.

Every dashboard chooses data source, process and instance by the same variables, so links carry the choice over.
"""

from __future__ import annotations

import hashlib
import json
import re

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.grafana.panels import EVENTS, METRICS, Panel
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import AGENT

_TAG, _MAIN, CRITERION_TAG = "agenteval", "agenteval-main", "agenteval-criterion"
_RESPONSES = semconv.METRIC_RESPONSES.prometheus_name
_CHOSEN = 'job=~"$job"'
_UID, _UID_LIMIT = "agenteval-c-", 40
_SPARSE_S, _POINTS = 300.0, 72


class Board:
    """A dashboard that is put together: with the variables and links that all have, then rows and panels."""

    def __init__(self, plan: MonitoringPlan, title: str, uid: str, description: str, *, tag: str = _MAIN) -> None:
        self._plan, self._dashboard = plan, Dashboard(title).uid(uid).description(f"{description} {MARK} grafana`.")
        dashboard = self._dashboard.tags([_TAG, tag]).timezone("browser").refresh("1m")
        dashboard.time("now-6h", "now").tooltip(models.DashboardCursorSync.CROSSHAIR).editable()
        dashboard.link(_links("Dashboards", _MAIN)).link(_links("Criteria", CRITERION_TAG).as_dropdown(True))
        source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
        dashboard.with_variable(source.description("The Prometheus that has the metrics."))
        dashboard.with_variable(_choice("job", "Job", f"label_values({_RESPONSES}, job)", "The service."))
        instances = f"label_values({_RESPONSES}{{{_CHOSEN}}}, instance)"
        dashboard.with_variable(_choice("instance", "Instance", instances, "One process of it."))

    def choose_agents(self) -> None:
        """Add the variable of agents; results without an agent's name are among all."""
        query = f"label_values({_RESPONSES}{{{_CHOSEN}}}, {AGENT})"
        self._dashboard.with_variable(_choice("agent", "Agent", query, "The monitored agent.", all_value=".*"))

    def choose_versions(self) -> None:
        """Add two variables, one version each: `baseline`, the earliest at first, and `candidate`, the latest."""
        query = f"label_values({_RESPONSES}{{{_CHOSEN}}}, service_version)"
        for name, description, order in (
            ("baseline", "The version to compare with.", models.VariableSort.NATURAL_ASC),
            ("candidate", "The version that is compared.", models.VariableSort.NATURAL_DESC),
        ):
            self._dashboard.with_variable(_queried(name, name.title(), query, description).sort(order))

    def choose_events(self) -> None:
        """Add the variables of panels of events: the Loki that has them, and the service in it."""
        source = builders.DatasourceVariable("logs").label("Logs").type("loki")
        self._dashboard.with_variable(source.description("The Loki that has the events."))
        service = _choice("service", "Service in Loki", "label_values(service_name)", "The service, as Loki knows it.")
        self._dashboard.with_variable(service.datasource(EVENTS))

    def row(self, title: str) -> None:
        self._dashboard.with_row(builders.Row(title))

    def add(self, panel: Panel, width: int, height: int = 8, *, sparse: bool = False) -> None:
        """Add a panel, so wide (of 24) and so high.

        A sparse panel has few points: each stands for five minutes at least, so that there are results in it.
        """
        if sparse:
            panel.interval(self._plan.duration(_SPARSE_S)).max_data_points(_POINTS)
        self._dashboard.with_panel(panel.span(width).height(height))

    def text(self) -> str:
        """The dashboard as JSON, its panels numbered in their order."""
        built = self._dashboard.build()
        for number, panel in enumerate(built.panels or (), start=1):
            panel.id_val = number
        return json.dumps(built, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def criterion_slug(name: str) -> str:
    """A criterion's name as part of paths and uids: small letters, digits, ``_`` and ``-``, different for each name."""
    slug = re.sub(r"[^a-z0-9_-]", "_", name.lower())
    if slug == name and len(slug) <= _UID_LIMIT - len(_UID):
        return slug
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{slug[: _UID_LIMIT - len(_UID) - len(mark) - 1]}-{mark}"


def criterion_uid(name: str) -> str:
    """The uid of a criterion's dashboard; Grafana takes 40 characters."""
    return _UID + criterion_slug(name)


def link_to(uid: str) -> str:
    return f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}"


def _choice(name: str, label: str, query: str, description: str, *, all_value: str = ".+") -> builders.QueryVariable:
    """A variable with any number of values that a data source knows; all of them at first.

    Values are chosen by regular expression and escaped by Grafana, whatever they are.
    """
    variable = _queried(name, label, query, description).multi(True).include_all(True).all_value(all_value)
    return variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))


def _queried(name: str, label: str, query: str, description: str) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).label(label).description(description).datasource(METRICS).query(query)
    return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def _links(title: str, tag: str) -> builders.DashboardLink:
    link = builders.DashboardLink(title).type(models.DashboardLinkType.DASHBOARDS).tags([tag])
    return link.as_dropdown(False).include_vars(True).keep_time(True)
