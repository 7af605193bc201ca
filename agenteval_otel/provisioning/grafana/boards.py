"""Dashboards and their panels: variables, links, queries, and their text as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, logs, loki, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import MARK, GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import AGENT

BAND = ("upper end", "lower end")
"""Legends of an interval's two ends, in the order of their queries: what is between them is filled."""

_METRICS = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_EVENTS = models.DataSourceRef(type_val="loki", uid="${logs}")
_TAG, _MAIN, _CRITERION = "agenteval", "agenteval-main", "agenteval-criterion"
_RESPONSES = semconv.METRIC_RESPONSES.prometheus_name
_CHOSEN = 'job=~"$job"'
_UID, _UID_LIMIT = "agenteval-c-", 40
_SPARSE_S, _POINTS = 300.0, 72

Color: TypeAlias = str
Steps: TypeAlias = Sequence[tuple[float | None, Color]]
_PLAIN: Steps = ((None, "blue"),)
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel, logs.Panel)


class Query(NamedTuple):
    """One query of a panel: its expression, and the legend of its series (labels in double braces)."""

    expression: str
    legend: str = ""


class Board:
    """A dashboard that is put together: first the variables and links that all have, so links keep what was chosen.

    Panels have a width (of 24). A point of a sparse panel stands for five minutes at least, so that it has results.
    """

    def __init__(self, plan: MonitoringPlan, name: str, description: str, *, of_criterion: bool = False) -> None:
        self._plan = plan
        self._file = f"criterion-{criterion_slug(name)}" if of_criterion else name
        uid, tag = (criterion_uid(name), _CRITERION) if of_criterion else (f"agenteval-{name}", _MAIN)
        self._dashboard = dashboard = builders.Dashboard(f"agenteval: {name}").uid(uid)
        dashboard.description(f"{description} {MARK} grafana`.").tags([_TAG, tag]).timezone("browser").refresh("1m")
        dashboard.time("now-6h", "now").tooltip(models.DashboardCursorSync.CROSSHAIR).editable()
        dashboard.link(_links("Dashboards", _MAIN)).link(_links("Criteria", _CRITERION).as_dropdown(True))
        source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
        dashboard.with_variable(source.description("The Prometheus that has the metrics."))
        dashboard.with_variable(_choice("job", "Job", f"label_values({_RESPONSES}, job)", "The service."))
        instances = f"label_values({_RESPONSES}{{{_CHOSEN}}}, instance)"
        dashboard.with_variable(_choice("instance", "Instance", instances, "One process of it."))

    def files(self) -> GeneratedFiles:
        """The dashboard as JSON, its panels numbered in their order."""
        built = self._dashboard.build()
        for number, panel in enumerate(built.panels or (), start=1):
            panel.id_val = number
        text = json.dumps(built, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True)
        return {f"dashboards/{self._file}.json": f"{text}\n"}

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
        self._dashboard.with_variable(service.datasource(_EVENTS))

    def row(self, title: str) -> None:
        self._dashboard.with_row(builders.Row(title))

    def graph(
        self, title: str, description: str, unit: str, *queries: Query, steps: Steps = _PLAIN, exemplars: bool = False,
        stacked: bool = False, width: int = 12, sparse: bool = False,
    ) -> None:  # fmt: skip
        """Lines over time, shares from 0 to 1; every step but the first is a dashed line across."""
        panel = _described(timeseries.Panel(), title, description, unit, _METRICS, steps)
        for letter, query in zip(ascii_uppercase, queries, strict=False):
            panel.with_target(_metrics(query, letter).range().exemplar(exemplars))
        if len(steps) > 1:
            style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
            panel.thresholds_style(style)
        if unit == "percentunit":
            panel.min(0).max(1)
        if set(BAND) <= {query.legend for query in queries}:
            _fill_band(panel)
        if stacked:
            panel.stacking(_stacking()).fill_opacity(30)
        _with_legend(panel).line_width(2).show_points(common.VisibilityMode.AUTO).span_nulls(False)
        self._add(panel, width, sparse=sparse)

    def log_graph(self, title: str, description: str, query: Query) -> None:
        panel = _described(timeseries.Panel(), title, description, "short", _EVENTS)
        panel.with_target(_from_logs(query).query_type("range"))
        _with_legend(panel).draw_style(common.GraphDrawStyle.BARS).stacking(_stacking()).fill_opacity(60)
        self._add(panel, 12)

    def value(
        self, title: str, description: str, unit: str, query: Query, *, steps: Steps = _PLAIN, link: str = "",
        texts: Mapping[str, tuple[str, Color]] | None = None, width: int, height: int,
    ) -> None:  # fmt: skip
        """The latest value, large, in the colour of the last step that it reaches; or a text with its colour."""
        panel = _described(stat.Panel(), title, description, unit, _METRICS, steps)
        panel.with_target(_metrics(query).instant())
        panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        panel.color_mode(common.BigValueColorMode.BACKGROUND if len(steps) > 1 else common.BigValueColorMode.VALUE)
        panel.graph_mode(common.BigValueGraphMode.NONE).no_value("no data")
        if link:
            panel.data_links([builders.DashboardLink("Details").url(link)])
        if texts:
            results = {at: models.ValueMappingResult(text=text, color=color) for at, (text, color) in texts.items()}
            panel.mappings([models.ValueMap(results)])
        self._add(panel, width, height)

    def distribution(self, title: str, description: str, unit: str, query: Query) -> None:
        """Buckets of a histogram over time, with exemplars."""
        panel = _described(heatmap.Panel(), title, description, "short", _METRICS)
        panel.with_target(_metrics(query).range().format(PromQueryFormat.HEATMAP).exemplar(True))
        colors = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
        panel.calculate(False).color(colors.fill("blue").exponent(0.5).reverse(False))
        panel.y_axis(heatmap.YAxisConfig().unit(unit).reverse(False).axis_placement(common.AxisPlacement.LEFT))
        panel.rows_frame(heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO))
        panel.exemplars_color("rgba(255,80,80,0.9)").show_legend()
        panel.filter_values(heatmap.FilterValueRange().le(1e-9)).cell_gap(1)
        self._add(panel, 12, sparse=True)

    def tabular(self, title: str, description: str, key: tuple[str, str], *queries: Query, width: int = 12) -> None:
        """One row for each value of a label (`key`: the label and its heading), one column for each query."""
        panel = _described(table.Panel(), title, description, "percentunit", _METRICS)
        names: dict[str, str] = {key[0]: key[1]}
        for letter, query in zip(ascii_uppercase, queries, strict=False):
            panel.with_target(_metrics(query, letter).instant().format(PromQueryFormat.TABLE))
            names[f"Value #{letter}" if len(queries) > 1 else "Value"] = query.legend
        order = {name: at for at, name in enumerate(names)}
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
        panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))
        self._add(panel.no_value("-"), width)

    def events_list(self, title: str, description: str, query: Query) -> None:
        """Events, the newest first; opened, each shows its attributes and leads to its trace."""
        panel = _described(logs.Panel(), title, description, "none", _EVENTS)
        panel.with_target(_from_logs(query).query_type("range").max_lines(200))
        panel.show_time(True).enable_log_details(True).wrap_log_message(True)
        panel.sort_order(common.LogsSortOrder.DESCENDING).dedup_strategy(common.LogsDedupStrategy.NONE)
        self._add(panel, 12)

    def _add(self, panel: Any, width: int, height: int = 8, *, sparse: bool = False) -> None:
        if sparse:
            panel.interval(self._plan.duration(_SPARSE_S)).max_data_points(_POINTS)
        self._dashboard.with_panel(panel.span(width).height(height))


