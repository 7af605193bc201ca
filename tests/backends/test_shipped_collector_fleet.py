"""Tail sampling and the gateways of a fleet, for real: what is kept, whole, and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.trace import SpanContext, StatusCode, set_span_in_context

from agenteval_otel import semconv
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.collector import files_of

from .collector import Collector
from .fixtures import running
from .jaeger import Jaeger, JaegerTrace
from .loki import Loki
from .sdk import SHIPPED, Sdk, sdk_to, send_one_of_each
from .test_shipped_collector import EVENTS, LIMIT_S, shipped_to

pytestmark = pytest.mark.backend

WILL_BE_EVALUATED = {semconv.EVALUATION_SAMPLED: True}
EVALUATION = {semconv.OPERATION_NAME: semconv.OPERATION_EVALUATION}
FAILS = {semconv.criterion_label("next_step"): semconv.LABEL_FAIL}
PASSES = {semconv.criterion_label("next_step"): semconv.LABEL_PASS}
NO_REST = {"COLLECTOR_KEEP_REST_PERCENT": "0"}


@pytest.fixture(scope="module", name="quick")
def quick_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Collectors' files of the shipped settings, decisions after a second."""
    plan = MonitoringPlan.of(
        build_loaded(load_settings(SHIPPED.parent / "agenteval.yaml")), time_scale=0.001
    )
    folder = tmp_path_factory.mktemp("quick")
    for name, text in files_of(plan).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "collector"


@contextmanager
def sampling(
    binary: Path, quick: Path, folder: Path, jaeger: Jaeger, environment: Mapping[str, str]
) -> Iterator[Collector]:
    made = shipped_to(
        binary,
        folder,
        config=quick / "tail-sampling.yaml",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_TO="[debug]",
        **environment,
    )
    with running(made) as started:
        yield started


def send_span(
    sdk: Sdk,
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    below: SpanContext | None = None,
    status: StatusCode = StatusCode.UNSET,
) -> SpanContext:
    parent = set_span_in_context(api.NonRecordingSpan(below)) if below else None
    span = sdk.tracers.get_tracer("fleet").start_span(name, context=parent, attributes=attributes)
    span.set_status(status)
    span.end()
    return span.get_span_context()


def stored(jaeger: Jaeger, of: SpanContext) -> JaegerTrace | None:
    return jaeger.trace(f"{of.trace_id:032x}")


def names(actual: JaegerTrace | None) -> list[str]:
    return sorted(span.name for span in actual.spans) if actual else []


def test_traces_with_an_evaluation_are_kept_and_others_sampled_away(
    collector_binary: Path, quick: Path, jaeger: Jaeger, tmp_path: Path
) -> None:
    """Whatever comes after the decision goes the way of its trace: a result with what it judged, or
    away.
    """
    with sampling(collector_binary, quick, tmp_path / "c", jaeger, NO_REST) as collector:
        with sdk_to(collector, service="tail-late") as sdk:
            ordinary = send_span(sdk, "ordinary")
            request = send_span(sdk, "request")
            answer = send_span(sdk, "invoke_agent", WILL_BE_EVALUATED, below=request)
        jaeger.wait_for(
            lambda seen: names(stored(seen, request)) == ["invoke_agent", "request"], LIMIT_S
        )

        with sdk_to(collector, service="tail-late") as sdk:  # long after the decision
            send_span(sdk, "evaluation support", EVALUATION | PASSES, below=answer)
            send_span(sdk, "late evaluation", EVALUATION, below=ordinary)
        with sdk_to(collector, service="tail-late") as sdk:
            later = send_span(sdk, "next", EVALUATION)
        # decided later than the late ones
        jaeger.wait_for(lambda seen: stored(seen, later), LIMIT_S)
        jaeger.wait_for(lambda seen: "evaluation support" in names(stored(seen, request)), LIMIT_S)

    kept = stored(jaeger, request)
    assert len(kept.spans) == 3
    assert kept.orphans() == []
    assert stored(jaeger, ordinary) is None


