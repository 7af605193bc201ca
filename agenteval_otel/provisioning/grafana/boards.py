"""Dashboards and their panels: variables, links, queries, and their text as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from string import ascii_uppercase
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import (
    expr,
    heatmap,
    logs,
    loki,
    prometheus,
    stat,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import text as text_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import MARK, GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import SHOWN, window
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, VERSION, label_name
from agenteval_otel.semconv import Instrument

BAND = ("upper end", "lower end")
"""Legends of an interval's two ends, in the order of their queries: what is between them is filled.
"""
LIMIT = "limit"
"""Legend of an objective or a threshold: a dashed line."""
COUNT = "answers"
"""Legend of how many results stand behind a point: bars, with an axis of their own."""

EACH = "$__rate_interval"
"""Window of a point of a graph."""
WHOLE = "$__range"
"""Window of a single value, which is what the dashboard shows."""
WINDOW = "$window"
"""Window that is chosen."""
SERVICE = f'{ENVIRONMENT}=~"$environment", job=~"$job"'
PROCESS = f'{SERVICE}, instance=~"$instance"'
SERVICES: Mapping[str, str] = {ENVIRONMENT: "environment", "job": "service"}
"""The labels that keep services apart in a panel, each with its heading in a table."""
LOST = "dropped_.*|" + "|".join(
    (semconv.RATE_LIMITED, semconv.CAPTURE_FAILED, semconv.PIPELINE_FAILED)
)
"""Outcomes of calls that should have been evaluated and were not."""

_METRICS = models.DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
_LATE = (semconv.LATE_OFF_PEAK, semconv.LATE_GROUND_TRUTH)
_EVENTS = models.DataSourceRef(type_val="loki", uid="${loki_datasource}")
_MATH = models.DataSourceRef(type_val="__expr__", uid="__expr__")
_TAG = "agenteval"
_RESPONSES = semconv.METRIC_RESPONSES.prometheus_name
_RESULTS = semconv.METRIC_RESULTS.prometheus_name
_SPARSE_S = 300.0
_POINTS = 72

Color: TypeAlias = str
Steps: TypeAlias = Sequence[tuple[float | None, Color]]
_PLAIN: Steps = ((None, "blue"),)
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel, logs.Panel)


class PanelQuery(NamedTuple):
    """One query of a panel: its expression, and the legend of its series (labels in double braces).

    An input is not shown. Grafana computes math from the queries of its panel, by their legends:
    ``${passed}``.
    """

    expression: str
    legend: str = ""
    kind: Literal["shown", "input", "math", "hidden math"] = "shown"


class Column(NamedTuple):
    """Describes a column of a table: its heading, and how its values are shown.

    Where there are `row_steps`, the whole row has the colour of the last step that the value reaches.
    """

    query: str
    heading: str
    unit: str = "percentunit"
    texts: Mapping[str, tuple[str, Color]] = {}
    row_steps: Steps = ()


class PanelLink(NamedTuple):
    """Says where a click on a value leads, with Grafana's variables."""

    title: str
    url: str


class BoardOptions(NamedTuple):
    """Says how all dashboards are made.

    Attributes:
        is_raw: Their queries do without recorded series.
        pages: Where links to answers begin. Empty: no links.
    """

    is_raw: bool
    pages: str


