"""Answers that were scored live, scored again by a new version of the evaluator: from a real
Jaeger, and from the file that a real Collector wrote; killed on the way and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv

from .collector import TO_FILE, Collector, configuration, plain
from .faults import LOOPBACK
from .fixtures import running
from .jaeger import Jaeger
from .process import bare_environment
from .programs import ROOT

pytestmark = pytest.mark.backend

ANSWERS = 700
SERVICE = "recorded-shop"
LIMIT_S = 60.0
APPLICATION = f"""
import json
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
import agenteval_otel
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor

agenteval_otel.configure("old.yaml")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=100))
evaluation = AgentEvalSpanProcessor(quiet_s=0.1)
provider.add_span_processor(evaluation)
from opentelemetry import trace
trace.set_tracer_provider(provider)
tracer = provider.get_tracer("shop")
for number in range({ANSWERS}):
    said = [{{"role": "assistant", "parts": [{{"type": "text", "content": f"Parcel {{number}} is on its way."}}]}}]
    with tracer.start_as_current_span("invoke_agent support") as span:
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
        span.set_attribute("gen_ai.agent.name", "support")
        span.set_attribute("gen_ai.output.messages", json.dumps(said))
    if number % 100 == 99:
        evaluation.force_flush()
        assert agenteval_otel.flush(30)
        provider.force_flush()
provider.shutdown()
agenteval_otel.shutdown(30)
"""
OLD = """
sample_rate: 1.0
evaluators: [{type: KeywordCoverage, criterion_name: topic, expected_keywords: [parcel, customs]}]
"""
PLUGIN = '''
import time
from agenteval_otel.evaluators import CriterionEvaluator

class Topic(CriterionEvaluator, type="NewTopic"):
    """Slow enough to be killed on the way."""

    criterion_name: str = "topic"

    def score(self, evaluation_input):
        time.sleep(0.001)
        return "Parcel 6" not in evaluation_input.response_text
'''
NEW = "plugins: [new_topic]\nevaluators: [{type: NewTopic, execution: inline}]"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jaeger", "file"])
def test_recorded_answers_are_scored_again(
    kind: str, jaeger: Jaeger, collector_binary: Path, tmp_path: Path
) -> None:
    """Each answer once, in spite of the kill; recorded and new scores side by side; new results
    link to the original spans, are marked, and make no metric."""
    service = f"{SERVICE}-{kind}"
    for name, text in (
        ("old.yaml", OLD),
        ("new.yaml", NEW),
        ("new_topic.py", PLUGIN),
        ("app.py", APPLICATION),
    ):
        (tmp_path / name).write_text(text)
    config = configuration(
        {
            "traces": {"receivers": ["otlp"], "exporters": ["otlp/jaeger", "file"]},
            "logs": TO_FILE,
            "metrics": TO_FILE,
        },
        exporters={"otlp/jaeger": plain(jaeger.otlp_endpoint)},
    )
    with running(Collector(collector_binary, tmp_path / "collector", config=config)) as collector:
        environment = bare_environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint,
            OTEL_EXPORTER_OTLP_INSECURE="true",
            OTEL_SERVICE_NAME=service,
            PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
        )
        subprocess.run(
            [sys.executable, "app.py"], cwd=tmp_path, env=environment, check=True, timeout=120
        )
        collector.wait_for(lambda seen: len(seen.spans(service)) >= ANSWERS, LIMIT_S)
        jaeger.wait_for(lambda seen: len(seen.traces(service)) >= ANSWERS, LIMIT_S)
        recorded = {
            span.trace_id: span.span_id
            for span in collector.spans(service)
            if span.name.startswith("invoke")
        }
        history = tmp_path / "history.jsonl"
        history.write_bytes(collector.file.read_bytes())
        environment.pop("OTEL_SERVICE_NAME")
        place = (
            [str(history)]
            if kind == "file"
            else [f"http://{LOOPBACK}:{jaeger.ports.query_http}", "--since", "1h"]
        )
        command = [
            sys.executable,
            "-m",
            "agenteval_otel",
            "replay",
            "--from",
            kind,
            *place,
            "--service",
            service,
            "--settings",
            "new.yaml",
            "--report",
            "json",
            "--dataset",
            "failing.jsonl",
        ]
        report = _killed_and_resumed(command, tmp_path, environment)
        runs = collector.wait_for(lambda seen: _runs(seen, ANSWERS), LIMIT_S)
        events = [
            record
            for record in collector.logs("agenteval-replay")
            if record.attributes.get("service.name") == service
        ]
        metrics = collector.metrics("agenteval-replay")
        linked = [trace for trace in jaeger.traces("agenteval-replay") if _is_of(trace, recorded)]
    keys = [
        json.loads(line)["span"]["traceId"]
        for line in (tmp_path / "replay.jsonl").read_text().splitlines()
    ]
    assert sorted(keys) == sorted(recorded)
    assert (report["answers"], report["undelivered"]) == (ANSWERS, 0)
    assert 0 < report["earlier"] < ANSWERS
    [topic] = report["compared"]
    failing = sum(str(number).startswith("6") for number in range(ANSWERS))
    assert (topic["answers"], topic["recorded"]["mean"]["mean"]) == (ANSWERS, 0.5)
    assert topic["new"]["mean"]["mean"] == pytest.approx(1 - failing / ANSWERS)
    assert topic["new"]["evaluators"][0].startswith("NewTopic")
    assert (
        len((tmp_path / "failing.jsonl").read_text().splitlines()) == report["failing"] == failing
    )
    assert {span.attributes.get(semconv.EVALUATION_REPLAYED) for span in runs} == {True}
    assert {record.attributes.get(semconv.EVALUATION_REPLAYED) for record in events} == {True}
    assert {(record.trace_id, record.span_id) for record in events} == set(recorded.items())
    assert len({trace.spans[0].links[0] for trace in linked}) == ANSWERS
    assert metrics == []


def _killed_and_resumed(command: list[str], folder: Path, environment: dict[str, str]) -> Any:
    """The report of the second process; the first is killed once it has scored some answers."""
    results, never = folder / "replay.jsonl", threading.Event()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    while not results.exists() or results.read_bytes().count(b"\n") < ANSWERS // 3:
        assert process.poll() is None, "it ended before it was killed"
        never.wait(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return json.loads(done.stdout)


def _runs(collector: Collector, count: int) -> list[Any]:
    spans = [
        span for span in collector.spans("agenteval-replay") if span.name.startswith("evaluation ")
    ]
    return spans if len(spans) >= count else []


def _is_of(trace: Any, recorded: dict[str, str]) -> bool:
    return any(
        recorded.get(trace_id) == span_id
        for span in trace.spans
        for trace_id, span_id in span.links
    )
