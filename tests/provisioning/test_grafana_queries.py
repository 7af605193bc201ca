"""Every query of the dashboards is asked for real: of Prometheus with data behind it, of Loki for
its syntax.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.config import Settings
from agenteval_otel.config.process import build
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.prometheus import files_of as rules_of
from agenteval_otel.provisioning.promql import AGENT, CRITERION
from tests.backends.fixtures import loki_binary_fixture, loki_fixture, running
from tests.backends.loki import Loki
from tests.backends.process import bare_environment
from tests.backends.prometheus import Prometheus

from .plans import AWKWARD, FULL, accepted, written
from .queries import PanelQuery, dashboards_of, late_choices, queries_of
from .traffic import JUDGED, settings

__all__ = ["loki_binary_fixture", "loki_fixture"]

pytestmark = [pytest.mark.backend, pytest.mark.live]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 9
VERSIONS = ("1.9", "1.10")
ENVIRONMENT = "production"
TIME_SCALE = 0.05  # an hour is 180 s, which holds all that the applications send, and the tests
KINDS = ("recorded", "raw")
BREAKS = ("broken", JUDGED)
ONE_AGENT = "日本 ü"
"""Panels with a band are repeated for each agent."""
OBJECTIVES = ("short", JUDGED, "response_health")
WITHOUT_DATA = {
    ("agenteval-operations", "Event loop lag"),  # the application has no event loop
    # These take more scores than come in the time.
    ("agenteval-operations", "Drift of scores"),
    ("agenteval-operations", "Scores and length"),
}


@pytest.fixture(scope="module", name="plan")
def plan_fixture() -> MonitoringPlan:
    """The plan of the application's own settings."""
    return MonitoringPlan.of(build(Settings(**settings())), time_scale=TIME_SCALE)


