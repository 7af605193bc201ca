"""Settings of the sidecar: addresses, what a client has to show, and how much it keeps."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any

from pydantic import Field
from pydantic.functional_validators import field_validator, model_validator

from agenteval_otel.components.explained import ComponentError, FrozenSettings
from agenteval_otel.errors import ConfigurationError


class SidecarSettings(FrozenSettings):
    """Where `agenteval-otel serve` listens, and how much it keeps.

    Read at its start. A change needs a restart.

    Attributes:
        host: The address to bind. Other than the loopback's it needs a token or client
            certificates, and TLS.
        host_names: Names by which clients without a token may address it over HTTP, besides
            ``localhost`` and every address, such as ``host.docker.internal``.
        grpc_port: For OTLP over gRPC. 0 chooses a free port.
        http_port: For OTLP over HTTP, health and readiness. 0 chooses a free port.
        token: Clients send it as ``Authorization: Bearer TOKEN``. At least 16 printable
            characters of ASCII, without spaces. Best by ``AGENTEVAL_SIDECAR__TOKEN``.
        certificate: File of the server's certificate chain, PEM.
        key: File of its private key, PEM.
        client_ca: File of the authorities whose client certificates are demanded, PEM.
        insecure: True allows an address other than the loopback's without TLS.
        evaluate: Whether ``POST /v1/evaluate`` evaluates what a request brings. Who may send spans
            may then also have the settings' judges asked, and read scores and reference answers.
        quiet_s: Seconds without a new span of a trace until its answer is evaluated. By default the
            export delay of an SDK's batch processor plus one second.
        parent_wait_s: How long a model call waits for a parent span that has not arrived, in
            seconds.
        nested_agents: Whether agents called by another agent are evaluated too, if they have their
            own name.
        remember_s: How long the spans of an evaluated answer are remembered: what comes again
            within this time is `late`, and not evaluated again. By default twice as long as a
            Collector retries.
        remember_bytes: Memory limit of what is remembered, beside `max_waiting_bytes`: 8 to 12
            bytes a span. Beyond it spans are forgotten sooner.
        max_request_bytes: The largest request, after decompression. While it is decoded it may take
            five times as much memory.
        max_waiting_bytes: Memory limit of spans whose answer is not yet read, counted as Python
            keeps them. Beyond it requests are refused, and clients have to retry.
        durable: A folder: requests are written to it before they are acknowledged, and read again
            after a crash.
        durable_max_bytes: Disk space limit of this folder. Beyond it requests are refused.
        drain_s: How long to wait after SIGTERM until accepted requests are evaluated and exported,
            in seconds.
    """

    host: str = "127.0.0.1"
    host_names: tuple[str, ...] = ()
    grpc_port: int = Field(default=4327, ge=0, le=65_535)
    http_port: int = Field(default=4328, ge=0, le=65_535)
    token: str | None = Field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    insecure: bool = False
    evaluate: bool = False
    quiet_s: float = Field(default=6.0, ge=0, le=3_600)
    parent_wait_s: float = Field(default=60.0, ge=0, le=86_400)
    nested_agents: bool = False
    remember_s: float = Field(default=600.0, ge=0, le=86_400)
    remember_bytes: int = Field(default=32 * 1024 * 1024, ge=64 * 1024)
    max_request_bytes: int = Field(default=16 * 1024 * 1024, ge=1_024)
    max_waiting_bytes: int = Field(default=128 * 1024 * 1024, ge=1024 * 1024)
    durable: str | None = None
    durable_max_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024 * 1024)
    drain_s: float = Field(default=20.0, ge=0, le=3_600)

    @field_validator("host_names", mode="after")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", name):
                raise ValueError(f"expected a name without port, found {name[:80]!r}")
        return names

    @field_validator("token", mode="after")
    @classmethod
    def _is_long(cls, token: str | None) -> str | None:
        if token is not None and not re.fullmatch(r"[!-~]{16,}", token):
            raise ValueError(
                "expected at least 16 printable characters of ASCII: `openssl rand -hex 16` makes some"
            )
        return token

    @model_validator(mode="after")
    def _is_closed(self) -> Any:
        """Refuse an open port.

        A client that reaches it can make judges spend money, and fill the memory.
        """
        problems: list[tuple[str | None, str]] = []
        has_certificate = self.certificate is not None
        has_key = self.key is not None
        if has_certificate != has_key:
            missing = "certificate" if has_key else "key"
            problems.append((missing, "certificate and key belong together"))
        if self.client_ca is not None and self.certificate is None:
            problems.append(
                ("certificate", "client certificates need a certificate and a key of the server")
            )
        if not is_loopback(self.host):
            if self.token is None and self.client_ca is None:
                wrong = f"{self.host} can be reached from other machines: set token, best by AGENTEVAL_SIDECAR__TOKEN"
                problems.append(("host", f"{wrong}, or client_ca"))
            if self.certificate is None and not self.insecure:
                wrong = "without TLS others can read the token and what is sent: set certificate and key"
                problems.append(("host", f"{wrong}, or insecure: true"))
        if problems:
            raise ComponentError(ConfigurationError.of(problems), of_model=True)
        return self


def is_loopback(host: str) -> bool:
    """Tell whether an address, or ``localhost``, can be reached on this machine alone.

    Any other name may be reached from elsewhere.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
