"""Exactly one span carries an answer's results: the agent span where it is ours and open, else the
run span. The same holds where the application has a tracer provider, and where it has an endpoint
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import annotate, monitor
from agenteval_otel.capture.spans.span import plain_attributes
from agenteval_otel.engine.task import Origin, Task
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.promises.receiver import Receiver
from tests.telemetry.support import fail
from tests.testing.doubles import Free, Keeping, Thinking

Form = Literal["application", "endpoint"]
Spans = dict[str, dict[str, Any]]
"""The attributes of spans, by name."""
AGENT = "invoke_agent support"
RUN = "evaluation support"
RESULTS = 8
"""Attributes of the results of one evaluator, beside those that an agent span has anyway."""


def handler(question: str) -> str:
    return f"{question} That is so."


def spans_of(
    form: Form,
    *evaluators: Any,
    function: Callable[[str], str] = handler,
    limits: SpanLimits | None = None,
    within: str = "",
    exporter: InMemorySpanExporter | None = None,
    more: tuple[Any, ...] = (),
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
    exporter = exporter or InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        storage = OtlpStorageProvider(tracer_provider=provider, **telemetry)
        if within:
            with provider.get_tracer("host").start_as_current_span(within):
                _answer(evaluators, function, storage, *more)
        else:
            _answer(evaluators, function, storage, *more)
    finally:
        provider.shutdown()
    return {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}


def _answer(evaluators: tuple[Any, ...], function: Callable[[str], str], *storage: Any) -> None:
    pipeline = pipeline_with(
        sampler=RatioSampler(ratio=1.0), evaluators=evaluators, storage=storage
    )
    try:
        monitor(agent="support", pipeline=pipeline)(function)("Is that so?")
    except KeyError:
        pass
    finally:
        pipeline.flush(30.0)
        pipeline.shutdown(10.0)


def carriers(spans: Spans) -> list[str]:
    """The names of the spans that carry results."""
    return [name for name, attributes in spans.items() if scores(attributes)]


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


@pytest.mark.parametrize("most", [10, 11, 15, 19, 20, 21, 31])
def test_nothing_of_the_agent_span_is_pushed_out(most: int) -> None:
    """What the handler's code sets stays, whatever the limit is. Results that do not fit have a run
    span.
    """
    own = {f"own.{number}": number for number in range(8)}

    def sets(question: str) -> str:
        trace.get_current_span().set_attributes(own)
        return question

    limits = SpanLimits(max_attributes=most)
    exporter = InMemorySpanExporter()
    spans = spans_of("application", Free(), function=sets, limits=limits, exporter=exporter)
    assert {*own, "gen_ai.operation.name", "gen_ai.agent.name"} <= set(spans[AGENT])
    [span] = [span for span in exporter.get_finished_spans() if span.name == AGENT]
    assert span.dropped_attributes == 0
    assert carriers(spans) == ([AGENT] if RUN not in spans else [RUN])
    assert (RUN in spans) == (most < 10 + 2 + RESULTS)


def test_what_the_application_has_set_is_not_replaced() -> None:
    """Its word for the conversation stands; what it has not said is added."""

    def sets(question: str) -> str:
        trace.get_current_span().set_attribute("gen_ai.conversation.id", "as it writes it")
        annotate(conversation_id="c-1", model="m-1")
        return question

    spans = spans_of("application", Free(), function=sets)
    assert set(spans) == {AGENT}
    assert spans[AGENT]["gen_ai.conversation.id"] == "as it writes it"
    assert spans[AGENT]["gen_ai.request.model"] == "m-1"


def test_a_judge_that_is_not_due_asks_for_no_run_span() -> None:
    """Of a handler with a judge, the answers that it does not see are like those of one without."""
    spans = spans_of("application", Free(), Thinking(sample_rate=1e-9))
    assert set(spans) == {AGENT}
    assert scores(spans[AGENT]) >= {"gen_ai.evaluation.fixed.score"}


class Odd(Span):
    """A span of the SDK's, of which an instrumentation has made something of its own."""

    attributes: Any = None


class Broken(Span):
    """The same, and it cannot be ended."""

    def end(self, end_time: int | None = None) -> None:
        super().end(end_time)
        raise RuntimeError("no")


@pytest.mark.parametrize("kind", [Odd, Broken])
def test_odd_spans_lose_no_result(kind: type[Span], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they raise, one span at most has the results, and they are stored and counted."""
    monkeypatch.setattr("opentelemetry.sdk.trace._Span", kind)
    kept = Keeping()
    spans = spans_of("application", Free(), more=(kept,))
    assert len(carriers(spans)) == 1
    assert len(kept.results) == 1


def test_an_agent_span_that_the_handler_ended_has_a_run_span_below() -> None:
    """A span that has ended takes nothing."""

    def ends(question: str) -> str:
        trace.get_current_span().end()
        return question

    spans = spans_of("application", Free(), function=ends)
    assert scores(spans[RUN]) >= {"gen_ai.evaluation.fixed.score"}
    assert not scores(spans[AGENT])


def test_what_comes_later_than_its_answer_makes_no_agent_span() -> None:
    """An answer that was in no trace has waited for the off-peak window: its results have a run span,
    in a trace of their own.
    """
    telemetry = RecordedTelemetry()
    storage = telemetry.storage(signals={"traces"})
    pipeline = pipeline_with(sampler=RatioSampler(), evaluators=(Free(),), storage=(storage,))
    task = Task(pipeline.handler("support"), "support", Origin())
    task.input = EvaluationInput(response="That is so.", agent="support")
    task.late = "off_peak"
    assert pipeline.submit(task, 100)
    assert pipeline.flush(30.0)
    pipeline.shutdown(10.0)
    [span] = telemetry.spans()
    telemetry.shutdown()
    assert (span.name, span.parent) == (RUN, None)
    assert scores(dict(span.attributes or {})) >= {"gen_ai.evaluation.fixed.score"}
