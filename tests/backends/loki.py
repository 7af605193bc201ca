"""A real Loki for tests, single binary: the shipped configuration on free loopback ports, read in
LogQL by service.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .faults import LOOPBACK
from .process import BackendProcess

SHIPPED_LOKI = Path(__file__).resolve().parents[2] / "collector-config" / "loki" / "loki.yaml"
RECORD_LIMIT = 5_000


class LokiRecord(NamedTuple):
    """A log record as Loki shows it; its labels are those of its stream and its structured metadata
    together.
    """

    line: str
    labels: Mapping[str, str]
    time_unix_nano: int


class Loki(BackendProcess):
    """One Loki process with the shipped configuration."""

    title = "Loki"
    port_names = ("http", "grpc")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def otlp_endpoint(self) -> str:
        """What a Collector's `otlp_http` exporter takes; it adds `/v1/logs`."""
        return f"{self.url}/otlp"

    def push(self, service: str, events: Sequence[Mapping[str, str]]) -> None:
        """Send events of a service by OTLP: the attributes of each, with one line that says a failure."""
        now = str(time.time_ns())
        records = [
            {
                "timeUnixNano": now,
                "body": {"stringValue": "tone fail"},
                "attributes": _attributes(event),
            }
            for event in events
        ]
        resource = {"attributes": _attributes({"service.name": service})}
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}
        import httpx  # the oldest SDK's environment has none

        reply = httpx.post(f"{self.otlp_endpoint}/v1/logs", json=body, timeout=30.0)
        assert reply.status_code in (200, 204), reply.text

    def query(self, query: str, *, since_s: float = 3600.0) -> list[LokiRecord]:
        """The records of a log query, oldest first; of a metric query its values, each as the line
        of a record.
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
        labels, unit = ("metric", 10**9) if actual["resultType"] == "matrix" else ("stream", 1)
        records = [
            LokiRecord(line, item[labels], int(at) * unit)
            for item in actual["result"]
            for at, line in item["values"]
        ]
        return sorted(records, key=lambda record: record.time_unix_nano)

    def labels(self, *, since_s: float = 3600.0) -> list[str]:
        start = str(time.time_ns() - int(since_s * 1e9))
        return (
            self._get_json(self.ports.http, "/loki/api/v1/labels", {"start": start}).get("data")
            or []
        )

    def _arguments(self) -> list[str]:
        own = self._folder / "loki.yaml"
        config = yaml.safe_load(SHIPPED_LOKI.read_text())
        # Ready at once: it waits for nobody to join it and is told where its own parts are.
        config["ingester"] = {"lifecycler": {"min_ready_duration": "0s"}}
        config["frontend_worker"] = {"frontend_address": f"{LOOPBACK}:{self.ports.grpc}"}
        config["query_scheduler"] = {"use_scheduler_ring": False}
        own.write_text(yaml.safe_dump(config))
        return [f"-config.file={own}", "-config.expand-env=true"]

    def _environment(self) -> dict[str, str]:
        return {
            "LOKI_HOST": LOOPBACK,
            "LOKI_PORT": str(self.ports.http),
            "LOKI_GRPC_PORT": str(self.ports.grpc),
            "LOKI_DATA": str(self._folder / "data"),
        }

    def _health(self) -> tuple[int, str]:
        return self.ports.http, "/ready"


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in values.items()]
