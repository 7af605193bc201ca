"""Dashboards: title, variables, links from one to another, and their text as JSON.

Every dashboard chooses data source, process and instance by the same variables, so links carry the choice over.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.grafana.panels import EVENTS, METRICS
from agenteval_otel.provisioning.promql import AGENT

_TAG, _MAIN, _CRITERION = "agenteval", "agenteval-main", "agenteval-criterion"
_RESPONSES = semconv.METRIC_RESPONSES.prometheus_name
_CHOSEN = 'job=~"$job"'
_UID_LIMIT = 40


def board(title: str, uid: str, says: str, *, of_criterion: bool = False) -> Dashboard:
    """A dashboard without panels: with the variables and links that all have."""
    made = Dashboard(title).uid(uid).description(f"{says} {MARK} grafana`.")
    made.tags([_TAG, _CRITERION if of_criterion else _MAIN]).timezone("browser").refresh("1m")
    made.time("now-6h", "now").tooltip(models.DashboardCursorSync.CROSSHAIR).editable()
    made.link(_links("Dashboards", _MAIN, as_dropdown=False)).link(_links("Criteria", _CRITERION, as_dropdown=True))
    source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    made.with_variable(source.description("The Prometheus that has the metrics."))
    made.with_variable(choice("job", "Job", f"label_values({_RESPONSES}, job)", "The service.", all_value=".+"))
    instances = f"label_values({_RESPONSES}{{{_CHOSEN}}}, instance)"
    return made.with_variable(choice("instance", "Instance", instances, "One process of it.", all_value=".+"))


def choice(
    name: str, label: str, query: str, says: str, *, all_value: str, source: models.DataSourceRef = METRICS
) -> builders.QueryVariable:
    """A variable with any number of values that a data source knows; all of them at first.

    Values are chosen by regular expression and escaped by Grafana, whatever they are.
    """
    made = _queried(name, label, query, says, source).multi(True).include_all(True).all_value(all_value)
    return made.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))


def agents() -> builders.QueryVariable:
    """The variable of agents; results without an agent's name are among all."""
    query = f"label_values({_RESPONSES}{{{_CHOSEN}}}, {AGENT})"
    return choice("agent", "Agent", query, "The monitored agent.", all_value=".*")


def versions(made: Dashboard) -> Dashboard:
    """Adds two variables, one version each: `baseline`, the earliest at first, and `candidate`, the latest."""
    query = f"label_values({_RESPONSES}{{{_CHOSEN}}}, service_version)"
    for name, says, order in (
        ("baseline", "The version to compare with.", models.VariableSort.NATURAL_ASC),
        ("candidate", "The version that is compared.", models.VariableSort.NATURAL_DESC),
    ):
        made.with_variable(_queried(name, name.title(), query, says, METRICS).sort(order))
    return made


def with_events(made: Dashboard) -> Dashboard:
    """Adds what panels of events choose by: the Loki that has them, and the service in it."""
    source = builders.DatasourceVariable("logs").label("Logs").type("loki")
    made.with_variable(source.description("The Loki that has the events."))
    return made.with_variable(
        choice("service", "Service in Loki", "label_values(service_name)", "The service, as Loki knows it.",
               all_value=".+", source=EVENTS)
    )  # fmt: skip


def row(title: str) -> builders.Row:
    """A heading."""
    return builders.Row(title)


def criterion_slug(name: str) -> str:
    """A criterion's name as part of paths and uids: small letters, digits, ``_`` and ``-``, different for each name."""
    slug = re.sub(r"[^a-z0-9_-]", "_", name.lower())
    if slug == name and len(slug) <= _UID_LIMIT - len(_UID):
        return slug
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{slug[: _UID_LIMIT - len(_UID) - len(mark) - 1]}-{mark}"


_UID = "agenteval-c-"


def criterion_uid(name: str) -> str:
    """The uid of a criterion's dashboard; Grafana takes 40 characters."""
    return _UID + criterion_slug(name)


def link_to(uid: str) -> str:
    """The address of another dashboard with the same time and the same choices."""
    return f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}"


def text_of(made: Dashboard) -> str:
    """The dashboard as JSON, its panels numbered in their order."""
    built = made.build()
    for number, panel in enumerate(_panels(built), start=1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _panels(built: models.Dashboard) -> Iterable[models.Panel | models.RowPanel]:
    for panel in built.panels or []:
        yield panel
        if isinstance(panel, models.RowPanel):
            yield from panel.panels


def _queried(name: str, label: str, query: str, says: str, source: models.DataSourceRef) -> builders.QueryVariable:
    made = builders.QueryVariable(name).label(label).description(says).datasource(source).query(query)
    return made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def _links(title: str, tag: str, *, as_dropdown: bool) -> builders.DashboardLink:
    made = builders.DashboardLink(title).type(models.DashboardLinkType.DASHBOARDS).tags([tag])
    return made.as_dropdown(as_dropdown).include_vars(True).keep_time(True)
