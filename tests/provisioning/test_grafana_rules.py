"""The dashboards keep the rules of Grafana's dashboard linter; exceptions stand here and in docs/dashboards.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.promql import label_name
from agenteval_otel.semconv import INSTRUMENTS

from .plans import FULL, PLAIN
from .queries import dashboards_of, panels_of

DASHBOARDS = [
    pytest.param(dashboard, id=f"{name}-{dashboard['uid']}")
    for name, plan in (("full", FULL), ("plain", PLAIN))
    for dashboard in dashboards_of(files_of(plan))
]
of_each = pytest.mark.parametrize("dashboard", DASHBOARDS)

COUNTERS = [one.prometheus_name for one in INSTRUMENTS if one.kind == "counter"]
COUNTERS += [
    f"{one.prometheus_name}_{part}"
    for one in INSTRUMENTS
    if one.kind == "histogram"
    for part in ("bucket", "sum", "count")
]
GAUGES = [one.prometheus_name for one in INSTRUMENTS if one.kind in ("gauge", "up_down_counter")]
# Single values speak for all that the dashboard shows: argued for in docs/dashboards.md.
WINDOWS = {"$__rate_interval", "$__range"}
_STRING = r"(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`)"
_SELECTOR = re.compile(rf"([a-z_0-9]+)\{{((?:{_STRING}|[^{{}}\"`])*)\}}(\[[^\]]+\])?")


def targets_of(dashboard: Mapping[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (panel["title"], target)
        for panel in panels_of(dashboard)
        for target in panel["targets"]
        if target["datasource"]["type"] == kind
    ]


@of_each
def test_data_source_job_and_instance_are_variables(dashboard: Mapping[str, Any]) -> None:
    """A data source is chosen by type, job and instance from it: several, all of them at first."""
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for name, label in (("job", "Job"), ("instance", "Instance")):
        found = variables[name]
        assert (found["type"], found["label"], found["allValue"]) == ("query", label, ".+")
        assert found["multi"] is found["includeAll"] is True
        assert found["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert found["query"].startswith("label_values(")
    for name, variable in variables.items():
        assert variable["label"], name
        assert variable["description"], name


@of_each
def test_every_panel_says_what_it_shows(dashboard: Mapping[str, Any]) -> None:
    """Each panel has a title, a description, a unit, a number of its own, and a place that no other has."""
    panels = list(panels_of(dashboard))
    assert panels
    for panel in panels:
        assert panel["title"].strip()
        assert panel["description"].strip().endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None, panel["title"]
    ids = [one["id"] for one in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken = [
        (place["x"] + right, place["y"] + down)
        for place in (one["gridPos"] for one in dashboard["panels"])
        for right in range(place["w"])
        for down in range(place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


@of_each
def test_no_data_source_is_named(dashboard: Mapping[str, Any]) -> None:
    """Panels and queries take the chosen data source, never one that happens to be called so."""
    for panel in panels_of(dashboard):
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids <= {"${datasource}", "${logs}"}, panel["title"]
        assert len(uids) == 1, panel["title"]


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
        for found in _SELECTOR.finditer(target["expr"]):
            name, _, window = found.groups()
            before = target["expr"][: found.start()]
            if name in GAUGES:
                assert window is None, (title, name)
                continue
            assert name in COUNTERS, (title, name)
            assert before.endswith(("rate(", "increase(")), (title, name)
            assert window.strip("[]") in WINDOWS, (title, window)
            assert (window == "[$__range]") == bool(target.get("instant")), title


@of_each
def test_events_are_chosen_by_service_and_by_name(dashboard: Mapping[str, Any]) -> None:
    """Each LogQL query begins with the chosen service and takes evaluation results only."""
    for title, target in targets_of(dashboard, "loki"):
        assert '{service_name=~"$service"} | event_name="gen_ai.evaluation.result"' in target["expr"], title


@of_each
def test_legends_name_labels_that_are_there(dashboard: Mapping[str, Any]) -> None:
    """What a legend has in double braces is among the labels that the query keeps."""
    for title, target in targets_of(dashboard, "prometheus"):
        for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert any(label in one.split(", ") for one in kept), (title, label)


def test_dashboards_are_told_apart_and_lead_to_each_other() -> None:
    """Each has a uid that Grafana takes, tags, and links by tags that others have."""
    dashboards = dashboards_of(files_of(FULL))
    uids = [one["uid"] for one in dashboards]
    assert len(set(uids)) == len(uids) == 3 + len(FULL.names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid) for uid in uids)
    tags = {tag for one in dashboards for tag in one["tags"]}
    for one in dashboards:
        assert "agenteval" in one["tags"]
        linked = {tag for link in one["links"] for tag in link["tags"]}
        assert linked <= tags
        assert linked == {"agenteval-main", "agenteval-criterion"}
        assert all(link["includeVars"] and link["keepTime"] for link in one["links"])


def test_links_of_panels_lead_to_dashboards_that_are_there() -> None:
    """From a criterion on the overview to its own dashboard."""
    dashboards = dashboards_of(files_of(FULL))
    uids = {one["uid"] for one in dashboards}
    linked = [
        re.fullmatch(r"/d/([^?]+)\?\$\{__url_time_range\}&\$\{__all_variables\}", link["url"])
        for one in dashboards
        for panel in panels_of(one)
        for link in panel["fieldConfig"]["defaults"].get("links", ())
    ]
    assert len(linked) == len(FULL.criteria)
    assert {found[1] for found in linked if found} <= uids
    assert all(linked)


def test_the_labels_in_queries_are_those_of_the_instruments() -> None:
    """A label that no instrument has is in no query."""
    known = {label_name(attribute) for one in INSTRUMENTS for attribute in one.attributes}
    known |= {"job", "instance", "le", "service_version"}
    for dashboard in dashboards_of(files_of(FULL)):
        for title, target in targets_of(dashboard, "prometheus"):
            for _, matchers, _ in _SELECTOR.findall(target["expr"]):
                bare = re.sub(_STRING, '""', matchers)
                assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"\"", bare)) <= known, title
            for kept in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(kept.split(", ")) <= known, title
