"""A sidecar in this process, and applications that send it their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from agenteval_otel import Settings, configure, monitor
from agenteval_otel.config.process import build
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.sidecar.serve import Sidecar
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Keeping

__all__ = ["PATIENCE_S", "Application", "Served", "counted", "until"]

PATIENCE_S = 20.0


def until(holds: Callable[[], bool]) -> bool:
    """Whether it holds within the time."""
    deadline = time.monotonic() + PATIENCE_S
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def counted(outcomes: Mapping[str, int]) -> dict[str, int]:
    """The outcomes that there were."""
    return {outcome: count for outcome, count in outcomes.items() if count}


class Served:
    """A sidecar that evaluates with the process's pipeline, which samples nothing by itself.

    Args:
        evaluators: What it evaluates with.
        settings: Of the pipeline; `sidecar` are those of the receiver.
    """

    def __init__(
        self, *evaluators: Any, sidecar: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.kept, self.telemetry = Keeping(), RecordedTelemetry()
        storage = [self.kept, self.telemetry.storage(content="span_and_event")]
        sampling = {} if "sampler" in settings else {"sample_rate": 0.0}
        configure(
            **{
                "evaluators": evaluators,
                "storage": storage,
                "dispatcher": "inline",
                **sampling,
                **settings,
            }
        )
        self.sidecar = Sidecar(
            SidecarSettings(**{"grpc_port": 0, "http_port": 0, "quiet_s": 0.0, **(sidecar or {})})
        )
        self.addresses = self.sidecar.start()

    def endpoint(self, *, is_http: bool = False) -> str:
        scheme = "http" if self.addresses.http.startswith("http:") else "https"
        return f"{self.addresses.http}/v1/logs" if is_http else f"{scheme}://{self.addresses.grpc}"

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        """Send bytes, or JSON, and return the status and the text of the reply."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urlopen(Request(self.addresses.http + path, data, sent), timeout=120) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def results(self) -> list[Any]:
        """What was stored, once all that was taken is evaluated."""
        assert self.sidecar.intake.drain(PATIENCE_S)
        return self.kept.saved

    def stop(self) -> None:
        self.sidecar.stop(PATIENCE_S)
        self.telemetry.shutdown()


class Application:
    """A process whose answers are evaluated in the sidecar; its own telemetry is recorded."""

    def __init__(self, endpoint: str, **settings: Any) -> None:
        self.telemetry = RecordedTelemetry()
        self.pipeline = build(
            Settings(
                **{
                    "evaluate_in": "sidecar",
                    "endpoint": endpoint,
                    "sample_rate": 1.0,
                    "load_shedding": LoadSheddingSettings(enabled=False),
                    "telemetry": self.telemetry.storage(),
                    **settings,
                }
            ),
            is_live=True,
        )

    def monitor(self, function: Any, **arguments: Any) -> Any:
        return monitor(pipeline=self.pipeline, **arguments)(function)

    @property
    def outcomes(self) -> dict[str, int]:
        return counted(self.pipeline.accounting.outcomes())

    def flush(self) -> bool:
        return self.pipeline.flush(PATIENCE_S)

    def stop(self) -> None:
        self.pipeline.shutdown(1.0)
        self.telemetry.shutdown()
