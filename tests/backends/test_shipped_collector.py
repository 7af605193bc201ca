"""The shipped Collector, run as it stands: what reaches Jaeger, Prometheus and Loki, and what does
not leave.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from .collector import Collector
from .fixtures import running
from .jaeger import Jaeger, JaegerTrace
from .loki import Loki, LokiRecord
from .sdk import SHIPPED, Sdk, Sent, sdk_to, send_one_of_each

pytestmark = pytest.mark.backend

LIMIT_S = 90.0  # the Collector tries again after 5, 12, 24 and 41 s
EVENTS = '{{service_name="{service}"}} | event_name="gen_ai.evaluation.result"'
VALIDATED = [
    "otel-collector.yaml",
    "collector/tail-sampling.yaml",
    "collector/gateway.yaml",
    "collector/gateway-agent.yaml",
]
AZURE = "collector/azure-monitor.yaml"
SECRET = "my card is 4111"
CONTENT = dict.fromkeys(
    (
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
        "gen_ai.prompt.0.content",
        "gen_ai.evaluation.explanation",
        "gen_ai.evaluation.user_prompt",
        "gen_ai.full_nl_response",
        "input.value",
        "traceloop.entity.output",
        "llm.input_messages.0.message.content",
    ),
    SECRET,
)
KEPT = {
    "gen_ai.evaluation.tone.label": "fail",
    "gen_ai.response.id": "r1",
    "input.value.kind": "text",
}


def shipped_to(
    binary: Path, folder: Path, *, config: Path = SHIPPED, **environment: str
) -> Collector:
    """A Collector of a shipped configuration, in a folder of its own, not yet started."""
    return Collector(binary, folder, config=config, environment=environment)


def trace_of(jaeger: Jaeger, sent: Sent) -> JaegerTrace:
    """Wait for the trace of what was sent."""
    trace = jaeger.wait_for(lambda seen: seen.trace(sent.trace_id), LIMIT_S)
    assert trace is not None
    return trace


def event_of(loki: Loki, service: str, more: str = "") -> LokiRecord:
    """Wait for the one event of a service, or the one that a further filter finds."""
    query = EVENTS.format(service=service) + more
    (event,) = loki.wait_for(lambda seen: seen.query(query), LIMIT_S)
    return event


def validated(binary: Path, *files: Path) -> str:
    """What `otelcol validate` has against files over each other; nothing where they are right."""
    command = [str(binary), "validate", *(f"--config={file}" for file in files)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (outcome.returncode == 0) == (not outcome.stderr.strip()), outcome.stderr
    return outcome.stderr


@pytest.mark.parametrize("name", VALIDATED)
def test_every_shipped_configuration_is_valid(collector_binary: Path, name: str) -> None:
    """Each passes the Collector's own validation, from top to bottom, as it stands."""
    assert validated(collector_binary, SHIPPED.parent / name) == ""


def test_the_azure_variant_is_valid_but_for_its_exporter(
    collector_binary: Path, tmp_path: Path
) -> None:
    """Its exporter is in no Collector that can be built here; the rest is valid with another in its
    place.
    """
    config = yaml.safe_load((SHIPPED.parent / AZURE).read_text())
    (tmp_path / "as-it-stands.yaml").write_text(yaml.safe_dump(config))
    assert "azuremonitor" in validated(collector_binary, tmp_path / "as-it-stands.yaml")

    queue = config["exporters"].pop("azuremonitor")["sending_queue"]
    config["exporters"]["otlp_http"] = {"endpoint": "http://127.0.0.1:9", "sending_queue": queue}
    for pipeline in config["service"]["pipelines"].values():
        pipeline["exporters"] = [
            "otlp_http" if name == "azuremonitor" else name for name in pipeline["exporters"]
        ]
    (tmp_path / "replaced.yaml").write_text(yaml.safe_dump(config))

    assert validated(collector_binary, tmp_path / "replaced.yaml") == ""


def send_with_content(sdk: Sdk) -> Sent:
    """A span, an event on it and a log record, each with content and with something else."""
    with sdk.tracers.get_tracer("t").start_as_current_span("chat") as span:
        span.set_attributes(CONTENT | KEPT)
        span.add_event("message", CONTENT | KEPT)
        logger = sdk.loggers.get_logger("t")
        logger.emit(
            event_name="gen_ai.evaluation.result",
            timestamp=time.time_ns(),
            body="tone 0.2",
            attributes={**CONTENT, **KEPT},
        )
        logger.emit(
            event_name="gen_ai.user.message", timestamp=time.time_ns(), body={"content": SECRET}
        )
    return Sent.of(span)


