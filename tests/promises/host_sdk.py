"""The application's SDK, as applications set it up: batch processors, here before exporters in
memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import OVERALL_SCORE
from agenteval_otel.storage import OtlpStorageProvider
from tests.pipelines import pipeline_with

AGENT_SPAN = "invoke_agent "


class Keeper(SpanExporter):
    """Keeps what is exported; a request takes so long."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.spans: list[ReadableSpan] = []
        self._takes_s, self._never = takes_s, threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._takes_s:
            self._never.wait(self._takes_s)
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class HostSdk:
    """Providers of all three signals and the pipelines that emit with them; the processor is made
    of the exporter.
    """

    def __init__(
        self,
        exporter: Keeper | None = None,
        processor: Callable[[Any], Any] = BatchSpanProcessor,
        sampler: Any = None,
    ) -> None:
        self.exporter = exporter or Keeper()
        self.tracer_provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(processor(self.exporter))
        self._logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.logger_provider = LoggerProvider(shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(BatchLogRecordProcessor(self._logs))
        self._metrics = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._metrics], shutdown_on_exit=False)
        self._pipelines: list[Pipeline] = []

    def pipeline(
        self, *evaluators: Any, sampler: Any = None, tracer_provider: Any = None, **settings: Any
    ) -> Pipeline:
        """A pipeline that evaluates everything and emits with these providers, or with one that
        stands before.
        """
        telemetry = OtlpStorageProvider(
            tracer_provider=tracer_provider or self.tracer_provider,
            logger_provider=self.logger_provider,
            meter_provider=self.meter_provider,
        )
        made = pipeline_with(
            sampler=sampler or RatioSampler(ratio=1.0),
            evaluators=evaluators,
            telemetry=telemetry,
            **settings,
        )
        self._pipelines.append(made)
        return made

    def spans(self, prefix: str = AGENT_SPAN) -> list[ReadableSpan]:
        assert self.tracer_provider.force_flush()
        return [span for span in self.exporter.spans if span.name.startswith(prefix)]

    def with_results(self) -> list[ReadableSpan]:
        """The spans that carry the results of an answer: agent spans, and run spans."""
        return [span for span in self.spans("") if OVERALL_SCORE in (span.attributes or {})]

    def events(self) -> list[Any]:
        self.logger_provider.force_flush()
        return [record.log_record for record in self._logs.get_finished_logs()]

    def close(self) -> None:
        for pipeline in self._pipelines:
            pipeline.shutdown(2.0)
        self.tracer_provider.shutdown()
        self.logger_provider.shutdown()  # type: ignore[no-untyped-call]
        self.meter_provider.shutdown()