class Board:
    """Puts a dashboard together.

    The variables that all dashboards have are first, so links keep what was chosen.

    Panels have a width (of 24). A point of a sparse panel stands for five minutes at least, so that
    it has results.
    """

    def __init__(
        self, plan: MonitoringPlan, name: str, description: str, options: BoardOptions
    ) -> None:
        self.plan = plan
        self._name = name
        self.is_raw = options.is_raw
        self.pages = options.pages
        self._row: builders.Row | None = None  # a collapsed row holds its panels itself
        self._annotations: list[dict[str, Any]] = []
        self._dashboard = dashboard = builders.Dashboard(f"agenteval: {name}").uid(uid_of(name))
        dashboard.description(f"{description} {MARK} grafana`.").tags([_TAG]).timezone(
            "browser"
        ).refresh("1m")
        dashboard.time("now-6h", "now").tooltip(models.DashboardCursorSync.CROSSHAIR).readonly()
        link = (
            builders.DashboardLink("Dashboards")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
        )
        dashboard.link(link.as_dropdown(False).include_vars(True).keep_time(True))
        source = (
            builders.DatasourceVariable("prometheus_datasource")
            .label("Prometheus")
            .type("prometheus")
        )
        dashboard.with_variable(source.description("The Prometheus that has the metrics."))
        for variable, query, description in (
            (
                "environment",
                f"label_values({_RESPONSES}, {ENVIRONMENT})",
                "deployment.environment.name of the service. Services without one are among all.",
            ),
            (
                "job",
                f'label_values({_RESPONSES}{{{ENVIRONMENT}=~"$environment"}}, job)',
                "The service.",
            ),
        ):
            dashboard.with_variable(
                _choice(variable, variable.title(), query, description, all_value=".*")
            )

    def files(self) -> GeneratedFiles:
        """Return the dashboard as JSON, its panels numbered in their order."""
        self._end_row()
        built = self._dashboard.build()
        numbers = count(1)
        for panel in built.panels or ():
            panel.id_val = next(numbers)
            for inner in getattr(panel, "panels", None) or ():
                inner.id_val = next(numbers)
        tree = json.loads(json.dumps(built, cls=JSONEncoder))
        tree["annotations"] = {"list": self._annotations}
        text = json.dumps(tree, indent=1, ensure_ascii=False, sort_keys=True)
        return {f"dashboards/{self._name}.json": f"{text}\n"}

    def mark_versions(self) -> None:
        """Mark when versions of services and of prompts begin.

        Those of prompts are known if they are a metric dimension.
        """
        marked = {VERSION: ("Releases", "agenteval_version", "blue")}
        prompt = label_name(semconv.PROMPT_VERSION)
        if semconv.PROMPT_VERSION in self.plan.dimensions:
            marked[prompt] = ("Prompt versions", prompt, "purple")
        for label, (name, level, color) in marked.items():
            series = f"{level}:units:1d"
            if self.is_raw or not self.plan.criteria:
                series = _RESULTS if label == prompt else _RESPONSES
            self._mark_beginnings(name, label, f'{series}{{{SERVICE}, {label}!=""}}', color)

    def _mark_beginnings(self, name: str, label: str, series: str, color: Color) -> None:
        """Mark on graphs when a value of the label is first there.

        It is first there if no service had it within a day before. `series` is a name with its
        selector.
        """
        group = f"group by ({', '.join((*SERVICES, label))})"
        day = self.plan.duration(86_400.0)
        expression = (
            f"{group} ({series}) unless {group} (present_over_time({series}[{day}] offset "
            "$__interval))"
        )
        # The library's annotations have no texts. Versions of Grafana differ in where they look for
        # the expression.
        self._annotations.append(
            {
                "name": name,
                "enable": True,
                "hide": False,
                "iconColor": color,
                "datasource": {"type": "prometheus", "uid": "${prometheus_datasource}"},
                "expr": expression,
                "target": {"refId": "Anno", "expr": expression, "range": True},
                "titleFormat": f"{{{{{label}}}}} begins",
                "textFormat": f"{name}: {{{{job}}}} {{{{{ENVIRONMENT}}}}}",
            }
        )

    def choose_instances(self) -> None:
        instances = f"label_values({_RESPONSES}{{{SERVICE}}}, instance)"
        self._dashboard.with_variable(
            _choice("instance", "Instance", instances, "One process of it.")
        )

    def choose_window(self) -> None:
        """Add the variable for how far back a rate looks, at each point."""
        if self.is_raw:
            values = ",".join(f"{name} : {window(self.plan, name)}" for name in SHOWN)
            shown = window(self.plan, "1h")
        else:
            values = ",".join(SHOWN)
            shown = "1h"
        variable = builders.CustomVariable("window").label("Window").values(values)
        variable.description(
            "Each rate and mean is of the answers that were evaluated in this time before it."
        )
        self._dashboard.with_variable(
            variable.current(models.VariableOption(selected=True, text="1h", value=shown))
        )

    def choose_criterion(self) -> None:
        """Add the criterion, and the agents that have it."""
        query = f"label_values({_RESULTS}{{{SERVICE}}}, {CRITERION})"
        self._dashboard.with_variable(
            _queried("criterion", "Criterion", query, "What answers are scored for.")
        )
        self.choose_agents(f'{SERVICE}, {CRITERION}="$criterion"')

    def choose_agents(self, matchers: str = SERVICE) -> None:
        """Add the variable of agents. Results without an agent's name are among all."""
        query = f"label_values({_RESULTS}{{{matchers}}}, {AGENT})"
        self._dashboard.with_variable(
            _choice("agent", "Agent", query, "The monitored agent.", all_value=".*")
        )

    def choose_dimension(self, name: str, label: str, matchers: str) -> None:
        """Add the variable of an annotation that metrics have. Answers without it are among all."""
        query = f"label_values({_RESULTS}{{{matchers}}}, {label})"
        description = "Filters the panels of scores and traces, and its own."
        self._dashboard.with_variable(_choice(name, name, query, description, all_value=".*"))

    def choose_versions(self) -> None:
        """Add two variables with one version each: `baseline` and `candidate`.

        At first `baseline` is the earliest version, and `candidate` the latest.
        """
        query = f"label_values({_RESPONSES}{{{SERVICE}}}, service_version)"
        for name, description, order in (
            ("baseline", "The version to compare with.", models.VariableSort.NATURAL_ASC),
            ("candidate", "The version that is compared.", models.VariableSort.NATURAL_DESC),
        ):
            self._dashboard.with_variable(
                _queried(name, name.title(), query, description).sort(order)
            )

    def choose_events(self) -> None:
        """Add the variables of panels of events: the Loki that has them, and the service in it."""
        source = builders.DatasourceVariable("loki_datasource").label("Loki").type("loki")
        self._dashboard.with_variable(source.description("The Loki that has the events."))
        service = _choice(
            "service",
            "Service in Loki",
            "label_values(service_name)",
            "The service, as Loki knows it.",
        )
        self._dashboard.with_variable(service.datasource(_EVENTS))
        on_time_and_late = f"({'|'.join(_LATE)})?"
        choices = {
            "all": on_time_and_late,
            "on time": "^$",  # Loki takes `()` for "anything"
            "late alone": "|".join(_LATE),
            "replayed alone": semconv.LATE_REPLAY,
        }
        late = builders.CustomVariable("late").label("Late results")
        late.values(",".join(f"{text} : {value}" for text, value in choices.items()))
        late.description(
            "Whether the lists of events have results that came late, from off-peak evaluators or "
            "late ground truth. Metrics always have them, at the time of their evaluation."
        )
        self._dashboard.with_variable(
            late.current(models.VariableOption(selected=True, text="all", value=on_time_and_late))
        )

    def row(self, title: str, *, is_collapsed: bool = False) -> None:
        self._end_row()
        row = builders.Row(title)
        if is_collapsed:
            self._row = row
        else:
            self._dashboard.with_row(row)

    def _end_row(self) -> None:
        if self._row is not None:
            self._dashboard.with_row(self._row)
            self._row = None

    def graph(
        self,
        title: str,
        description: str,
        unit: str,
        *queries: PanelQuery,
        exemplars: bool = False,
        stacked: bool = False,
        width: int = 12,
        sparse: bool = False,
        for_each: str = "",
        links: Sequence[PanelLink] = (),
    ) -> None:
        """Add a panel of lines over time, shares from 0 to 1.

        There is one such panel for each value of the variable `for_each`.
        """
        panel = _described(timeseries.Panel(), title, description, unit, _METRICS)
        for letter, query in zip(ascii_uppercase, queries, strict=False):
            if query.kind in ("math", "hidden math"):
                name = query.legend.replace(" ", "_")
                math = expr.TypeMath().expression(query.expression).ref_id(name).datasource(_MATH)
                panel.with_target(math.hide(query.kind == "hidden math"))
                panel.override_by_query(
                    name, [models.DynamicConfigValue("displayName", query.legend)]
                )
            elif query.kind == "input":
                panel.with_target(_metrics(query, query.legend).range().hide(True))
            else:
                panel.with_target(_metrics(query, letter).range().exemplar(exemplars))
        legends = {query.legend for query in queries}
        if unit == "percentunit":
            panel.min(0).max(1)
        for legend, looks in _LOOKS.items():
            if legend in legends:
                _override(panel, legend, looks)
        if stacked:
            panel.stacking(_stacking()).fill_opacity(30)
        if links:
            panel.data_links(
                [builders.DashboardLink(title).url(url).target_blank(True) for title, url in links]
            )
        if for_each:
            panel.repeat(for_each).repeat_direction("v")
        _with_legend(panel).line_width(2).show_points(common.VisibilityMode.AUTO).span_nulls(False)
        self._add(panel, width, sparse=sparse)

    def log_graph(self, title: str, description: str, query: PanelQuery) -> None:
        panel = _described(timeseries.Panel(), title, description, "short", _EVENTS)
        panel.with_target(_from_logs(query).query_type("range"))
        _with_legend(panel).draw_style(common.GraphDrawStyle.BARS).stacking(
            _stacking()
        ).fill_opacity(60)
        self._add(panel, 12)

    def value(
        self,
        title: str,
        description: str,
        unit: str,
        query: PanelQuery,
        *,
        steps: Steps = _PLAIN,
        texts: Mapping[str, tuple[str, Color]] | None = None,
        width: int,
        height: int,
    ) -> None:
        """Add a panel of the latest value, large, in the colour of the last step that it reaches.

        With `texts`, values are shown as texts with their colours.
        """
        panel = _described(stat.Panel(), title, description, unit, _METRICS, steps)
        panel.with_target(_metrics(query).instant())
        panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        panel.color_mode(
            common.BigValueColorMode.BACKGROUND
            if len(steps) > 1
            else common.BigValueColorMode.VALUE
        )
        panel.graph_mode(common.BigValueGraphMode.NONE).no_value("no data")
        if texts:
            panel.mappings([_mapped(texts)])
        self._add(panel, width, height)

    def distribution(self, title: str, description: str, unit: str, query: PanelQuery) -> None:
        """Add a panel of the buckets of a histogram over time, with exemplars."""
        panel = _described(heatmap.Panel(), title, description, "short", _METRICS)
        panel.with_target(_metrics(query).range().format(PromQueryFormat.HEATMAP).exemplar(True))
        colors = (
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Blues")
            .steps(32)
        )
        panel.calculate(False).color(colors.fill("blue").exponent(0.5).reverse(False))
        panel.y_axis(
            heatmap.YAxisConfig()
            .unit(unit)
            .reverse(False)
            .axis_placement(common.AxisPlacement.LEFT)
        )
        panel.rows_frame(heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO))
        panel.exemplars_color("rgba(255,80,80,0.9)").show_legend()
        panel.filter_values(heatmap.FilterValueRange().le(1e-9)).cell_gap(1)
        self._add(panel, 12, sparse=True)

    def tabular(
        self,
        title: str,
        description: str,
        keys: Mapping[str, str],
        *columns: Column,
        link: str = "",
        links: Sequence[PanelLink] = (),
        width: int = 24,
    ) -> None:
        """Add a table with one row for each combination of labels.

        `keys` has each label and its heading. The last of them has `link`, and the first column
        after it has `links`.
        """
        panel = _described(table.Panel(), title, description, "percentunit", _METRICS)
        names = dict(keys)
        for letter, column in zip(ascii_uppercase, columns, strict=False):
            panel.with_target(
                _metrics(PanelQuery(column.query), letter).instant().format(PromQueryFormat.TABLE)
            )
            # Grafana's own name of the column
            value_name = f"Value #{letter}" if len(columns) > 1 else "Value"
            names[value_name] = column.heading
            looks: dict[str, Any] = {"unit": column.unit} if column.unit != "percentunit" else {}
            if column.unit == "short":
                looks["decimals"] = 0
            if column.texts:
                looks |= {
                    "mappings": [_mapped(column.texts)],
                    "custom.cellOptions": {"type": "color-background"},
                }
            if column.row_steps:
                looks |= _row_colors(column.row_steps)
            if looks:
                _override(panel, column.heading, looks)
        if link:
            last_heading = list(keys.values())[-1]
            _override(panel, last_heading, {"links": [{"title": "Details", "url": link}]})
        if links:
            opened = [{"title": title, "url": url, "targetBlank": True} for title, url in links]
            _override(panel, columns[0].heading, {"links": opened})
        order = {name: at for at, name in enumerate(names)}
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
        panel.with_transformation(
            models.DataTransformerConfig(id_val="organize", options=organized)
        )
        self._add(panel.no_value("-"), width)

    def markdown(self, title: str, description: str, content: str) -> None:
        panel = (
            text.Panel()
            .title(title)
            .description(description)
            .mode(text_models.TextMode.MARKDOWN)
            .content(content)
        )
        self._add(panel, 24)

    def events_list(self, title: str, description: str, query: PanelQuery) -> None:
        """Add a list of events, the newest first.

        Opened, each shows its attributes and leads to its trace.
        """
        panel = _described(logs.Panel(), title, description, "none", _EVENTS)
        panel.with_target(_from_logs(query).query_type("range").max_lines(200))
        panel.show_time(True).enable_log_details(True).wrap_log_message(True)
        panel.sort_order(common.LogsSortOrder.DESCENDING).dedup_strategy(
            common.LogsDedupStrategy.NONE
        )
        self._add(panel, 12)

    def _add(self, panel: Any, width: int, height: int = 8, *, sparse: bool = False) -> None:
        if sparse:
            panel.interval(self.plan.duration(_SPARSE_S)).max_data_points(_POINTS)
        placed = panel.span(width).height(height)
        if self._row is None:
            self._dashboard.with_panel(placed)
        else:
            self._row.with_panel(placed)


