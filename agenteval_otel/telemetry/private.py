"""Private providers: what exports over OTLP where the application has no provider of its own.

The only file that meets the SDK and the exporters; it imports them when a handler is set up that will need them. The
providers register no exit handlers, because the SDK's may take 30 s; their exporters stay silent in forked children.
"""

from __future__ import annotations

import importlib
import os
import random
import socket
import uuid
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from agenteval_otel.masking import split_address
from agenteval_otel.telemetry.log import log
from agenteval_otel.telemetry.quiet import Quiet

__all__ = ["OtlpTarget", "is_endpoint", "private_provider"]

_QUEUE_SIZE = 8_192


class OtlpTarget:
    """Where OTLP goes: endpoint, protocol and headers, from arguments or the standard environment variables."""

    def __init__(
        self, endpoint: str | None = None, protocol: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._endpoint, self._protocol, self._headers = endpoint, protocol, headers

    def is_configured(self, signal: str) -> bool:
        """Whether an endpoint is known for the signal (``TRACES``, ``LOGS`` or ``METRICS``)."""
        return bool(self._endpoint or _variable(signal, "ENDPOINT"))

    def protocol(self, signal: str) -> str:
        """``grpc`` or ``http/protobuf``: as configured, else by the port (4318 is HTTP's), else gRPC."""
        chosen = self._protocol or _variable(signal, "PROTOCOL")
        if chosen:
            return chosen
        return "http/protobuf" if urlsplit(self._endpoint or _variable(signal, "ENDPOINT")).port == 4318 else "grpc"

    def exporter(self, signal: str) -> Any:
        """A new exporter; imports it, which takes tens of milliseconds."""
        over_http = self.protocol(signal).startswith("http")
        address, user = split_address(self._endpoint or _variable(signal, "ENDPOINT"))
        # HTTP has a path for each signal, unless the address is the signal's own.
        if over_http and (self._endpoint or not os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")):
            address = f"{address.rstrip('/')}/v1/{signal.lower()}"
        arguments: dict[str, Any] = {"endpoint": address} if address else {}
        headers = dict(self._headers or {})
        if user is not None and not any(name.lower() == "authorization" for name in headers):
            headers["authorization"] = user
        if headers:
            arguments["headers"] = {name.lower(): value for name, value in headers.items()}  # gRPC takes no others
        return _exporter_class(signal, over_http)(**arguments)

    def secrets(self, signal: str) -> set[str]:
        """What must be in no log line: the headers' values and the endpoint's user, in every form they may come in."""
        values = [*(self._headers or {}).values(), *_variable(signal, "HEADERS").split(",")]
        values += [value.partition("=")[2] for value in values]
        _, user = split_address(self._endpoint or _variable(signal, "ENDPOINT"))
        if user is not None:
            values += [user, *b64decode(user.partition(" ")[2]).decode(errors="replace").split(":", 1)]
        values += [unquote(value) for value in values]
        return {part for value in values for part in (value.strip(), *value.split()[1:])}

    def preload(self, signal: str) -> None:
        """Import what a private provider of the signal needs: the SDK cannot be imported at the process's exit."""
        importlib.import_module(f"opentelemetry.sdk.{_SDK_ROOMS[signal]}.export")
        _exporter_class(signal, self.protocol(signal).startswith("http"))


def is_endpoint(url: str) -> bool:
    """Whether it is ``http://HOST:PORT`` or ``https://...``: without a scheme gRPC would try TLS and fail on stderr."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _variable(signal: str, what: str) -> str:
    """The environment's word for the signal, else for all signals, else nothing."""
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{what}")
    return found or ""


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
    target.preload(signal)
    quiet = Quiet(signal, target.secrets(signal))
    return quiet.around(_assembled)(signal, target, lost, quiet, resource or _own_resource())


def _assembled(signal: str, target: OtlpTarget, lost: set[str], quiet: Quiet, resource: Any) -> Any:
    exporter = _watched(target.exporter(signal), lost, signal, quiet)
    if signal == "TRACES":
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        spans = BatchSpanProcessor(exporter, max_queue_size=_QUEUE_SIZE, schedule_delay_millis=1_000)
        spans.on_end = quiet.around(spans.on_end)  # type: ignore[method-assign]
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=_own_ids())
        tracers.add_span_processor(spans)
        return tracers
    if signal == "LOGS":
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        records = BatchLogRecordProcessor(exporter, max_queue_size=_QUEUE_SIZE, schedule_delay_millis=1_000)
        records.on_emit = quiet.around(records.on_emit)  # type: ignore[method-assign]
        loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(records)
        return loggers
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource, shutdown_on_exit=False)


_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)


def _own_ids() -> Any:
    """Ids from our own generator: the SDK's moves the host's, and one that the host has seeded would repeat our ids."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class OwnIds(RandomIdGenerator):
        def generate_span_id(self) -> int:
            return _random.getrandbits(64) or 1

        def generate_trace_id(self) -> int:
            return _random.getrandbits(128) or 1

    return OwnIds()


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


def _watched(exporter: Any, lost: set[str], signal: str, quiet: Quiet) -> Any:
    """Silence the exporter in forked children (what they inherit is the parent's to send), and note what it loses."""
    pid, export = os.getpid(), quiet.around(exporter.export)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != pid:
            return None
        result = None
        try:
            result = export(*args, **kwargs)
        except Exception as error:  # the SDK would log it with its text
            log.warning("export_failed", part=signal.lower(), error_type=type(error).__name__)
        if getattr(result, "name", "") != "SUCCESS":
            lost.add(signal)
        return result

    exporter.export = watched
    return exporter
