"""The first look of a newcomer, for real: the demo through the shipped Collector, in Jaeger and Prometheus.

The demo's metrics are scraped from the Collector; a second application sends its metrics to Prometheus itself, over
OTLP. The traces of both go to Jaeger. The configurations are the shipped ones, the queries those of their README.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv
from agenteval_otel.semconv import Instrument

from .collector import Collector
from .fixtures import running
from .jaeger import Jaeger, JaegerSpan, JaegerTrace
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus, prometheus_names, scraping
from .sdk import SHIPPED

pytestmark = [pytest.mark.backend, pytest.mark.live]

ROOT = SHIPPED.parents[1]
SHIPPED_PROMETHEUS = SHIPPED.parent / "prometheus" / "prometheus.yml"
README = SHIPPED.with_name("README.md")
DEMO, SHOP = "agenteval-demo", "shop"
ARRIVAL_LIMIT_S = 30.0

# Every instrument that semconv has, so that a new one is looked for at once.
INSTRUMENTS = [value for value in vars(semconv).values() if isinstance(value, Instrument)]
# Neither the demo nor the shop asks a judge, has an event loop.
WITHOUT_TRAFFIC = {
    "agenteval.host.loop_lag",
    "agenteval.judge.breaker",
    "agenteval.judge.budget.remaining",
    "agenteval.judge.calls",
    "agenteval.judge.cost",
    "agenteval.judge.duration",
    "agenteval.judge.tokens",
    "agenteval.sampling.level",
}
# None of the demo's evaluators breaks; one of the shop's does.
WITHOUT_TRAFFIC_IN_THE_DEMO = {"agenteval.evaluation.errors"}
# Attributes that this traffic does not bring: neither has an evaluator that calls a model.
WITHOUT_TRAFFIC_ATTRIBUTES = {"agenteval.evaluation.duration": {semconv.EVALUATION_NAME}}

NAME, LABEL, OUTCOME = "gen_ai_evaluation_name", "gen_ai_evaluation_score_label", "agenteval_outcome"
OUR_PREFIXES = ("gen_ai_", "agenteval_", "error_")


@dataclass(frozen=True)
class Seen:
    """What the newcomer has open: Jaeger, and for each way of the metrics a Prometheus with the service in it."""

    jaeger: Jaeger
    scraped: Prometheus
    direct: Prometheus

    def of(self, way: str) -> tuple[Prometheus, str]:
        return (self.scraped, DEMO) if way == "scraped" else (self.direct, SHOP)


@pytest.fixture(scope="module")
def seen(
    jaeger: Jaeger, collector_binary: Path, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    """Everything started, both applications run to their end, their last metrics arrived."""
    folder = tmp_path_factory.mktemp
    shipped = {"config": SHIPPED, "environment": {"COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint}}
    with ExitStack() as stack:
        collector = stack.enter_context(running(Collector(collector_binary, folder("shipped"), **shipped)))
        scrape = scraping(SHIPPED_PROMETHEUS, port=collector.ports.prometheus, every_s=1)
        scraped = stack.enter_context(running(Prometheus(prometheus_binary, folder("scraping"), config=scrape)))
        alone = scrape | {"scrape_configs": []}
        direct = stack.enter_context(running(Prometheus(prometheus_binary, folder("direct"), config=alone)))
        demo = started(
            "-m", "agenteval_otel", "demo", "--seconds=10", "--no-live", f"--otlp-endpoint={collector.grpc_endpoint}"
        )
        shop = started(
            "-m",
            "tests.backends.shop",
            OTEL_SERVICE_NAME=SHOP,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint,
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=direct.otlp_metrics_endpoint,
            OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
        )
        finish(demo, shop)
        wait_for_what_was_sent(collector, scraped)
        yield Seen(jaeger, scraped, direct)


def moved() -> list[Any]:
    """Each instrument with each way its metrics go, where the traffic moves it."""
    without = {"scraped": WITHOUT_TRAFFIC | WITHOUT_TRAFFIC_IN_THE_DEMO, "direct": WITHOUT_TRAFFIC}
    return [
        pytest.param(instrument, way, id=f"{instrument.name}-{way}")
        for instrument in INSTRUMENTS
        for way, unmoved in without.items()
        if instrument.name not in unmoved
    ]


@pytest.mark.parametrize(("instrument", "way"), moved())
def test_every_metric_arrives_under_its_prometheus_name(seen: Seen, instrument: Instrument, way: str) -> None:
    """Each instrument is in Prometheus under the translated name, with the labels that semconv says and no others."""
    prometheus, service = seen.of(way)
    promised = set(instrument.attributes) - WITHOUT_TRAFFIC_ATTRIBUTES.get(instrument.name, set())
    for name in prometheus_names(instrument.name, instrument.unit, instrument.kind):
        series = prometheus.query(f'{name}{{job="{service}"}}')
        assert series, f"{name} is not there"
        labels = {label for sample in series for label in sample.labels}
        own = {label for label in labels if label.startswith(OUR_PREFIXES)}
        assert own == {attribute.replace(".", "_") for attribute in promised}
        assert not any(label.startswith("exported_") for label in labels)
        assert {sample.labels["otel_scope_name"] for sample in series} == {semconv.SCOPE_NAME}
        assert all(sample.labels["instance"] for sample in series), "service.instance.id tells the processes apart"


@pytest.mark.parametrize("way", ["scraped", "direct"])
def test_every_call_is_counted(seen: Seen, way: str) -> None:
    """The outcomes add up to the calls: each call is a trace in Jaeger, whether it was evaluated or not."""
    prometheus, service = seen.of(way)
    (calls,) = prometheus.query(f'sum(agenteval_responses_total{{job="{service}"}})')
    (evaluated,) = prometheus.query(f'sum(agenteval_responses_total{{job="{service}",{OUTCOME}="evaluated"}})')
    tag = {semconv.OPERATION_NAME: semconv.OPERATION_EVALUATION}
    traces = seen.jaeger.wait_for(
        lambda jaeger: (
            _at_least(evaluated.value, actual := jaeger.traces(service), tag) and len(actual) >= calls.value and actual
        ),
        ARRIVAL_LIMIT_S,
    )
    assert len(traces) == calls.value
    assert len(_carrying(tag, traces)) == evaluated.value


@pytest.mark.parametrize("way", ["scraped", "direct"])
def test_pass_and_fail_add_up(seen: Seen, way: str) -> None:
    """Both labels of a judged criterion are there from the start, and the histogram counts what they count."""
    prometheus, service = seen.of(way)
    by_label = {
        (sample.labels[NAME], sample.labels[LABEL]): sample.value
        for sample in prometheus.query(
            f'sum by ({NAME}, {LABEL}) (agenteval_evaluation_results_total{{job="{service}",{LABEL}=~"pass|fail"}})'
        )
    }
    criteria = {name for name, _ in by_label}
    assert len(criteria) >= 3
    counts = prometheus.query(f'sum by ({NAME}) (gen_ai_evaluation_score_count{{job="{service}"}})')
    scored = {sample.labels[NAME]: sample.value for sample in counts}
    for name in criteria:
        assert by_label[name, "pass"] + by_label[name, "fail"] == scored[name]
    assert sum(value for (_, label), value in by_label.items() if label == "fail") > 0


def _carrying(tags: dict[str, str], traces: list[JaegerTrace]) -> list[JaegerSpan]:
    return [span for trace in traces for span in trace.spans if tags.items() <= dict(span.tags).items()]


def _at_least(count: float, traces: list[JaegerTrace], tags: dict[str, str]) -> list[JaegerTrace]:
    """The traces, once that many of their spans carry the tags."""
    return traces if len(_carrying(tags, traces)) >= count else []


@pytest.mark.parametrize("way", ["scraped", "direct"])
def test_an_exemplar_leads_to_the_trace(seen: Seen, way: str) -> None:
    """The trace and the span that a score's exemplar names are in Jaeger, with the run span below that span."""
    prometheus, service = seen.of(way)
    result = prometheus.exemplars(f'gen_ai_evaluation_score_bucket{{job="{service}"}}')
    assert result
    for labels, exemplar in result:
        assert labels[NAME]
        trace = seen.jaeger.wait_for(lambda jaeger, wanted=exemplar.trace_id: jaeger.trace(wanted), ARRIVAL_LIMIT_S)
        below = [span for span in trace.spans if exemplar.span_id in span.parents]
        assert any(span.name.startswith("evaluation ") for span in below)


