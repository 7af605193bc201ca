"""Private providers: what exports over OTLP where the application has no provider of its own.

The only file that meets the SDK and the exporters; it imports them when a handler is set up that will need them. The
providers register no exit handlers, because the SDK's may take 30 s; their exporters stay silent in forked children.
"""

from __future__ import annotations

import importlib
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["OtlpTarget", "private_provider"]

_QUEUE_SIZE = 8_192


class OtlpTarget:
    """Where OTLP goes: endpoint, protocol and headers, from arguments or the standard environment variables."""

    def __init__(
        self, endpoint: str | None = None, protocol: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._endpoint, self._protocol, self._headers = endpoint, protocol, headers

    def is_configured(self, signal: str) -> bool:
        """Whether an endpoint is known for the signal (``TRACES``, ``LOGS`` or ``METRICS``)."""
        return bool(
            self._endpoint
            or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
            or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        )

    def protocol(self, signal: str) -> str:
        """``grpc`` or ``http/protobuf``: as configured, else by the port (4318 is HTTP's), else gRPC."""
        chosen = (
            self._protocol
            or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
            or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        )
        if chosen:
            return chosen
        endpoint = (
            self._endpoint
            or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
            or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        )
        return "http/protobuf" if urlsplit(endpoint).port == 4318 else "grpc"

    def exporter(self, signal: str) -> Any:
        """A new exporter; imports it, which takes tens of milliseconds."""
        over_http = self.protocol(signal).startswith("http")
        arguments: dict[str, Any] = {"headers": dict(self._headers)} if self._headers else {}
        if self._endpoint:
            arguments["endpoint"] = self._endpoint
            if over_http:
                arguments["endpoint"] = f"{self._endpoint.rstrip('/')}/v1/{signal.lower()}"
        return _exporter_class(signal, over_http)(**arguments)

    def preload(self, signal: str) -> None:
        """Import what a private provider of the signal needs: the SDK cannot be imported at the process's exit."""
        importlib.import_module(f"opentelemetry.sdk.{_SDK_ROOMS[signal]}.export")
        _exporter_class(signal, self.protocol(signal).startswith("http"))


_SDK_ROOMS = {"TRACES": "trace", "LOGS": "_logs", "METRICS": "metrics"}


def _exporter_class(signal: str, over_http: bool) -> Any:
    # The three modules share their layout and differ in names only; spelled out, so that type checkers and people
    # that look for an import find it.
    if over_http:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans

        return {"TRACES": HttpSpans, "LOGS": HttpLogs, "METRICS": HttpMetrics}[signal]
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return {"TRACES": OTLPSpanExporter, "LOGS": OTLPLogExporter, "METRICS": OTLPMetricExporter}[signal]


def private_provider(signal: str, target: OtlpTarget, lost: set[str], resource: Any = None) -> Any:
    """A provider of one signal that exports over OTLP; with the given resource, else with one from the environment.

    The signal is added to `lost` whenever an export fails.
    """
    resource = resource or _own_resource()
    exporter = _watched(target.exporter(signal), lost, signal)
    if signal == "TRACES":
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=_QUEUE_SIZE, schedule_delay_millis=1_000)
        )
        return tracers
    if signal == "LOGS":
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(
            BatchLogRecordProcessor(exporter, max_queue_size=_QUEUE_SIZE, schedule_delay_millis=1_000)
        )
        return loggers
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource, shutdown_on_exit=False)


def _own_resource() -> Any:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    made = Resource({"host.name": socket.gethostname(), "service.instance.id": _instance_id()})
    try:
        return made.merge(Resource.create())
    except RuntimeError:
        # At the process's exit: the SDK asks its detectors in threads, and none can be had. What the variables say:
        return made.merge(Resource({"service.name": "unknown_service"})).merge(OTELResourceDetector().detect())


_instance: dict[int, str] = {}


def _instance_id() -> str:
    """One id for each process, a forked child included."""
    return _instance.setdefault(os.getpid(), str(uuid.uuid4()))


def _watched(exporter: Any, lost: set[str], signal: str) -> Any:
    """Silence the exporter in forked children (what they inherit is the parent's to send), and note what it loses."""
    pid, export = os.getpid(), exporter.export

    def watched(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != pid:
            return None
        result = export(*args, **kwargs)
        if getattr(result, "name", "") != "SUCCESS":
            lost.add(signal)
        return result

    exporter.export = watched
    return exporter
