"""The sidecar whose own output comes back to it: nothing is scored twice, and no judge's call is an
answer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv
from agenteval_otel.testing import ModelServer
from tests.promises.figures import sized
from tests.promises.served import messages

from .collector import TO_FILE, Collector, configuration, plain
from .faults import free_ports
from .fixtures import running
from .programs import ROOT
from .sdk import tracing_to
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 60.0
SECONDS = sized(4, 300)
PER_S = 5


def _answers(collector: Collector) -> int:
    """Answers for some seconds, each a trace of its own; returns how many."""
    provider = tracing_to(collector.grpc_endpoint, "shop")
    tracer, never = provider.get_tracer("shop"), threading.Event()
    until, count = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        content = messages("assistant", f"Parcel {count} is on its way.")
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": content}
        tracer.start_span("chat m-1", attributes=attributes).end()
        count += 1
        never.wait(1 / PER_S)
    provider.shutdown()
    return count


@pytest.mark.sized
@pytest.mark.parametrize("placement", ["child", "linked"])
def test_what_comes_back_is_not_scored(
    placement: str, collector_binary: Path, tmp_path: Path
) -> None:
    """One score for each answer, one call of the judge for each score; run spans, and the spans
    that another library made of the judge's calls, are counted as ours."""
    (port,) = free_ports(1)
    both = {"receivers": ["otlp"], "exporters": ["otlp/sidecar", "file"]}
    config = configuration(
        {"traces": both, "logs": both, "metrics": TO_FILE}, exporters={"otlp/sidecar": plain(port)}
    )
    collector = Collector(collector_binary, tmp_path / "collector", config=config)
    with ModelServer(["Yes."]) as model, running(collector):
        sidecar = Sidecar(
            tmp_path / "sidecar",
            {
                "plugins": ["tests.backends.asking"],
                "telemetry": {"placement": placement},
                "evaluators": [
                    "ResponseHealth",
                    {"type": "AskingByItself", "url": model.url, "execution": "thread"},
                ],
                # So soon that a judge's call whose parent does not come would be evaluated while
                # this looks.
                "sidecar": {"quiet_s": 0.5, "parent_wait_s": 0.5},
            },
            endpoint=collector.grpc_endpoint,
            is_instrumented=True,
            environment={
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_METRICS_EXPORTER": "none",
                "PYTHONPATH": str(ROOT),
                "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "httpx,agenteval",
            },
        )
        sidecar.ports.grpc = port
        with running(sidecar):
            answers = _answers(collector)
            spans = collector.wait_for(lambda seen: _of_sidecar(seen, 4 * answers), LIMIT_S)
            # Three seconds: longer than a span waits for its parent, its score and its way.
            collector.wait_until_settled(
                lambda seen: len(seen.spans()), looks=60, timeout_s=LIMIT_S
            )
            sidecar.stop()
        printed = sidecar.printed()
        runs = [span for span in collector.spans() if span.name.startswith("evaluation ")]
        print(printed)
        operations = Counter(span.attributes.get(semconv.OPERATION_NAME) for span in spans)
        assert operations["chat"] >= answers, "the judge's calls are spans like an answer's"
        assert len(model.requests) == answers
        assert len({span.span_id for span in runs}) == answers
        assert f"{answers:,} answers = {answers:,} evaluated\n" in printed
        assert f" = {answers:,} read + " in printed


def _of_sidecar(collector: Collector, count: int) -> list[Any]:
    spans = collector.spans("agenteval-sidecar")
    return spans if len(spans) >= count else []
