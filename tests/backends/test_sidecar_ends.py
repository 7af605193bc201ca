"""The sidecar ended under load, by SIGTERM and by SIGKILL, with a Collector before it that tries
again.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv
from tests.promises.served import messages

from .collector import Collector, configuration, plain
from .fixtures import running
from .sdk import tracing_to
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
        self._provider = tracing_to(endpoint, service, schedule_delay_millis=50)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        tracer = self._provider.get_tracer("shop")
        content = messages("assistant", "We open at nine.")
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
    retry = {"initial_interval": "200ms", "max_interval": "1s", "max_elapsed_time": "0s"}
    config = configuration(
        {"traces": {"receivers": ["otlp"], "exporters": ["otlp"]}},
        exporters={"otlp": {**plain(sidecar.ports.grpc), "retry_on_failure": retry}},
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
    waits: dict[str, Any] = {"quiet_s": 0.5}
    if is_durable:
        waits["durable"] = str(tmp_path / "durable")
    settings = {"evaluators": ["ResponseHealth"], "sidecar": waits}
    sidecar = Sidecar(tmp_path / "sidecar", settings, endpoint=collector.grpc_endpoint)
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
        is_kept = end == "SIGTERM" or is_durable
        collector.wait_for(
            lambda seen: len(scores(seen, service)) >= (answers if is_kept else answers - waiting),
            LIMIT_S,
        )
        collector.wait_until_settled(
            lambda seen: scores(seen, service).total(), looks=40, timeout_s=LIMIT_S
        )
        counts = scores(collector, service)
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
