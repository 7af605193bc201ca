"""OTLP: where it goes, how it is sent, and what was really taken.

Where it goes is from arguments or the standard environment variables.

A request counts as delivered after a 2xx (gRPC: OK) whose reply is empty or a readable OTLP reply:
a login page is not a reply, and a redirect is not followed, because it would carry our keys
elsewhere. Nothing of a reply comes into a log line: it may quote our key. Encoders and clients are
imported when our own providers need them.
"""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, get_args
from urllib.parse import unquote, urlsplit

from agenteval_otel.components.http_client.replies import retry_after_of
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import split_address
from agenteval_otel.runtime.version import scope_version

if TYPE_CHECKING:
    import grpc
    import requests

SIGNALS = ("TRACES", "LOGS", "METRICS")
MAX_REPLY_BYTES = 64 * 1024
MAX_WAIT_S = 60.0
_TIMEOUT_S = 10.0
_RETRYABLE_HTTP = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC = frozenset(
    {
        "CANCELLED",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNAVAILABLE",
        "DATA_LOSS",
    }
)
_UNANSWERED = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ConnectionError", "ConnectTimeout", "ReadTimeout"}
)
# How long a connection is tried, and how long until the next try: by itself gRPC waits up to two
# minutes.
_RECONNECTING = (
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)
_DIRECT = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


Temporality = Literal["cumulative", "delta", "lowmemory"]
_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_TEMPORALITIES: Final[dict[str, Temporality]] = {word: word for word in get_args(Temporality)}
_EXEMPLARS: Final = "OTEL_METRICS_EXEMPLAR_FILTER"
_EXEMPLAR_FILTERS: Final = ("always_on", "always_off", "trace_based")
_PACKINGS: Final[dict[str, Callable[..., bytes]]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}
_OF_OTHER_EXPORTERS: Final = (
    "OTEL_CONFIG_FILE",
    "OTEL_EXPERIMENTAL_CONFIG_FILE",
    "OTEL_METRIC_EXPORT_TIMEOUT",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BLRP_SCHEDULE_DELAY",
    "OTEL_BLRP_EXPORT_TIMEOUT",
    "OTEL_BLRP_MAX_QUEUE_SIZE",
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
)
"""Variables of the SDK's batch processors, which ours replaces, and of files that ours does not read."""


