"""Private providers: what emits to an exporter of ours where the application has no provider of its own.

The only module that meets the SDK; it is imported when a handler is set up that will need it. The providers register no
exit handlers, because the SDK's may take 30 s.
"""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from sys import getsizeof
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadableLogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.telemetry.exporter import Exporter
from agenteval_otel.telemetry.senders import load_signal
from agenteval_otel.telemetry.target import OtlpTarget, positive

_METRICS_EVERY_MS = 60_000.0


def private_provider(signal: str, target: OtlpTarget, exporter: Exporter, resource: Any = None) -> Any:
    """A provider of one signal that emits to the exporter; with a resource, else with one from the environment."""
    loaded = load_signal(signal)
    exporter.add(loaded, target.sender(loaded))
    resource = resource or _resource()
    if signal == "TRACES":
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=_SystemIds())
        tracers.add_span_processor(_ExportedSpans(exporter))
        return tracers
    if signal == "LOGS":
        loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(_ExportedRecords(exporter))
        return loggers
    reader = _CollectedMetrics(exporter)
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    every_ms = positive(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", ""), _METRICS_EVERY_MS)
    exporter.collect_with(reader.collect, every_ms / 1000)
    return meters


class _Exported:
    """What the processors of both signals do at a flush and at the end."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def shutdown(self) -> None:
        self._exporter.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.flush()


class _ExportedSpans(_Exported, SpanProcessor):
    def on_end(self, span: Any) -> None:
        if span.context.trace_flags.sampled:
            self._exporter.put("TRACES", span, _size_of(span.attributes))


class _ExportedRecords(_Exported, LogRecordProcessor):
    def on_emit(self, log_record: Any) -> None:
        record = log_record.log_record
        record.context = None  # ids and flags are written down; the context would be kept
        readable = ReadableLogRecord(
            log_record=record, resource=log_record.resource, instrumentation_scope=log_record.instrumentation_scope,
            limits=log_record.limits,
        )  # fmt: skip
        self._exporter.put("LOGS", readable, _size_of(record.attributes))


class _CollectedMetrics(MetricReader):
    """Cumulative; the exporter's thread collects, where the SDK's reader has a thread of its own."""

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._exporter = exporter

    def _receive_metrics(self, metrics_data: Any, timeout_millis: float = 10_000, **_: Any) -> None:
        self._exporter.keep_newest(metrics_data)

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        self._exporter.close()

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.flush()


class _SystemIds(IdGenerator):
    """Ids from the system: the SDK's generator moves the host's `random`, and a host that seeds it would repeat ids."""

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(os.urandom(16)) or 1


def _size_of(attributes: Any) -> int:
    """About how many bytes an item keeps alive."""
    several = (value if type(value) is tuple else (value,) for value in attributes.values())
    return 1_024 + sum(getsizeof(value) for values in several for value in values)


def _resource() -> Resource:
    resource = Resource({"host.name": socket.gethostname(), "service.instance.id": _instance_id()})
    try:
        return resource.merge(Resource.create())
    except RuntimeError:
        # At the process's exit the SDK's detectors cannot start threads: the variables alone.
        return resource.merge(Resource({"service.name": "unknown_service"})).merge(OTELResourceDetector().detect())


@cache
def _instance_id() -> str:
    """One id for each process, a forked child included."""
    return str(uuid.uuid4())


reset_in_child(_instance_id.cache_clear)
