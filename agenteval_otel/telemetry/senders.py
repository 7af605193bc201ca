"""Senders: signals as OTLP bytes, sent to a receiver over HTTP or gRPC, and what the receiver really took.

A request counts as delivered after a 2xx (gRPC: OK) whose reply is empty or a readable OTLP reply. A redirect is not
followed, because it would carry our keys elsewhere; a login page and garbage are no replies. Of a reply no more is read
than it needs, and nothing of it comes into a log line: it may quote our key. Importing an encoder takes tens of
milliseconds, so each signal is loaded when a provider of ours needs it.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from pydantic.alias_generators import to_camel

from agenteval_otel.http_client.replies import retry_after_of

SIGNALS = ("TRACES", "LOGS", "METRICS")
MAX_REPLY_BYTES = 64 * 1024
MAX_WAIT_S = 60.0
_RETRYABLE_HTTP = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC = frozenset({
    "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS",
})  # fmt: skip
_RECONNECTING = (("grpc.min_reconnect_backoff_ms", 10_000), ("grpc.max_reconnect_backoff_ms", 10_000))
"""How long a connection is tried, and how long until the next try: by itself gRPC waits up to two minutes."""


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
    """

    name: str
    encode: Callable[[Any], Any]
    request: Any
    response: Any
    method: str
    kind: str
    records: str
    rejected: str

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
    return Signal(
        name, getattr(import_module(f"opentelemetry.exporter.otlp.proto.common.{module}"), function),
        getattr(messages, f"Export{service}ServiceRequest"), getattr(messages, f"Export{service}ServiceResponse"),
        f"/{collector}.{service}Service/Export", kind, records, rejected,
    )  # fmt: skip


class Delivery(NamedTuple):
    """What became of a request.

    Attributes:
        delivered: The receiver has it, but for what it rejected.
        status: For the log: an HTTP status, a gRPC code, an exception's class. Never text of the receiver's.
        rejected: Items that the receiver refused for good although it took the request.
        retryable: The same bytes may be sent again.
        too_large: The receiver may take halves.
        wait_s: The receiver asks not to be asked for so many seconds.
    """

    delivered: bool
    status: str
    rejected: int = 0
    retryable: bool = False
    too_large: bool = False
    wait_s: float | None = None


class Sender(Protocol):
    """Sends a request; blocks until the reply or the timeout."""

    def send(self, body: bytes) -> Delivery:
        """Send an encoded request."""

    def close(self) -> None:
        """Close the connections."""


class HttpSender:
    """OTLP over HTTP. The timeout is for the connection, for each read and for the reply as a whole."""

    def __init__(
        self, signal: Signal, url: str, headers: Mapping[str, str], timeout_s: float, compression: str,
        verify: bool | str = True, cert: Any = None,
    ) -> None:  # fmt: skip
        import requests

        self._signal, self._url, self._timeout_s, self._session = signal, url, timeout_s, requests.Session()
        self._wbits = {"gzip": 31, "deflate": 15}.get(compression)
        # Identity: no reply that unpacks into more than it is.
        self._headers = {"content-type": "application/x-protobuf", "accept-encoding": "identity", **headers}
        if self._wbits:
            self._headers["content-encoding"] = compression
        self._options = {"verify": verify, "cert": cert, "allow_redirects": False, "stream": True}

    def send(self, body: bytes) -> Delivery:
        """Send an encoded request. A connection that the receiver has closed meanwhile is opened again, once."""
        import requests

        if self._wbits:
            packer = zlib.compressobj(wbits=self._wbits)
            body = packer.compress(body) + packer.flush()
        try:
            try:
                return self._send_once(body)
            except requests.ConnectionError as error:
                if isinstance(error, requests.Timeout):
                    raise
                return self._send_once(body)
        except (requests.ConnectionError, requests.Timeout) as error:
            return Delivery(False, type(error).__name__, retryable=True)
        except requests.RequestException as error:
            return Delivery(False, type(error).__name__)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _send_once(self, body: bytes) -> Delivery:
        deadline = time.monotonic() + self._timeout_s
        with self._session.post(
            self._url, data=body, headers=self._headers, timeout=self._timeout_s, **self._options
        ) as response:
            status = response.status_code
            if 200 <= status < 300:
                return _delivery(self._signal, str(status), _read(response, deadline), response.headers)
            wait_s = retry_after_of(response.headers) if status in _RETRYABLE_HTTP else None
            return Delivery(
                False, str(status), retryable=status in _RETRYABLE_HTTP, too_large=status == 413,
                wait_s=None if wait_s is None else min(wait_s, MAX_WAIT_S),
            )  # fmt: skip


