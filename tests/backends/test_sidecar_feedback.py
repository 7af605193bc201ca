"""The sidecar whose own output comes back to it: nothing is scored twice, and no judge's call is an
answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from agenteval_otel import semconv
from agenteval_otel.testing import ModelServer
from tests.promises.figures import sized

from .collector import Collector
from .faults import LOOPBACK
from .fixtures import running
from .programs import ROOT
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 60.0
SECONDS = sized(4, 300)
PER_S = 5


def _configuration(sidecar: Sidecar) -> dict[str, Any]:
    """Everything that arrives, whoever sent it, goes to the sidecar, and into the file."""
    port = LOOPBACK + ":${env:COLLECTOR_%s_PORT}"
    both = {"receivers": ["otlp"], "exporters": ["otlp/sidecar", "file"]}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": port % "GRPC"}}}},
        "exporters": {
            "otlp/sidecar": {
                "endpoint": f"{LOOPBACK}:{sidecar.ports.grpc}",
                "tls": {"insecure": True},
            },
            "file": {
                "path": "${env:COLLECTOR_FILE_PATH}",
                "append": True,
                "flush_interval": "50ms",
            },
        },
        "extensions": {"health_check": {"endpoint": port % "HEALTH"}},
        "service": {
            "extensions": ["health_check"],
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": both,
                "logs": both,
                "metrics": {"receivers": ["otlp"], "exporters": ["file"]},
            },
        },
    }


def _answers(collector: Collector) -> int:
    """Answers for some seconds, each a trace of its own; returns how many."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(collector.grpc_endpoint, insecure=True))
    )
    tracer, never = provider.get_tracer("shop"), threading.Event()
    until, count = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        content = [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": f"Parcel {count} is on its way."}],
            }
        ]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": json.dumps(content),
        }
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
    (tmp_path / "sidecar").mkdir()
    (tmp_path / "collector").mkdir()
    with ModelServer(["Yes."]) as model:
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
            endpoint="",
            is_instrumented=True,
            environment={
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_METRICS_EXPORTER": "none",
                "PYTHONPATH": str(ROOT),
                "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "httpx,agenteval",
            },
        )
        config = tmp_path / "collector.json"
        config.write_text(json.dumps(_configuration(sidecar)))
        with running(
            Collector(collector_binary, tmp_path / "collector", config=config)
        ) as collector:
            sidecar._endpoint = collector.grpc_endpoint
            with running(sidecar):
                answers = _answers(collector)
                spans = collector.wait_for(lambda seen: _of_sidecar(seen, 4 * answers), LIMIT_S)
                _wait_until_nothing_comes(collector)
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


def _wait_until_nothing_comes(collector: Collector) -> None:
    """Nothing new in sixty looks, three seconds: longer than a span waits for its parent, its score
    and its way.
    """
    earlier: list[int] = []

    def quiet(seen: Collector) -> bool:
        earlier.append(len(seen.spans()))
        return earlier[-60:].count(earlier[-1]) == 60

    collector.wait_for(quiet, LIMIT_S)
