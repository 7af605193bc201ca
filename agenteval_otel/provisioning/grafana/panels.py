"""Panels: graphs, single values, heatmaps, tables and logs as all dashboards have them, each with its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, logs, loki, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

METRICS = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
EVENTS = models.DataSourceRef(type_val="loki", uid="${logs}")

BAND = ("upper end", "lower end")
"""Legends of an interval's two ends, in the order of their queries: what is between them is filled."""

Color: TypeAlias = str
Steps: TypeAlias = Sequence[tuple[float | None, Color]]
_PLAIN: Steps = ((None, "blue"),)


class Query(NamedTuple):
    """One query of a panel: its expression, and how its series are called (labels in double braces)."""

    expression: str
    legend: str = ""


Panel: TypeAlias = timeseries.Panel | stat.Panel | heatmap.Panel | table.Panel | logs.Panel
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel, logs.Panel)


def graph(
    title: str, description: str, unit: str, *queries: Query, steps: Steps = _PLAIN, exemplars: bool = False,
    between: tuple[float, float] | None = None,
) -> timeseries.Panel:  # fmt: skip
    """Lines over time; every step but the first is a dashed line across."""
    panel = _described(timeseries.Panel(), title, description, unit, METRICS, steps)
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(_metrics(query, letter).range().exemplar(exemplars))
    if len(steps) > 1:
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if between is not None:
        panel.min(between[0]).max(between[1])
    if set(BAND) <= {query.legend for query in queries}:
        _filled(panel)
    return _legend(panel).line_width(2).show_points(common.VisibilityMode.AUTO).span_nulls(False)


def stacked(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    return graph(title, description, unit, *queries).stacking(_stacking()).fill_opacity(30)


def log_graph(title: str, description: str, unit: str, query: Query) -> timeseries.Panel:
    panel = _described(timeseries.Panel(), title, description, unit, EVENTS)
    panel.with_target(_from_logs(query).query_type("range"))
    return _legend(panel).draw_style(common.GraphDrawStyle.BARS).stacking(_stacking()).fill_opacity(60)


def value(
    title: str, description: str, unit: str, query: Query, *, steps: Steps = _PLAIN, link: str = "",
    texts: Mapping[str, tuple[str, Color]] | None = None,
) -> stat.Panel:  # fmt: skip
    """The latest value, large; its colour is that of the last step that it reaches.

    Args:
        link: Where a click leads, named after the title.
        texts: What is written instead of a value, with its colour.
    """
    panel = _described(stat.Panel(), title, description, unit, METRICS, steps).with_target(_metrics(query).instant())
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.color_mode(common.BigValueColorMode.BACKGROUND if len(steps) > 1 else common.BigValueColorMode.VALUE)
    panel.graph_mode(common.BigValueGraphMode.NONE).no_value("no data")
    if link:
        panel.data_links([builders.DashboardLink("Details").url(link)])
    if texts:
        results = {at: models.ValueMappingResult(text=text, color=color) for at, (text, color) in texts.items()}
        panel.mappings([models.ValueMap(results)])
    return panel


def distribution(title: str, description: str, unit: str, query: Query) -> heatmap.Panel:
    """Buckets of a histogram over time, with exemplars."""
    panel = _described(heatmap.Panel(), title, description, "short", METRICS)
    panel.with_target(_metrics(query).range().format(PromQueryFormat.HEATMAP).exemplar(True))
    colors = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
    panel.calculate(False).color(colors.fill("blue").exponent(0.5).reverse(False))
    panel.y_axis(heatmap.YAxisConfig().unit(unit).reverse(False).axis_placement(common.AxisPlacement.LEFT))
    panel.rows_frame(heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO))
    panel.exemplars_color("rgba(255,80,80,0.9)").show_legend()
    return panel.filter_values(heatmap.FilterValueRange().le(1e-9)).cell_gap(1)


def tabular(title: str, description: str, unit: str, key: tuple[str, str], *queries: Query) -> table.Panel:
    """One row for each value of a label (`key`: the label and its heading), one column for each query."""
    panel = _described(table.Panel(), title, description, unit, METRICS)
    names: dict[str, str] = {key[0]: key[1]}
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(_metrics(query, letter).instant().format(PromQueryFormat.TABLE))
        names[f"Value #{letter}" if len(queries) > 1 else "Value"] = query.legend
    order = {name: at for at, name in enumerate(names)}
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))
    return panel.no_value("-")


def events_list(title: str, description: str, query: Query) -> logs.Panel:
    """Events, the newest first; opened, each shows its attributes and leads to its trace."""
    panel = _described(logs.Panel(), title, description, "none", EVENTS)
    panel.with_target(_from_logs(query).query_type("range").max_lines(200))
    panel.show_time(True).enable_log_details(True).wrap_log_message(True)
    return panel.sort_order(common.LogsSortOrder.DESCENDING).dedup_strategy(common.LogsDedupStrategy.NONE)


def passing(at: float | None) -> Steps:
    """Steps of a value that is good from `at` on; without it none."""
    return _PLAIN if at is None else ((None, "red"), (at, "green"))


def _described(
    panel: P, title: str, description: str, unit: str, source: models.DataSourceRef, steps: Steps = _PLAIN
) -> P:
    marks = [models.Threshold(value=at, color=color) for at, color in steps]
    thresholds = builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(marks)
    return panel.title(title).description(description).unit(unit).datasource(source).thresholds(thresholds)


def _metrics(query: Query, letter: str = "A") -> prometheus.Dataquery:
    dataquery = prometheus.Dataquery().expr(query.expression).ref_id(letter).datasource(METRICS)
    return dataquery.legend_format(query.legend or "__auto")


def _from_logs(query: Query) -> loki.Dataquery:
    return loki.Dataquery().expr(query.expression).legend_format(query.legend).ref_id("A").datasource(EVENTS)


def _stacking() -> common_builders.StackingConfig:
    return common_builders.StackingConfig().mode(common.StackingMode.NORMAL)


def _legend(panel: timeseries.Panel) -> timeseries.Panel:
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return panel.legend(legend.display_mode(common.LegendDisplayMode.LIST).calcs([])).tooltip(
        tooltip.sort(common.SortOrder.DESCENDING)
    )


def _filled(panel: timeseries.Panel) -> None:
    upper, lower = BAND
    hidden: list[tuple[str, Any]] = [
        ("custom.lineWidth", 0), ("custom.showPoints", "never"),
        ("color", {"mode": "fixed", "fixedColor": "semi-dark-blue"}),
    ]  # fmt: skip
    for legend, more in ((upper, [("custom.fillBelowTo", lower), ("custom.fillOpacity", 20)]), (lower, [])):
        panel.override_by_name(legend, [models.DynamicConfigValue(name, setting) for name, setting in hidden + more])
