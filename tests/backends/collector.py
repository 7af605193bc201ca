"""A real OpenTelemetry Collector for tests: started on free loopback ports, read through its `file`
exporter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from .faults import LOOPBACK
from .process import BackendProcess
from .received import Metric, Received, Record

R = TypeVar("R", Record, Metric)

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Collector(BackendProcess):
    """One Collector process and what it received, which stays when it is stopped and started again.

    A `config` other than the harness's own takes its ports from the environment, as
    `collector-config/otel-collector.yaml` does, and is read where it writes to the file
    `$COLLECTOR_FILE_PATH`.
    """

    title = "the Collector"
    port_names = ("grpc", "http", "health", "prometheus")

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(binary, folder)
        self._config = config
        self._more_environment = dict(environment or {})
        self._output = folder / "received.jsonl"
        self._offset = 0
        self._received = Received()

    @property
    def grpc_endpoint(self) -> str:
        """For `OTEL_EXPORTER_OTLP_ENDPOINT` with the protocol `grpc`."""
        return f"http://{LOOPBACK}:{self.ports.grpc}"

    @property
    def http_endpoint(self) -> str:
        """For `OTEL_EXPORTER_OTLP_ENDPOINT` with the protocol `http/protobuf`; exporters add
        `/v1/traces` and so on.
        """
        return f"http://{LOOPBACK}:{self.ports.http}"

    def spans(self, service: str | None = None) -> list[Record]:
        return _of(self._read().spans, service)

    def logs(self, service: str | None = None) -> list[Record]:
        """Log records received so far, events among them, oldest first."""
        return _of(self._read().logs, service)

    def metric(self, name: str, service: str) -> Metric | None:
        """The latest export of the metric of this name, or None."""
        exports = [metric for metric in _of(self._read().metrics, service) if metric.name == name]
        return exports[-1] if exports else None

    def scrape(self) -> str:
        """What Prometheus would scrape now: the `prometheus` exporter's page in OpenMetrics form,
        exemplars with it.
        """
        return self._get(self.ports.prometheus, "/metrics", headers={"Accept": OPEN_METRICS})

    def _arguments(self) -> list[str]:
        if self._config is not None:
            return [f"--config={self._config}"]
        own = self._folder / "config.json"
        own.write_text(json.dumps(_configuration(self.ports, self._output), indent=2))
        return [f"--config={own}"]

    def _environment(self) -> dict[str, str]:
        """The ports under the names that the shipped configuration reads."""
        return {
            "COLLECTOR_GRPC_PORT": str(self.ports.grpc),
            "COLLECTOR_HTTP_PORT": str(self.ports.http),
            "COLLECTOR_HEALTH_PORT": str(self.ports.health),
            "COLLECTOR_PROMETHEUS_PORT": str(self.ports.prometheus),
            "COLLECTOR_FILE_PATH": str(self._output),
            "COLLECTOR_QUEUE_DIRECTORY": str(self._folder / "queue"),
            **self._more_environment,
        }

    def _health(self) -> tuple[int, str]:
        return self.ports.health, "/"

    def _read(self) -> Received:
        """Takes in the whole lines that the file has gained; a line still being written waits for
        the next time.
        """
        if self._output.exists():
            with self._output.open("rb") as file:
                file.seek(self._offset)
                gained = file.read()
            whole = gained[: gained.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.splitlines():
                self._received.add(json.loads(line))
        return self._received


def _of(records: list[R], service: str | None) -> list[R]:
    return [
        record
        for record in records
        if service is None or record.resource.get("service.name") == service
    ]


def _configuration(ports: Any, output: Path) -> dict[str, Any]:
    """The harness's own configuration (JSON is YAML): no batching, everything at once into the
    file.
    """
    grpc, http, health, prometheus = (
        {"endpoint": f"{LOOPBACK}:{port}"}
        for port in (ports.grpc, ports.http, ports.health, ports.prometheus)
    )
    to_file = {"receivers": ["otlp"], "exporters": ["file"]}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": grpc, "http": http}}},
        "exporters": {
            "file": {"path": str(output), "append": True, "flush_interval": "50ms"},
            "prometheus": {
                **prometheus,
                "enable_open_metrics": True,
                "resource_to_telemetry_conversion": {"enabled": True},
            },
        },
        "extensions": {"health_check": health},
        "service": {
            "extensions": ["health_check"],
            "telemetry": {"metrics": {"level": "none"}},  # its own metrics would open one more port
            "pipelines": {
                "traces": to_file,
                "logs": to_file,
                "metrics": {"receivers": ["otlp"], "exporters": ["file", "prometheus"]},
            },
        },
    }
