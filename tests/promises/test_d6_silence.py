"""D6: a sidecar that evaluates nothing says why, and an instrumentor that nobody configured does
nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel.semconv import EVALUATION_SAMPLED
from tests.promises.figures import Recorder
from tests.promises.served import Served, add_span, new_trace_id
from tests.promises.sidecars import AGENT, ANSWER, answer

WITHIN_S = 10.0
BUSY_S = 5.0  # as much more on a machine with other work
ANSWERS = 8


def spans_request(
    attributes: Mapping[str, str], change: Callable[[Any], object] = bool, scope: str = ""
) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "support-api"
    scope_spans = group.scope_spans.add()
    scope_spans.scope.name = scope
    for _ in range(ANSWERS):
        change(add_span(scope_spans.spans, new_trace_id(), 1, attributes=attributes))
    return request.SerializeToString()


def evaluate_elsewhere(span: Any) -> None:
    span.attributes.add(key=EVALUATION_SAMPLED).value.bool_value = True


CASES = {
    "already_monitored": (
        spans_request(ANSWER, evaluate_elsewhere),
        "8 answers came, none was evaluated here: they are evaluated already, in support-api",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=agenteval",
    ),
    "capture_failed": (
        spans_request(AGENT),
        "8 answers came, none was evaluated here: they are answers whose spans have no text",
        "switch the capture of content on",
    ),
    "not_understood": (
        spans_request({"http.route": "/chat"}, scope="web.framework"),
        "8 spans came, and no answer in them: 8 are not understood, of web.framework (8)",
        "page on spans",
    ),
    "without_answer": (
        spans_request({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}),
        "8 spans came, and no answer in them: none is of an agent or a model call",
        "let the spans of the agent",
    ),
}


@pytest.mark.parametrize("reason", CASES)
def test_a_sidecar_that_drops_everything_says_why(
    reason: str, tmp_path: Path, promise: Recorder
) -> None:
    """One log line with the reason and the cure, and the same in `/healthz`, while it stays ready;
    an answer that is evaluated takes it back.
    """
    request, problem, fix = CASES[reason]
    with Served(tmp_path) as served:
        assert "nothing_evaluated" not in json.loads(served.get("/healthz").body)
        began = time.monotonic()
        assert served.post(request).status == 200
        served.wait_for(lambda: "nothing_evaluated" in served.told, "line", WITHIN_S + BUSY_S)
        took_s = time.monotonic() - began
        lines = [line for line in served.told.splitlines() if "nothing_evaluated" in line]
        assert len(lines) == 1
        assert problem in lines[0]
        assert fix in lines[0]
        health = served.get("/healthz")
        state = json.loads(health.body)
        assert (health.status, state["nothing_evaluated"]) == (200, reason)
        assert fix in state["fix"]
        assert "support-api" not in health.body.decode()
        assert served.get("/readyz").status == 200
        answer(served)
        served.wait_for(
            lambda: "nothing_evaluated" not in json.loads(served.get("/healthz").body), "answer"
        )
        assert served.terminate() == 0
    promise("D6", figure=f"{reason}: said after {took_s:.1f} s, once")


PROGRAM = Path(sys.executable).parent / "opentelemetry-instrument"
APPLICATION = """
import json, sys
from opentelemetry import trace
if "configure" in sys.argv:
    from agenteval_otel import configure
    configure(sample_rate=1, storage=["console"])
messages = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "It is due."}]}])
with trace.get_tracer("agents").start_as_current_span("invoke_agent support") as span:
    span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"})
    span.set_attribute("gen_ai.output.messages", messages)
print("answered")
"""


def run_application(folder: Path, *arguments: str, **variables: str) -> str:
    (folder / "app.py").write_text(APPLICATION)
    finished = subprocess.run(
        [PROGRAM, sys.executable, "app.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_TRACES_EXPORTER": "console",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "anthropic,openai,httpx",
            **variables,
        },
    )
    assert finished.returncode == 0, finished.stderr
    assert "answered" in finished.stdout
    return finished.stdout + finished.stderr


def test_an_instrumentor_without_settings_evaluates_nothing(
    tmp_path: Path, promise: Recorder
) -> None:
    """It may be installed for another reason: one line says how to configure it, and no span is
    marked. A variable, or `configure` in the application, switches it on.
    """
    silent = run_application(tmp_path)
    assert silent.count("instrumentor_not_configured") == 1
    assert "AGENTEVAL_SETTINGS" in silent
    assert silent.count('"name": "invoke_agent support"') == 1
    assert "evaluation support" not in silent
    by_variable = run_application(tmp_path, AGENTEVAL_SAMPLE_RATE="1", AGENTEVAL_STORAGE="console")
    in_code = run_application(tmp_path, "configure")
    for output in (by_variable, in_code):
        assert output.count("support  overall 1.00  response_health pass") == 1
    assert "instrumentor_not_configured" not in by_variable
    promise("D6", figure="an instrumentor without settings: 0 evaluations, 1 line")
