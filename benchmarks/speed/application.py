"""The application's own telemetry: the SDK's providers with default batch processors, and what
arrives from them.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import _logs, metrics, trace

from benchmarks.providers import Nowhere
from benchmarks.speed.receiver import EVENT, Receiver

__all__ = ["Application", "exporting_nowhere", "exporting_to"]


class Application:
    """Providers that are the process's own.

    Args:
        providers: `Nowhere` or `_Otlp`: providers, and the batch processors of spans and events.
        sink: The receiver behind the exporters; None where the exporters count and drop.
    """

    def __init__(self, providers: Any, sink: Receiver | None = None) -> None:
        self.traces, self.spans_wait, self.events_wait = (
            providers.traces,
            providers.spans_wait,
            providers.events_wait,
        )
        self._providers, self._sink = providers, sink
        trace.set_tracer_provider(providers.traces)
        _logs.set_logger_provider(providers.logs)
        metrics.set_meter_provider(providers.meters)

    def flush(self) -> None:
        """Export what waits in the processors; metrics last, as a reader's request takes its own
        time.
        """
        for provider in (self._providers.traces, self._providers.logs, self._providers.meters):
            provider.force_flush(120_000)

    def arrived(self) -> dict[str, int]:
        """Agent spans, events and the application's own spans, as counted where they arrive."""
        counts = self._sink.arrived().counts if self._sink else self._providers.counts
        return {
            # pydantic-evals calls the span of the call "Calling answer"
            "agent spans": counts.get("invoke_agent", 0) + counts.get("Calling", 0),
            "events": counts.get(EVENT if self._sink else "events", 0),
            "own": counts.get("application", 0),
        }


def exporting_nowhere(*, encode: bool = False) -> Application:
    """Exporters that count and drop, after encoding to OTLP or at once."""
    return Application(Nowhere(encode=encode, queue=None))


def exporting_to(sink: Receiver) -> Application:
    """The SDK's OTLP/HTTP exporters."""
    return Application(_Otlp(sink.address), sink)


class _Otlp:
    def __init__(self, address: str) -> None:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.spans_wait = BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces"))
        self.traces = TracerProvider(shutdown_on_exit=False)
        self.traces.add_span_processor(self.spans_wait)
        self.events_wait = BatchLogRecordProcessor(OTLPLogExporter(f"{address}/v1/logs"))
        self.logs = LoggerProvider(shutdown_on_exit=False)
        self.logs.add_log_record_processor(self.events_wait)
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/v1/metrics"))
        self.meters = MeterProvider([reader], shutdown_on_exit=False)
