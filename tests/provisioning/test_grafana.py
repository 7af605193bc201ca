"""Dashboards follow from the settings, and keep the rules of Grafana's linter; exceptions: docs/dashboards.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.grafana.boards import criterion_slug, criterion_uid
from agenteval_otel.provisioning.promql import label_name
from agenteval_otel.semconv import INSTRUMENTS

from .plans import FULL, PLAIN, criterion
from .queries import dashboards_of, interpolated, panels_of, queries_of, variables_of


def dashboard(plan: MonitoringPlan, uid: str) -> dict[str, Any]:
    (result,) = (item for item in dashboards_of(files_of(plan)) if item["uid"] == uid)
    return result


def panels(plan: MonitoringPlan, uid: str) -> dict[str, dict[str, Any]]:
    return {item["title"]: item for item in panels_of(dashboard(plan, uid))}


def steps(panel: Mapping[str, Any]) -> list[tuple[float | None, str]]:
    return [(item["value"], item["color"]) for item in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def of_source(name: str) -> dict[str, Any]:
    text = files_of(PLAIN)["provisioning/datasources/agenteval.yaml"]
    result = {item["type"]: item for item in yaml.safe_load(text)["datasources"]}
    return dict(result[name])


def test_files_are_the_same_each_time_and_marked_as_generated() -> None:
    """The same plan gives the same texts, each with the mark by which a later run knows them."""
    files = files_of(FULL)
    assert files == files_of(FULL)
    assert all(MARK in text for text in files.values())
    assert set(files) == {
        "dashboards/overview.json", "dashboards/operations.json", "dashboards/releases.json",
        "provisioning/datasources/agenteval.yaml", "provisioning/dashboards/agenteval.yaml",
    } | {f"dashboards/criterion-{criterion_slug(name)}.json" for name in FULL.names}  # fmt: skip


def test_lines_and_colours_come_from_objective_and_threshold() -> None:
    """The objective is the pass rate's line, the normalized threshold the mean's; without them there is no line."""
    result = panels(FULL, criterion_uid("Helpful.v2"))
    objective, threshold = [(None, "red"), (0.9, "green")], [(None, "red"), (0.75, "green")]
    assert steps(result["Pass rate"]) == steps(result["Pass rate over time"]) == objective
    assert steps(result["Mean score over time"]) == threshold
    for title in ("Pass rate over time", "Mean score over time"):
        assert result[title]["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "dashed"}
    assert steps(panels(FULL, "agenteval-overview")["Helpful.v2 ≥ 90 %"]) == objective
    tone, polite = (panels(FULL, criterion_uid(name)) for name in ("tone", "polite"))
    for panel in (tone["Pass rate"], tone["Pass rate over time"], polite["Mean score over time"]):
        assert len(steps(panel)) == 1
        assert "thresholdsStyle" not in panel["fieldConfig"]["defaults"].get("custom", {})


def test_without_verdicts_there_is_no_pass_rate() -> None:
    """A number that nothing decides on has a mean and a spread, and no panel of passing anywhere."""
    result = panels(FULL, criterion_uid("speed"))
    assert {"Mean score over time", "Distribution of scores", "Results"} <= set(result)
    assert not {title for title in result if "ass rate" in title or title == "Verdicts"}
    assert "speed: mean score" in panels(FULL, "agenteval-overview")
    for plan_panels in (panels(PLAIN, uid) for uid in ("agenteval-overview", "agenteval-releases")):
        assert not [title for title in plan_panels if "ass rate" in title]
    for item in queries_of(files_of(FULL), {}):
        if item.panel.startswith(("Pass rate", "Failing")) and item.dashboard != criterion_uid("speed"):
            assert "speed" not in item.expression


def test_without_judges_there_are_no_panels_of_judges() -> None:
    """Judges' panels come with a judge, the budget's with a limit, a duration with an evaluator that asks a model."""
    judges = {"Calls of judges", "Judge latency", "Tokens", "Spend an hour", "Breaker"}
    assert judges | {"Budget left"} <= set(panels(FULL, "agenteval-operations"))
    assert not (judges | {"Budget left"}) & set(panels(PLAIN, "agenteval-operations"))
    unlimited = FULL.model_copy(update={"has_spend_limit": False})
    assert "Budget left" not in panels(unlimited, "agenteval-operations")
    assert "Duration" in panels(FULL, criterion_uid("Helpful.v2"))
    assert "Duration" not in panels(FULL, criterion_uid("polite"))


def test_exactly_the_configured_criteria_are_asked_for() -> None:
    """Queries of quality name the plan's criteria; without criteria there are the traffic and the operations."""
    for item in queries_of(files_of(PLAIN), {}):
        if "agenteval_evaluation_results" in item.expression or "gen_ai_evaluation_score" in item.expression:
            assert 'gen_ai_evaluation_name="seen"' in item.expression
    result = {item["uid"] for item in dashboards_of(files_of(MonitoringPlan()))}
    assert result == {"agenteval-overview", "agenteval-operations"}


