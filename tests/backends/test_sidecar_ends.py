"""The sidecar ended under load, by SIGTERM and by SIGKILL, with a Collector before it that tries
again.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from agenteval_otel import semconv

from .collector import Collector
from .faults import LOOPBACK
from .fixtures import running
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 90.0
PER_S = 150
BEFORE, AFTER = 100, 150
"""Scores that have arrived when the sidecar is ended, and answers that are sent when it runs again.
"""


class Load:
    """Sends answers, each a trace of its own, through a Collector; `sent` has their trace ids."""

    def __init__(self, service: str, endpoint: str) -> None:
        self.sent: list[str] = []
        self._provider = TracerProvider(resource=Resource({"service.name": service}))
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        tracer = self._provider.get_tracer("shop")
        content = json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "We open at nine."}]}]
        )
        while not self._ending.wait(1 / PER_S):
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": content}
            with tracer.start_as_current_span("chat m-1", attributes=attributes) as span:
                self.sent.append(f"{span.get_span_context().trace_id:032x}")
        self._provider.shutdown()

    def end(self) -> int:
        """Everything is with the Collector when this returns; how many answers that were."""
        self._ending.set()
        self._thread.join(LIMIT_S)
        return len(self.sent)


@contextmanager
def trying_again(binary: Path, folder: Path, sidecar: Sidecar) -> Iterator[Collector]:
    """A Collector that sends to the sidecar, and again what is not acknowledged."""
    config = folder / "collector.json"
    port = LOOPBACK + ":${env:COLLECTOR_%s_PORT}"
    retry = {"initial_interval": "200ms", "max_interval": "1s", "max_elapsed_time": "0s"}
    config.write_text(
        json.dumps(
            {
                "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": port % "GRPC"}}}},
                "exporters": {
                    "otlp": {
                        "endpoint": f"{LOOPBACK}:{sidecar.ports.grpc}",
                        "tls": {"insecure": True},
                        "retry_on_failure": retry,
                    }
                },
                "extensions": {"health_check": {"endpoint": port % "HEALTH"}},
                "service": {
                    "extensions": ["health_check"],
                    "telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp"]}},
                },
            }
        )
    )
    with running(Collector(binary, folder, config=config)) as collector:
        yield collector


def scores(collector: Collector, service: str) -> Counter[str]:
    """How many scores each answer has, by its trace."""
    events = (log for log in collector.logs() if log.name == semconv.EVENT_RESULT)
    return Counter(
        log.trace_id for log in events if log.attributes.get(semconv.SERVICE_NAME) == service
    )


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "memory"])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_ended_under_load(
    end: str, is_durable: bool, collector: Collector, collector_binary: Path, tmp_path: Path
) -> None:
    """Once it runs again every answer has its score: exactly one, but for what SIGKILL cut off
    before it was noted as done (durable: scored again) or while it waited (in memory: lost)."""
    service = f"ended by {end}, {'durable' if is_durable else 'memory'}"
    (tmp_path / "sidecar").mkdir()
    folder = str(tmp_path / "durable")
    sidecar = Sidecar(
        tmp_path / "sidecar",
        {
            "evaluators": ["ResponseHealth"],
            "sidecar": {"quiet_s": 0.5, **({"durable": folder} if is_durable else {})},
        },
        endpoint=collector.grpc_endpoint,
    )
    with running(sidecar), trying_again(collector_binary, tmp_path, sidecar) as front:
        load = Load(service, front.grpc_endpoint)
        collector.wait_for(lambda seen: scores(seen, service).total() >= BEFORE, LIMIT_S)
        scored = scores(collector, service).total()
        sidecar.stop() if end == "SIGTERM" else sidecar.kill()
        before = len(load.sent)
        waiting = before - scored
        sidecar.start()
        sidecar.wait_for(lambda _: len(load.sent) >= before + AFTER, LIMIT_S)
        answers = load.end()
        counts = _settled(
            collector,
            service,
            at_least=answers if end == "SIGTERM" or is_durable else answers - waiting,
        )
        sidecar.stop()
    again, lost = counts.total() - len(counts), set(load.sent) - set(counts)
    printed = re.findall(r"(?m)^[\d,]+ (?:answer|span)s? .*$|^read again.*$", sidecar.printed())
    print(
        f"{service}: {answers} sent, at most {waiting} waited, {len(counts)} scored, {again} twice, {len(lost)} lost"
    )
    print("\n".join(f"  {line}" for line in printed))
    assert not set(counts) - set(load.sent)
    if end == "SIGTERM":
        assert (again, len(lost)) == (0, 0)
        assert (
            sum(
                int(line.split()[0].replace(",", ""))
                for line in printed
                if line.endswith(" evaluated")
            )
            == answers
        )
    elif is_durable:
        assert not lost
        assert again <= scored + waiting, "only what was evaluated and not yet noted as done"
        assert max(counts.values()) <= 2
    else:
        assert again == 0
        assert len(lost) <= waiting


def _settled(collector: Collector, service: str, *, at_least: int) -> Counter[str]:
    """The scores, once there are that many answers with one, and nothing is new in forty looks."""
    earlier: list[int] = []

    def settled(seen: Collector) -> Any:
        counts = scores(seen, service)
        earlier.append(counts.total())
        return (
            counts
            if len(counts) >= at_least and earlier[-40:].count(counts.total()) == 40
            else None
        )

    result: Counter[str] = collector.wait_for(settled, LIMIT_S)
    return result
