"""What the dashboards hold follows from the settings, and nothing else: panels, lines, names, data sources."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.files import MARK
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.grafana.boards import criterion_slug, criterion_uid

from .plans import AWKWARD, FULL, PLAIN, planned
from .queries import dashboards_of, interpolated, panels_of, queries_of, variables_of


def dashboard(plan: MonitoringPlan, uid: str) -> dict[str, Any]:
    (found,) = (one for one in dashboards_of(files_of(plan)) if one["uid"] == uid)
    return found


def panels(plan: MonitoringPlan, uid: str) -> dict[str, dict[str, Any]]:
    return {one["title"]: one for one in panels_of(dashboard(plan, uid))}


def steps(panel: Mapping[str, Any]) -> list[tuple[float | None, str]]:
    return [(one["value"], one["color"]) for one in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def of_source(name: str, **options: str) -> dict[str, Any]:
    text = files_of(PLAIN, **options)["provisioning/datasources/agenteval.yaml"]
    found = {one["type"]: one for one in yaml.safe_load(text)["datasources"]}
    return dict(found[name])


@pytest.mark.parametrize("plan", [FULL, PLAIN, MonitoringPlan()], ids=["full", "plain", "nothing"])
def test_the_schema_library_reads_what_was_written(plan: MonitoringPlan) -> None:
    """Each dashboard, decoded into the library's models and encoded again, has lost and changed nothing."""
    register_default_plugins()
    for read in dashboards_of(files_of(plan)):
        again = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(read))), cls=JSONEncoder))
        assert not list(lost(read, again))


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where something stood that is gone or different; what the library adds of itself is no loss."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key, "nothing"), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}/{number}")
    elif before != after:
        yield f"{path}: {before} became {after}"


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
    """The objective is where the pass rate turns green and its line; the normalized threshold is the mean's line."""
    found = panels(FULL, criterion_uid("Helpful.v2"))
    objective, threshold = [(None, "red"), (0.9, "green")], [(None, "red"), (0.75, "green")]
    assert steps(found["Pass rate"]) == steps(found["Pass rate over time"]) == objective
    assert steps(found["Mean score over time"]) == threshold
    for title in ("Pass rate over time", "Mean score over time"):
        assert found[title]["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "dashed"}
    assert steps(panels(FULL, "agenteval-overview")["Helpful.v2 ≥ 90 %"]) == objective


def test_without_objective_and_threshold_there_is_no_line() -> None:
    """No objective: no line on the pass rate. No threshold: none on the mean."""
    tone, polite = (panels(FULL, criterion_uid(name)) for name in ("tone", "polite"))
    for panel in (tone["Pass rate"], tone["Pass rate over time"], polite["Mean score over time"]):
        assert len(steps(panel)) == 1
        assert "thresholdsStyle" not in panel["fieldConfig"]["defaults"].get("custom", {})


def test_without_verdicts_there_is_no_pass_rate() -> None:
    """A number that nothing decides on has a mean and a spread, and no panel of passing anywhere."""
    found = panels(FULL, criterion_uid("speed"))
    assert {"Mean score over time", "Distribution of scores", "Results"} <= set(found)
    assert not {title for title in found if "ass rate" in title or title == "Verdicts"}
    assert "speed: mean score" in panels(FULL, "agenteval-overview")
    for plan_panels in (panels(PLAIN, uid) for uid in ("agenteval-overview", "agenteval-releases")):
        assert not [title for title in plan_panels if "ass rate" in title]
    for one in queries_of(files_of(FULL), {}):
        if one.panel.startswith(("Pass rate", "Failing")) and one.dashboard in (
            "agenteval-overview",
            "agenteval-releases",
        ):
            assert "speed" not in one.expression


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
    """Queries of quality name the plan's criteria; one that is not configured is in none."""
    for one in queries_of(files_of(PLAIN), {}):
        if "agenteval_evaluation_results" in one.expression or "gen_ai_evaluation_score" in one.expression:
            assert 'gen_ai_evaluation_name="seen"' in one.expression


def test_nothing_configured_gives_what_needs_no_criterion() -> None:
    """Without criteria there are the traffic and the operations, and no panel that compares nothing."""
    found = {one["uid"] for one in dashboards_of(files_of(MonitoringPlan()))}
    assert found == {"agenteval-overview", "agenteval-operations"}


def test_agents_with_different_criteria_of_one_name_are_told_apart() -> None:
    """Each has its own panels, numbered, and its own objective."""
    plan = MonitoringPlan(criteria=(
        planned("polite", agents=("a",), objective=0.5), planned("polite", agents=("b",), objective=0.9),
    ))  # fmt: skip
    overview = panels(plan, "agenteval-overview")
    assert steps(overview["polite (1 of 2) ≥ 50 %"])[1][0] == 0.5
    assert steps(overview["polite (2 of 2) ≥ 90 %"])[1][0] == 0.9
    rates = [one.expression for one in queries_of(files_of(plan), {}) if one.panel == "Pass rate"
             and one.dashboard == criterion_uid("polite")]  # fmt: skip
    assert ['gen_ai_agent_name="a"' in rates[0], 'gen_ai_agent_name="b"' in rates[1], len(rates)] == [True, True, 2]


def test_names_are_no_variables_to_grafana() -> None:
    """Replacing variables leaves names of agents and descriptions of criteria alone, wherever they stand."""
    made = dashboard(FULL, criterion_uid("Helpful.v2"))
    trapped = {**variables_of(made), "job": "TRAPPED", "instance": "TRAPPED", "agent": "TRAPPED", "x": "TRAPPED"}
    for panel in panels_of(made):
        for text in (panel["title"], panel["description"]):
            assert "TRAPPED" not in interpolated(text, trapped)
        for target in panel["targets"]:
            replaced = interpolated(target["expr"], trapped)
            if target["datasource"]["type"] == "prometheus":
                meant = target["expr"].count('~"$') + target["expr"].count("~`$")
                assert replaced.count("TRAPPED") == meant, panel["title"]


@pytest.mark.parametrize("name", ["a", "a.b", "a_b", "A", "x" * 64, "x" * 63 + "y", "Helpful.v2"])
def test_uids_are_short_and_differ_where_names_do(name: str) -> None:
    """A criterion's uid is one that Grafana takes, and no other name has it, whatever Grafana makes of the case."""
    others = {"a", "a.b", "a_b", "A", "x" * 64, "x" * 63 + "y", "Helpful.v2"} - {name}
    assert len(criterion_uid(name)) <= 40
    assert criterion_uid(name) not in {criterion_uid(other).lower() for other in others}
    assert criterion_slug(name) == criterion_slug(name).lower()


def test_windows_shrink_with_the_time_scale() -> None:
    """The least step of a point follows the plan's scale of time, as rules do."""
    for scale, least in ((1.0, "5m"), (0.01, "3s")):
        scaled = PLAIN.model_copy(update={"time_scale": scale})
        assert panels(scaled, "agenteval-overview")["Mean score"]["interval"] == least


def test_an_exemplar_leads_to_its_trace_and_a_trace_to_its_events() -> None:
    """Prometheus leads to Jaeger and Tempo, these to Loki by the trace's id, Loki back by its metadata."""
    uids = {name: of_source(name)["uid"] for name in ("prometheus", "loki", "jaeger", "tempo", "alertmanager")}
    assert uids == {name: f"agenteval-{name}" for name in uids}
    to_traces = of_source("prometheus")["jsonData"]["exemplarTraceIdDestinations"]
    assert [(one["name"], one["datasourceUid"]) for one in to_traces] == [
        ("trace_id", "agenteval-jaeger"), ("trace_id", "agenteval-tempo"),
    ]  # fmt: skip
    for name in ("jaeger", "tempo"):
        to_events = of_source(name)["jsonData"]["tracesToLogsV2"]
        assert (to_events["datasourceUid"], to_events["customQuery"]) == ("agenteval-loki", True)
        assert to_events["query"] == '{$${__tags}} | trace_id="$${__trace.traceId}"'
    back = of_source("loki")["jsonData"]["derivedFields"][0]
    assert (back["matcherType"], back["datasourceUid"], back["url"]) == ("label", "agenteval-jaeger", "$${__value.raw}")


def test_addresses_are_options() -> None:
    """Each data source's address can be given, as a variable of Grafana's environment too; so can the folder."""
    assert of_source("prometheus", prometheus_url="$PROMETHEUS_URL")["url"] == "$PROMETHEUS_URL"
    assert of_source("loki", loki_url="http://127.0.0.1:3100")["url"] == "http://127.0.0.1:3100"
    files = files_of(PLAIN, dashboards_path="/srv/boards")
    (provider,) = yaml.safe_load(files["provisioning/dashboards/agenteval.yaml"])["providers"]
    assert provider["options"]["path"] == "/srv/boards"


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
    assert len(AWKWARD) > 1
