"""Providers of all three signals whose exporters go nowhere, with OTLP encoding or without."""

from __future__ import annotations

from collections import Counter
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

__all__ = ["Nowhere"]

_QUEUE = 8_192


class Nowhere:
    """The application's providers, behind the SDK's batch processors; what arrives is counted and
    dropped.

    Args:
        encode: Encode it to OTLP's protobuf first.
        queue: Places in each batch processor's queue; None takes the SDK's default.

    Attributes:
        counts: Spans, events and bytes; and spans by the first word of their names.
    """

    def __init__(self, *, encode: bool, queue: int | None = _QUEUE) -> None:
        counts: Counter[str] = Counter()
        self.counts = counts
        spans_of, events_of, metrics_of = _encoders() if encode else (_nothing, _nothing, _nothing)

        class Spans(SpanExporter):
            def export(self, spans: Any) -> Any:
                counts["bytes"] += spans_of(spans)
                counts["spans"] += len(spans)
                counts.update(span.name.split(" ")[0] for span in spans)
                return SpanExportResult.SUCCESS

        class Events(LogRecordExporter):
            def export(self, batch: Any) -> Any:
                counts["bytes"] += events_of(batch)
                counts["events"] += len(batch)
                return LogRecordExportResult.SUCCESS

            def shutdown(self) -> None:
                return None

            def force_flush(self, timeout_millis: int = 0) -> bool:
                return True

        class Metrics(MetricExporter):
            def export(self, metrics_data: Any, timeout_millis: float = 0, **_: Any) -> Any:
                counts["bytes"] += metrics_of(metrics_data)
                return MetricExportResult.SUCCESS

            def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
                return None

            def force_flush(self, timeout_millis: float = 0) -> bool:
                return True

        self.traces = TracerProvider(shutdown_on_exit=False)
        self.spans_wait = BatchSpanProcessor(Spans(), max_queue_size=queue)
        self.traces.add_span_processor(self.spans_wait)
        self.logs = LoggerProvider(shutdown_on_exit=False)
        self.events_wait = BatchLogRecordProcessor(Events(), max_queue_size=queue)
        self.logs.add_log_record_processor(self.events_wait)
        reader = PeriodicExportingMetricReader(Metrics(), export_interval_millis=1_000)
        self.meters = MeterProvider([reader], shutdown_on_exit=False)

    def flush(self) -> None:
        """Export what still waits."""
        for provider in (self.traces, self.logs, self.meters):
            provider.force_flush()

    def storage(self) -> Any:
        """Our storage provider that emits to them."""
        from agenteval_otel.storage import OtlpStorageProvider

        return OtlpStorageProvider(
            tracer_provider=self.traces, logger_provider=self.logs, meter_provider=self.meters
        )

    def set_globally(self) -> None:
        """Make them the process's, where pydantic-evals looks for them."""
        from opentelemetry import _logs, metrics, trace

        trace.set_tracer_provider(self.traces)
        _logs.set_logger_provider(self.logs)
        metrics.set_meter_provider(self.meters)


def _nothing(_: Any) -> int:
    return 0


def _encoders() -> tuple[Any, Any, Any]:
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    def sized(encode: Any) -> Any:
        return lambda batch: len(encode(batch).SerializeToString())

    return sized(encode_spans), sized(encode_logs), sized(encode_metrics)
