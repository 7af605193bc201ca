"""A real OpenTelemetry Collector for tests: started on free loopback ports, read through its `file` exporter.

    collector.wait_for(lambda seen: seen.spans(service="mine"), timeout_s=10)

Every reader takes `service`, the `service.name` of the sender: a shared Collector holds what other tests sent.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from .faults import LOOPBACK, free_ports
from .received import Log, Metric, Received, Span

__all__ = ["Collector", "CollectorError", "Ports"]

T = TypeVar("T")
R = TypeVar("R", Span, Log, Metric)

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
POLL_EVERY_S = 0.05
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
START_TRIES = 3
LOG_TAIL_CHARACTERS = 3000


class CollectorError(Exception):
    """The Collector did not start, or ended by itself; the message ends with its log."""


@dataclass(frozen=True)
class Ports:
    """Where a Collector listens on 127.0.0.1."""

    grpc: int
    http: int
    health: int
    prometheus: int

    @classmethod
    def free(cls) -> Ports:
        """Four different free ports."""
        return cls(*free_ports(4))


class Collector:
    """One Collector process, its ports and what it received.

    It can be stopped and started again: the ports and what was received stay, so outages can be tested.

    Args:
        binary: The built program.
        folder: An own, empty folder for its configuration, log and output.
        config: A configuration file to run instead of the harness's own. It takes its ports from the environment
            (`collector-config/otel-collector.yaml` shows the names); received values are then read only where it
            writes to the file `$COLLECTOR_FILE_PATH`.
    """

    def __init__(self, binary: Path, folder: Path, *, config: Path | None = None) -> None:
        self.ports = Ports.free()
        self._binary = binary
        self._config = config
        self._config_path = folder / "config.json"
        self._output = folder / "received.jsonl"
        self._log = folder / "collector.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._offset = 0
        self._received = Received()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        seen = self._received
        counts = f"{len(seen.spans)} spans, {len(seen.logs)} logs, {len(seen.metrics)} metrics"
        return f"Collector({state}, {self.ports}, {counts})"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def grpc_endpoint(self) -> str:
        """For `OTEL_EXPORTER_OTLP_ENDPOINT` with the protocol `grpc`."""
        return f"http://{LOOPBACK}:{self.ports.grpc}"

    @property
    def http_endpoint(self) -> str:
        """For `OTEL_EXPORTER_OTLP_ENDPOINT` with the protocol `http/protobuf`; exporters add `/v1/traces` and so on."""
        return f"http://{LOOPBACK}:{self.ports.http}"

    def start(self) -> Collector:
        """Starts the process and returns when it is healthy; other ports are tried when one was snatched.

        Raises:
            CollectorError: It ended or was not healthy in time.
        """
        for attempt in range(1, START_TRIES + 1):
            try:
                self._start_once()
                return self
            except CollectorError as error:
                if "address already in use" not in str(error) or attempt == START_TRIES:
                    raise
                self.ports = Ports.free()
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Ends the own process: asks, waits, then kills. What it still held is in the file afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def spans(self, service: str | None = None) -> list[Span]:
        """Spans received so far, oldest first."""
        return _of(self._read().spans, service)

    def logs(self, service: str | None = None) -> list[Log]:
        """Log records received so far, events among them, oldest first."""
        return _of(self._read().logs, service)

    def metrics(self, service: str | None = None) -> list[Metric]:
        """Metrics received so far, one for each export, oldest first."""
        return _of(self._read().metrics, service)

    def metric(self, name: str, service: str | None = None) -> Metric | None:
        """The latest export of the metric of this name, or None."""
        return next((metric for metric in reversed(self.metrics(service)) if metric.name == name), None)

    def wait_for(self, predicate: Callable[[Collector], T], timeout_s: float = 10.0) -> T:
        """Reads again and again until the predicate gives something true; gives that.

        Raises:
            TimeoutError: It did not within the time; the message counts what has arrived.
            CollectorError: The process has ended and the predicate does not hold.
        """
        deadline = time.monotonic() + timeout_s
        never = Event()
        while True:
            alive = self.running
            if found := predicate(self):
                return found
            if not alive:
                raise CollectorError(f"the Collector is not running; {self._log_tail()}")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not seen within {timeout_s:g} s by {self!r}")
            never.wait(POLL_EVERY_S)

    def scrape(self) -> str:
        """What Prometheus would scrape now: the `prometheus` exporter's page in OpenMetrics form, exemplars with it."""
        status, page = _get(self.ports.prometheus, "/metrics", {"Accept": OPEN_METRICS}, timeout_s=10)
        if status != http.client.OK:
            raise CollectorError(f"the scrape gave status {status}: {page[:200]}")
        return page

    def _start_once(self) -> None:
        self._config_path.write_text(json.dumps(_configuration(self.ports, self._output), indent=2))
        log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), f"--config={self._config or self._config_path}"],
                env={**os.environ, **_environment(self.ports, self._output)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_LIMIT_S
        never = Event()
        while not self._healthy():
            late = time.monotonic() >= deadline
            if late or not self.running:
                self.stop()
                what = f"not healthy after {START_LIMIT_S:g} s" if late else "ended while starting"
                raise CollectorError(f"the Collector {what}; {self._log_tail(log_start)}")
            never.wait(POLL_EVERY_S)

    def _healthy(self) -> bool:
        try:
            status, _ = _get(self.ports.health, "/", {}, timeout_s=1)
        except OSError:
            return False
        return self.running and status == http.client.OK

    def _log_tail(self, start: int = 0) -> str:
        """The end of the process's log, from byte `start` on at the earliest."""
        text = self._log.read_bytes()[start:].decode(errors="replace") if self._log.exists() else ""
        return f"end of its log:\n{text[-LOG_TAIL_CHARACTERS:]}"

    def _read(self) -> Received:
        """Takes in the whole lines that the file has gained; a line still being written waits for the next time."""
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
    """The records of one service, or all."""
    return [record for record in records if service is None or record.resource.get("service.name") == service]


def _get(port: int, path: str, headers: Mapping[str, str], *, timeout_s: float) -> tuple[int, str]:
    """One GET on loopback, whatever proxies the environment names."""
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)) as connection:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read().decode()


