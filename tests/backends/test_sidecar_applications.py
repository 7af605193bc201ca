"""Applications that know nothing of this package, scored by the sidecar behind and before a
Collector.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agenteval_otel import semconv
from agenteval_otel.cli.counts import counts_of
from agenteval_otel.cli.explain import report
from agenteval_otel.testing import ModelServer
from tests.mappers.record import reply

from .collector import Collector, configuration, plain, prometheus_page
from .faults import LOOPBACK, free_ports
from .fixtures import require, running
from .jaeger import Jaeger, JaegerSpan
from .process import bare_environment
from .prometheus import Prometheus
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

PROGRAMS = Path(__file__).resolve().parents[1] / "mappers"
LIMIT_S = 60.0
APPLICATIONS = {"shop-js": "vercel-ai", "shop-py": "openllmetry"}
ANSWERS = 3
EVALUATORS = [
    "ResponseHealth",
    {
        "type": "Contains",
        "criterion_name": "degrees",
        "substrings": ["21 degrees"],
        "threshold": 0.5,
    },
]
CRITERIA = {"response_health", "degrees"}


class Stack(NamedTuple):
    jaeger: Jaeger
    prometheus: Prometheus
    collector: Collector
    sidecar: Sidecar


@pytest.fixture(scope="module", name="stack")
def stack_fixture(
    jaeger: Jaeger,
    collector_binary: Path,
    prometheus_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """Both applications have answered, and everything is sent."""
    folder = tmp_path_factory.mktemp
    with ExitStack() as stack:
        scores_port, sidecar_port = free_ports(2)
        config = _configuration(jaeger, scores_port, sidecar_port)
        collector = stack.enter_context(
            running(Collector(collector_binary, folder("collector"), config=config))
        )
        sidecar = Sidecar(
            folder("sidecar"),
            {"evaluators": EVALUATORS, "sidecar": {"quiet_s": 1.0}},
            endpoint=f"http://{LOOPBACK}:{scores_port}",
        )
        sidecar.ports.grpc = sidecar_port
        stack.enter_context(running(sidecar))
        scrape = {
            "global": {"scrape_interval": "500ms"},
            "scrape_configs": [
                {
                    "job_name": "collector",
                    "honor_labels": True,
                    "static_configs": [{"targets": [f"{LOOPBACK}:{collector.ports.prometheus}"]}],
                }
            ],
        }
        prometheus = stack.enter_context(
            running(Prometheus(prometheus_binary, folder("prometheus"), config=scrape))
        )
        model = stack.enter_context(ModelServer([reply]))
        _answer(collector, model.url)
        yield Stack(jaeger, prometheus, collector, sidecar)


def _configuration(jaeger: Jaeger, scores_port: int, sidecar_port: int) -> dict[str, Any]:
    """One Collector for both ways: spans of applications to Jaeger and to the sidecar, its scores
    to the backends.
    """
    scores = {"receivers": ["otlp/scores"]}
    # The service of the answer is a label of the point. The sidecar's own would take its place if
    # attributes of the resource became labels.
    return configuration(
        {
            "traces": {"receivers": ["otlp"], "exporters": ["otlp/jaeger", "otlp/sidecar"]},
            "traces/scores": {**scores, "exporters": ["otlp/jaeger", "file"]},
            "logs/scores": {**scores, "exporters": ["file"]},
            "metrics/scores": {**scores, "exporters": ["file", "prometheus"]},
        },
        receivers={
            "otlp/scores": {"protocols": {"grpc": {"endpoint": f"{LOOPBACK}:{scores_port}"}}}
        },
        exporters={
            "otlp/jaeger": plain(jaeger.otlp_endpoint),
            "otlp/sidecar": plain(sidecar_port),
            "prometheus": prometheus_page(has_resource=False),
        },
    )


def _answer(collector: Collector, model_url: str) -> None:
    """Run each application, one process for each answer, all at once."""
    commands = {
        "shop-js": (
            ["node", str(PROGRAMS / "vercel_ai.mjs"), "vercel_ai_generate"],
            require("vercel-ai").parents[2],
        ),
        "shop-py": (
            [str(require("openllmetry")), str(PROGRAMS / "applications"), "openllmetry_openai"],
            PROGRAMS,
        ),
    }
    environment = {
        "MODEL_URL": model_url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http_endpoint,
        "OPENAI_API_KEY": "test",
        "TRACELOOP_TELEMETRY": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    programs = [
        subprocess.Popen(
            command,
            cwd=cwd,
            env=bare_environment(**environment, OTEL_SERVICE_NAME=service),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for service, (command, cwd) in commands.items()
        for _ in range(ANSWERS)
    ]
    for program in programs:
        output, _ = program.communicate(timeout=LIMIT_S)
        assert program.returncode == 0, output


def run_spans(stack: Stack, service: str) -> list[tuple[JaegerSpan, list[JaegerSpan]]]:
    """The run spans in the traces of an application, each with all spans of its trace; as soon as
    all are there.
    """

    def all_there(jaeger: Jaeger) -> list[tuple[JaegerSpan, list[JaegerSpan]]]:
        traces = [trace.spans for trace in jaeger.traces(service)]
        runs = [
            (span, list(spans))
            for spans in traces
            for span in spans
            if span.name.startswith("evaluation ")
        ]
        return runs if len(runs) >= ANSWERS else []

    return stack.jaeger.wait_for(all_there, LIMIT_S)


@pytest.mark.parametrize("service", APPLICATIONS)
def test_each_answer_has_its_scores_in_its_trace(stack: Stack, service: str) -> None:
    """One run span for each answer, a child of the agent's span, with the score of each criterion."""
    runs = run_spans(stack, service)
    assert len(runs) == ANSWERS
    for run, spans in runs:
        (parent,) = [span for span in spans if span.span_id in run.parents]
        assert parent.name in ("ai.generateText", "weather.agent")
        assert [span.name for span in spans].count(run.name) == 1
        for criterion in CRITERIA:
            assert run.tags[semconv.criterion_score(criterion)] == 1
            assert run.tags[semconv.criterion_label(criterion)] == semconv.LABEL_PASS
        assert {span.tags.get(semconv.SERVICE_NAME) for span in spans} <= {None, service}
        assert all(
            span.parents == () or span.parents[0] in {other.span_id for other in spans}
            for span in spans
        )