@pytest.fixture(scope="module", name="shipped")
def shipped_fixture(
    collector_binary: Path, jaeger: Jaeger, loki: Loki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    """The production configuration between an application, Jaeger and Loki."""
    made = shipped_to(
        collector_binary,
        tmp_path_factory.mktemp("production"),
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_ENDPOINT=loki.otlp_endpoint,
        COLLECTOR_LOGS_TO="[debug, file, otlp_http/loki]",
    )
    with running(made) as started:
        yield started


def test_each_signal_arrives_where_it_belongs(
    shipped: Collector, jaeger: Jaeger, loki: Loki
) -> None:
    """The span is in Jaeger, the score in the scrape with its trace, the event in Loki by its name
    and its trace.
    """
    with sdk_to(shipped, service="each-signal") as sdk:
        sent = send_one_of_each(sdk)

    trace = trace_of(jaeger, sent)
    page = shipped.wait_for(lambda seen: "each-signal" in (text := seen.scrape()) and text, LIMIT_S)
    event = event_of(loki, "each-signal", f' | trace_id="{sent.trace_id}"')

    assert [span.name for span in trace.spans] == ["invoke_agent shop"]
    assert f'trace_id="{sent.trace_id}"' in page
    assert (event.line, event.labels["span_id"]) == ("relevance 0.75", sent.span_id)
    assert event.labels["gen_ai_evaluation_score_value"] == "0.75"


def test_what_people_wrote_does_not_leave(shipped: Collector, jaeger: Jaeger, loki: Loki) -> None:
    """Attributes with content are gone from spans, their events and log records; all others are
    there.

    The file exporter, named in a pipeline by the environment, writes what the backends get.
    """
    with sdk_to(shipped, service="with-content") as sdk:
        sent = send_with_content(sdk)

    trace = trace_of(jaeger, sent)
    events = loki.wait_for(
        lambda seen: len(actual := seen.query('{service_name="with-content"}')) == 2 and actual,
        LIMIT_S,
    )

    (span,) = trace.spans
    assert CONTENT.keys().isdisjoint(span.tags)
    assert KEPT.items() <= dict(span.tags).items()
    assert SECRET not in jaeger.raw_trace(sent.trace_id)
    assert KEPT["gen_ai.evaluation.tone.label"] in jaeger.raw_trace(sent.trace_id)
    assert not any(SECRET in f"{event.line} {event.labels}" for event in events)
    assert events[0].labels["gen_ai_response_id"] == "r1"
    assert {event.line for event in events} == {"tone 0.2", "content removed"}
    logs = shipped.wait_for(lambda seen: len(actual := seen.logs("with-content")) == 2 and actual)
    assert logs[0].attributes == {**KEPT, "event_name": "gen_ai.evaluation.result"}


def test_content_passes_where_it_is_asked_for(
    collector_binary: Path, jaeger: Jaeger, loki: Loki, tmp_path: Path
) -> None:
    """COLLECTOR_CONTENT=keep: the same span and the same records, with everything."""
    made = shipped_to(
        collector_binary,
        tmp_path / "keeping",
        COLLECTOR_CONTENT="keep",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_ENDPOINT=loki.otlp_endpoint,
    )
    with running(made) as keeping:
        with sdk_to(keeping, service="kept-content") as sdk:
            sent = send_with_content(sdk)
        trace = trace_of(jaeger, sent)
        event = event_of(loki, "kept-content")

    assert CONTENT.items() <= dict(trace.spans[0].tags).items()
    assert event.labels["gen_ai_output_messages"] == SECRET


def test_an_instance_makes_no_stream_of_loki(loki: Loki) -> None:
    """Processes come and go: their ids are with the records and not among the labels of streams."""
    provider = LoggerProvider(
        resource=Resource({"service.name": "one-of-many", "service.instance.id": "4711"})
    )
    provider.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(f"{loki.otlp_endpoint}/v1/logs"))
    )
    provider.get_logger("test").emit(body="relevance 0.75", timestamp=time.time_ns())
    provider.shutdown()
    (actual,) = loki.wait_for(
        lambda seen: seen.query('{service_name="one-of-many"} | service_instance_id="4711"'),
        LIMIT_S,
    )
    assert actual.line == "relevance 0.75"
    assert "service_name" in loki.labels()
    assert "service_instance_id" not in loki.labels()
