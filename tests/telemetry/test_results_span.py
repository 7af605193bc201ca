"""Exactly one span carries an answer's results: the agent span where it is ours and open, else the
run span. The same holds where the application has a tracer provider, and where it has an endpoint
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import annotate, monitor
from agenteval_otel.capture.spans.span import plain_attributes
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from tests.pipelines import pipeline_with
from tests.promises.receiver import Receiver
from tests.testing.doubles import Free, Thinking

Form = Literal["application", "endpoint"]
Spans = dict[str, dict[str, Any]]
"""The attributes of spans, by name."""
AGENT = "invoke_agent support"
RUN = "evaluation support"


def handler(question: str) -> str:
    return f"{question} That is so."


def fail(_: EvaluationInput) -> Score:
    raise ValueError("no")


def spans_of(
    form: Form,
    *evaluators: Any,
    function: Callable[[str], str] = handler,
    limits: SpanLimits | None = None,
    within: str = "",
    **telemetry: Any,
) -> Spans:
    """What is written of one answer, below a span of the application's of the name `within`."""
    if form == "endpoint":
        with Receiver() as receiver:
            _answer(
                evaluators,
                function,
                OtlpStorageProvider(
                    endpoint=receiver.endpoint, protocol="http/protobuf", **telemetry
                ),
            )
            return {span.name: plain_attributes(span.attributes) for span in receiver.spans()}
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        storage = OtlpStorageProvider(tracer_provider=provider, **telemetry)
        if within:
            with provider.get_tracer("host").start_as_current_span(within):
                _answer(evaluators, function, storage)
        else:
            _answer(evaluators, function, storage)
    finally:
        provider.shutdown()
    return {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}


def _answer(
    evaluators: tuple[Any, ...], function: Callable[[str], str], storage: OtlpStorageProvider
) -> None:
    pipeline = pipeline_with(
        sampler=RatioSampler(ratio=1.0), evaluators=evaluators, storage=(storage,)
    )
    try:
        monitor(agent="support", pipeline=pipeline)(function)("Is that so?")
    except KeyError:
        pass
    finally:
        pipeline.flush(30.0)
        pipeline.shutdown(10.0)


def scores(attributes: dict[str, Any]) -> set[str]:
    return {name for name in attributes if name.endswith((".score", "overall_score"))}


@pytest.mark.parametrize("form", ["application", "endpoint"])
def test_an_open_agent_span_has_them(form: Form) -> None:
    """There is no run span, and the agent span has all that it would have had."""
    spans = spans_of(form, Free(criterion_name="tone"), ResponseHealth())
    assert set(spans) == {AGENT}
    own = spans[AGENT]
    below_host = spans_of(
        "application", Free(criterion_name="tone"), ResponseHealth(), within="work"
    )
    run = below_host[RUN]
    assert own["gen_ai.operation.name"] == "invoke_agent"
    assert own["agenteval.evaluation.sampled"] is True
    of_run = set(run) - {"gen_ai.operation.name"}
    assert set(own) == of_run | {
        "gen_ai.operation.name",
        "agenteval.evaluation.sampled",
        "agenteval.evaluation.criteria",
    }
    for name in of_run - {"agenteval.response.ended_at"}:
        assert own[name] == run[name], name
    assert not scores(below_host["work"])


@pytest.mark.parametrize("form", ["application", "endpoint"])
@pytest.mark.parametrize(
    ("evaluators", "telemetry"),
    [
        pytest.param((Free(), Free(criterion_name="bad", action=fail)), {}, id="failed"),
        pytest.param((Free(), Thinking()), {}, id="judged"),
        pytest.param((Free(),), {"placement": "linked"}, id="linked"),
        pytest.param((Free(),), {"detail": "result"}, id="with spans of results"),
        pytest.param(
            (Free(), Free(criterion_name="bad", action=fail)),
            {"detail": "response"},
            id="failed, no spans of results",
        ),
    ],
)
def test_else_the_run_span_has_them(
    form: Form, evaluators: tuple[Any, ...], telemetry: dict[str, Any]
) -> None:
    """The agent span then has none of them, and says only that the answer is evaluated."""
    spans = spans_of(form, *evaluators, **telemetry)
    assert scores(spans[RUN]) >= {"gen_ai.evaluation.fixed.score"}
    assert set(spans[AGENT]) == {
        "gen_ai.operation.name",
        "gen_ai.agent.name",
        "agenteval.evaluation.sampled",
        "agenteval.evaluation.criteria",
    }


@pytest.mark.parametrize("form", ["application", "endpoint"])
def test_an_answer_that_failed_has_a_run_span(form: Form) -> None:
    """Its agent span says what was raised, and has no result."""

    def raises(question: str) -> str:
        raise KeyError(question)

    spans = spans_of(form, ResponseHealth(), function=raises)
    assert scores(spans[RUN]) >= {"gen_ai.evaluation.response_health.score"}
    assert spans[AGENT]["error.type"] == "KeyError"
    assert not scores(spans[AGENT])


def test_nothing_of_the_agent_span_is_pushed_out_or_replaced() -> None:
    """What the handler's code sets stays, and results that do not fit have a run span."""

    def sets(question: str) -> str:
        span = trace.get_current_span()
        span.set_attributes({f"own.{number}": number for number in range(8)})
        span.set_attribute("gen_ai.conversation.id", "as the application writes it")
        annotate(conversation_id="c-1", model="m-1")
        return question

    tight = spans_of("application", Free(), function=sets, limits=SpanLimits(max_attributes=16))
    assert scores(tight[RUN]) >= {"gen_ai.evaluation.fixed.score"}
    assert {f"own.{number}" for number in range(8)} <= set(tight[AGENT])
    assert not scores(tight[AGENT])

    wide = spans_of("application", Free(), function=sets)
    assert set(wide) == {AGENT}
    assert wide[AGENT]["gen_ai.conversation.id"] == "as the application writes it"
    assert wide[AGENT]["gen_ai.request.model"] == "m-1"
    assert {f"own.{number}" for number in range(8)} <= set(wide[AGENT])


def test_an_agent_span_that_the_handler_ended_has_a_run_span_below() -> None:
    """A span that has ended takes nothing."""

    def ends(question: str) -> str:
        trace.get_current_span().end()
        return question

    spans = spans_of("application", Free(), function=ends)
    assert scores(spans[RUN]) >= {"gen_ai.evaluation.fixed.score"}
    assert not scores(spans[AGENT])
