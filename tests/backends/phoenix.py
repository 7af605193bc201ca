"""A real Phoenix for tests: started on free loopback ports, fed by OTLP, read through its REST API."""

from __future__ import annotations

import json
from typing import Any

from .faults import LOOPBACK
from .process import OtlpBackend, http_get


class Phoenix(OtlpBackend):
    """One Phoenix with an SQLite file."""

    title = "Phoenix"
    port_names = ("http", "grpc")

    def annotations(self, span_id: str) -> list[dict[str, Any]]:
        """Those of the span; none where it has no such span."""
        status, text = http_get(
            self.ports.http, f"/v1/projects/default/span_annotations?span_ids={span_id}"
        )
        return json.loads(text)["data"] if status == 200 else []

    def _arguments(self) -> list[str]:
        return ["-m", "phoenix.server.main", "serve"]

    def _environment(self) -> dict[str, str]:
        return {
            "PHOENIX_WORKING_DIR": str(self._folder),
            "PHOENIX_HOST": LOOPBACK,
            "PHOENIX_PORT": str(self.ports.http),
            "PHOENIX_GRPC_PORT": str(self.ports.grpc),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }

    def _health(self) -> tuple[int, str]:
        return self.ports.http, "/healthz"