def _environment(ports: Ports, output: Path) -> dict[str, str]:
    """The ports under the names that the shipped configuration reads."""
    return {
        "COLLECTOR_GRPC_PORT": str(ports.grpc),
        "COLLECTOR_HTTP_PORT": str(ports.http),
        "COLLECTOR_HEALTH_PORT": str(ports.health),
        "COLLECTOR_PROMETHEUS_PORT": str(ports.prometheus),
        "COLLECTOR_FILE_PATH": str(output),
    }


def _configuration(ports: Ports, output: Path) -> dict[str, Any]:
    """The harness's own configuration (JSON is YAML): no batching, everything at once into the file."""
    exporters = ["file"]
    return {
        "receivers": {
            "otlp": {
                "protocols": {
                    "grpc": {"endpoint": f"{LOOPBACK}:{ports.grpc}"},
                    "http": {"endpoint": f"{LOOPBACK}:{ports.http}"},
                }
            }
        },
        "exporters": {
            "file": {"path": str(output), "append": True, "flush_interval": "50ms"},
            "prometheus": {
                "endpoint": f"{LOOPBACK}:{ports.prometheus}",
                "enable_open_metrics": True,
                "resource_to_telemetry_conversion": {"enabled": True},
            },
        },
        "extensions": {"health_check": {"endpoint": f"{LOOPBACK}:{ports.health}"}},
        "service": {
            "extensions": ["health_check"],
            # Its own metrics would open one more port.
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": exporters},
                "logs": {"receivers": ["otlp"], "exporters": exporters},
                "metrics": {"receivers": ["otlp"], "exporters": [*exporters, "prometheus"]},
            },
        },
    }
