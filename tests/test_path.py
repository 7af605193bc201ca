"""The path of one answer, from the decorated function to emission: which files of the package run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.backends.faults import refused_port
from tests.backends.process import bare_environment

MOST_FILES = 45  # with the capabilities that hear of every answer
MOST_FILES_AT_FIRST = 95  # as `FIRST` measures it: settings, assembly and the own exporter too

SCRIPT = """
import json, pathlib, sys, threading
from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, events = InMemorySpanExporter(), InMemoryLogExporter()
tracers, loggers = TracerProvider(), LoggerProvider()
tracers.add_span_processor(BatchSpanProcessor(spans))
loggers.add_log_record_processor(BatchLogRecordProcessor(events))
trace.set_tracer_provider(tracers)
set_logger_provider(loggers)
metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))

import agenteval_otel
from agenteval_otel import EvaluationInput, Score, configure, flush, monitor, shutdown
from agenteval_otel.evaluators import CriterionEvaluator

ROOT = pathlib.Path(agenteval_otel.__file__).parent
files, armed = set(), False

def note(frame, event, _):
    if event == "call":
        files.add(frame.f_code.co_filename)

class Length(CriterionEvaluator, type="PathLength"):
    criterion_name: str = "length"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if armed and sys.getprofile() is None:
            sys.setprofile(note)  # on the background thread: it was there before
        return Score(value=min(1.0, len(evaluation_input.response_text) / 100))

configure(evaluators=[Length(execution="inline")], sample_rate=1.0)

@monitor
def answer(question: str) -> str:
    return "An answer to " + question

for number in range(300):
    answer(f"question {number}")
assert flush(30)
armed = True
answer("the profile begins within this one")
assert flush(30)
files.clear()
spans.clear()
events.clear()
threading.setprofile(note)
sys.setprofile(note)
answer("the one that counts")
sys.setprofile(None)
threading.setprofile(None)
assert flush(30)
own = sorted(str(pathlib.Path(file).relative_to(ROOT)) for file in files if file.startswith(str(ROOT)))
(*_, agent) = [span for span in spans.get_finished_spans() if span.name.startswith("invoke_agent")]
print(json.dumps({
    "files": own, "spans": len(spans.get_finished_spans()), "events": len(events.get_finished_logs()),
    "attributes": dict(agent.attributes),
}))
shutdown(10)
"""


def run(script: str, **variables: str) -> dict[str, Any]:
    """What a script prints in a fresh interpreter; its files are shown with ``-s``."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env={**bare_environment(), **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{len(seen['files'])} files:", *seen["files"], sep="\n  ")
    return seen


def test_one_answer_meets_few_files() -> None:
    """A sampled answer with one inline evaluator and the host's providers runs few files."""
    seen = run(SCRIPT)
    # the agent span with the results; one event for the criterion
    assert (seen["spans"], seen["events"]) == (1, 1)
    assert "telemetry/emitter.py" in seen["files"]
    assert "engine/run.py" in seen["files"]
    assert len(seen["files"]) <= MOST_FILES


FIRST = """
import json, pathlib, sys, threading
import agenteval_otel
from agenteval_otel import flush, monitor, shutdown

ROOT = pathlib.Path(agenteval_otel.__file__).parent
files = set()

def note(frame, event, _):
    if event == "call":
        files.add(frame.f_code.co_filename)

threading.setprofile(note)
sys.setprofile(note)

def is_short(evaluation_input):
    return len(evaluation_input.response_text) < 100

@monitor(evaluators=[is_short], sample_rate=1.0)
def answer(question: str) -> str:
    return "An answer to " + question

for number in range(3):
    answer(f"question {number}")
flush(5)
sys.setprofile(None)
threading.setprofile(None)
own = sorted(str(pathlib.Path(file).relative_to(ROOT)) for file in files if file.startswith(str(ROOT)))
print(json.dumps({"files": own, "evaluated": agenteval_otel.accounting()["evaluated"]}))
shutdown(1)
"""


def test_a_decorated_function_and_its_first_calls_meet_few_files() -> None:
    """From the decoration with a function as evaluator to the export, on all threads."""
    with refused_port() as port:
        seen = run(FIRST, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
    assert seen["evaluated"] == 3
    assert "telemetry/private.py" in seen["files"]
    assert len(seen["files"]) <= MOST_FILES_AT_FIRST
