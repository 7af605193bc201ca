"""A real Loki for tests, single binary: the shipped configuration on free loopback ports, read in LogQL.

    loki.wait_for(lambda seen: seen.query('{service_name="mine"} | event_name="gen_ai.evaluation.result"'))

Readers name the service: a shared Loki holds what other tests sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from .faults import LOOPBACK
from .process import BackendProcess, Ports

SHIPPED_LOKI = Path(__file__).resolve().parents[2] / "collector-config" / "loki" / "loki.yaml"
RECORD_LIMIT = 5_000


@dataclass(frozen=True)
class LokiPorts(Ports):
    http: int
    grpc: int


@dataclass(frozen=True, slots=True)
class LokiRecord:
    """A log record as Loki shows it.

    Attributes:
        line: Its body.
        labels: Labels of its stream and structured metadata together: what attributes became, `trace_id`, `span_id`.
        time_unix_nano: When it happened.
    """

    line: str
    labels: Mapping[str, str]
    time_unix_nano: int


class Loki(BackendProcess):
    """One Loki process and its API.

    Args:
        binary: The built program.
        folder: An own, empty folder for its configuration, log and data.
        config: The configuration of which everything but ports and folders is kept.
    """

    title = "Loki"
    ports_type = LokiPorts
    ports: LokiPorts

    def __init__(self, binary: Path, folder: Path, *, config: Path = SHIPPED_LOKI) -> None:
        super().__init__(binary, folder)
        self._config = config

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def otlp_endpoint(self) -> str:
        """What a Collector's `otlp_http` exporter takes; it adds `/v1/logs`."""
        return f"{self.url}/otlp"

    def query(self, query: str, *, since_s: float = 3600.0) -> list[LokiRecord]:
        """The records of a log query, oldest first; of a metric query its values, each as the line of a record.

        Raises:
            BackendError: Loki refused the query; the message holds its reason.
        """
        now = time.time_ns()
        requests = {
            "query": query,
            "start": str(now - int(since_s * 1e9)),
            "end": str(now + 60_000_000_000),
            "limit": str(RECORD_LIMIT),
            "direction": "forward",
        }
        actual = self._get_json(self.ports.http, "/loki/api/v1/query_range", requests)["data"]
        if actual["resultType"] == "matrix":
            records = [
                LokiRecord(value, series["metric"], int(at * 1e9))
                for series in actual["result"]
                for at, value in series["values"]
            ]
        else:
            records = [
                LokiRecord(line, stream["stream"], int(at))
                for stream in actual["result"]
                for at, line in stream["values"]
            ]
        return sorted(records, key=lambda record: record.time_unix_nano)

    def labels(self, *, since_s: float = 3600.0) -> list[str]:
        start = str(time.time_ns() - int(since_s * 1e9))
        return self._get_json(self.ports.http, "/loki/api/v1/labels", {"start": start}).get("data") or []

    def _arguments(self) -> list[str]:
        own = self._folder / "loki.yaml"
        data = str(self._folder / "data")
        config = yaml.safe_load(self._config.read_text().replace("/loki", data))
        config["server"] |= {
            "http_listen_address": LOOPBACK,
            "http_listen_port": self.ports.http,
            "grpc_listen_address": LOOPBACK,
            "grpc_listen_port": self.ports.grpc,
        }
        # Ready at once: it waits for nobody to join it and is told where its own parts are.
        config["ingester"] = {"lifecycler": {"min_ready_duration": "0s"}}
        config["frontend_worker"] = {"frontend_address": f"{LOOPBACK}:{self.ports.grpc}"}
        config["query_scheduler"] = {"use_scheduler_ring": False}
        own.write_text(yaml.safe_dump(config))
        return [f"-config.file={own}"]

    def _health(self) -> tuple[int, str]:
        return self.ports.http, "/ready"