def test_agents_with_different_criteria_of_one_name_are_told_apart() -> None:
    """Each has its own panels, numbered, and its own objective."""
    plan = MonitoringPlan(criteria=(
        criterion("polite", agents=("a",), objective=0.5), criterion("polite", agents=("b",), objective=0.9),
    ))  # fmt: skip
    overview = panels(plan, "agenteval-overview")
    assert steps(overview["polite (1 of 2) ≥ 50 %"])[1][0] == 0.5
    assert steps(overview["polite (2 of 2) ≥ 90 %"])[1][0] == 0.9
    rates = [item.expression for item in queries_of(files_of(plan), {}) if item.panel == "Pass rate"
             and item.dashboard == criterion_uid("polite")]  # fmt: skip
    assert ['gen_ai_agent_name="a"' in rates[0], 'gen_ai_agent_name="b"' in rates[1], len(rates)] == [True, True, 2]


def test_names_are_no_variables_to_grafana() -> None:
    """Replacing variables leaves names of agents and descriptions of criteria alone, wherever they stand."""
    built = dashboard(FULL, criterion_uid("Helpful.v2"))
    trapped = {**variables_of(built), "job": "TRAPPED", "instance": "TRAPPED", "agent": "TRAPPED", "x": "TRAPPED"}
    for panel in panels_of(built):
        for text in (panel["title"], panel["description"]):
            assert "TRAPPED" not in interpolated(text, trapped)
        for target in panel["targets"]:
            replaced = interpolated(target["expr"], trapped)
            if target["datasource"]["type"] == "prometheus":
                meant = target["expr"].count('~"$') + target["expr"].count("~`$")
                assert replaced.count("TRAPPED") == meant, panel["title"]


def test_uids_are_short_and_differ_where_names_do() -> None:
    """A criterion's uid is one that Grafana takes, and no other name has it, whatever Grafana makes of the case."""
    names = ("a", "a.b", "a_b", "A", "x" * 64, "x" * 63 + "y", "Helpful.v2")
    assert len({criterion_uid(name).lower() for name in names}) == len(names)
    assert all(len(criterion_uid(name)) <= 40 and criterion_slug(name).islower() for name in names)


