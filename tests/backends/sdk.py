"""The plain OpenTelemetry SDK, wired to a Collector with providers of its own: the globals stay as
they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from .collector import Collector

SHIPPED = Path(__file__).resolve().parents[2] / "collector-config" / "otel-collector.yaml"
SCORE = 0.75


def tracing_to(endpoint: str, service: str, **batches: Any) -> TracerProvider:
    """Return a provider that exports the spans of a service over gRPC without TLS."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    exporter = GrpcSpans(endpoint=endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, **batches))
    return provider


class Sdk(NamedTuple):
    tracers: TracerProvider
    loggers: LoggerProvider
    meters: MeterProvider


@contextmanager
def sdk_to(collector: Collector, *, service: str, protocol: str = "grpc") -> Iterator[Sdk]:
    """Providers that export to the Collector over `grpc` or `http`; everything is sent when the
    block ends.
    """
    resource = Resource({"service.name": service})
    spans, logs, metrics = _exporters(collector, protocol)
    sdk = Sdk(
        tracers=TracerProvider(resource=resource),
        loggers=LoggerProvider(resource=resource),
        meters=MeterProvider(
            resource=resource, metric_readers=[PeriodicExportingMetricReader(metrics)]
        ),
    )
    sdk.tracers.add_span_processor(BatchSpanProcessor(spans))
    sdk.loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
    try:
        yield sdk
    finally:
        for provider in sdk:
            provider.shutdown()


def _exporters(
    collector: Collector, protocol: str
) -> tuple[SpanExporter, LogRecordExporter, MetricExporter]:
    if protocol == "grpc":
        endpoint = collector.grpc_endpoint  # its scheme says that there is no TLS
        return (
            GrpcSpans(endpoint=endpoint),
            GrpcLogs(endpoint=endpoint),
            GrpcMetrics(endpoint=endpoint),
        )
    base = f"{collector.http_endpoint}/v1"
    return HttpSpans(f"{base}/traces"), HttpLogs(f"{base}/logs"), HttpMetrics(f"{base}/metrics")


class Sent(NamedTuple):
    trace_id: str
    span_id: str

    @classmethod
    def of(cls, span: trace.Span) -> Sent:
        context = span.get_span_context()
        return cls(f"{context.trace_id:032x}", f"{context.span_id:016x}")


def send_one_of_each(sdk: Sdk) -> Sent:
    """One span, and in its context one event and one histogram value."""
    with sdk.tracers.get_tracer("harness", "1.2").start_as_current_span(
        "invoke_agent shop"
    ) as span:
        span.set_status(trace.StatusCode.ERROR, "refused")
        sdk.loggers.get_logger("harness").emit(
            event_name="gen_ai.evaluation.result",
            timestamp=0,
            body="relevance 0.75",
            attributes={"gen_ai.evaluation.score.value": SCORE},
        )
        scores = sdk.meters.get_meter("harness").create_histogram(
            "gen_ai.evaluation.score", unit="1", explicit_bucket_boundaries_advisory=[0.0, 0.5, 1.0]
        )
        scores.record(SCORE, {"gen_ai.evaluation.name": "relevance"})
    return Sent.of(span)
