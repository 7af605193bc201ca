"""The sidecar as a program for tests: `agenteval-otel serve` on free loopback ports, ended by
SIGTERM or SIGKILL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .faults import LOOPBACK
from .process import BackendProcess

EVERYTHING: Mapping[str, Any] = {"sample_rate": 1.0, "load_shedding": {"enabled": False}}


class Sidecar(BackendProcess):
    """One process of the sidecar, its scores sent to an endpoint; `settings` are those of its file.

    Its log is what it prints, of all its processes one after the other. `is_instrumented`:
    OpenTelemetry's automatic instrumentation is in its process, that of judges' clients too.
    """

    title = "the sidecar"
    port_names = ("grpc", "http")

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        endpoint: str,
        environment: Mapping[str, str] | None = None,
        is_instrumented: bool = False,
    ) -> None:
        program = Path(sys.executable)
        super().__init__(
            program.with_name("opentelemetry-instrument") if is_instrumented else program, folder
        )
        self._command = [str(program)] if is_instrumented else []
        self._settings, self._endpoint = settings, endpoint
        self._more_environment = dict(environment or {})

    @property
    def grpc_endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.grpc}"

    @property
    def http_endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    def kill(self) -> None:
        """SIGKILL, so that nothing is drained."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def _arguments(self) -> list[str]:
        file = self._folder / "agenteval.json"
        ports = {"grpc_port": self.ports.grpc, "http_port": self.ports.http}
        settings = {
            **EVERYTHING,
            **self._settings,
            "sidecar": {**self._settings.get("sidecar", {}), **ports},
        }
        file.write_text(json.dumps(settings, indent=2))
        return [*self._command, "-m", "agenteval_otel", "serve", "--settings", str(file)]

    def _environment(self) -> dict[str, str]:
        return {
            "OTEL_SERVICE_NAME": "agenteval-sidecar",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BLRP_SCHEDULE_DELAY": "200",
            **self._more_environment,
        }

    def _health(self) -> tuple[int, str]:
        return self.ports.http, "/readyz"
