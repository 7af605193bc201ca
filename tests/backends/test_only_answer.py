"""A script that gives one answer and ends: its only result still reaches the Collector."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .collector import Collector
from .process import bare_environment

pytestmark = pytest.mark.backend

SCRIPT = """
from agenteval_otel import monitor

@monitor
def answer(question):
    return "It is on its way."

answer("Where is my order?")
"""


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="3.12 starts no thread any more while it ends")
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_the_only_answer_of_a_script_is_exported(collector: Collector, protocol: str) -> None:
    """Evaluation, private providers and export all happen while the process ends, within its two seconds."""
    service = f"only-answer-{protocol[:4]}"
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    environment = bare_environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_SERVICE_NAME=service
    )
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    (event,) = collector.wait_for(lambda seen: seen.logs(service), 10.0)
    assert event.attributes["gen_ai.evaluation.score.label"] == "pass"
    names = {span.name for span in collector.wait_for(lambda seen: seen.spans(service), 10.0)}
    assert names == {"invoke_agent answer", "evaluation answer"}
    assert collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service), 10.0) is not None