@pytest.mark.parametrize("service", APPLICATIONS)
def test_the_scores_are_in_prometheus(stack: Stack, service: str) -> None:
    """By criterion, agent and the service whose answers they are, as many as there were answers."""
    labels = f'service_name="{service}", gen_ai_agent_name="weather", gen_ai_evaluation_score_label="pass"'
    count = f"sum by (gen_ai_evaluation_name) (agenteval_evaluation_results_total{{{labels}}}) == {ANSWERS}"
    samples = stack.prometheus.wait_for(
        lambda seen: len(found := seen.query(count)) == 2 and found, LIMIT_S
    )
    assert {sample.labels["gen_ai_evaluation_name"] for sample in samples} == CRITERIA
    for criterion in CRITERIA:
        series = f'gen_ai_evaluation_score_count{{service_name="{service}", gen_ai_evaluation_name="{criterion}"}}'
        (sample,) = stack.prometheus.query(f"sum({series})")
        assert sample.value == ANSWERS


def test_the_accounting_adds_up(stack: Stack) -> None:
    """What became of every span is on the metrics page, where `explain` reads it; nothing was lost."""
    for service in APPLICATIONS:
        run_spans(stack, service)
    counts = stack.collector.wait_for(
        lambda collector: (
            (page := counts_of(collector.scrape())).totals["evaluated"] == 2 * ANSWERS and page
        ),
        LIMIT_S,
    )
    shown = "\n".join(report(counts))
    assert counts.totals.total() == 2 * ANSWERS
    assert counts.spans["read"] == counts.spans.total() > 2 * ANSWERS
    assert "Nothing was lost." in shown