@pytest.mark.parametrize("way", ["scraped", "direct"])
def test_series_of_a_criterion_stay_few(seen: Seen, way: str) -> None:
    """All series of one criterion and process together are fewer than 40."""
    prometheus, service = seen.of(way)
    counted = prometheus.query(f'count by ({NAME}, instance) ({{job="{service}",{NAME}!=""}})')
    assert counted
    assert max(sample.value for sample in counted) < 40


def test_the_queries_of_the_readme_answer(seen: Seen) -> None:
    """Every PromQL block of the README gives something of the demo's traffic."""
    blocks = re.findall(r"^```promql\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        for expression in block.split("\n\n"):
            assert seen.scraped.query(expression), f"nothing came of:\n{expression}"


def test_the_interval_of_the_readme_is_right(seen: Seen) -> None:
    """Where every answer weighs 1 and passes or not, the README's mean and interval are those of the textbook."""
    mean, half = re.findall(
        r"^```promql\n# (?:weighted mean|half of)[^\n]*\n(.*?)^```$", README.read_text(), re.M | re.S
    )
    by_label = {
        sample.labels[LABEL]: sample.value
        for sample in seen.direct.query(f'agenteval_evaluation_results_total{{{NAME}="is_polite"}}')
    }
    answers = sum(by_label.values())
    share = by_label["pass"] / answers
    assert 0 < share < 1
    means, halves = (
        {sample.labels[NAME]: sample.value for sample in seen.direct.query(query)} for query in (mean, half)
    )
    assert means["is_polite"] == pytest.approx(share)
    assert halves["is_polite"] == pytest.approx(1.96 * math.sqrt(share * (1 - share) / answers))
