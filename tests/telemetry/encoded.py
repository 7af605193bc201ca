"""Signals of the exporter whose requests the SDK's own encoders make."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from agenteval_otel.telemetry.target import Signal

_ENCODERS = {"TRACES": encode_spans, "LOGS": encode_logs, "METRICS": encode_metrics}


def sdk_signal(name: str) -> Signal:
    """A signal that takes what the SDK gives its exporters."""
    signal = Signal(name)
    signal.encode = _ENCODERS[name]
    return signal