def test_failing_scores_and_errors_are_kept_whatever_the_share(
    collector_binary: Path, quick: Path, jaeger: Jaeger, tmp_path: Path
) -> None:
    """Where no share of evaluated traces is kept, those that fail or broke are there and passing
    ones are not.
    """
    environment = NO_REST | {"COLLECTOR_KEEP_EVALUATED_PERCENT": "0"}
    with sampling(collector_binary, quick, tmp_path / "c", jaeger, environment) as collector:
        with sdk_to(collector, service="tail-failing") as sdk:
            good = send_span(sdk, "request", WILL_BE_EVALUATED)
            send_span(sdk, "evaluation support", EVALUATION | PASSES, below=good)
            bad = send_span(sdk, "request", WILL_BE_EVALUATED)
            send_span(sdk, "evaluation support", EVALUATION | FAILS, below=bad)
            broken = send_span(sdk, "request", status=StatusCode.ERROR)
        jaeger.wait_for(lambda seen: stored(seen, bad) and stored(seen, broken), LIMIT_S)

    assert names(stored(jaeger, bad)) == ["evaluation support", "request"]
    assert stored(jaeger, good) is None


def test_a_fleet_keeps_traces_whole_and_series_apart(
    collector_binary: Path, quick: Path, jaeger: Jaeger, loki: Loki, tmp_path: Path
) -> None:
    """An agent and two gateways: each trace is decided in one place, each service's metrics are at
    one gateway.
    """
    backends = {
        "COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint,
        "COLLECTOR_LOGS_ENDPOINT": loki.otlp_endpoint,
    }
    backends, config = NO_REST | backends, quick / "gateway.yaml"
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(
                running(shipped_to(collector_binary, tmp_path / name, config=config, **backends))
            )
            for name in ("one", "two")
        ]
        addresses = ", ".join(gateway.grpc_endpoint.removeprefix("http://") for gateway in gateways)
        agent = stack.enter_context(
            running(
                shipped_to(
                    collector_binary,
                    tmp_path / "agent",
                    config=quick / "gateway-agent.yaml",
                    COLLECTOR_GATEWAYS=f"[{addresses}]",
                )
            )
        )
        requests = []
        for number in range(12):
            with sdk_to(agent, service=f"fleet-{number % 4}") as sdk:
                requests.append(send_span(sdk, "request"))
                send_one_of_each(sdk)
        for request in requests:  # in another export, as if from another service
            with sdk_to(agent, service="fleet-evaluations") as sdk:
                send_span(sdk, "evaluation support", EVALUATION | FAILS, below=request)

        for request in requests:
            jaeger.wait_for(lambda seen, of=request: len(names(stored(seen, of))) == 2, LIMIT_S)  # type: ignore[misc]
        for number in range(4):
            service = f"fleet-{number}"
            loki.wait_for(
                lambda seen, of=service: len(seen.query(EVENTS.format(service=of))) == 3, LIMIT_S
            )  # type: ignore[misc]
            agent.wait_for(lambda _, of=service: at_gateways(gateways, of), LIMIT_S)  # type: ignore[misc]
            assert at_gateways(gateways, service) == 1


def at_gateways(gateways: list[Collector], service: str) -> int:
    """At how many gateways the service's scores can be scraped."""
    return sum(f'service_name="{service}"' in gateway.scrape() for gateway in gateways)


def test_what_no_gateway_takes_waits_on_disk(
    collector_binary: Path, quick: Path, jaeger: Jaeger, tmp_path: Path
) -> None:
    """The gateway is away and the agent is restarted: the trace comes when the gateway is there."""
    gateway = shipped_to(
        collector_binary,
        tmp_path / "gateway",
        config=quick / "gateway.yaml",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_TO="[debug]",
    )
    agent = shipped_to(
        collector_binary,
        tmp_path / "agent",
        config=quick / "gateway-agent.yaml",
        COLLECTOR_GATEWAYS=f"[{gateway.grpc_endpoint.removeprefix('http://')}]",
    )
    with running(agent):
        with sdk_to(agent, service="waiting") as sdk:
            request = send_span(sdk, "request", EVALUATION)
        log = tmp_path / "agent" / "collector.log"
        # so it has left the processors
        waiting = re.compile(r'Will retry.*"otelcol.signal": "traces"')
        agent.wait_for(lambda _: waiting.search(log.read_text()), LIMIT_S)
        agent.stop()
        agent.start()
        with running(gateway):
            assert jaeger.wait_for(lambda seen: stored(seen, request), LIMIT_S)
