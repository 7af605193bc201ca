"""An application's metrics, scraped from the shipped Collector or sent to Prometheus, and the
queries of docs/queries.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agenteval_otel import semconv
from agenteval_otel.semconv import Instrument

from .collector import Collector
from .fixtures import running
from .jaeger import Jaeger
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus, prometheus_names, scraping
from .sdk import SHIPPED
from .test_shipped_collector import LIMIT_S, shipped_to

pytestmark = [pytest.mark.backend, pytest.mark.live]

PAGE = (SHIPPED.parents[1] / "docs/queries.md").read_text()
SHOP, CALLS = "first-look", 25
# The shop asks no judge, has no event loop, no objective (test_incident has one), no spans of other
# libraries, no conversations of several turns (test_counters has them), no answer that sampling
# prefers, and no requests for an evaluation.
WITHOUT_TRAFFIC = (
    "agenteval.conversations",
    "agenteval.evaluate.requests",
    "agenteval.evaluation.duration",
    "agenteval.evaluation.preferred",
    "agenteval.evaluation.unit",
    "agenteval.host.loop_lag",
    "agenteval.judge.",
    "agenteval.objective.",
    "agenteval.sampling.level",
    "agenteval.spans",
)
INSTRUMENTS = [item for item in semconv.INSTRUMENTS if not item.name.startswith(WITHOUT_TRAFFIC)]
WITHOUT_TRAFFIC_ATTRIBUTES = {
    "agenteval.responses": set(semconv.DETAILS.values()),  # every answer is understood, as text
}
NAME, LABEL, OUTCOME = (
    "gen_ai_evaluation_name",
    "gen_ai_evaluation_score_label",
    "agenteval_outcome",
)
OUR_PREFIXES = ("gen_ai_", "agenteval_", "error_")


@pytest.fixture(scope="module", params=["scraped", "direct"])
def way(request: pytest.FixtureRequest) -> str:
    """How the metrics come to Prometheus: from the Collector, or from the application itself over
    OTLP.
    """
    return str(request.param)


@pytest.fixture(scope="module")
def shipped(
    way: str, collector_binary: Path, jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    """The shipped Collector, of each way its own: traces go to Jaeger, and to a file where they are
    read.
    """
    made = shipped_to(
        collector_binary,
        tmp_path_factory.mktemp(way),
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_TRACES_TO="[file, otlp_grpc/jaeger]",
        COLLECTOR_LOGS_TO="[debug]",
    )
    with running(made) as collector:
        yield collector


@pytest.fixture(scope="module")
def prometheus(
    way: str, shipped: Collector, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """The shipped Prometheus when the shop has ended; with nothing to scrape where the shop sends
    metrics itself.
    """
    config = scraping(
        SHIPPED.parent / "prometheus" / "prometheus.yml", port=shipped.ports.prometheus, every_s=1
    )
    if way == "direct":
        config["scrape_configs"] = []
    with running(
        Prometheus(prometheus_binary, tmp_path_factory.mktemp(way), config=config)
    ) as made:
        name = "OTEL_EXPORTER_OTLP_METRICS"
        own = {f"{name}_PROTOCOL": "http/protobuf", f"{name}_ENDPOINT": made.otlp_metrics_endpoint}
        finish(
            started(
                "-m",
                "tests.backends.applications",
                "shop",
                OTEL_SERVICE_NAME=SHOP,
                OTEL_EXPORTER_OTLP_ENDPOINT=shipped.grpc_endpoint,
                **(own if way == "direct" else {}),
            )
        )
        if way == "scraped":
            wait_for_what_was_sent(shipped, made)
        made.wait_for(
            lambda seen: seen.query(f'agenteval_responses_total{{job="{SHOP}"}}'), LIMIT_S
        )
        yield made


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda item: item.name)
def test_every_metric_arrives_under_its_prometheus_name(
    prometheus: Prometheus, instrument: Instrument
) -> None:
    """Each instrument is in Prometheus under the translated name, with the labels that semconv says
    and no others.
    """
    promised = set(instrument.attributes) - WITHOUT_TRAFFIC_ATTRIBUTES.get(instrument.name, set())
    for name in prometheus_names(instrument.name, instrument.unit, instrument.kind):
        series = prometheus.query(f'{name}{{job="{SHOP}"}}')
        assert series, f"{name} is not there"
        labels = {label for sample in series for label in sample.labels}
        own = {label for label in labels if label.startswith(OUR_PREFIXES)}
        assert own == {attribute.replace(".", "_") for attribute in promised}
        assert not any(label.startswith("exported_") for label in labels)
        assert {sample.labels["otel_scope_name"] for sample in series} == {semconv.SCOPE_NAME}
        assert all(sample.labels["instance"] for sample in series), (
            "service.instance.id tells the processes apart"
        )


def test_calls_and_scores_add_up(prometheus: Prometheus, shipped: Collector) -> None:
    """The outcomes are the calls, each with its run span, since one evaluator breaks. Pass and fail
    of a criterion are its scores.

    All series of one criterion and process together are fewer than 40.
    """
    outcomes = prometheus.query(f'sum by ({OUTCOME}) (agenteval_responses_total{{job="{SHOP}"}})')
    assert {sample.labels[OUTCOME]: sample.value for sample in outcomes if sample.value} == {
        "evaluated": CALLS
    }
    assert shipped.wait_for(
        lambda seen: sum(span.name == "evaluation shop" for span in seen.spans(SHOP)) == CALLS
    )
    results = prometheus.query(
        f'agenteval_evaluation_results_total{{job="{SHOP}",{LABEL}=~"pass|fail"}}'
    )
    judged = {(sample.labels[NAME], sample.labels[LABEL]): sample.value for sample in results}
    scores = prometheus.query(f'gen_ai_evaluation_score_count{{job="{SHOP}"}}')
    criteria = {name for name, _ in judged}
    assert len(criteria) >= 3
    assert {name: judged[name, "pass"] + judged[name, "fail"] for name in criteria} == {
        sample.labels[NAME]: sample.value for sample in scores
    }
    assert any(value for (_, label), value in judged.items() if label == "fail")
    series = prometheus.query(f'count by ({NAME}, instance) ({{job="{SHOP}",{NAME}!=""}})')
    assert 0 < max(sample.value for sample in series) < 40


def test_the_queries_of_the_page_answer(prometheus: Prometheus) -> None:
    """Every PromQL block of the page gives something of this traffic."""
    blocks = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for expression in (expression for block in blocks for expression in block.split("\n\n")):
        assert prometheus.query(expression), f"nothing came of:\n{expression}"


def test_the_interval_of_the_page_is_right(prometheus: Prometheus) -> None:
    """Where every answer weighs 1 and passes or not, the page's mean and interval are those of
    the textbook.
    """
    mean, half = re.findall(
        r"^```promql\n# (?:weighted mean|half of)[^\n]*\n(.*?)^```$", PAGE, re.M | re.S
    )
    results = prometheus.query(f'agenteval_evaluation_results_total{{{NAME}="is_polite"}}')
    by_label = {sample.labels[LABEL]: sample.value for sample in results}
    share = by_label["pass"] / sum(by_label.values())
    assert 0 < share < 1
    means, halves = (
        {sample.labels[NAME]: sample.value for sample in prometheus.query(query)}
        for query in (mean, half)
    )
    assert means["is_polite"] == pytest.approx(share)
    assert halves["is_polite"] == pytest.approx(
        1.96 * math.sqrt(share * (1 - share) / sum(by_label.values()))
    )


@pytest.mark.parametrize("way", ["direct"], indirect=True, scope="module")
def test_an_exemplar_leads_to_the_trace(prometheus: Prometheus, jaeger: Jaeger) -> None:
    """The traces that the exemplars of scores name are in Jaeger, with the run span; scraped:
    test_seen_and_woken.
    """
    result = prometheus.exemplars(f'gen_ai_evaluation_score_bucket{{job="{SHOP}"}}')
    assert result
    for labels, exemplar in result:
        assert labels[NAME]
        trace = jaeger.wait_for(lambda seen, of=exemplar.trace_id: seen.trace(of), LIMIT_S)  # type: ignore[misc]
        assert "evaluation shop" in {span.name for span in trace.spans}
