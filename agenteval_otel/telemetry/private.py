"""Private providers: what exports over OTLP where the application has no provider of its own.

The only file that meets the SDK and the exporters; it imports them when a handler is set up that will need them. The
providers register no exit handlers, because the SDK's may take 30 s; their exporters stay silent in forked children.
"""

from __future__ import annotations

import importlib
import os
import socket
import uuid
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from sys import getsizeof
from typing import Any
from urllib.parse import unquote, urlsplit

from agenteval_otel.masking import split_address
from agenteval_otel.runtime.randomness import RANDOM
from agenteval_otel.telemetry.batches import Batches, Verdict
from agenteval_otel.telemetry.log import log
from agenteval_otel.telemetry.quiet import Quiet
from agenteval_otel.telemetry.replies import bounded_session

__all__ = ["OtlpTarget", "is_endpoint", "private_provider"]

_CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP"


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

    def session(self, signal: str) -> Any:
        """The HTTP session for an exporter; None for gRPC, and where the user's credentials bring a session."""
        if not self.protocol(signal).startswith("http"):
            return None
        for variable in (f"{_CREDENTIALS}_CREDENTIAL_PROVIDER", f"{_CREDENTIALS}_{signal}_CREDENTIAL_PROVIDER"):
            if os.environ.get(variable):
                return None
        return bounded_session()

    def exporter(self, signal: str, session: Any = None) -> Any:
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
        if session is not None:
            arguments["session"] = session
        if not over_http:
            arguments["channel_options"] = _RECONNECTING
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


_RECONNECTING = (("grpc.min_reconnect_backoff_ms", 10_000), ("grpc.max_reconnect_backoff_ms", 10_000))
"""How long a connection is tried, and how long until the next try: by itself gRPC waits up to two minutes after an
outage of minutes, and what comes meanwhile is lost."""
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


def private_provider(signal: str, target: OtlpTarget, on_lost: Callable[[str, int], None], resource: Any = None) -> Any:
    """A provider of one signal that exports over OTLP; with the given resource, else with one from the environment.

    `on_lost` is told the signal, and how many of its items will never be sent, whenever that is known, on any thread.
    """
    target.preload(signal)
    quiet = Quiet(signal, target.secrets(signal))
    return quiet.around(_assembled)(signal, target, on_lost, quiet, resource or _own_resource())


def _assembled(
    signal: str, target: OtlpTarget, on_lost: Callable[[str, int], None], quiet: Quiet, resource: Any
) -> Any:
    session = target.session(signal)
    exporter = _watched(target.exporter(signal, session), lambda count: on_lost(signal, count), signal, quiet)
    if signal == "METRICS":
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        return MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource, shutdown_on_exit=False)

    def export(items: Sequence[Any]) -> Verdict:
        if session is not None:
            session.status = session.wait_s = None  # what cannot be encoded never comes to the session
        sent = getattr(exporter.export(items), "name", "") == "SUCCESS"
        if sent or session is None:
            return Verdict(sent)
        return Verdict(sent, session.status == 413, session.wait_s)

    batches = Batches(signal, export, lambda count: on_lost(signal, count))
    if signal == "TRACES":
        from opentelemetry.sdk.trace import TracerProvider

        tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=_own_ids())
        tracers.add_span_processor(_span_processor(batches, exporter))
        return tracers
    from opentelemetry.sdk._logs import LoggerProvider

    loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
    loggers.add_log_record_processor(_log_processor(batches, exporter))
    return loggers


class _Batched:
    """What the processors of both signals do at a flush and at the end."""

    def __init__(self, batches: Batches, exporter: Any) -> None:
        self._batches, self._exporter = batches, exporter

    def shutdown(self) -> None:
        self._batches.close()
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.flush()


def _span_processor(batches: Batches, exporter: Any) -> Any:
    from opentelemetry.sdk.trace import SpanProcessor

    class BatchedSpans(_Batched, SpanProcessor):
        def on_end(self, span: Any) -> None:
            if span.context.trace_flags.sampled:
                batches.put(span, _size_of(span.attributes))

    return BatchedSpans(batches, exporter)


def _log_processor(batches: Batches, exporter: Any) -> Any:
    from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord

    class BatchedRecords(_Batched, LogRecordProcessor):
        def on_emit(self, log_record: Any) -> None:
            record = log_record.log_record
            record.context = None  # ids and flags are written down; the context would be kept
            batches.put(
                ReadableLogRecord(
                    log_record=record, resource=log_record.resource,
                    instrumentation_scope=log_record.instrumentation_scope, limits=log_record.limits,
                ),
                _size_of(record.attributes),
            )  # fmt: skip

    return BatchedRecords(batches, exporter)


def _size_of(attributes: Any) -> int:
    """About how many bytes an item keeps alive."""
    several = (value if type(value) is tuple else (value,) for value in attributes.values())
    return 1_024 + sum(getsizeof(value) for values in several for value in values)


def _with_own_jitter(client: Any) -> None:
    """Have the HTTP exporter's pauses drawn from our own generator: with each export it draws from the host's."""
    if hasattr(client, "_compute_backoff"):
        client._compute_backoff = lambda retry: 2**retry * RANDOM.uniform(0.8, 1.2)


def _own_ids() -> Any:
    """Ids from our own generator: the SDK's moves the host's, and one that the host has seeded would repeat our ids."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class OwnIds(RandomIdGenerator):
        def generate_span_id(self) -> int:
            return RANDOM.getrandbits(64) or 1

        def generate_trace_id(self) -> int:
            return RANDOM.getrandbits(128) or 1

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


def _watched(exporter: Any, on_lost: Callable[[int], None], signal: str, quiet: Quiet) -> Any:
    """Silence the exporter in forked children (what they inherit is the parent's to send), and note what it loses."""
    _with_own_jitter(getattr(exporter, "_client", None))
    pid, export = os.getpid(), quiet.around(exporter.export)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != pid:
            return None
        result = None
        try:
            result = export(*args, **kwargs)
        except Exception as error:  # the SDK would log it with its text
            log.warning("export_failed", part=signal.lower(), error_type=type(error).__name__)
        if signal == "METRICS" and getattr(result, "name", "") != "SUCCESS":
            on_lost(1)  # of the other signals `Batches` knows what is lost for good
        return result

    exporter.export = watched
    return exporter
