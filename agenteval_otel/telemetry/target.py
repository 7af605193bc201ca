"""OtlpTarget: where OTLP goes, from arguments or the standard environment variables."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import split_address
from agenteval_otel.telemetry.senders import SIGNALS, GrpcSender, HttpSender, Sender, Signal, load_signal

_TIMEOUT_S = 10.0


@cache
def scope_version() -> str:
    """The version of this distribution; empty where it runs from a bare folder. Reads a file, once."""
    try:
        return importlib.metadata.version("agenteval-otel")
    except (ImportError, OSError):  # without the right to read it, not even the module that reads it is imported
        return ""


class OtlpTarget:
    """Where OTLP goes: endpoint, protocol and headers, from arguments or the standard environment variables."""

    def __init__(
        self, endpoint: str | None = None, protocol: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._endpoint, self._protocol, self._headers = endpoint, protocol, headers

    def is_configured(self, signal: str) -> bool:
        """Whether an endpoint is known for the signal (``TRACES``, ``LOGS`` or ``METRICS``), which is not ``none``."""
        return not is_off(signal) and bool(self._endpoint or _variable(signal, "ENDPOINT"))

    def protocol(self, signal: str) -> str:
        """``grpc`` or ``http/protobuf``: as configured, else by the port (4318 is HTTP's), else gRPC."""
        chosen = self._protocol or _variable(signal, "PROTOCOL")
        if chosen:
            return chosen
        return "http/protobuf" if urlsplit(self._endpoint or _variable(signal, "ENDPOINT")).port == 4318 else "grpc"

    def sender(self, signal: Signal) -> Sender:
        """A new sender for the signal."""
        name = signal.name
        address, user = split_address(self._endpoint or _variable(name, "ENDPOINT"))
        headers = _parsed_headers(name, _variable(name, "HEADERS"))
        headers |= {key.lower(): value for key, value in (self._headers or {}).items()}  # gRPC takes no others
        if user is not None:
            headers.setdefault("authorization", user)
        timeout_s = positive(_variable(name, "TIMEOUT"), _TIMEOUT_S)
        compression = _variable(name, "COMPRESSION").strip().lower()
        if not self.protocol(name).startswith("http"):
            headers.pop("user-agent", None)  # gRPC's own
            credentials = _channel_credentials(name, address)
            return GrpcSender(signal, urlsplit(address).netloc or address, headers, timeout_s, compression, credentials)
        # HTTP has a path for each signal, unless the address is the signal's own.
        if self._endpoint or not os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT"):
            address = f"{address.rstrip('/')}/v1/{name.lower()}"
        headers = {"user-agent": f"agenteval-otel/{scope_version()}", **headers}
        key, certificate = _variable(name, "CLIENT_KEY"), _variable(name, "CLIENT_CERTIFICATE")
        return HttpSender(
            signal, address, headers, timeout_s, compression, _variable(name, "CERTIFICATE") or True,
            (certificate, key) if certificate and key else certificate or None,
        )  # fmt: skip

    def preload(self, signal: str) -> None:
        """Import what a sender of the signal needs: nothing of it can be imported at the process's exit."""
        load_signal(signal)
        if self.protocol(signal).startswith("http"):
            import requests  # noqa: F401
        else:
            import grpc  # noqa: F401


def is_endpoint(url: str) -> bool:
    """Whether it is ``http://HOST:PORT`` or ``https://...``: without a scheme gRPC would try TLS and fail."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def sdk_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``OTEL_SDK_DISABLED=true`` switches every signal off."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def is_off(signal: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``OTEL_<SIGNAL>_EXPORTER=none`` switches the signal's exporter off."""
    return environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none"


def telemetry_switched_off(environ: Mapping[str, str]) -> bool:
    """Whether the environment switches every signal off.

    A process without provider and endpoint is not switched off: it may evaluate for its accounting or its own storage.
    """
    return sdk_disabled(environ) or all(is_off(signal, environ) for signal in SIGNALS)


def positive(text: str, default: float) -> float:
    """The positive number that a variable holds, else the default."""
    try:
        return float(text) if float(text) > 0 else default
    except ValueError:
        return default


def _variable(signal: str, name: str) -> str:
    """The environment's value for the signal, else for all signals, else nothing."""
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _parsed_headers(signal: str, text: str) -> dict[str, str]:
    """The headers of a variable: URL-encoded ``name=value``, with commas between; others are not shown in the log."""
    headers: dict[str, str] = {}
    for entry in filter(str.strip, text.split(",")):
        name, separator, value = entry.partition("=")
        name = unquote(name).strip().lower()
        if separator and name.isascii() and name.replace("-", "").replace("_", "").isalnum():
            headers[name] = unquote(value).strip()
        else:
            log.warning("wrong_telemetry", part=signal.lower(), fix="OTEL_EXPORTER_OTLP_HEADERS: name=value,name=value")
    return headers


def _channel_credentials(signal: str, address: str) -> Any:
    """Credentials of a gRPC channel; None for one without TLS."""
    scheme, insecure = urlsplit(address).scheme, _variable(signal, "INSECURE").strip().lower()
    if scheme != "https" and (insecure == "true" if insecure else scheme == "http"):
        return None
    import grpc

    paths = (_variable(signal, name) for name in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"))
    return grpc.ssl_channel_credentials(*(Path(path).read_bytes() if path else None for path in paths))
