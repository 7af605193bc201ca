"""Doubles: time that a test moves, and telemetry that stays in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel.storage import OtlpStorageProvider


class ManualClock:
    """Monotonic seconds that stand still until `advance` is called; for every ``clock`` parameter."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        return self._now_s

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_s:g} s>"

    def advance(self, seconds: float) -> None:
        """Move on.

        Raises:
            ValueError: For a negative step, which monotonic time does not have.
        """
        if seconds < 0:
            raise ValueError("monotonic time does not go back")
        self._now_s += seconds


class RecordedTelemetry:
    """Records spans, events and metrics with SDK providers in memory, and leaves the global providers alone.

        telemetry = RecordedTelemetry()
        configure(storage=[telemetry.storage()], dispatcher=InlineDispatcher())
        ...
        assert telemetry.events()[0].attributes["gen_ai.evaluation.score.label"] == "pass"

    Args:
        sampler: A sampler of the SDK for the tracer provider, where head sampling is part of the test.
    """

    def __init__(self, *, sampler: Any = None) -> None:
        resource = Resource.create({"service.name": "recorded"})
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.tracer_provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logger_provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.meter_provider = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)

    def __repr__(self) -> str:
        return f"<RecordedTelemetry spans={len(self.spans())} events={len(self.events())}>"

    def storage(self, **settings: Any) -> OtlpStorageProvider:
        """An `OtlpStorageProvider` that emits into this recording."""
        return OtlpStorageProvider(
            tracer_provider=self.tracer_provider, logger_provider=self.logger_provider,
            meter_provider=self.meter_provider, **settings,
        )  # fmt: skip

    def tracer(self, name: str = "host") -> Any:
        """A tracer for the spans of the application under test."""
        return self.tracer_provider.get_tracer(name)

    def spans(self, prefix: str = "") -> list[ReadableSpan]:
        """Finished spans in the order of their end, those whose name begins with `prefix`."""
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(prefix)]

    def events(self) -> list[Any]:
        """Log records of the events, in order."""
        return [record.log_record for record in self._logs.get_finished_logs()]

    def points(self, metric: str) -> list[Any]:
        """The data points of a metric as collected now; empty when there is none."""
        return [
            point for collected in self._collected() if collected.name == metric for point in collected.data.data_points
        ]

    def metrics(self) -> set[str]:
        """Names of all metrics that have data."""
        return {collected.name for collected in self._collected()}

    def _collected(self) -> list[Any]:
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
        return [metric for scope in scopes for metric in scope.metrics]

    def shutdown(self) -> None:
        """Release the providers."""
        self.tracer_provider.shutdown()
        self.logger_provider.shutdown()
        self.meter_provider.shutdown()
