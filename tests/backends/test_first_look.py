"""Metrics that an application sends to Prometheus itself, over OTLP, and the queries of the shipped README."""

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
from .programs import finish, started
from .prometheus import Prometheus, prometheus_names, scraping
from .sdk import SHIPPED

pytestmark = [pytest.mark.backend, pytest.mark.live]

README = SHIPPED.with_name("README.md").read_text()
SHOP, CALLS = "first-look", 25
# The shop asks no judge and has no event loop.
WITHOUT_TRAFFIC = ("agenteval.host.loop_lag", "agenteval.judge.", "agenteval.sampling.level")
INSTRUMENTS = [item for item in semconv.INSTRUMENTS if not item.name.startswith(WITHOUT_TRAFFIC)]
WITHOUT_TRAFFIC_ATTRIBUTES = {"agenteval.evaluation.duration": {semconv.EVALUATION_NAME}}
NAME, LABEL, OUTCOME = "gen_ai_evaluation_name", "gen_ai_evaluation_score_label", "agenteval_outcome"
OUR_PREFIXES = ("gen_ai_", "agenteval_", "error_")


@pytest.fixture(scope="module")
def prometheus(
    collector: Collector, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """The shipped Prometheus, with nothing to scrape, when the shop has ended; its spans and events are elsewhere."""
    shipped = SHIPPED.parent / "prometheus" / "prometheus.yml"
    config = scraping(shipped, port=collector.ports.prometheus, every_s=1) | {"scrape_configs": []}
    with running(Prometheus(prometheus_binary, tmp_path_factory.mktemp("direct"), config=config)) as made:
        shop = started(
            "-m", "tests.backends.applications", "shop", OTEL_SERVICE_NAME=SHOP,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint, OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=made.otlp_metrics_endpoint,
        )  # fmt: skip
        finish(shop)
        made.wait_for(lambda seen: seen.query(f'agenteval_responses_total{{job="{SHOP}"}}'), 30.0)
        yield made


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda item: item.name)
def test_every_metric_arrives_under_its_prometheus_name(prometheus: Prometheus, instrument: Instrument) -> None:
    """Each instrument is in Prometheus under the translated name, with the labels that semconv says and no others."""
    promised = set(instrument.attributes) - WITHOUT_TRAFFIC_ATTRIBUTES.get(instrument.name, set())
    for name in prometheus_names(instrument.name, instrument.unit, instrument.kind):
        series = prometheus.query(f'{name}{{job="{SHOP}"}}')
        assert series, f"{name} is not there"
        labels = {label for sample in series for label in sample.labels}
        own = {label for label in labels if label.startswith(OUR_PREFIXES)}
        assert own == {attribute.replace(".", "_") for attribute in promised}
        assert not any(label.startswith("exported_") for label in labels)
        assert {sample.labels["otel_scope_name"] for sample in series} == {semconv.SCOPE_NAME}
        assert all(sample.labels["instance"] for sample in series), "service.instance.id tells the processes apart"


def test_outcomes_and_labels_add_up(prometheus: Prometheus, collector: Collector) -> None:
    """The outcomes are the calls, each with its run span; a criterion's passes and failures are its scores."""
    outcomes = prometheus.query(f'sum by ({OUTCOME}) (agenteval_responses_total{{job="{SHOP}"}})')
    assert {sample.labels[OUTCOME]: sample.value for sample in outcomes if sample.value} == {"evaluated": CALLS}
    assert collector.wait_for(lambda seen: sum(span.name == "evaluation shop" for span in seen.spans(SHOP)) == CALLS)
    labels = f'agenteval_evaluation_results_total{{job="{SHOP}",{LABEL}=~"pass|fail"}}'
    judged = {sample.labels[NAME]: sample.value for sample in prometheus.query(f"sum by ({NAME}) ({labels})")}
    scores = prometheus.query(f'sum by ({NAME}) (gen_ai_evaluation_score_count{{job="{SHOP}"}})')
    assert judged == {sample.labels[NAME]: sample.value for sample in scores}
    assert len(judged) >= 3


def test_the_queries_of_the_readme_answer(prometheus: Prometheus) -> None:
    """Every PromQL block of the README gives something of this traffic."""
    blocks = re.findall(r"^```promql\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for expression in (expression for block in blocks for expression in block.split("\n\n")):
        assert prometheus.query(expression), f"nothing came of:\n{expression}"


def test_the_interval_of_the_readme_is_right(prometheus: Prometheus) -> None:
    """Where every answer weighs 1 and passes or not, the README's mean and interval are those of the textbook."""
    mean, half = re.findall(r"^```promql\n# (?:weighted mean|half of)[^\n]*\n(.*?)^```$", README, re.M | re.S)
    results = prometheus.query(f'agenteval_evaluation_results_total{{{NAME}="is_polite"}}')
    by_label = {sample.labels[LABEL]: sample.value for sample in results}
    share = by_label["pass"] / sum(by_label.values())
    assert 0 < share < 1
    means, halves = (
        {sample.labels[NAME]: sample.value for sample in prometheus.query(query)} for query in (mean, half)
    )
    assert means["is_polite"] == pytest.approx(share)
    assert halves["is_polite"] == pytest.approx(1.96 * math.sqrt(share * (1 - share) / sum(by_label.values())))
