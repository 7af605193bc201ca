"""Private providers: what emits to an exporter of ours where the application has no provider of its own.

The only file that meets the SDK; it imports it when a handler is set up that will need it. The providers register no
exit handlers, because the SDK's may take 30 s.
"""

from __future__ import annotations

import os
import socket
import uuid
from sys import getsizeof
from typing import Any

from agenteval_otel.telemetry.exporter import Exporter
from agenteval_otel.telemetry.log_filter import LogFilter
from agenteval_otel.telemetry.signals import load_signal
from agenteval_otel.telemetry.target import OtlpTarget, positive

_METRICS_EVERY_MS = 60_000.0


def preload(signal: str, target: OtlpTarget) -> None:
    """Import what a private provider of the signal needs: the SDK cannot be imported at the process's exit."""
    target.preload(signal)
    # Spelled out, so that type checkers and people that look for an import find it.
    if signal == "TRACES":
        import opentelemetry.sdk.trace
    elif signal == "LOGS":
        import opentelemetry.sdk._logs
    else:
        import opentelemetry.sdk.metrics.export  # noqa: F401


def private_provider(signal: str, target: OtlpTarget, exporter: Exporter, resource: Any = None) -> Any:
    """A provider of one signal that emits to the exporter; with a resource, else with one from the environment."""
    preload(signal, target)
    log_filter, loaded = LogFilter(signal, target.secrets(signal)), load_signal(signal)
    exporter.add(loaded, log_filter.around(target.sender)(loaded), log_filter.around)
    return log_filter.around(_assembled)(signal, exporter, log_filter, resource or _resource())


def _assembled(signal: str, exporter: Exporter, log_filter: LogFilter, resource: Any) -> Any:
    if signal == "METRICS":
        return _meter_provider(exporter, log_filter, resource)
    if signal == "TRACES":
        from opentelemetry.sdk.trace import TracerProvider

        tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=_id_generator())
        tracers.add_span_processor(_span_processor(exporter))
        return tracers
    from opentelemetry.sdk._logs import LoggerProvider

    loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
    loggers.add_log_record_processor(_log_processor(exporter))
    return loggers


class _Exported:
    """What the processors of both signals do at a flush and at the end."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def shutdown(self) -> None:
        self._exporter.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.flush()


def _span_processor(exporter: Exporter) -> Any:
    from opentelemetry.sdk.trace import SpanProcessor

    class ExportedSpans(_Exported, SpanProcessor):
        def on_end(self, span: Any) -> None:
            if span.context.trace_flags.sampled:
                exporter.put("TRACES", span, _size_of(span.attributes))

    return ExportedSpans(exporter)


def _log_processor(exporter: Exporter) -> Any:
    from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord

    class ExportedRecords(_Exported, LogRecordProcessor):
        def on_emit(self, log_record: Any) -> None:
            record = log_record.log_record
            record.context = None  # ids and flags are written down; the context would be kept
            readable = ReadableLogRecord(
                log_record=record, resource=log_record.resource,
                instrumentation_scope=log_record.instrumentation_scope, limits=log_record.limits,
            )  # fmt: skip
            exporter.put("LOGS", readable, _size_of(record.attributes))

    return ExportedRecords(exporter)


def _meter_provider(exporter: Exporter, log_filter: LogFilter, resource: Any) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

    class Collected(MetricReader):
        """Cumulative; the exporter's thread collects, where the SDK's reader has a thread of its own."""

        def _receive_metrics(self, metrics_data: Any, timeout_millis: float = 10_000, **_: Any) -> None:
            exporter.keep_newest(metrics_data)

        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            return exporter.flush()

        def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
            exporter.close()

    reader = Collected()
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    every_ms = positive(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", ""), _METRICS_EVERY_MS)
    exporter.collect_with(log_filter.around(reader.collect), every_ms / 1000)
    return meters


def _size_of(attributes: Any) -> int:
    """About how many bytes an item keeps alive."""
    several = (value if type(value) is tuple else (value,) for value in attributes.values())
    return 1_024 + sum(getsizeof(value) for values in several for value in values)


def _id_generator() -> Any:
    """Ids from the system: the SDK's generator moves the host's `random`, and a host that seeds it would repeat ids."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class SystemIds(IdGenerator):
        def generate_span_id(self) -> int:
            return int.from_bytes(os.urandom(8)) or 1

        def generate_trace_id(self) -> int:
            return int.from_bytes(os.urandom(16)) or 1

    return SystemIds()


def _resource() -> Any:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    resource = Resource({"host.name": socket.gethostname(), "service.instance.id": _instance_id()})
    try:
        return resource.merge(Resource.create())
    except RuntimeError:
        # At the process's exit the SDK's detectors cannot start threads: the variables alone.
        return resource.merge(Resource({"service.name": "unknown_service"})).merge(OTELResourceDetector().detect())


_instance: dict[int, str] = {}


def _instance_id() -> str:
    """One id for each process, a forked child included."""
    return _instance.setdefault(os.getpid(), str(uuid.uuid4()))
