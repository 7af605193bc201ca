"""Which OpenTelemetry providers the signals go to, resolved per signal and late.

An explicit provider, else the application's real global one, else (an OTLP endpoint is configured) a private one with
the application's resource, else none. The globals are never replaced. Private providers are built on the pool's thread,
never at import and never on the caller's; they do not register exit handlers (the SDK's may take 30 s), and after a
fork the child builds its own, with a `service.instance.id` of its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import metrics, trace

from agenteval_otel.semconv import SCHEMA_URL, SCOPE_NAME
from agenteval_otel.telemetry.events import EventLog, global_logger_provider, scope_version
from agenteval_otel.telemetry.log import get_logger

__all__ = ["OtlpTarget", "Providers"]

_log = get_logger()
_SIGNALS = ("TRACES", "LOGS", "METRICS")
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


class Providers:
    """Resolves tracer, event log and meter; built ones are kept, missing ones are looked for again next time."""

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        logger_provider: Any = None,
        meter_provider: Any = None,
        target: OtlpTarget | None = None,
    ) -> None:
        self._explicit = {"TRACES": tracer_provider, "LOGS": logger_provider, "METRICS": meter_provider}
        self._target = target or OtlpTarget()
        self._forget()
        _LIVE.add(self)

    def __repr__(self) -> str:
        return f"<Providers resolved={sorted(self._resolved)} private={sorted(self._private)}>"

    def _forget(self) -> None:
        self._resolved: dict[str, Any] = {}
        self._private: dict[str, Any] = {}
        self._flushing: threading.Thread | None = None
        self._flushed = True

    def tracer(self) -> trace.Tracer | None:
        """The tracer; None when no provider is to be had. May build a provider: pool thread only."""
        tracer: trace.Tracer | None = self._resolve(
            "TRACES", lambda provider: provider.get_tracer(SCOPE_NAME, scope_version(), schema_url=SCHEMA_URL)
        )
        return tracer

    def tracer_now(self) -> trace.Tracer | None:
        """The tracer if it costs nothing to have it: for the caller's thread."""
        tracer: trace.Tracer | None = self._resolved.get("TRACES")
        if tracer is None and (self._explicit["TRACES"] is not None or _global_provider("TRACES") is not None):
            return self.tracer()
        return tracer

    def events(self) -> EventLog | None:
        """The event log; None when no provider is to be had. Pool thread only."""
        events: EventLog | None = self._resolve("LOGS", EventLog)
        return events

    def meter(self) -> metrics.Meter | None:
        """The meter; None when no provider is to be had. Pool thread only."""
        meter: metrics.Meter | None = self._resolve(
            "METRICS", lambda provider: provider.get_meter(SCOPE_NAME, scope_version(), schema_url=SCHEMA_URL)
        )
        return meter

    def flush(self, timeout_s: float) -> bool:
        """Have the providers export what they hold, in a thread of its own: the SDK's own time limits do not hold.

        Returns False when the time ran out. A flush that is still under way is waited for instead of started again.

        Raises:
            RuntimeError: No thread can be started any more (some Python versions at exit); `flush_here` still works.
        """
        if not self._resolved:
            return True
        deadline = time.monotonic() + timeout_s
        thread = self._flushing
        if thread is None or not thread.is_alive():
            self._flushed = False
            thread = threading.Thread(target=self.flush_here, name="agenteval-flush", daemon=True)
            thread.start()
            self._flushing = thread
        thread.join(max(0.0, deadline - time.monotonic()))
        return not thread.is_alive() and self._flushed

    def flush_here(self) -> None:
        """Export what the providers hold on this thread, for as long as the SDK takes."""
        complete = True
        for signal in _SIGNALS:
            provider = self._explicit[signal] or self._private.get(signal) or _global_provider(signal)
            force_flush = getattr(provider, "force_flush", None)
            if signal in self._resolved and force_flush is not None:
                try:
                    complete = force_flush() is not False and complete
                except Exception:
                    complete = False
        self._flushed = complete

    def _resolve(self, signal: str, make: Callable[[Any], Any]) -> Any:
        known = self._resolved.get(signal)
        if known is not None:
            return known
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        provider = self._explicit[signal] or _global_provider(signal)
        if provider is None and self._target.is_configured(signal):
            provider = self._private[signal] = _build(signal, self._target, self._resource())
        if provider is None:
            _log.warning(
                "no_telemetry", part=signal.lower(),
                fix="set OTEL_EXPORTER_OTLP_ENDPOINT, an OpenTelemetry provider, or OtlpStorageProvider(endpoint=...)",
            )  # fmt: skip
            return None
        resolved = self._resolved[signal] = make(provider)
        return resolved

    def _resource(self) -> Any:
        """The resource of the application's tracer provider; else from the environment, with host and instance.

        Jaeger warns of clock skew unless parent and child name the same host.
        """
        shared = getattr(self._explicit["TRACES"] or _global_provider("TRACES"), "resource", None)
        if shared is not None:
            return shared
        from opentelemetry.sdk.resources import Resource

        made = Resource({"host.name": socket.gethostname(), "service.instance.id": _instance_id()})
        return made.merge(Resource.create())


def _global_provider(signal: str) -> Any | None:
    if signal == "LOGS":
        return global_logger_provider()
    if signal == "TRACES":
        tracers = trace.get_tracer_provider()
        return None if isinstance(tracers, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else tracers
    meters = metrics.get_meter_provider()
    # The placeholder's class is private to the interface; the real ones come from elsewhere.
    is_placeholder = isinstance(meters, metrics.NoOpMeterProvider) or type(meters).__name__ == "_ProxyMeterProvider"
    return None if is_placeholder else meters


def _build(signal: str, target: OtlpTarget, resource: Any) -> Any:
    """A private provider of one signal that exports over OTLP."""
    exporter = _only_in_this_process(target.exporter(signal))
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


_instance: dict[int, str] = {}


def _instance_id() -> str:
    """One id for each process, a forked child included."""
    return _instance.setdefault(os.getpid(), str(uuid.uuid4()))


def _only_in_this_process(exporter: Any) -> Any:
    """Silence the exporter in forked children: what they inherit is the parent's to send."""
    pid, export = os.getpid(), exporter.export

    def guarded(*args: Any, **kwargs: Any) -> Any:
        return export(*args, **kwargs) if os.getpid() == pid else None

    exporter.export = guarded
    return exporter


_LIVE: weakref.WeakSet[Providers] = weakref.WeakSet()


def _forget_in_child() -> None:
    for providers in list(_LIVE):
        providers._forget()


os.register_at_fork(after_in_child=_forget_in_child)
