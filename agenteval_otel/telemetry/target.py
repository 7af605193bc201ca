"""OtlpTarget: where OTLP goes, from arguments or the standard environment variables."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from opentelemetry.util.re import parse_env_headers

from agenteval_otel.runtime.masking import split_address
from agenteval_otel.telemetry.events import scope_version
from agenteval_otel.telemetry.senders import GrpcSender, HttpSender, Sender
from agenteval_otel.telemetry.signals import SIGNALS, Signal, load_signal

_TIMEOUT_S = 10.0


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
        headers = {"user-agent": f"agenteval-otel/{scope_version()}"}
        headers |= parse_env_headers(_variable(name, "HEADERS"), liberal=True)
        headers |= {key.lower(): value for key, value in (self._headers or {}).items()}  # gRPC takes no others
        if user is not None:
            headers.setdefault("authorization", user)
        timeout_s = positive(_variable(name, "TIMEOUT"), _TIMEOUT_S)
        compression = _variable(name, "COMPRESSION").strip().lower()
        if not self.protocol(name).startswith("http"):
            del headers["user-agent"]  # gRPC's own
            credentials = _channel_credentials(name, address)
            return GrpcSender(signal, urlsplit(address).netloc or address, headers, timeout_s, compression, credentials)
        # HTTP has a path for each signal, unless the address is the signal's own.
        if self._endpoint or not os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT"):
            address = f"{address.rstrip('/')}/v1/{name.lower()}"
        key, certificate = _variable(name, "CLIENT_KEY"), _variable(name, "CLIENT_CERTIFICATE")
        return HttpSender(
            signal, address, headers, timeout_s, compression, _session(name),
            _variable(name, "CERTIFICATE") or True, (certificate, key) if certificate and key else certificate or None,
        )  # fmt: skip

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


def _variable(signal: str, what: str) -> str:
    """The environment's value for the signal, else for all signals, else nothing."""
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{what}") or ""


def positive(text: str, default: float) -> float:
    """The positive number that a variable holds, else the default."""
    try:
        return float(text) if float(text) > 0 else default
    except ValueError:
        return default


def _session(signal: str) -> Any:
    """A `requests.Session`, the user's where a credential provider is configured."""
    import requests

    return _credentials_of(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{signal}_CREDENTIAL_PROVIDER", "HTTP") or requests.Session()


def _channel_credentials(signal: str, address: str) -> Any:
    """Credentials of a gRPC channel; None for one without TLS."""
    scheme, insecure = urlsplit(address).scheme, _variable(signal, "INSECURE").strip().lower()
    if scheme != "https" and (insecure == "true" if insecure else scheme == "http"):
        return None
    import grpc

    made = _credentials_of(f"OTEL_PYTHON_EXPORTER_OTLP_GRPC_{signal}_CREDENTIAL_PROVIDER", "GRPC")
    return made or grpc.ssl_channel_credentials(
        *(_read(_variable(signal, what)) for what in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"))
    )


def _read(path: str) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def _credentials_of(variable: str, protocol: str) -> Any:
    """What the SDK's credential providers give: an entry point that the operator names in a variable."""
    from importlib.metadata import entry_points

    name = os.environ.get(f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}_CREDENTIAL_PROVIDER") or os.environ.get(variable)
    if not name:
        return None
    for entry in entry_points(group="opentelemetry_otlp_credential_provider", name=name):
        return entry.load()()
    raise RuntimeError(f"no credential provider {name!r} is installed")
