"""Signals: how spans, log records and metrics are encoded, split and answered in OTLP.

Importing the encoders takes tens of milliseconds, so each signal is loaded when a provider of ours needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

SIGNALS = ("TRACES", "LOGS", "METRICS")


class Signal(NamedTuple):
    """One signal's part of OTLP.

    Attributes:
        name: ``TRACES``, ``LOGS`` or ``METRICS``.
        encode: Turns the SDK's finished items into a request.
        request: The request's message.
        response: The reply's message.
        method: The gRPC method.
        kind: As in ``resource_<kind>`` and ``scope_<kind>`` of a request.
        records: The field of a scope's items.
        rejected: The reply's field for the number of rejected items.
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


# Encoder; the collector's package and service; kind, records, rejected.
_PARTS: Final = {
    "TRACES": ("trace_encoder.encode_spans", "trace", "Trace", "spans", "spans", "rejected_spans"),
    "LOGS": ("_log_encoder.encode_logs", "logs", "Logs", "logs", "log_records", "rejected_log_records"),
    "METRICS": ("metrics_encoder.encode_metrics", "metrics", "Metrics", "metrics", "metrics", "rejected_data_points"),
}


def load_signal(name: str) -> Signal:
    """Import what a signal needs."""
    encoder, package, service, kind, records, rejected = _PARTS[name]
    collector = f"opentelemetry.proto.collector.{package}.v1"
    messages = import_module(f"{collector}.{package}_service_pb2")
    module, function = encoder.split(".")
    first, *rest = rejected.split("_")
    return Signal(
        name, getattr(import_module(f"opentelemetry.exporter.otlp.proto.common.{module}"), function),
        getattr(messages, f"Export{service}ServiceRequest"), getattr(messages, f"Export{service}ServiceResponse"),
        f"/{collector}.{service}Service/Export", kind, records, rejected, first + "".join(map(str.title, rest)),
    )  # fmt: skip
