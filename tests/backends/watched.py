"""An application with one monitored handler, run as a program of its own: `python -m tests.backends.watched`.

    python -m tests.backends.watched PROVIDERS [FILE]

With the providers `host` it has the SDK's three providers with their default batch processors, as most services do;
with `none` it only has the `OTEL_*` variables. With a file, results are also kept there.
"""

from __future__ import annotations

import sys

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from agenteval_otel import configure, monitor
from agenteval_otel.evaluators import ResponseHealth, RuleBased

SHORT, LONG = "We open at nine.", "Yes. " * 40
ANSWERS, MAX_LENGTH = 40, 100


@monitor(agent="watched")
def answer(number: int) -> str:
    return LONG if number % 4 == 0 else SHORT


def set_providers() -> None:
    """What an application with OpenTelemetry has: one provider for each signal, with the SDK's defaults."""
    traces, logs = TracerProvider(), LoggerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(traces)
    set_logger_provider(logs)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))


def main(providers: str, file: str | None = None) -> None:
    if providers == "host":
        set_providers()
    configure(
        sample_rate=1.0,
        load_shedding={"enabled": False},
        storage=[{"type": "json_file", "path": file}] if file else [],
        evaluators=[
            ResponseHealth(),
            RuleBased(rules=[{"criterion": "short_enough", "type": "length", "max": MAX_LENGTH}]),
        ],
    )
    for number in range(ANSWERS):
        answer(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