class OtlpTarget:
    """Tells where OTLP goes: endpoint, protocol and headers.

    They are from arguments or the standard environment variables.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        protocol: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._headers = headers

    def is_configured(self, signal: str) -> bool:
        """Tell whether an endpoint is known for the signal, and its exporter is not ``none``.

        The signal is ``TRACES``, ``LOGS`` or ``METRICS``.
        """
        return not is_off(signal) and bool(self._address(signal))

    def protocol(self, signal: str) -> str:
        """Return ``grpc`` or ``http/protobuf``.

        It is the configured one, else by the port (4318 is HTTP's), else gRPC.
        """
        chosen = self._protocol or _variable(signal, "PROTOCOL").strip().lower()
        if chosen:
            return chosen
        return "http/protobuf" if urlsplit(self._address(signal)).port == 4318 else "grpc"

    def sender(self, signal: Signal) -> RequestSender:
        """Return what sends requests of the signal to its endpoint. Opens no connection."""
        name = signal.name
        address, user = split_address(self._address(name))
        headers = _parsed_headers(name, _variable(name, "HEADERS"))
        # in lower case: gRPC takes no other names
        headers |= {key.lower(): value for key, value in (self._headers or {}).items()}
        if user is not None:
            headers.setdefault("authorization", user)
        timeout_s = positive(_variable(name, "TIMEOUT"), _TIMEOUT_S)
        compression = _variable(name, "COMPRESSION").strip().lower()
        if not self.protocol(name).startswith("http"):
            headers.pop("user-agent", None)  # gRPC's own
            credentials = _channel_credentials(name, address)
            return GrpcSender(
                signal,
                urlsplit(address).netloc or address,
                headers,
                timeout_s=timeout_s,
                compression=compression,
                credentials=credentials,
            )
        # HTTP has a path for each signal, unless the address is the signal's own.
        if self._endpoint or not os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT"):
            address = f"{address.rstrip('/')}/v1/{name.lower()}"
        headers = {"user-agent": f"agenteval-otel/{scope_version()}", **headers}
        key = _variable(name, "CLIENT_KEY")
        certificate = _variable(name, "CLIENT_CERTIFICATE")
        client_certificate: str | tuple[str, str] | None = certificate or None
        if certificate and key:
            client_certificate = (certificate, key)
        return HttpSender(
            signal,
            address,
            headers,
            timeout_s=timeout_s,
            compression=compression,
            verify=_variable(name, "CERTIFICATE") or True,
            cert=client_certificate,
        )

    def preload(self, signal: str) -> None:
        """Import what a sender of the signal needs.

        Nothing of it can be imported at the process's exit.
        """
        Signal(signal)
        import_module("requests" if self.protocol(signal).startswith("http") else "grpc")

    def _address(self, signal: str) -> str:
        return self._endpoint or _variable(signal, "ENDPOINT")


def direct_sender(
    signal: Signal, endpoint: str, *, is_http: bool, token: str | None, ca: str | None
) -> RequestSender:
    """Return a sender to this address alone. No variable, proxy or netrc of the process affects it.

    Args:
        token: Sent as ``Authorization: Bearer TOKEN``.
        ca: File with the authorities that sign the receiver's certificate, PEM. By default those
            that are known.
    """
    address, user = split_address(endpoint)
    authorization = user if token is None else f"Bearer {token}"
    headers = {} if authorization is None else {"authorization": authorization}
    if is_http:
        url = f"{address.rstrip('/').removesuffix('/v1/logs')}/v1/logs"
        return HttpSender(
            signal,
            url,
            headers,
            timeout_s=_TIMEOUT_S,
            compression="",
            verify=ca or True,
            direct=True,
        )
    import grpc

    parts = urlsplit(address)
    credentials = None
    if parts.scheme == "https":
        authorities = Path(ca).read_bytes() if ca else None
        credentials = grpc.ssl_channel_credentials(authorities)
    return GrpcSender(
        signal,
        parts.netloc,
        headers,
        timeout_s=_TIMEOUT_S,
        compression="",
        credentials=credentials,
        options=_DIRECT,
    )


def is_endpoint(url: str) -> bool:
    """Tell whether it is ``http://HOST:PORT`` or ``https://...``.

    Without a scheme gRPC would try TLS and fail.
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def sdk_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def is_off(signal: str, environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none"


def telemetry_switched_off(environ: Mapping[str, str]) -> bool:
    """Tell whether the environment switches every signal off.

    A process without an endpoint is not switched off.
    """
    return sdk_disabled(environ) or all(is_off(signal, environ) for signal in SIGNALS)


def metrics_temporality(environ: Mapping[str, str] = os.environ) -> Temporality:
    """Return what our own metrics say in each export.

    ``cumulative`` is the sums since the start, ``delta`` is what was added since the export before,
    and ``lowmemory`` is the same as ``delta`` where that needs no memory.
    """
    preference = environ.get(_TEMPORALITY, "").strip().lower()
    return _TEMPORALITIES.get(preference, "cumulative")


def exemplar_filter(environ: Mapping[str, str] = os.environ) -> str:
    """Return which measurements may be exemplars.

    It is one of `_EXEMPLAR_FILTERS`: ``trace_based`` by default and for any other word.
    """
    word = environ.get(_EXEMPLARS, "").strip().lower()
    return word if word in _EXEMPLAR_FILTERS else "trace_based"


def not_obeyed(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names and values of variables that our own exporter does not obey.

    They are variables of OpenTelemetry's exporters that are set.
    """
    known = {
        _TEMPORALITY: tuple(_TEMPORALITIES),
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": ("explicit_bucket_histogram",),
        _EXEMPLARS: _EXEMPLAR_FILTERS,
        **{f"OTEL_{signal}_EXPORTER": ("otlp", "none") for signal in SIGNALS},
        **dict.fromkeys(_names_of("PROTOCOL"), ("grpc", "http/protobuf")),
        **dict.fromkeys(_names_of("COMPRESSION"), (*_PACKINGS, "none")),
        **dict.fromkeys(_OF_OTHER_EXPORTERS, ()),
    }
    ignored: list[str] = []
    for name, values in known.items():
        value = environ.get(name, "").strip()
        if value and value.lower() not in values:
            ignored.append(f"{name}={value[:40]}")
    return ignored


def _names_of(part: str) -> list[str]:
    return [f"OTEL_EXPORTER_OTLP_{part}", *(f"OTEL_EXPORTER_OTLP_{s}_{part}" for s in SIGNALS)]


def positive(text: str, default: float) -> float:
    """Return the number that a text holds if it is above 0, else the default."""
    try:
        number = float(text)
    except ValueError:
        return default
    return number if number > 0 else default


def _variable(signal: str, name: str) -> str:
    return (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}")
        or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")
        or ""
    )


def _parsed_headers(signal: str, text: str) -> dict[str, str]:
    """Return the headers of a variable: URL-encoded ``name=value``, separated by commas.

    Other entries are left out, and not shown in the log.
    """
    headers: dict[str, str] = {}
    for entry in filter(str.strip, text.split(",")):
        name, separator, value = entry.partition("=")
        name = unquote(name).strip().lower()
        if separator and name.isascii() and name.replace("-", "").replace("_", "").isalnum():
            headers[name] = unquote(value).strip()
        else:
            log.warning(
                "wrong_telemetry",
                part=signal.lower(),
                fix="OTEL_EXPORTER_OTLP_HEADERS: name=value,name=value",
            )
    return headers


def _channel_credentials(signal: str, address: str) -> Any:
    scheme = urlsplit(address).scheme
    insecure = _variable(signal, "INSECURE").strip().lower()
    is_plain = scheme == "http"
    if insecure:
        is_plain = insecure == "true"
    if is_plain and scheme != "https":
        return None
    import grpc

    return grpc.ssl_channel_credentials(
        root_certificates=_file_of(signal, "CERTIFICATE"),
        private_key=_file_of(signal, "CLIENT_KEY"),
        certificate_chain=_file_of(signal, "CLIENT_CERTIFICATE"),
    )


def _file_of(signal: str, name: str) -> bytes | None:
    """Return the content of the file that a variable names. None if it names none."""
    path = _variable(signal, name)
    return Path(path).read_bytes() if path else None


class _OtlpNames(NamedTuple):
    """What a signal is called in the messages of OTLP.

    Attributes:
        package: The collector's package.
        kind: As in ``resource_<kind>`` and ``scope_<kind>``.
        records: The field of a scope's items.
        rejected: The field of the number of rejected items.
    """

    package: str
    kind: str
    records: str
    rejected: str


_PARTS: Final = {
    "TRACES": _OtlpNames("trace", "spans", "spans", "rejected_spans"),
    "LOGS": _OtlpNames("logs", "logs", "log_records", "rejected_log_records"),
    "METRICS": _OtlpNames("metrics", "metrics", "metrics", "rejected_data_points"),
}


class Signal:
    """Holds one signal's part of OTLP: its messages and gRPC method. Creating one imports them.

    Attributes:
        encode: Makes a request of what waits. Set by those who know what that is.
    """

    encode: Callable[[Any], Any]

    def __init__(self, name: str) -> None:
        names = _PARTS[name]
        package = names.package
        self.kind = names.kind
        self._records = names.records
        self.rejected = names.rejected
        collector = f"opentelemetry.proto.collector.{package}.v1"
        service = package.capitalize()
        messages = import_module(f"{collector}.{package}_service_pb2")
        self.request = getattr(messages, f"Export{service}ServiceRequest")
        self.response = getattr(messages, f"Export{service}ServiceResponse")
        self.parse_json = import_module("google.protobuf.json_format").Parse
        self.name = name
        self.method = f"/{collector}.{service}Service/Export"
        self.owner_of: Callable[[Any], str] | None = None

    def count(self, request: object) -> int:
        """Return how many items a request has."""
        return sum(map(len, self._records_of(request)))

    def records(self, request: object) -> Any:
        """Return the records of a request with one resource and one scope."""
        (records,) = self._records_of(request)
        return records

    def halves(self, data: bytes, count: int) -> list[tuple[bytes, int]]:
        """Return two requests with half of the items each, and the number of items in each."""
        halves = []
        middle = count // 2
        for first, end in ((0, middle), (middle, count)):
            request = self.request.FromString(data)
            before = 0
            for records in self._records_of(request):
                length = len(records)
                # Keep the items from `first` to `end`, counted over all lists of the request.
                del records[max(0, end - before) :]
                del records[: max(0, first - before)]
                before += length
            halves.append((request.SerializeToString(), end - first))
        return halves

    def _records_of(self, request: object) -> list[Any]:
        records: list[Any] = []
        for resource in getattr(request, f"resource_{self.kind}"):
            scopes = getattr(resource, f"scope_{self.kind}")
            records += [getattr(scope, self._records) for scope in scopes]
        return records


class SendOutcome(NamedTuple):
    """What became of a request."""

    delivered: bool
    # for the log: an HTTP status, a gRPC code, an exception's class; never text of the receiver's
    status: str
    rejected: int = 0  # items that the receiver refused for good although it took the request
    retryable: bool = False  # the same bytes may be sent again
    too_large: bool = False  # the receiver may take halves
    wait_s: float | None = None  # the delay that the receiver requested

    def fix(self) -> dict[str, str]:
        """Return what to look at, for a log line, if nothing has answered. Empty otherwise."""
        if self.status not in _UNANSWERED:
            return {}
        return {
            "fix": "does a Collector listen at the endpoint? 4317 is the port of gRPC, 4318 of http/protobuf"
        }


class RequestSender(Protocol):
    """Sends an encoded request. Blocks until the reply or the timeout."""

    def send(self, body: bytes) -> SendOutcome: ...
    def close(self) -> None: ...


class HttpSender:
    """Sends OTLP over HTTP.

    The timeout is for the connection, for each read and for the reply as a whole.
    """

    def __init__(
        self,
        signal: Signal,
        url: str,
        headers: Mapping[str, str],
        timeout_s: float,
        compression: str,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        *,
        direct: bool = False,
    ) -> None:
        import requests

        self._signal = signal
        self._url = url
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = not direct
        self._pack = _PACKINGS.get(compression)
        packing = {} if self._pack is None else {"content-encoding": compression}
        self._options: dict[str, Any] = {
            # Identity: no reply that unpacks into more than it is.
            "headers": {
                "content-type": "application/x-protobuf",
                "accept-encoding": "identity",
                **packing,
                **headers,
            },
            "timeout": timeout_s,
            "verify": verify,
            "cert": cert,
            "allow_redirects": False,
            "stream": True,
        }
        self.close = self._session.close

    def send(self, body: bytes) -> SendOutcome:
        import requests

        deadline = time.monotonic() + self._timeout_s
        data = body if self._pack is None else self._pack(body, 6)
        try:
            with self._session.post(self._url, data=data, **self._options) as response:
                status = response.status_code
                if 200 <= status < 300:
                    return _delivery(
                        self._signal, str(status), _read(response, deadline), response.headers
                    )
                retryable = status in _RETRYABLE_HTTP
                wait_s = retry_after_of(response.headers) if retryable else None
                return SendOutcome(
                    False,
                    str(status),
                    retryable=retryable,
                    too_large=status == 413,
                    wait_s=None if wait_s is None else min(wait_s, MAX_WAIT_S),
                )
        except requests.RequestException as error:
            is_away = isinstance(error, requests.ConnectionError | requests.Timeout)
            return SendOutcome(False, type(error).__name__, retryable=is_away)


class GrpcSender:
    """Sends OTLP over gRPC, without TLS if there are no credentials.

    Names of headers are in lower case.
    """

    def __init__(
        self,
        signal: Signal,
        address: str,
        headers: Mapping[str, str],
        timeout_s: float,
        compression: str,
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, int]] = _RECONNECTING,
    ) -> None:
        import grpc

        packings = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
        packed = packings.get(compression, grpc.Compression.NoCompression)
        if credentials is None:
            channel = grpc.insecure_channel(address, options, packed)
        else:
            channel = grpc.secure_channel(address, credentials, options, packed)
        self._signal = signal
        self._timeout_s = timeout_s
        self._metadata = tuple(headers.items())
        self._export = channel.unary_unary(signal.method)
        self.close = channel.close  # ends a request under way

    def send(self, body: bytes) -> SendOutcome:
        import grpc

        try:
            reply = self._export(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code().name
            details = error.details() or ""
            too_large = code == "RESOURCE_EXHAUSTED" and "larger than max" in details
            return SendOutcome(
                False,
                code,
                retryable=code in _RETRYABLE_GRPC and not too_large,
                too_large=too_large,
                wait_s=_retry_delay(error.trailing_metadata()),
            )
        return _delivery(self._signal, "OK", reply, {})


def _read(response: requests.Response, deadline: float) -> bytes | None:
    """Return the reply's body. None if it is packed, large, slow or broken off."""
    import requests

    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    body = bytearray()
    try:
        # Byte by byte: a larger read waits for all of it, and each byte that trickles in starts the
        # timeout again.
        for part in response.iter_content(1):
            body += part
            if len(body) > MAX_REPLY_BYTES or time.monotonic() > deadline:
                return None
    except requests.RequestException:
        # The receiver may have taken the request: it is not sent again.
        return None
    return bytes(body)


def _delivery(
    signal: Signal, status: str, reply: bytes | None, headers: Mapping[str, str]
) -> SendOutcome:
    """Return what a successful reply says. A reply that is not OTLP's counts as not delivered."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    rejected = _rejected(signal, reply, kind)
    if rejected is None:
        return SendOutcome(False, f"{status}, not an OTLP reply")
    return SendOutcome(True, f"{status}, partial success" if rejected else status, rejected)


def _rejected(signal: Signal, reply: bytes | None, kind: str) -> int | None:
    """Return how many items a reply of this content type rejects. None if it is no OTLP reply."""
    if reply is None:
        return None
    is_json = kind == "application/json"
    is_protobuf = kind in ("", "application/x-protobuf", "application/octet-stream")
    is_of_another_type = not is_json and not is_protobuf
    if is_of_another_type and (reply or "html" in kind):  # an empty reply may have any other type
        return None
    try:
        if is_json:
            message = signal.parse_json(
                reply or b"{}", signal.response(), ignore_unknown_fields=True
            )
        else:
            message = signal.response.FromString(reply)
            # Bytes without any known field are not an OTLP reply.
            if reply and not message.HasField("partial_success"):
                return None
    except Exception:
        return None
    return int(getattr(message.partial_success, signal.rejected))


def _retry_delay(metadata: Any) -> float | None:
    """Return the delay of gRPC's ``RetryInfo`` in seconds, 0 to 60. None if none was sent."""
    from google.rpc.error_details_pb2 import RetryInfo

    try:
        info = RetryInfo.FromString(dict(metadata)["google.rpc.retryinfo-bin"])
        delay_s = float(info.retry_delay.ToTimedelta().total_seconds())
        return min(max(delay_s, 0.0), MAX_WAIT_S)
    except Exception:
        return None
