"""Every query of the dashboards is asked for real: of Prometheus with data behind it, of Loki for its syntax."""

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

from agenteval_otel.config import Settings
from agenteval_otel.config.process import build
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.grafana.boards import criterion_uid
from agenteval_otel.provisioning.promql import AGENT, CRITERION
from tests.backends.fixtures import loki_binary_fixture, loki_fixture, running
from tests.backends.loki import Loki
from tests.backends.process import bare_environment
from tests.backends.prometheus import Prometheus

from .plans import AWKWARD, FULL, criterion
from .queries import PanelQuery, queries_of
from .traffic import JUDGED, settings

__all__ = ["loki_binary_fixture", "loki_fixture"]

pytestmark = [pytest.mark.backend, pytest.mark.live]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 9
VERSIONS = ("1.9", "1.10")
BREAKS = ("agenteval-c-broken", criterion_uid(JUDGED))
WITHOUT_DATA = {
    ("agenteval-operations", "Event loop lag"),  # the application has no event loop
}  # fmt: skip


@pytest.fixture(scope="module", name="plan")
def plan_fixture() -> MonitoringPlan:
    """The plan of the application's own settings."""
    return MonitoringPlan.of(build(Settings(**settings())))


@pytest.fixture(scope="module", name="prometheus")
def prometheus_fixture(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that both versions of the application have sent their metrics to, many times each."""
    config = {"otlp": {"promote_resource_attributes": ["service.version"], "promote_scope_metadata": True}}
    with ExitStack() as stack:
        program = Prometheus(prometheus_binary, tmp_path_factory.mktemp("prometheus"), config=config)
        prometheus = stack.enter_context(running(program))
        programs = [_started(prometheus, version) for version in VERSIONS]
        for program in programs:
            stack.callback(program.kill)
        for program in programs:
            output, _ = program.communicate(timeout=120)
            assert program.returncode == 0, output
        yield prometheus


def _started(prometheus: Prometheus, version: str) -> subprocess.Popen[str]:
    environment = bare_environment(
        OTEL_SERVICE_NAME="awkward", OTEL_RESOURCE_ATTRIBUTES=f"service.version={version}",
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=prometheus.otlp_metrics_endpoint,
        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf", OTEL_METRIC_EXPORT_INTERVAL="500",
    )  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "tests.provisioning.traffic", str(SECONDS)],
        cwd=ROOT, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def by_agent(plan: MonitoringPlan, **values: str) -> list[PanelQuery]:
    """The columns of the table of agents on the criterion's dashboard."""
    wanted = (criterion_uid("short"), "By agent")
    return [query for query in panel_queries(plan, **values) if (query.dashboard, query.panel) == wanted]


def panel_queries(plan: MonitoringPlan, **values: str) -> list[PanelQuery]:
    """The queries with both versions chosen, over a minute."""
    chosen = {"baseline": VERSIONS[0], "candidate": VERSIONS[1], **values}
    return queries_of(files_of(plan), chosen, interval="1m", range_="1m")


def test_every_query_of_metrics_gives_data(prometheus: Prometheus, plan: MonitoringPlan) -> None:
    """Every PromQL query gives a number; those that need something this application has not are listed."""
    empty = {
        (query.dashboard, query.panel)
        for query in panel_queries(plan)
        if query.kind == "prometheus" and not _numbers(prometheus, query) and not _needs_something(query)
    }
    assert sorted(empty) == []


def _needs_something(query: PanelQuery) -> bool:
    if query.panel == "Errors of the evaluator":
        return query.dashboard not in BREAKS
    if query.dashboard == "agenteval-c-broken" or query.panel.startswith("broken"):
        return True  # it never scores
    return (query.dashboard, query.panel) in WITHOUT_DATA


def _numbers(prometheus: Prometheus, query: PanelQuery) -> list[float]:
    result = [sample.value for sample in prometheus.query(query.expression)]
    return [value for value in result if value == value]


@pytest.mark.parametrize("agent", AWKWARD)
def test_an_agent_is_found_whatever_it_is_called(prometheus: Prometheus, plan: MonitoringPlan, agent: str) -> None:
    """A criterion of one agent's own, and the variable's value, give that agent's results and no other's."""
    own = MonitoringPlan(criteria=(criterion("short", agents=(agent,), objective=0.5),), agents=AWKWARD)
    of_short = [query for query in panel_queries(own) if query.dashboard == criterion_uid("short")]
    of_own = [query for query in of_short if query.kind == "prometheus"]
    (rate,) = (query for query in of_own if query.panel == "Pass rate")
    assert len(_numbers(prometheus, rate)) == 1
    columns = [query for query in of_own if query.panel == "By agent"]
    assert len(columns) == 3
    chosen = by_agent(plan, agent=re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", agent))  # as Grafana's `regex` does
    assert len(chosen) == 3
    for query in (*columns, *chosen):
        assert [dict(sample.labels) for sample in prometheus.query(query.expression)] == [{AGENT: agent}]


def test_the_band_lies_around_the_pass_rate(prometheus: Prometheus, plan: MonitoringPlan) -> None:
    """By agent: at least <= pass rate <= at most, all between 0 and 1, and narrower than everything."""
    columns = by_agent(plan)
    rate, low, high = (
        {sample.labels[AGENT]: sample.value for sample in prometheus.query(query.expression)} for query in columns
    )
    assert set(rate) == set(low) == set(high) == set(AWKWARD)
    for agent, share in rate.items():
        assert 0 <= low[agent] <= share <= high[agent] <= 1
        assert high[agent] - low[agent] < 1


def test_a_difference_of_versions_lies_in_its_interval(prometheus: Prometheus, plan: MonitoringPlan) -> None:
    """Candidate less baseline, with ends on both sides of it, for pass rates and for means."""
    for title in ("Pass rate: difference", "Mean score: difference"):
        queries = [query.expression for query in panel_queries(plan) if query.panel == title]
        now = time.time()  # one for all: each moment extrapolates to another number
        of_short = [
            next(sample.value for sample in prometheus.query(query, at=now) if sample.labels[CRITERION] == "short")
            for query in queries
        ]
        before, after, difference, low, high = of_short
        assert difference == pytest.approx(after - before, abs=1e-6)
        assert low < difference < high


def test_every_expression_is_promql(promtool_binary: Path, tmp_path: Path) -> None:
    """promtool takes each of them as a rule, those with awkward names among them."""
    expressions = dict.fromkeys(query.expression for query in panel_queries(FULL) if query.kind == "prometheus")
    rules = [{"record": f"panel:query:n{number}", "expr": query} for number, query in enumerate(expressions)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run([promtool_binary, "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_every_expression_is_logql(loki: Loki) -> None:
    """Loki answers each query of events, and none of them with an error."""
    expressions = [query.expression for query in panel_queries(FULL) if query.kind == "loki"]
    assert len(expressions) == 3 * len(FULL.criteria)
    for query in expressions:
        loki.query(query)