@pytest.fixture(scope="module", name="recording")
def recording_fixture(
    prometheus_binary: Path, plan: MonitoringPlan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus with the rules of the plan, and nothing else."""
    folder = tmp_path_factory.mktemp("prometheus")
    written(
        {path: text for path, text in rules_of(plan).items() if path.startswith("rules/")}, folder
    )
    config = {
        "otlp": {
            "promote_resource_attributes": ["service.version", "deployment.environment.name"],
            "promote_scope_metadata": True,
        },
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules" / "*.yaml")],
    }
    with running(Prometheus(prometheus_binary, folder, config=config)) as prometheus:
        yield prometheus


@pytest.fixture(scope="module", name="empty")
def empty_fixture(recording: Prometheus, plan: MonitoringPlan) -> dict[str, list[float]]:
    """What each query returned before there was any traffic, of both kinds of dashboards."""
    queries = [
        query for kind in KINDS for query in panel_queries(plan, kind) if query.kind == "prometheus"
    ]
    return {
        query.expression: [sample.value for sample in recording.query(query.expression)]
        for query in queries
    }


@pytest.fixture(scope="module", name="prometheus")
def prometheus_fixture(
    recording: Prometheus, empty: dict[str, list[float]]
) -> Iterator[Prometheus]:
    """A Prometheus that both versions of the application have sent their metrics to, many times
    each.
    """
    with ExitStack() as stack:
        programs = [_started(recording, version) for version in VERSIONS]
        for program in programs:
            stack.callback(program.kill)
        for program in programs:
            output, _ = program.communicate(timeout=120)
            assert program.returncode == 0, output
        # The last one that is recorded.
        recording.wait_for(lambda seen: seen.query("agenteval_tag_tenant:mean_score_high:1h"), 60.0)
        yield recording


def test_without_traffic_no_query_gives_a_number(empty: dict[str, list[float]]) -> None:
    """No NaN, no 0: a panel says that there is no data."""
    assert len(empty) > 80
    assert {expression: values for expression, values in empty.items() if values} == {}


def _started(prometheus: Prometheus, version: str) -> subprocess.Popen[str]:
    environment = bare_environment(
        OTEL_SERVICE_NAME="awkward",
        OTEL_RESOURCE_ATTRIBUTES=f"service.version={version},deployment.environment.name={ENVIRONMENT}",
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=prometheus.otlp_metrics_endpoint,
        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
        OTEL_METRIC_EXPORT_INTERVAL="500",
    )
    return subprocess.Popen(
        [sys.executable, "-m", "tests.provisioning.traffic", str(SECONDS)],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def panel_queries(plan: MonitoringPlan, kind: str = "recorded", **values: str) -> list[PanelQuery]:
    """The queries with everything chosen that has no default, over a minute; `kind` of dashboards."""
    window = "1h" if kind == "recorded" else plan.duration(3_600.0)
    chosen = {
        "baseline": VERSIONS[0],
        "candidate": VERSIONS[1],
        "environment": ENVIRONMENT,
        "job": "awkward",
        "criterion": "short",
        "window": window,
        **values,
    }
    return queries_of(files_of(plan, queries=kind), chosen, interval="1m", range_="1m")


def rates_of(plan: MonitoringPlan, kind: str = "recorded", **values: str) -> list[PanelQuery]:
    """The columns of the table of agents on the criterion's dashboard: of recorded ones the rate, its
    ends, what it is from the objective, and the answers.
    """
    wanted = ("agenteval-criterion", "By agent")
    return [
        query
        for query in panel_queries(plan, kind, **values)
        if (query.dashboard, query.panel) == wanted
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("criterion", ["short", "spoken", JUDGED, "broken", "response_health"])
def test_every_query_of_metrics_gives_data(
    prometheus: Prometheus, plan: MonitoringPlan, criterion: str, kind: str
) -> None:
    """Every PromQL query gives a number; those that need something this application has not are
    listed.
    """
    asked = [
        of_one if "$agent" in query.panel else query
        for query, of_one in zip(
            panel_queries(plan, kind, criterion=criterion),
            panel_queries(plan, kind, criterion=criterion, agent=ONE_AGENT),
            strict=True,
        )
    ]
    empty = {
        (query.dashboard, query.panel, query.expression)
        for query in asked
        if query.kind == "prometheus"
        and not _numbers(prometheus, query)
        and not _needs_something(query, criterion)
    }
    assert sorted(empty) == []


def _needs_something(query: PanelQuery, criterion: str) -> bool:
    if query.dashboard == "agenteval-criterion":
        if query.panel == "Errors of the evaluator":
            return criterion not in BREAKS
        if criterion == "broken":
            return True  # it never scores
        if "agenteval:threshold" in query.expression:
            return True  # the mean of none is alerted on
        if criterion == "spoken" and (query.panel.startswith(("Pass rate", "By "))):
            return True  # it has no verdicts
        if "agenteval:objective" in query.expression and criterion not in OBJECTIVES:
            return True
        if query.panel == "Duration":
            return criterion != JUDGED
    return (query.dashboard, query.panel) in WITHOUT_DATA


def _numbers(prometheus: Prometheus, query: PanelQuery) -> list[float]:
    result = [sample.value for sample in prometheus.query(query.expression)]
    return [value for value in result if value == value]


@pytest.mark.parametrize("agent", AWKWARD)
def test_an_agent_is_found_whatever_it_is_called(
    prometheus: Prometheus, plan: MonitoringPlan, agent: str
) -> None:
    """The variable's value gives that agent's results and no other's."""
    pattern = re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", agent)  # as Grafana's `regex` does
    columns = [query for kind in KINDS for query in rates_of(plan, kind, agent=pattern)]
    assert len(columns) == 5 + 2
    found = {AGENT: agent, "job": "awkward", "deployment_environment_name": ENVIRONMENT}
    for query in columns:
        assert [dict(sample.labels) for sample in prometheus.query(query.expression)] == [found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dimension_that_is_chosen_filters(
    prometheus: Prometheus, plan: MonitoringPlan, kind: str
) -> None:
    """What metrics have by `metric_dimensions`: a row a value, and only those that are chosen."""
    for chosen, tenants in ((".*", ["acme", 'the "other"']), ("acme", ["acme"])):
        queries = [
            query
            for query in panel_queries(plan, kind, tenant=chosen)
            if query.panel == "Pass rate by tenant"
        ]
        assert len(queries) == (4 if kind == "recorded" else 2)
        for query in queries:
            found = prometheus.query(query.expression)
            assert sorted(sample.labels["agenteval_tag_tenant"] for sample in found) == tenants


def test_the_band_lies_around_the_pass_rate(prometheus: Prometheus, plan: MonitoringPlan) -> None:
    """By agent: at least <= pass rate <= at most, all between 0 and 1, and narrower than
    everything.
    """
    rate, low, high, difference, answers = (
        {sample.labels[AGENT]: sample.value for sample in prometheus.query(query.expression)}
        for query in rates_of(plan)
    )
    assert set(rate) == set(low) == set(high) == set(answers) == set(AWKWARD)
    for agent, share in rate.items():
        assert 0 <= low[agent] <= share <= high[agent] <= 1
        assert high[agent] - low[agent] < 1
        assert answers[agent] > 1
        assert difference[agent] == pytest.approx(share - 0.5, abs=0.05)


def test_a_difference_of_versions_lies_in_its_interval(
    prometheus: Prometheus, plan: MonitoringPlan
) -> None:
    """Candidate less baseline, with ends on both sides of it, for pass rates and for means."""
    for title in ("Pass rate: difference", "Mean score: difference"):
        queries = [query.expression for query in panel_queries(plan) if query.panel == title]
        now = time.time()  # one for all: each moment extrapolates to another number
        of_short = [
            next(
                sample.value
                for sample in prometheus.query(query, at=now)
                if (sample.labels[CRITERION], sample.labels[AGENT]) == ("short", AWKWARD[0])
            )
            for query in queries
        ]
        before, after, difference, low, high, *answers = of_short
        assert difference == pytest.approx(after - before, abs=1e-6)
        assert low < difference < high
        assert min(answers) > 1


def test_every_expression_is_promql(promtool_binary: Path, tmp_path: Path) -> None:
    """promtool takes each of them as a rule, those with awkward names among them."""
    expressions = dict.fromkeys(
        query.expression
        for kind in KINDS
        for query in panel_queries(FULL, kind)
        if query.kind == "prometheus"
    )
    rules = [
        {"record": f"panel:query:n{number}", "expr": query}
        for number, query in enumerate(expressions)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in accepted(promtool_binary, "check", "rules", file)


def test_every_expression_is_logql(loki: Loki) -> None:
    """Loki answers each query of events, and none of them with an error."""
    expressions = [query.expression for query in panel_queries(FULL) if query.kind == "loki"]
    assert len(expressions) == 3
    for query in expressions:
        loki.query(query)


def test_loki_leaves_late_results_out_or_has_them_alone(loki: Loki) -> None:
    """Events of a criterion that failed, as the list of the dashboard asks for them: each line says
    when the answer was given, and why its result is late.
    """
    reasons = ("", "off_peak", "ground_truth", "replay")
    loki.push("late", [failing_event(reason) for reason in reasons])
    (board,) = (
        item for item in dashboards_of(files_of(FULL)) if item["uid"] == "agenteval-criterion"
    )
    found = {}
    for words, value in late_choices(board).items():
        values = {"criterion": "tone", "agent": "support", "service": "late", "late": value}
        (query,) = (
            query.expression
            for query in queries_of(files_of(FULL), values)
            if query.panel == "Worst results" and query.dashboard == board["uid"]
        )
        found[words] = {record.line for record in loki.query(query)}
    line = "tone fail, answered 2026-11-28T09:00:00.000Z"
    late = {f"{line}, late: {reason}" for reason in ("off_peak", "ground_truth")}
    assert found == {
        "all": {line, *late},
        "on time": {line},
        "late alone": late,
        "replayed alone": {f"{line}, late: replay"},
    }


def failing_event(late: str) -> dict[str, str]:
    return {
        "event_name": semconv.EVENT_RESULT,
        semconv.EVALUATION_NAME: "tone",
        semconv.AGENT_NAME: "support",
        semconv.SCORE_LABEL: semconv.LABEL_FAIL,
        semconv.RESPONSE_ENDED_AT: "2026-11-28T09:00:00.000Z",
        **({semconv.EVALUATION_LATE: late} if late else {}),
    }
