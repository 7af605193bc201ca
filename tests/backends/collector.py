"""A real OpenTelemetry Collector for tests: started on free loopback ports, read through its `file`
exporter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .faults import LOOPBACK
from .process import BackendProcess
from .received import Metric, Received, Record

R = TypeVar("R", Record, Metric)

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Collector(BackendProcess):
    """One Collector process and what it received, which stays when it is stopped and started again.

    A `config`, of which files may be laid over each other, takes its ports from the environment, as
    `collector-config/otel-collector.yaml` does, and is read where it writes to the file
    `$COLLECTOR_FILE_PATH`. Without one everything is written there.

    Attributes:
        file: What its `file` exporter has written.
    """

    title = "the Collector"
    port_names = ("grpc", "http", "health", "prometheus")

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        config: Path | Sequence[Path] | Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(binary, folder)
        self._config = _OWN if config is None else config
        self.file = folder / "received.jsonl"
        self._more_environment = dict(environment or {})
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

    def metrics(self, service: str) -> list[Metric]:
        return _of(self._read().metrics, service)

    def metric(self, name: str, service: str) -> Metric | None:
        """The latest export of the metric of this name, or None."""
        exports = [metric for metric in self.metrics(service) if metric.name == name]
        return exports[-1] if exports else None

    def scrape(self) -> str:
        """What Prometheus would scrape now: the `prometheus` exporter's page in OpenMetrics form,
        exemplars with it.
        """
        return self._get(self.ports.prometheus, "/metrics", headers={"Accept": OPEN_METRICS})

    def _arguments(self) -> list[str]:
        files = self._config
        if isinstance(files, Mapping):
            written = self._folder / "config.json"
            written.write_text(json.dumps(files, indent=2))
            files = written
        if isinstance(files, Path):
            files = (files,)
        return [f"--config={file}" for file in files]

    def _environment(self) -> dict[str, str]:
        """The ports under the names that the shipped configuration reads."""
        return {
            "COLLECTOR_GRPC_PORT": str(self.ports.grpc),
            "COLLECTOR_HTTP_PORT": str(self.ports.http),
            "COLLECTOR_HEALTH_PORT": str(self.ports.health),
            "COLLECTOR_PROMETHEUS_PORT": str(self.ports.prometheus),
            "COLLECTOR_FILE_PATH": str(self.file),
            "COLLECTOR_QUEUE_DIRECTORY": str(self._folder / "queue"),
            **self._more_environment,
        }

    def _health(self) -> tuple[int, str]:
        return self.ports.health, "/"

    def _read(self) -> Received:
        """Takes in the whole lines that the file has gained; a line still being written waits for
        the next time.
        """
        if self.file.exists():
            with self.file.open("rb") as file:
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


def listening(name: str) -> dict[str, str]:
    """Where a part listens: the port of this name that the environment says."""
    return {"endpoint": f"{LOOPBACK}:${{env:COLLECTOR_{name}_PORT}}"}


def plain(address: str | int) -> dict[str, Any]:
    """An exporter over gRPC without TLS, to an address or to a port on loopback."""
    endpoint = f"{LOOPBACK}:{address}" if isinstance(address, int) else address
    return {"endpoint": endpoint, "tls": {"insecure": True}}


def prometheus_page(*, has_resource: bool) -> dict[str, Any]:
    """The exporter whose page Prometheus scrapes, with attributes of the resource as labels or without."""
    return {
        **listening("PROMETHEUS"),
        "enable_open_metrics": True,
        "resource_to_telemetry_conversion": {"enabled": has_resource},
    }


def configuration(
    pipelines: Mapping[str, Any],
    *,
    receivers: Mapping[str, Any] | None = None,
    processors: Mapping[str, Any] | None = None,
    exporters: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A configuration with the receiver `otlp`, the exporter `file`, which writes at once, and
    what a test has beside them.
    """
    file = {"path": "${env:COLLECTOR_FILE_PATH}", "append": True, "flush_interval": "50ms"}
    protocols = {"grpc": listening("GRPC"), "http": listening("HTTP")}
    return {
        "receivers": {"otlp": {"protocols": protocols}, **(receivers or {})},
        "processors": dict(processors or {}),
        "exporters": {"file": file, **(exporters or {})},
        "extensions": {"health_check": listening("HEALTH")},
        "service": {
            "extensions": ["health_check"],
            "telemetry": {"metrics": {"level": "none"}},  # its own metrics would open one more port
            "pipelines": dict(pipelines),
        },
    }


TO_FILE = {"receivers": ["otlp"], "exporters": ["file"]}
"""A pipeline of everything that arrives, without batching."""
_OWN = configuration(
    {
        "traces": TO_FILE,
        "logs": TO_FILE,
        "metrics": {"receivers": ["otlp"], "exporters": ["file", "prometheus"]},
    },
    exporters={"prometheus": prometheus_page(has_resource=True)},
)