def test_an_exemplar_leads_to_its_trace_and_a_trace_to_its_events() -> None:
    """Prometheus leads to Jaeger and Tempo, these to Loki by the trace's id, Loki back by its metadata."""
    uids = {name: of_source(name)["uid"] for name in ("prometheus", "loki", "jaeger", "tempo", "alertmanager")}
    assert uids == {name: f"agenteval-{name}" for name in uids}
    to_traces = of_source("prometheus")["jsonData"]["exemplarTraceIdDestinations"]
    assert [(item["name"], item["datasourceUid"]) for item in to_traces] == [
        ("trace_id", "agenteval-jaeger"), ("trace_id", "agenteval-tempo"),
    ]  # fmt: skip
    for name in ("jaeger", "tempo"):
        to_events = of_source(name)["jsonData"]["tracesToLogsV2"]
        assert (to_events["datasourceUid"], to_events["customQuery"]) == ("agenteval-loki", True)
        assert to_events["query"] == '{$${__tags}} | trace_id="$${__trace.traceId}"'
    back = of_source("loki")["jsonData"]["derivedFields"][0]
    assert (back["matcherType"], back["datasourceUid"], back["url"]) == ("label", "agenteval-jaeger", "$${__value.raw}")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the schema library the error says what to install."""
    for name in list(sys.modules):
        if name.startswith(("grafana_foundation_sdk", "agenteval_otel.provisioning.grafana.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafana_foundation_sdk", None)
    with pytest.raises(ConfigurationError, match=r'pip install "agenteval-otel\[grafana\]"'):
        files_of(PLAIN)


def test_agents_are_described_as_they_are_called() -> None:
    """Descriptions name the agents that a criterion is of, harmless to Markdown and to variables."""
    says = panels(FULL, "agenteval-overview")["Helpful.v2 ≥ 90 %"]["description"]
    assert "Passes from 4 on" in says
    assert "日本 ü" in says
    assert not set('$[]{}"<>*`\\') & set(says)


# --- the linter's rules ---

DASHBOARDS = [
    pytest.param(dashboard, id=f"{name}-{dashboard['uid']}")
    for name, plan in (("full", FULL), ("plain", PLAIN))
    for dashboard in dashboards_of(files_of(plan))
]
of_each = pytest.mark.parametrize("dashboard", DASHBOARDS)

COUNTERS = [item.prometheus_name for item in INSTRUMENTS if item.kind == "counter"]
COUNTERS += [f"{item.prometheus_name}_{part}" for item in INSTRUMENTS if item.kind == "histogram"
             for part in ("bucket", "sum", "count")]  # fmt: skip
GAUGES = [item.prometheus_name for item in INSTRUMENTS if item.kind in ("gauge", "up_down_counter")]
# Single values speak for all that the dashboard shows: argued for in docs/dashboards.md.
WINDOWS = {"$__rate_interval", "$__range"}
_STRING = r"(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`)"
_SELECTOR = re.compile(rf"([a-z_0-9]+)\{{((?:{_STRING}|[^{{}}\"`])*)\}}(\[[^\]]+\])?")


def targets_of(dashboard: Mapping[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    queries = [(panel["title"], target) for panel in panels_of(dashboard) for target in panel["targets"]]
    return [(title, target) for title, target in queries if target["datasource"]["type"] == kind]


@of_each
def test_data_source_job_and_instance_are_variables(dashboard: Mapping[str, Any]) -> None:
    """A data source is chosen by type, job and instance from it: several, all of them at first."""
    variables = {item["name"]: item for item in dashboard["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for name, label in (("job", "Job"), ("instance", "Instance")):
        result = variables[name]
        assert (result["type"], result["label"], result["allValue"]) == ("query", label, ".+")
        assert result["multi"] is result["includeAll"] is True
        assert result["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert result["query"].startswith("label_values(")
    for name, variable in variables.items():
        assert variable["label"], name
        assert variable["description"], name


@of_each
def test_every_panel_says_what_it_shows(dashboard: Mapping[str, Any]) -> None:
    """Each panel has a title, a description, a unit, the chosen data source, and a number and place of its own."""
    panels = list(panels_of(dashboard))
    assert panels
    for panel in panels:
        assert panel["title"].strip()
        assert panel["description"].strip().endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None, panel["title"]
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids in ({"${datasource}"}, {"${logs}"}), panel["title"]
    ids = [item["id"] for item in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [item["gridPos"] for item in dashboard["panels"]]
    taken = [(place["x"] + right, place["y"] + down)
             for place in places for right in range(place["w"]) for down in range(place["h"])]  # fmt: skip
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


@of_each
def test_every_selector_takes_job_and_instance(dashboard: Mapping[str, Any]) -> None:
    """Each series of each PromQL query is chosen by job and instance."""
    for title, target in targets_of(dashboard, "prometheus"):
        selectors = _SELECTOR.findall(target["expr"])
        assert selectors, title
        for name, matchers, _ in selectors:
            assert 'job=~"$job"' in matchers, (title, name)
            assert 'instance=~"$instance"' in matchers, (title, name)
        without = re.sub(r"by \([^)]*\)", "", _SELECTOR.sub("", target["expr"]))
        assert not re.search(r"agenteval_|gen_ai_", without), (title, "a series without a selector")


@of_each
def test_counters_grow_and_gauges_stand(dashboard: Mapping[str, Any]) -> None:
    """Counters and histograms stand under `rate` or `increase` over `$__rate_interval`; gauges have no window."""
    for title, target in targets_of(dashboard, "prometheus"):
        for result in _SELECTOR.finditer(target["expr"]):
            name, _, window = result.groups()
            before = target["expr"][: result.start()]
            if name in GAUGES:
                assert window is None, (title, name)
                continue
            assert name in COUNTERS, (title, name)
            assert before.endswith(("rate(", "increase(")), (title, name)
            assert window.strip("[]") in WINDOWS, (title, window)
            assert (window == "[$__range]") == bool(target.get("instant")), title


@of_each
def test_queries_take_events_by_service_and_legends_name_labels_that_are_there(dashboard: Mapping[str, Any]) -> None:
    """Each LogQL query takes the chosen service's evaluation results; a legend's labels are those of its query."""
    for title, target in targets_of(dashboard, "loki"):
        assert '{service_name=~"$service"} | event_name="gen_ai.evaluation.result"' in target["expr"], title
    for title, target in targets_of(dashboard, "prometheus"):
        for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert any(label in item.split(", ") for item in kept), (title, label)


def test_dashboards_are_told_apart_and_lead_to_each_other() -> None:
    """Each has a uid that Grafana takes, and links by tags that others have; panels link to dashboards that exist."""
    dashboards = dashboards_of(files_of(FULL))
    uids = [item["uid"] for item in dashboards]
    assert len(set(uids)) == len(uids) == 3 + len(FULL.names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid) for uid in uids)
    tags = {tag for item in dashboards for tag in item["tags"]}
    for item in dashboards:
        assert "agenteval" in item["tags"]
        linked = {tag for link in item["links"] for tag in link["tags"]}
        assert linked == {"agenteval-main", "agenteval-criterion"} <= tags
        assert all(link["includeVars"] and link["keepTime"] for link in item["links"])
    panels = [panel for item in dashboards for panel in panels_of(item)]
    links = [link["url"] for panel in panels for link in panel["fieldConfig"]["defaults"].get("links", ())]
    assert len(links) == len(FULL.criteria)
    assert set(links) <= {f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}" for uid in uids}


def test_the_labels_in_queries_are_those_of_the_instruments() -> None:
    """A label that no instrument has is in no query."""
    known = {label_name(attribute) for item in INSTRUMENTS for attribute in item.attributes}
    known |= {"job", "instance", "le", "service_version"}
    for dashboard in dashboards_of(files_of(FULL)):
        for title, target in targets_of(dashboard, "prometheus"):
            for _, matchers, _ in _SELECTOR.findall(target["expr"]):
                bare = re.sub(_STRING, '""', matchers)
                assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"\"", bare)) <= known, title
            for kept in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(kept.split(", ")) <= known, title
