"""Signals: how spans, log records and metrics are encoded, split and answered in OTLP.

Importing the encoders takes tens of milliseconds, so each signal is loaded when a provider of ours needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

SIGNALS = ("TRACES", "LOGS", "METRICS")


class Signal(NamedTuple):
    """One signal's part of OTLP.

    Attributes:
        name: ``TRACES``, ``LOGS`` or ``METRICS``.
        encode: The SDK's finished items to a request.
        request: The request's message.
        response: The reply's message.
        method: The gRPC method.
        kind: As in ``resource_<kind>`` and ``scope_<kind>`` of a request.
        records: What a scope's items are called.
        rejected: What the reply calls the number of rejected items.
        rejected_json: The same in JSON.
    """

    name: str
    encode: Callable[[Any], Any]
    request: Any
    response: Any
    method: str
    kind: str
    records: str
    rejected: str
    rejected_json: str

    def count(self, request: Any) -> int:
        """Spans, log records or metrics of a request."""
        return sum(
            len(getattr(scope, self.records))
            for resource in getattr(request, f"resource_{self.kind}")
            for scope in getattr(resource, f"scope_{self.kind}")
        )

    def halves(self, data: bytes, count: int) -> tuple[bytes, bytes]:
        """Two requests with half of the items each."""
        middle = count // 2
        return self._between(data, 0, middle), self._between(data, middle, count)

    def _between(self, data: bytes, first: int, end: int) -> bytes:
        request, before = self.request.FromString(data), 0
        for resource in getattr(request, f"resource_{self.kind}"):
            for scope in getattr(resource, f"scope_{self.kind}"):
                records = getattr(scope, self.records)
                count = len(records)
                del records[max(0, end - before) :]
                del records[: max(0, first - before)]
                before += count
        encoded: bytes = request.SerializeToString()
        return encoded


def load_signal(name: str) -> Signal:
    """Import what a signal needs."""
    return _LOADERS[name]()


def _traces() -> Signal:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )

    return Signal(
        "TRACES", encode_spans, ExportTraceServiceRequest, ExportTraceServiceResponse,
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "spans", "spans", "rejected_spans",
        "rejectedSpans",
    )  # fmt: skip


def _logs() -> Signal:
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )

    return Signal(
        "LOGS", encode_logs, ExportLogsServiceRequest, ExportLogsServiceResponse,
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export", "logs", "log_records", "rejected_log_records",
        "rejectedLogRecords",
    )  # fmt: skip


def _metrics() -> Signal:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
    )

    return Signal(
        "METRICS", encode_metrics, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "metrics", "metrics",
        "rejected_data_points", "rejectedDataPoints",
    )  # fmt: skip


_LOADERS: dict[str, Callable[[], Signal]] = {"TRACES": _traces, "LOGS": _logs, "METRICS": _metrics}