def passing(at: float | None) -> Steps:
    """Steps of a value that is good from `at` on; without it none."""
    return _PLAIN if at is None else ((None, "red"), (at, "green"))


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


def _choice(name: str, label: str, query: str, description: str, *, all_value: str = ".+") -> builders.QueryVariable:
    """A variable with any number of values that a data source knows, all at first; Grafana escapes them."""
    variable = _queried(name, label, query, description).multi(True).include_all(True).all_value(all_value)
    return variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))


def _queried(name: str, label: str, query: str, description: str) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).label(label).description(description).datasource(_METRICS).query(query)
    return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def _links(title: str, tag: str) -> builders.DashboardLink:
    link = builders.DashboardLink(title).type(models.DashboardLinkType.DASHBOARDS).tags([tag])
    return link.as_dropdown(False).include_vars(True).keep_time(True)


def _described(
    panel: P, title: str, description: str, unit: str, source: models.DataSourceRef, steps: Steps = _PLAIN
) -> P:
    marks = [models.Threshold(value=at, color=color) for at, color in steps]
    thresholds = builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(marks)
    return panel.title(title).description(description).unit(unit).datasource(source).thresholds(thresholds)


def _metrics(query: Query, letter: str = "A") -> prometheus.Dataquery:
    dataquery = prometheus.Dataquery().expr(query.expression).ref_id(letter).datasource(_METRICS)
    return dataquery.legend_format(query.legend or "__auto")


def _from_logs(query: Query) -> loki.Dataquery:
    return loki.Dataquery().expr(query.expression).legend_format(query.legend).ref_id("A").datasource(_EVENTS)


def _stacking() -> common_builders.StackingConfig:
    return common_builders.StackingConfig().mode(common.StackingMode.NORMAL)


def _with_legend(panel: timeseries.Panel) -> timeseries.Panel:
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    panel.legend(legend.display_mode(common.LegendDisplayMode.LIST).calcs([]))
    return panel.tooltip(tooltip.sort(common.SortOrder.DESCENDING))


def _fill_band(panel: timeseries.Panel) -> None:
    upper, lower = BAND
    hidden: list[tuple[str, Any]] = [
        ("custom.lineWidth", 0), ("custom.showPoints", "never"),
        ("color", {"mode": "fixed", "fixedColor": "semi-dark-blue"}),
    ]  # fmt: skip
    for legend, more in ((upper, [("custom.fillBelowTo", lower), ("custom.fillOpacity", 20)]), (lower, [])):
        panel.override_by_name(legend, [models.DynamicConfigValue(name, setting) for name, setting in hidden + more])