def uid_of(name: str) -> str:
    return f"agenteval-{name}"


def quantile(
    instrument: Instrument, of: float, by: tuple[str, ...] = (), matchers: str = PROCESS
) -> str:
    labels = ", ".join(("le", *by))
    counted = f"rate({instrument.prometheus_name}_bucket{{{matchers}}}[{EACH}])"
    # Without traffic the quantile is NaN, which is not 0 or more.
    return f"histogram_quantile({of:g}, sum by ({labels}) ({counted})) >= 0"


def _choice(
    name: str, label: str, query: str, description: str, *, all_value: str = ".+"
) -> builders.QueryVariable:
    """Return a variable with any number of values that a data source knows, all at first.

    Grafana escapes the values.
    """
    variable = (
        _queried(name, label, query, description).multi(True).include_all(True).all_value(all_value)
    )
    return variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))


def _queried(name: str, label: str, query: str, description: str) -> builders.QueryVariable:
    variable = (
        builders.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(_METRICS)
        .query(query)
    )
    return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
        models.VariableSort.ALPHABETICAL_ASC
    )


def _described(
    panel: P,
    title: str,
    description: str,
    unit: str,
    source: models.DataSourceRef,
    steps: Steps = _PLAIN,
) -> P:
    marks = [models.Threshold(value=at, color=color) for at, color in steps]
    thresholds = builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(marks)
    return (
        panel.title(title)
        .description(description)
        .unit(unit)
        .datasource(source)
        .thresholds(thresholds)
    )


