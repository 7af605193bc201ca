"""The Collector harness itself, against the plain OpenTelemetry SDK."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber

from .collector import Collector
from .process import BackendError
from .sdk import Sdk, sdk_to

pytestmark = pytest.mark.backend

SHIPPED = Path(__file__).resolve().parents[2] / "collector-config" / "otel-collector.yaml"
SCORE = 0.75


@dataclass(frozen=True)
class Sent:
    """The ids of the one span that a test sent."""

    trace_id: str
    span_id: str


def send_one_of_each(sdk: Sdk, *, when_ns: int = 0) -> Sent:
    """One span, and in its context one event and one histogram value."""
    with sdk.tracers.get_tracer("harness", "1.2").start_as_current_span("invoke_agent shop") as span:
        span.set_attribute("answer.tokens", 42)
        span.set_attribute("answer.tools", ["search", "pay"])
        span.set_status(trace.StatusCode.ERROR, "refused")
        sdk.loggers.get_logger("harness").emit(
            event_name="gen_ai.evaluation.result",
            timestamp=when_ns,
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body="relevance 0.75",
            attributes={"gen_ai.evaluation.score.value": SCORE, "passed": True},
        )
        scores = sdk.meters.get_meter("harness").create_histogram(
            "gen_ai.evaluation.score", unit="1", explicit_bucket_boundaries_advisory=[0.0, 0.5, 1.0]
        )
        scores.record(SCORE, {"gen_ai.evaluation.name": "relevance"})
    context = span.get_span_context()
    return Sent(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_span_arrives_with_its_ids_and_typed_attributes(collector: Collector, protocol: str) -> None:
    """A span sent over either protocol is read back with ids, status, times and attributes of the right types."""
    service = f"span-over-{protocol}"
    with sdk_to(collector, service=service, protocol=protocol) as sdk:
        sent = send_one_of_each(sdk)

    (span,) = collector.wait_for(lambda seen: seen.spans(service))

    assert (span.trace_id, span.span_id, span.parent_span_id) == (sent.trace_id, sent.span_id, "")
    assert (span.name, span.kind, span.scope, span.scope_version) == ("invoke_agent shop", "INTERNAL", "harness", "1.2")
    assert (span.status, span.status_message) == ("ERROR", "refused")
    assert span.attributes == {"answer.tokens": 42, "answer.tools": ["search", "pay"]}
    assert 0 < span.start_ns <= span.end_ns


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_event_arrives_under_its_name_and_span(collector: Collector, protocol: str) -> None:
    """A log record with an event name is read back with that name, its time, and the ids of the span it belongs to."""
    service, when_ns = f"event-over-{protocol}", time.time_ns()
    with sdk_to(collector, service=service, protocol=protocol) as sdk:
        sent = send_one_of_each(sdk, when_ns=when_ns)

    (event,) = collector.wait_for(lambda seen: seen.logs(service))

    assert event.event_name == "gen_ai.evaluation.result"
    assert (event.trace_id, event.span_id, event.time_unix_nano) == (sent.trace_id, sent.span_id, when_ns)
    assert (event.severity, event.severity_number, event.body) == ("INFO", 9, "relevance 0.75")
    assert event.attributes == {"gen_ai.evaluation.score.value": SCORE, "passed": True}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_histogram_arrives_with_an_exemplar(collector: Collector, protocol: str) -> None:
    """A histogram is read back with buckets and sum, and its exemplar names the span it was recorded in."""
    service = f"histogram-over-{protocol}"
    with sdk_to(collector, service=service, protocol=protocol) as sdk:
        sent = send_one_of_each(sdk)

    metric = collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service))

    assert metric is not None
    assert (metric.unit, metric.kind, metric.temporality) == ("1", "histogram", "cumulative")
    point = metric.point({"gen_ai.evaluation.name": "relevance"})
    assert point is not None
    assert (point.count, point.sum, point.bucket_counts, point.bounds) == (1, SCORE, (0, 0, 1, 0), (0.0, 0.5, 1.0))
    assert [(e.value, e.trace_id, e.span_id) for e in point.exemplars] == [(SCORE, sent.trace_id, sent.span_id)]
    assert metric.point({"gen_ai.evaluation.name": "another"}) is None


def test_the_scrape_shows_exemplars(collector: Collector) -> None:
    """Prometheus' view is in OpenMetrics form: the bucket's exemplar carries the trace, the service is a label."""
    service = "scraped"
    with sdk_to(collector, service=service) as sdk:
        sent = send_one_of_each(sdk)

    page = collector.wait_for(lambda seen: service in (text := seen.scrape()) and text)

    assert isinstance(page, str)
    buckets = [row for row in page.splitlines() if row.startswith("gen_ai_evaluation_score_bucket") and service in row]
    assert any(f'trace_id="{sent.trace_id}"' in row and f'span_id="{sent.span_id}"' in row for row in buckets)
    assert page.endswith("# EOF\n")


def test_a_wait_in_vain_says_what_has_arrived(collector: Collector) -> None:
    """A predicate that never holds ends in a time-out that counts what there is."""
    with pytest.raises(TimeoutError, match=r"not seen within 0\.1 s by Collector\(running, .* spans"):
        collector.wait_for(lambda seen: seen.spans("nobody"), timeout_s=0.1)


def test_a_stopped_collector_keeps_its_past_and_can_return(own_collector: Collector) -> None:
    """After an outage the Collector is back on its ports, and what came before and after is all there."""
    with sdk_to(own_collector, service="before") as sdk:
        send_one_of_each(sdk)
    own_collector.wait_for(lambda seen: seen.spans("before"))
    ports = own_collector.ports

    own_collector.stop()
    with pytest.raises(BackendError, match="not running"):
        own_collector.wait_for(lambda seen: seen.spans("after"))
    own_collector.start()
    with sdk_to(own_collector, service="after") as sdk:
        send_one_of_each(sdk)

    assert own_collector.ports == ports
    own_collector.wait_for(lambda seen: seen.spans("after"))
    assert len(own_collector.spans("before")) == 1
    assert "2 spans" in repr(own_collector)


def test_a_broken_configuration_fails_with_the_log(collector_binary: Path, tmp_path: Path) -> None:
    """A Collector that ends at once is reported with the end of its log, and leaves no process."""
    config = tmp_path / "broken.yaml"
    config.write_text("receivers: {nobody: {}}\n")
    broken = Collector(collector_binary, tmp_path, config=config)

    with pytest.raises(BackendError, match=r"(?s)ended while starting.*nobody"):
        broken.start()

    assert not broken.running


def test_the_shipped_configuration_is_valid(collector_binary: Path) -> None:
    """`collector-config/otel-collector.yaml` passes the Collector's own validation as it stands."""
    command = [str(collector_binary), "validate", f"--config={SHIPPED}"]

    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert outcome.returncode == 0, outcome.stderr


def test_the_shipped_configuration_serves_prometheus(collector_binary: Path, tmp_path: Path) -> None:
    """The shipped configuration, started as it stands on other ports, takes OTLP and shows scores with exemplars."""
    shipped = Collector(collector_binary, tmp_path, config=SHIPPED)
    try:
        shipped.start()
        with sdk_to(shipped, service="shop") as sdk:
            sent = send_one_of_each(sdk)
        page = shipped.wait_for(lambda seen: "shop" in (text := seen.scrape()) and text)
    finally:
        shipped.stop()

    assert isinstance(page, str)
    assert f'trace_id="{sent.trace_id}"' in page
    assert 'service_name="shop"' in page
