"""B18: no header and no attribute that a client chooses says that its answer is an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from agenteval_otel import configure, flush
from agenteval_otel.config import default_pipeline
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.semconv import EVALUATION_SAMPLED
from agenteval_otel.sidecar.intake import Intake
from agenteval_otel.sidecar.journal import TRACES
from tests.promises.figures import Recorder
from tests.promises.served import add_span
from tests.promises.sidecars import ANSWER

TRACE_ID = 0x1234567890ABCDEF1234567890ABCDEF
SECRET = "a key that only we have"
MARK = SamplingKey(SECRET.encode()).mark(TRACE_ID)
STATES = {
    "the mark of old": "agenteval=evaluation",
    "an empty mark": "agenteval=",
    "any digits": f"agenteval={'0' * 32}",
    "another key's mark": f"agenteval={SamplingKey(b'guessed').mark(TRACE_ID)}",
    "another trace's mark": f"agenteval={SamplingKey(SECRET.encode()).mark(TRACE_ID + 1)}",
    "a part of the mark": f"agenteval={MARK[:-1]}",
}
TEXTS = {
    "sampled, as baggage": {EVALUATION_SAMPLED: "true"},
    "sampled, as a number": {EVALUATION_SAMPLED: "1"},
    "our scope as an attribute": {
        "otel.scope.name": "agenteval_otel",
        "scope.name": "agenteval_otel",
    },
    "an evaluation's attributes": {
        "gen_ai.evaluation.name": "good",
        "agenteval.evaluation.criteria": "good",
    },
}


@pytest.fixture(autouse=True)
def _configured() -> None:
    configure(evaluators=[ResponseHealth()], sample_rate=1.0, storage=[])


def evaluated_by_sidecar(state: str, attributes: Mapping[str, str]) -> dict[str, int]:
    intake = Intake(SidecarSettings(quiet_s=0.0))
    intake.start()
    for number in range(5):
        request = ExportTraceServiceRequest()
        spans = request.resource_spans.add().scope_spans.add().spans
        span = add_span(spans, TRACE_ID, number + 1, attributes={**ANSWER, **attributes})
        span.trace_state = state
        intake.take(TRACES, request)
        assert intake.drain(10.0)
    assert intake.close(10.0)
    return counted()


def evaluated_by_processor(state: str, attributes: Mapping[str, Any]) -> dict[str, int]:
    provider = TracerProvider()
    processor = AgentEvalSpanProcessor(quiet_s=0.0)
    provider.add_span_processor(processor)
    for number in range(5):
        parent = SpanContext(
            TRACE_ID, 77 + number, True, TraceFlags(1), TraceState.from_header([state])
        )
        context = trace.set_span_in_context(NonRecordingSpan(parent))
        span = provider.get_tracer("any library").start_span("support", context)
        span.set_attributes({**ANSWER, **attributes})
        span.end()
        assert provider.force_flush()
    provider.shutdown()
    return counted()


def counted() -> dict[str, int]:
    assert flush(10.0)
    outcomes = default_pipeline().accounting.outcomes()
    spans = default_pipeline().accounting.spans()
    return {"evaluated": outcomes["evaluated"], "ours": spans.get("ours", 0)}


WAYS = pytest.mark.parametrize("way", [evaluated_by_sidecar, evaluated_by_processor])


@WAYS
@pytest.mark.parametrize("name", [*STATES, *TEXTS])
def test_what_a_client_sends_leaves_no_answer_out(way: Any, name: str, promise: Recorder) -> None:
    """Five answers below a client's trace state, or with its baggage as attributes of text: all are
    evaluated, whatever it says.
    """
    promise("B18", figure="trace states of clients and baggage as attributes: 0 answers left out")
    assert way(STATES.get(name, ""), TEXTS.get(name, {})) == {"evaluated": 5, "ours": 0}


@WAYS
def test_an_evaluation_is_known_by_its_mark(way: Any, promise: Recorder) -> None:
    """A span below an evaluation of another process with the same key is no answer."""
    promise("B18", figure="marks made with the key: 0 evaluated")
    configure(sample_rate=1.0, storage=[], sampling={"key": SECRET})
    assert way(f"ot=rv:0,agenteval={MARK}", {}) == {"evaluated": 0, "ours": 5}
