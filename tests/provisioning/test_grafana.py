"""Dashboards follow from the settings, and keep the rules of Grafana's linter.

There are three exceptions. Single values use ``increase(...[$__range])``, because one interval of a scrape has too
few results. Loki queries select by *Service in Loki*, because Loki has only the stream label
``service_name``. Panels of errors, losses and exemplars may be empty.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import intervals
from agenteval_otel.models.intervals import UnitSums
from agenteval_otel.models.results import Late
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.prometheus import files_of as rules_of
from agenteval_otel.provisioning.promql import label_name
from agenteval_otel.semconv import INSTRUMENTS
from agenteval_otel.telemetry.metrics import UnitIncrements
from agenteval_otel.ui.answer_list import ListQuery
from agenteval_otel.ui.views import Window, moment_in

from .plans import FULL, HOSTILE, PLAIN, criterion, loaded, plan_of
from .queries import dashboards_of, interpolated, late_choices, panels_of, queries_of

KINDS = ("recorded", "raw")


def dashboard(plan: MonitoringPlan, uid: str, queries: str = "recorded") -> dict[str, Any]:
    (result,) = (
        item for item in dashboards_of(files_of(plan, queries=queries)) if item["uid"] == uid
    )
    return result


def panels(plan: MonitoringPlan, uid: str) -> dict[str, dict[str, Any]]:
    return {item["title"]: item for item in panels_of(dashboard(plan, uid))}


DASHBOARDS_OF = ("overview", "criterion", "releases", "operations")


@pytest.mark.parametrize("queries", KINDS)
def test_queries_are_short_enough_to_be_read(queries: str) -> None:
    """None has more than 1,000 characters, and 200 criteria make no dashboard longer but for the
    text about them.
    """
    many = plan_of(*(criterion(f"criterion_{number}", objective=0.9) for number in range(200)))
    for plan in (FULL, many):
        files = files_of(plan, queries=queries)
        assert (
            max(len(item.expression) for item in queries_of(files, {}, interpolate=False)) <= 1_000
        )
        assert sum(map(len, files.values())) <= 300_000


def test_judges_have_panels_where_there_are_judges() -> None:
    """Judges' panels come with a judge, the budget's with a limit, a duration with an evaluator
    that asks a model.
    """
    judges = {"Calls of judges", "Judge latency", "Tokens", "Spend an hour", "Breaker"}
    assert judges | {"Budget left"} <= set(panels(FULL, "agenteval-operations"))
    assert not (judges | {"Budget left"}) & set(panels(PLAIN, "agenteval-operations"))
    unlimited = FULL.model_copy(update={"has_spend_limit": False})
    assert "Budget left" not in panels(unlimited, "agenteval-operations")
    assert "Duration" in panels(FULL, "agenteval-criterion")
    assert "Duration" not in panels(PLAIN, "agenteval-criterion")
    result = {item["uid"] for item in dashboards_of(files_of(MonitoringPlan()))}
    assert result == {"agenteval-overview", "agenteval-operations"}  # without criteria


def test_recorded_queries_ask_for_series_that_the_rules_record() -> None:
    """For each window that can be chosen."""
    rules = (loaded(text) for path, text in rules_of(FULL).items() if path.startswith("rules/"))
    recorded = {
        rule.get("record") for tree in rules for group in tree["groups"] for rule in group["rules"]
    }
    windows = {
        item["name"]: item["query"]
        for board in dashboards_of(files_of(FULL))
        for item in board["templating"]["list"]
    }["window"].split(",")
    assert windows == ["5m", "15m", "1h", "6h", "1d", "7d"]
    for window in windows:
        asked = {
            name
            for item in queries_of(files_of(FULL), {"window": window})
            for name in re.findall(r"agenteval\w*:[\w:]+", item.expression)
        }
        assert len(asked) > 20
        assert asked <= recorded
    assert not [
        item
        for item in queries_of(files_of(FULL, queries="raw"), {})
        if "agenteval:" in item.expression
    ]


@pytest.mark.parametrize("turns", [1, 3, 30])
@pytest.mark.parametrize("passes", [(30, 40.0), (60, 20.0), (40, 1.0)])
@pytest.mark.parametrize("fails", [(20, 9.0), (3, 1.0), (0, 1.0)])
def test_grafana_computes_what_intervals_computes(
    passes: tuple[int, float],
    fails: tuple[int, float],
    turns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The raw variant's expressions, computed with what their queries return for so many results of
    such a weight, in conversations of so many turns. Of too few there are no ends.
    """
    monkeypatch.setattr(intervals, "Z95", 1.96)  # as in the expressions, which people read
    sums, increments, of_units = UnitSums(), UnitIncrements(), [0.0] * 6
    for score, (count, weight) in ((1.0, passes), (0.0, fails)):
        for number in range(count):
            unit = (number * 7) % (count // turns + 1)
            sums.add(score, weight, unit)
            failed, scored = weight * (1 - score), weight * score
            added = increments.add("a", unit, weight, failed, scored)
            of_units = [total + amount for total, amount in zip(of_units, added, strict=True)]
    mean = sums.mean()
    assert mean is not None
    estimate = mean.estimate()
    names = ("units", "unit_weight_w2", "unit_failed", "unit_failed_w2", "unit_score")
    values = {
        **{
            f"{name}{squares}": count * weight**power
            for name, (count, weight) in (("passed", passes), ("failed", fails))
            for squares, power in (("", 1), ("_w2", 2))
        },
        **dict(zip((*names, "unit_score_w2"), of_units, strict=True)),
        **{"answers": sums.count, "scored": sums.count, "preferred": 0},
        **{"weight": sums.w, "score": sums.wy, "weight_w2": sums.w2},
        **{"score_w2": sums.w2y, "score_squared_w2": sums.w2y2},
    }
    rates, means = (
        computed(title, values) for title in ("Pass rate of $agent", "Mean score of $agent")
    )
    assert (rates["rate"], means["mean"]) == pytest.approx((mean.mean, mean.mean))
    by_unit = mean.variance if mean.units < mean.scores else mean.between
    half = 1.96 * max(mean.apart, by_unit) ** 0.5
    wanted = [estimate.low, estimate.high, mean.mean - half, mean.mean + half]
    actual = [of[name] for of in (rates, means) for name in ("lower_end", "upper_end")]
    if estimate.has_interval:
        assert actual == pytest.approx(wanted, abs=1e-6)
    else:
        assert all(map(math.isnan, actual))


def computed(title: str, values: Mapping[str, float]) -> dict[str, float]:
    """The panel's expressions in their order, with the values of its hidden queries: Grafana's
    notation is Python's, but for a division by 0.
    """
    (panel,) = (
        item
        for item in panels_of(dashboard(FULL, "agenteval-criterion", queries="raw"))
        if item["title"] == title
    )
    hidden = {item["refId"] for item in panel["targets"] if item.get("hide") and "expr" in item}
    result = {name: values[name] for name in hidden}
    for item in panel["targets"]:
        if item["datasource"]["type"] == "__expr__":
            expression = re.sub(r"\$\{(\w+)\}", r"\1", item["expression"])
            try:
                result[item["refId"]] = float(eval(expression, {"abs": abs}, result))
            except ZeroDivisionError:
                result[item["refId"]] = math.nan
    return result


def test_names_are_no_variables_to_grafana() -> None:
    """Replacing variables leaves names of agents and descriptions of criteria alone, wherever they
    stand.
    """
    (text,) = (
        item["options"]["content"]
        for item in dashboard(FULL, "agenteval-overview")["panels"]
        if item["type"] == "text"
    )
    trapped = dict.fromkeys(("job", "instance", "agent", "x", "environment"), "TRAPPED")
    assert interpolated(text, trapped) == text
    assert "日本 ü" in text
    assert "Passes from 4 on" in text
    assert "<b>" not in text


def of_source(name: str) -> dict[str, Any]:
    text = files_of(PLAIN)["provisioning/datasources/agenteval.yaml"]
    sources = {source["type"]: source for source in yaml.safe_load(text)["datasources"]}
    return dict(sources[name])


def test_an_exemplar_leads_to_its_trace_and_a_trace_to_its_events() -> None:
    """Prometheus leads to Jaeger and Tempo, these to Loki by the trace's id, Loki back by its
    metadata.
    """
    uids = {
        name: of_source(name)["uid"]
        for name in ("prometheus", "loki", "jaeger", "tempo", "alertmanager")
    }
    assert uids == {name: f"agenteval-{name}" for name in uids}
    to_traces = of_source("prometheus")["jsonData"]["exemplarTraceIdDestinations"]
    assert [(item["name"], item["datasourceUid"]) for item in to_traces] == [
        ("trace_id", "agenteval-jaeger"),
        ("trace_id", "agenteval-tempo"),
    ]
    for name in ("jaeger", "tempo"):
        to_events = of_source(name)["jsonData"]["tracesToLogsV2"]
        assert (to_events["datasourceUid"], to_events["customQuery"]) == ("agenteval-loki", True)
        assert to_events["query"] == '{$${__tags}} | trace_id="$${__trace.traceId}"'
    back = of_source("loki")["jsonData"]["derivedFields"][0]
    assert (back["matcherType"], back["datasourceUid"], back["url"]) == (
        "label",
        "agenteval-jaeger",
        "$${__value.raw}",
    )


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the schema library the error says what to install."""
    for name in list(sys.modules):
        if name.startswith(("grafana_foundation_sdk", "agenteval_otel.provisioning.grafana.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafana_foundation_sdk", None)
    with pytest.raises(ConfigurationError, match=r'pip install "agenteval-otel\[grafana\]"'):
        files_of(PLAIN)


# --- the linter's rules ---

DASHBOARDS = [
    pytest.param(dashboard, id=f"{name}-{queries}-{dashboard['uid']}")
    for name, plan in (("full", FULL), ("plain", PLAIN))
    for queries in KINDS
    for dashboard in dashboards_of(files_of(plan, queries=queries))
]
of_each = pytest.mark.parametrize("dashboard", DASHBOARDS)

COUNTERS = [item.prometheus_name for item in INSTRUMENTS if item.kind == "counter"]
COUNTERS += [
    f"{item.prometheus_name}_{part}"
    for item in INSTRUMENTS
    if item.kind == "histogram"
    for part in ("bucket", "sum", "count")
]
GAUGES = [item.prometheus_name for item in INSTRUMENTS if item.kind in ("gauge", "up_down_counter")]
# Single values speak for all that the dashboard shows, rates for the chosen window: argued for in
# the docstring of this module.
WINDOWS = {"$__rate_interval", "$__range", "$window"}
_STRING = r"(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`)"
_SELECTOR = re.compile(rf"([a-z_0-9:$]+)\{{((?:{_STRING}|[^{{}}\"`])*)\}}(\[[^\]]+\])?")


def targets_of(dashboard: Mapping[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    queries = [
        (panel["title"], target)
        for panel in panels_of(dashboard)
        for target in panel.get("targets", ())
    ]
    return [(title, target) for title, target in queries if target["datasource"]["type"] == kind]


@of_each
def test_data_source_environment_and_service_are_variables(dashboard: Mapping[str, Any]) -> None:
    """A data source is chosen by type, then one environment and one service in it; nothing is
    edited by accident.
    """
    assert dashboard["editable"] is False
    variables = {item["name"]: item for item in dashboard["templating"]["list"]}
    source = variables["prometheus_datasource"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for name, label in (("environment", "Environment"), ("job", "Job")):
        result = variables[name]
        assert (result["type"], result["label"], result["multi"]) == ("query", label, True)
        assert (result["includeAll"], result["allValue"]) == (True, ".*")
        assert result["datasource"] == {"type": "prometheus", "uid": "${prometheus_datasource}"}
        assert result["query"].startswith("label_values(")
    for name, variable in variables.items():
        assert variable["label"], name
        assert variable["description"], name


@of_each
def test_every_panel_says_what_it_shows(dashboard: Mapping[str, Any]) -> None:
    """Each panel has a title, a description, a unit, the chosen data source, and a number and place
    of its own.
    """
    panels = list(panels_of(dashboard))
    assert panels
    for panel in panels:
        assert panel["title"].strip()
        assert panel["description"].strip().endswith("."), panel["title"]
        if panel["type"] == "text":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None, panel[
            "title"
        ]
        uids = {
            panel["datasource"]["uid"],
            *(target["datasource"]["uid"] for target in panel["targets"]),
        }
        assert uids - {"__expr__"} in ({"${prometheus_datasource}"}, {"${loki_datasource}"}), panel[
            "title"
        ]
        if panel["type"] in ("table", "timeseries") and re.search(
            "[Pp]ass rate|[Mm]ean score", panel["title"]
        ):
            assert re.search("answers|How many", panel["description"]), panel["title"]
    rows = [item for item in dashboard["panels"] if item["type"] == "row"]
    ids = [item["id"] for item in (*panels, *rows)]
    assert len(set(ids)) == len(ids)
    places = [item["gridPos"] for item in (*panels, *rows)]
    taken = [
        (place["x"] + right, place["y"] + down)
        for place in places
        for right in range(place["w"])
        for down in range(place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


@of_each
def test_every_selector_takes_environment_and_job(dashboard: Mapping[str, Any]) -> None:
    """Each series of each PromQL query is chosen by them; what is subtracted has the labels of the
    other side.
    """
    for title, target in targets_of(dashboard, "prometheus"):
        selectors = _SELECTOR.findall(target["expr"])
        assert selectors, title
        for name, matchers, _ in selectors:
            service = 'deployment_environment_name=~"$environment", job=~"$job"'
            assert service in matchers, (title, name)
            if dashboard["uid"] == "agenteval-operations":
                assert 'instance=~"$instance"' in matchers, (title, name)
        without = re.sub(r"by \([^)]*\)", "", _SELECTOR.sub("", target["expr"]))
        without = re.sub(r" - agenteval_version:[\w:$]+\) \^ 2", "", without)
        assert not re.search(r"agenteval|gen_ai_", without), (title, "a series without a selector")


@of_each
def test_counters_grow_and_gauges_stand(dashboard: Mapping[str, Any]) -> None:
    """Counters and histograms stand under `rate` or `increase`; gauges and recorded series have no
    window.
    """
    for title, target in targets_of(dashboard, "prometheus"):
        for result in _SELECTOR.finditer(target["expr"]):
            name, _, window = result.groups()
            before = target["expr"][: result.start()]
            if name in GAUGES or ":" in name:
                assert window is None, (title, name)
                continue
            assert name in COUNTERS, (title, name)
            assert before.endswith(("rate(", "increase(")), (title, name)
            assert window.strip("[]") in WINDOWS, (title, window)
            assert (window == "[$__rate_interval]") <= (not target.get("instant")), title


@of_each
def test_queries_take_events_by_service_and_legends_name_labels_that_are_there(
    dashboard: Mapping[str, Any],
) -> None:
    """Each LogQL query takes the chosen service's evaluation results; a legend's labels are those
    of its query.
    """
    for title, target in targets_of(dashboard, "loki"):
        assert (
            '{service_name=~"$service"} | event_name="gen_ai.evaluation.result"' in target["expr"]
        ), title
    for title, target in targets_of(dashboard, "prometheus"):
        for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert any(label in item.split(", ") for item in kept), (title, label)


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ("all", {"", "off_peak", "ground_truth"}),
        ("on time", {""}),
        ("late alone", {"off_peak", "ground_truth"}),
        ("replayed alone", {"replay"}),
    ],
)
def test_late_results_are_chosen_by_a_variable(choice: str, chosen: set[str]) -> None:
    """Loki matches the whole value. An event on time has none, which is the empty text."""
    pattern = late_choices(dashboard(FULL, "agenteval-criterion"))[choice]
    reasons = {"", *get_args(Late), semconv.LATE_REPLAY}
    assert {reason for reason in reasons if re.fullmatch(pattern, reason)} == chosen


def test_dashboards_lead_to_each_other() -> None:
    """Each has a uid that Grafana takes, and links by a tag that all have; a row of a table leads
    to its criterion.
    """
    dashboards = dashboards_of(files_of(FULL))
    assert {item["uid"] for item in dashboards} == {f"agenteval-{name}" for name in DASHBOARDS_OF}
    for item in dashboards:
        assert item["tags"] == ["agenteval"]
        assert [link["tags"] for link in item["links"]] == [["agenteval"]]
        assert all(link["includeVars"] and link["keepTime"] for link in item["links"])
    overview = panels(FULL, "agenteval-overview")
    for title in ("Pass rate", "Mean score"):
        links = urls_of(overview[title])
        details = [url for url in links if url.startswith("/d/agenteval-criterion?")]
        assert len(details) == 1
        assert "&var-job=${__data.fields.service:percentencode}&" in details[0]
        assert details[0].endswith("&var-criterion=${__value.raw:percentencode}")


def urls_of(panel: Mapping[str, Any]) -> list[str]:
    """Return where the values of a panel lead."""
    config = panel["fieldConfig"]
    properties = [item for override in config["overrides"] for item in override["properties"]]
    of_columns = [link for item in properties if item["id"] == "links" for link in item["value"]]
    return [link["url"] for link in (*of_columns, *config["defaults"].get("links", ()))]


@pytest.mark.parametrize("queries", KINDS)
def test_values_lead_to_the_answers_that_fail(queries: str) -> None:
    """Pages take seconds. What an address says is read there, and names may have any character."""
    ends = {"${__from:date:seconds}": "100", "${__to:date:seconds}": "200"}
    ends |= {"${__value.time:date:seconds}": "200"}
    seen = set()
    for board in dashboards_of(files_of(FULL, queries=queries, pages="https://scores.example/")):
        for panel in panels_of(board):
            for url in urls_of(panel) if panel["type"] != "text" else ():
                if not url.startswith("https://scores.example/answers?"):
                    continue
                for variable, seconds in ends.items():
                    url = url.replace(variable, seconds)
                named = re.sub(r"\$\{[^}]+:percentencode\}", quote(HOSTILE), url)
                query = dict(parse_qsl(urlsplit(named).query))
                wanted = ListQuery.read(query, Window(by="evaluated"), ["agent"])
                assert wanted.names == {"criterion": HOSTILE, "agent": HOSTILE}, panel["title"]
                assert (wanted.outcome, query["time"]) == ("fail", "evaluated")
                moments = (moment_in(query.get("since")), moment_in(query.get("until")))
                assert moments in ((100, 200), (None, 200)), panel["title"]
                seen.add((board["uid"], panel["title"]))
    assert seen == {
        ("agenteval-overview", "Pass rate"),
        ("agenteval-overview", "Pass rate over time"),
        ("agenteval-overview", "Failing results"),
        ("agenteval-overview", "Results"),
        ("agenteval-criterion", "Pass rate of $agent"),
        ("agenteval-criterion", "By agent"),
    }


def test_without_pages_no_value_leads_to_them() -> None:
    assert "/answers" not in "".join(files_of(FULL, pages="none").values())


def test_means_are_folded_away_where_there_are_pass_rates() -> None:
    """Both series of panels are there, and those of the pass rate are seen at first."""
    for board in dashboards_of(files_of(FULL)):
        folded = [
            panel["title"]
            for row in board["panels"]
            if row["type"] == "row" and row["collapsed"]
            for panel in row["panels"]
        ]
        titles = [panel["title"] for panel in panels_of(board)]
        assert folded == [title for title in titles if title.startswith("Mean score")]
    for board in dashboards_of(files_of(PLAIN)):  # its criterion has no verdicts
        assert not any(row.get("collapsed") for row in board["panels"])


def test_a_row_has_the_colour_of_its_rate_beside_the_objective() -> None:
    """A criterion without an objective has none: Grafana takes the first step where it has no number."""
    for uid, title in (("agenteval-overview", "Pass rate"), ("agenteval-criterion", "By agent")):
        overrides = panels(FULL, uid)[title]["fieldConfig"]["overrides"]
        (looks,) = (
            {item["id"]: item["value"] for item in override["properties"]}
            for override in overrides
            if override["matcher"]["options"] == "to objective"
        )
        assert looks["custom.cellOptions"]["applyToRow"] is True
        steps = looks["thresholds"]["steps"]
        assert [step["value"] for step in steps] == [None, -1.0, 0.0]
        assert steps[0]["color"] == "transparent"


def test_versions_of_services_and_prompts_are_marked() -> None:
    """Those of prompts where they are a metric dimension, on every dashboard."""
    with_prompts = FULL.model_copy(update={"dimensions": ("gen_ai.prompt.version",)})
    for plan, wanted in (
        (FULL, ["Releases"]),
        (with_prompts, ["Releases", "Prompt versions"]),
        (MonitoringPlan(), ["Releases"]),
    ):
        for queries in KINDS:
            for board in dashboards_of(files_of(plan, queries=queries)):
                marks = board["annotations"]["list"]
                assert [mark["name"] for mark in marks] == wanted
                for mark in marks:
                    assert mark["target"]["expr"] == mark["expr"]
                    assert (
                        'deployment_environment_name=~"$environment", job=~"$job"' in mark["expr"]
                    )


def test_the_labels_in_queries_are_those_of_the_instruments() -> None:
    """A label that no instrument has is in no query."""
    known = {label_name(attribute) for item in INSTRUMENTS for attribute in item.attributes}
    known |= {"job", "instance", "le", "service_version", "deployment_environment_name"} | {
        *map(label_name, FULL.dimensions)
    }
    for dashboard in dashboards_of(files_of(FULL)):
        for title, target in targets_of(dashboard, "prometheus"):
            for _, matchers, _ in _SELECTOR.findall(target["expr"]):
                bare = re.sub(_STRING, '""', matchers)
                assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"\"", bare)) <= known, title
            for kept in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(kept.split(", ")) <= known, title
