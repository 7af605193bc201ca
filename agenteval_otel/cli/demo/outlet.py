"""Where a run is sent beside the screen: a Collector, or nowhere.

The demo plays an application with tracing of its own, so it makes the application's tracer provider and hands it to the
storage provider, which takes the endpoint for events and metrics. A Collector that is down costs the end of the run a
few seconds and nothing else.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.execution.portable import with_environment
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry.exporter import Exporter
from agenteval_otel.telemetry.private import private_provider
from agenteval_otel.telemetry.target import OtlpTarget, is_endpoint

__all__ = ["SERVICE", "Outlet", "check_endpoint", "quiet_exporters", "service_name"]

SERVICE = "agenteval-demo"
_VARIABLES = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "LOGS_", "METRICS_")
)  # fmt: skip
_PROBE_S = 0.5


def check_endpoint(url: str | None) -> None:
    """Refuse what is no endpoint.

    Raises:
        ConfigurationError: Not ``http://`` or ``https://`` with a host, or a port that is none.
    """
    if url is not None and not is_endpoint(url):
        raise ConfigurationError(
            f"found {url!r}, expected http://HOST:PORT such as http://localhost:4317", path="--otlp-endpoint"
        )


class Outlet:
    """The run's way out.

    Args:
        endpoint: What the command line says; None leaves it to ``OTEL_EXPORTER_OTLP_*``.

    Attributes:
        address: Where things go, for people; None when they go nowhere.
        storage: The storage providers that emit.
        tracer: The application's tracer.
    """

    def __init__(self, endpoint: str | None) -> None:
        known = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), None)
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self.address = None if disabled else endpoint or known
        self.disabled = disabled and bool(endpoint or known)
        self._lost: set[str] = set()
        self._tracers: Any = None
        self.storage: tuple[OtlpStorageProvider, ...] = ()
        self.tracer: Any = None
        if self.address is None:
            return
        target = OtlpTarget(endpoint)
        if target.is_configured("TRACES"):
            self._tracers = private_provider(
                "TRACES", target, Exporter(lambda signal, reason, count: self._lost.add(signal))
            )  # fmt: skip
            self.tracer = self._tracers.get_tracer(SERVICE)
        self.storage = (OtlpStorageProvider(endpoint=endpoint, tracer_provider=self._tracers),)

    def __repr__(self) -> str:
        return f"<Outlet {self.address or 'nowhere'}>"

    def listens(self) -> bool:
        """Whether somebody takes connections there; waits half a second at most."""
        parts = urlsplit(self.address or "")
        if not parts.hostname:  # a bare host:port, as gRPC's variables may be
            parts = urlsplit(f"//{self.address}")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 4317)
        try:
            with socket.create_connection((parts.hostname or "localhost", port), _PROBE_S):
                return True
        except OSError:
            return False

    def close(self, timeout_s: float) -> None:
        """Let the application's exporter go; what it still tries to send does not keep the program."""
        if self._tracers is not None:
            _within(timeout_s, self._tracers.shutdown)

    def spans_arrived(self, timeout_s: float) -> bool:
        """Whether every span was exported; waits so long at most. Jaeger by itself takes spans and nothing else."""
        return self._tracers is not None and _within(timeout_s, self._tracers.force_flush) and not self._lost


def _within(timeout_s: float, work: Callable[[], Any]) -> bool:
    """Do it on a thread of its own, because the SDK's own time limits do not hold; whether it ended in time."""
    worker = Worker("agenteval-demo-outlet", max_waiting=1)
    return worker.submit(work) and worker.close(timeout_s)


def service_name() -> str:
    """The service's name in force, as backends show it."""
    return os.environ.get("OTEL_SERVICE_NAME") or "of OTEL_RESOURCE_ATTRIBUTES"


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Hold the exporters' own log lines off the screen: what they have to say is told once, at the end.

    Meanwhile variables that nobody set name the service and have metrics exported every two seconds.
    """
    loggers = [logging.getLogger(name) for name in ("opentelemetry", "agenteval_otel")]
    before = [(logger, logger.propagate) for logger in loggers]
    silent = logging.NullHandler()
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(silent)
    try:
        with with_environment(_defaults()):
            yield
    finally:
        for logger, propagate in before:
            logger.propagate = propagate
            logger.removeHandler(silent)


def _defaults() -> Mapping[str, str]:
    """A name for the service, and metrics often enough that rates can be seen of a run of seconds."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    defaults = {} if named else {"OTEL_SERVICE_NAME": SERVICE}
    return defaults if os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") else {
        **defaults, "OTEL_METRIC_EXPORT_INTERVAL": "2000"
    }  # fmt: skip