def _metrics(query: PanelQuery, letter: str = "A") -> prometheus.Dataquery:
    dataquery = prometheus.Dataquery().expr(query.expression).ref_id(letter).datasource(_METRICS)
    return dataquery.legend_format(query.legend or "__auto")


def _from_logs(query: PanelQuery) -> loki.Dataquery:
    return (
        loki.Dataquery()
        .expr(query.expression)
        .legend_format(query.legend)
        .ref_id("A")
        .datasource(_EVENTS)
    )


def _stacking() -> common_builders.StackingConfig:
    return common_builders.StackingConfig().mode(common.StackingMode.NORMAL)


def _with_legend(panel: timeseries.Panel) -> timeseries.Panel:
    legend = (
        common_builders.VizLegendOptions()
        .show_legend(True)
        .placement(common.LegendPlacement.BOTTOM)
    )
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    panel.legend(legend.display_mode(common.LegendDisplayMode.LIST).calcs([]))
    return panel.tooltip(tooltip.sort(common.SortOrder.DESCENDING))


def _mapped(texts: Mapping[str, tuple[str, Color]]) -> models.ValueMap:
    return models.ValueMap(
        {
            at: models.ValueMappingResult(text=text, color=color)
            for at, (text, color) in texts.items()
        }
    )


def _row_colors(steps: Steps) -> dict[str, Any]:
    marks = [{"value": at, "color": color} for at, color in steps]
    cell = {"type": "color-background", "mode": "basic", "applyToRow": True}
    return {
        "thresholds": {"mode": "absolute", "steps": marks},
        "color": {"mode": "thresholds"},
        "custom.cellOptions": cell,
    }


def _override(panel: table.Panel | timeseries.Panel, field: str, looks: Mapping[str, Any]) -> None:
    panel.override_by_name(
        field, [models.DynamicConfigValue(name, value) for name, value in looks.items()]
    )


_HIDDEN_LINE: Mapping[str, Any] = {
    "custom.lineWidth": 0,
    "custom.showPoints": "never",
    "color": {"mode": "fixed", "fixedColor": "semi-dark-blue"},
}
# How the lines of a legend look.
_LOOKS: Mapping[str, Mapping[str, Any]] = {
    BAND[0]: {**_HIDDEN_LINE, "custom.fillBelowTo": BAND[1], "custom.fillOpacity": 20},
    BAND[1]: _HIDDEN_LINE,
    LIMIT: {"custom.lineStyle": {"fill": "dash"}, "color": {"mode": "fixed", "fixedColor": "red"}},
    COUNT: {
        "unit": "short",
        "min": 0,
        "max": None,
        "custom.axisPlacement": "right",
        "custom.drawStyle": "bars",
        "custom.lineWidth": 0,
        "custom.fillOpacity": 10,
        "color": {"mode": "fixed", "fixedColor": "gray"},
    },
}