class GrpcSender:
    """OTLP over gRPC; without credentials without TLS. Names of headers are in lower case."""

    def __init__(
        self, signal: Signal, address: str, headers: Mapping[str, str], timeout_s: float, compression: str,
        credentials: Any,
    ) -> None:  # fmt: skip
        import grpc

        options = {
            "options": _RECONNECTING,
            "compression": grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
        }
        if credentials is None:
            self._channel = grpc.insecure_channel(address, **options)
        else:
            self._channel = grpc.secure_channel(address, credentials, **options)
        self._signal, self._timeout_s, self._metadata = signal, timeout_s, tuple(headers.items())
        self._export = self._channel.unary_unary(signal.method)

    def send(self, body: bytes) -> Delivery:
        """Send an encoded request."""
        import grpc

        try:
            reply = self._export(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code().name
            too_large = code == "RESOURCE_EXHAUSTED" and "larger than max" in (error.details() or "")
            return Delivery(
                False, code, retryable=code in _RETRYABLE_GRPC and not too_large, too_large=too_large,
                wait_s=_retry_delay(error.trailing_metadata()),
            )  # fmt: skip
        return _delivery(self._signal, "OK", reply, {})

    def close(self) -> None:
        """Close the channel, which ends a request under way."""
        self._channel.close()


def _read(response: Any, deadline: float) -> bytes | None:
    """The reply's body; None where it is packed, large, slow or broken off."""
    import requests

    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    body = bytearray()
    try:
        # Byte by byte: a larger read waits for all of it, and each byte that trickles in starts the timeout again.
        for part in response.iter_content(1):
            body += part
            if len(body) > MAX_REPLY_BYTES or time.monotonic() > deadline:
                return None
    except requests.RequestException:  # the receiver may have taken the request: it is not sent again
        return None
    return bytes(body)


def _delivery(signal: Signal, status: str, reply: bytes | None, headers: Mapping[str, str]) -> Delivery:
    """What a successful reply says; one that is not OTLP's says nothing."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    rejected = None if reply is None else _rejected(signal, reply, kind)
    if rejected is None:
        return Delivery(False, f"{status}, not an OTLP reply")
    return Delivery(True, f"{status}, partial success" if rejected else status, rejected)


def _rejected(signal: Signal, reply: bytes, kind: str) -> int | None:
    """How many items a reply of this content type rejects; None where it is no OTLP reply."""
    try:
        if kind == "application/json":
            partial = json.loads(reply or b"{}").get("partialSuccess") or {}
            return int(partial.get(to_camel(signal.rejected)) or 0)
        if kind not in ("", "application/x-protobuf", "application/octet-stream") and (reply or "html" in kind):
            return None
        message = signal.response.FromString(reply)
        # Bytes without any known field are not an OTLP reply.
        if reply and not message.HasField("partial_success"):
            return None
        return int(getattr(message.partial_success, signal.rejected))
    except Exception:
        return None


def _retry_delay(metadata: Any) -> float | None:
    """gRPC's ``RetryInfo``, where the receiver sends it."""
    from google.rpc.error_details_pb2 import RetryInfo

    try:
        delay = RetryInfo.FromString(dict(metadata)["google.rpc.retryinfo-bin"]).retry_delay
        return min(max(float(delay.seconds + delay.nanos / 1e9), 0.0), MAX_WAIT_S)
    except Exception:
        return None
