"""The servers of MLflow and Phoenix: scores at the spans that came by OTLP, once, also when they
come before these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from agenteval_otel import Score, monitor
from agenteval_otel.evaluators import Func
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult
from agenteval_otel.models.results import SpanReference
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import (
    MlflowStorageProvider,
    OtlpStorageProvider,
    PhoenixStorageProvider,
)
from agenteval_otel.storage.scores import ScoreStorageProvider
from tests.backends.fixtures import Receivers
from tests.pipelines import pipeline_with

pytestmark = pytest.mark.backend
T = TypeVar("T")

EXPERIMENT = {"x-mlflow-experiment-id": "0"}


def exporters(receivers: Receivers) -> tuple[SpanExporter, SpanExporter]:
    mlflow = OTLPSpanExporter(receivers.mlflow.traces_endpoint, headers=EXPERIMENT)
    return mlflow, OTLPSpanExporter(receivers.phoenix.traces_endpoint)


def providers(
    receivers: Receivers, **fields: Any
) -> tuple[ScoreStorageProvider, ScoreStorageProvider]:
    mlflow = MlflowStorageProvider(tracking_uri=receivers.mlflow.address, **fields)
    return mlflow, PhoenixStorageProvider(endpoint=receivers.phoenix.address, **fields)


def wait_for(look: Callable[[], T], limit_s: float = 30.0) -> T:
    """What it sees, as soon as that is true."""
    deadline, never = time.monotonic() + limit_s, Event()
    while not (seen := look()):
        assert time.monotonic() < deadline, "not seen in time"
        never.wait(0.1)
    return seen


@contextmanager
def losses_of(*storage: ScoreStorageProvider) -> Iterator[list[BaseException]]:
    """What they lose until the end of the block, where they are closed."""
    losses: list[BaseException] = []
    for provider in storage:
        provider.report_losses_to(losses.append)
    try:
        yield losses
    finally:
        for provider in storage:
            asyncio.run(provider.close())


class Kept(SpanExporter):
    """Keeps spans that have ended, to be exported by hand."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def ended_span() -> ReadableSpan:
    """A span that is not exported yet."""
    kept = Kept()
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(kept))
    tracers.get_tracer("test").start_span("invoke_agent support").end()
    tracers.shutdown()
    return kept.spans[0]


def result_of(span: ReadableSpan, **fields: Any) -> AggregatedEvaluationResult:
    context = span.get_span_context()
    assert context is not None
    reference = SpanReference(
        trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}", trace_flags=1
    )
    value = {"score": 0.25, "evaluator_id": "Tone", "evaluator_version": "v1", **fields}
    result = EvaluationResult(criterion_name="tone", evaluator_type="T", **value)
    return AggregatedEvaluationResult(results=(result,), span=reference, ended_ns=time.time_ns())


def rude(evaluation_input: EvaluationInput) -> Score:
    return Score(value=0.25, passed=False, reasoning="It scolds.", reason_code="rude")


def broken(evaluation_input: EvaluationInput) -> Score:
    raise TimeoutError


def test_scores_of_a_monitored_answer_are_at_its_span(receivers: Receivers) -> None:
    """The agent's span comes by OTLP, its scores by each receiver's own API: both show them there
    after one flush.
    """
    tracers, kept = TracerProvider(), Kept()
    for exporter in (kept, *exporters(receivers)):
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    storage = providers(receivers)
    evaluators = (
        Func(function=rude, criterion_name="tone"),
        Func(function=broken, criterion_name="facts"),
    )
    emitting = OtlpStorageProvider(
        tracer_provider=tracers, signals={"traces"}, content="span_and_event"
    )
    pipeline = pipeline_with(
        sampler=RatioSampler(), evaluators=evaluators, storage=(emitting, *storage)
    )
    try:
        assert monitor(agent="support", pipeline=pipeline)(str.upper)("hello") == "HELLO"
        assert pipeline.flush(30), pipeline.accounting.failures
        assert pipeline.accounting.failures == {}
    finally:
        pipeline.shutdown(10)
        tracers.shutdown()
    trace_id, span_id = spans_named(kept, "invoke_agent support")
    assessments = {part["assessment_name"]: part for part in receivers.mlflow.assessments(trace_id)}
    tone, facts = assessments["tone"], assessments["facts"]
    assert (tone["span_id"], tone["feedback"], tone["rationale"]) == (
        span_id,
        {"value": 0.25},
        "It scolds.",
    )
    assert tone["source"] == {"source_type": "CODE", "source_id": "Func:tone"}
    assert {
        "reason_code": "rude",
        "passed": "false",
        "sampling_probability": "1.0",
    }.items() <= tone["metadata"].items()
    assert facts["feedback"]["error"]["error_code"] == "TimeoutError"
    assert len(assessments) == 2

    (annotation,) = wait_for(lambda: receivers.phoenix.annotations(span_id))
    assert annotation["name"] == "tone"
    assert annotation["annotator_kind"] == "CODE"
    assert annotation["result"] == {"score": 0.25, "label": "fail", "explanation": "It scolds."}


def spans_named(kept: Kept, name: str) -> tuple[str, str]:
    """Trace and span id of the one span of this name."""
    (context,) = [span.get_span_context() for span in kept.spans if span.name == name]
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_a_score_that_is_sent_again_replaces_itself(receivers: Receivers) -> None:
    """The same criterion of the same evaluator and version stands once, with its newest value."""
    span = ended_span()
    for exporter in exporters(receivers):
        assert exporter.export([span]) == SpanExportResult.SUCCESS
    storage = providers(receivers)
    with losses_of(*storage) as losses:
        for score, reasoning in ((0.25, "first"), (0.75, "second")):
            for provider in storage:
                asyncio.run(provider.save_result(result_of(span, score=score, reasoning=reasoning)))
                assert provider.flush(30)
        other = result_of(span, score=0.5, evaluator_version="v2")
        asyncio.run(storage[0].save_result(other))
        assert storage[0].flush(30)
    assert losses == []
    assert other.span is not None
    assessments = receivers.mlflow.assessments(other.span.trace_id)
    values = {(part["feedback"]["value"], part.get("rationale")) for part in assessments}
    assert values == {(0.75, "second"), (0.5, None)}
    assert len(assessments) == 2
    (annotation,) = wait_for(
        lambda: [
            part
            for part in receivers.phoenix.annotations(other.span.span_id)
            if part["result"]["score"] == 0.75
        ]
    )
    assert annotation["result"]["explanation"] == "second"


def test_a_score_waits_for_its_span(receivers: Receivers) -> None:
    """MLflow takes no score before the trace, so it comes again; Phoenix keeps it; a trace that
    never comes is lost.
    """
    span, never_sent = ended_span(), ended_span()
    storage = providers(receivers)
    patience = MlflowStorageProvider(tracking_uri=receivers.mlflow.address, give_up_s=0.5)
    with losses_of(*storage) as losses, losses_of(patience) as given_up:
        for provider in storage:
            asyncio.run(provider.save_result(result_of(span)))
        asyncio.run(patience.save_result(result_of(never_sent)))
        assert not storage[0].flush(1.0)
        assert storage[1].flush(30)
        assert patience.flush(30)
        for exporter in exporters(receivers):
            exporter.export([span])
        assert storage[0].flush(30)
        context = span.get_span_context()
        assert context is not None
        assert len(receivers.mlflow.assessments(f"{context.trace_id:032x}")) == 1
        assert wait_for(lambda: receivers.phoenix.annotations(f"{context.span_id:016x}"))
    assert losses == []
    (lost,) = given_up
    assert "status 404: it does not know the trace" in str(lost)
