"""A real MLflow tracking server for tests: started on a free loopback port, fed by OTLP, read
through its REST API.
"""

from __future__ import annotations

import json
from typing import Any

from .faults import LOOPBACK
from .process import OtlpBackend, http_get


class Mlflow(OtlpBackend):
    """One MLflow server with an SQLite file."""

    title = "MLflow"
    port_names = ("http",)

    def assessments(self, trace_id: str) -> list[dict[str, Any]]:
        """Those of the trace, whose id is the one of OpenTelemetry; none where it has no such
        trace.
        """
        status, text = http_get(self.ports.http, f"/api/3.0/mlflow/traces/tr-{trace_id}")
        return (
            json.loads(text)["trace"]["trace_info"].get("assessments", []) if status == 200 else []
        )

    def _arguments(self) -> list[str]:
        store = f"sqlite:///{self._folder / 'mlflow.db'}"
        listens = ["--host", LOOPBACK, "--port", str(self.ports.http), "--workers", "1"]
        return ["-m", "mlflow", "server", *listens, "--backend-store-uri", store]

    def _environment(self) -> dict[str, str]:
        return {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}

    def _health(self) -> tuple[int, str]:
        return self.ports.http, "/health"
