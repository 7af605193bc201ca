"""The span processor: answers that other instrumentation's spans show, evaluated in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from agenteval_otel import monitor
from agenteval_otel.evaluators import Contains, Func
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import RecordedTelemetry
from tests.instrumentation.support import outcomes_of
from tests.pipelines import pipeline_with

LIMIT_MS = 60_000
POLITE = Contains(substrings=["please"], criterion_name="polite")


class Application:
    """A process with tracing and the processor; results go to the telemetry."""

    def __init__(self, ratio: float = 1.0, *, quiet_s: float = 0.0, **settings: Any) -> None:
        self.telemetry = RecordedTelemetry()
        provider: TracerProvider = self.telemetry.tracer_provider
        self.pipeline = pipeline_with(
            sampler=RatioSampler(ratio=ratio),
            evaluators=(POLITE,),
            storage=(self.telemetry.storage(),),
            **settings,
        )
        self.processor = AgentEvalSpanProcessor(quiet_s=quiet_s, pipeline=self.pipeline)
        provider.add_span_processor(self.processor)
        self.tracer: Tracer = provider.get_tracer("an-agent-library")

    @property
    def outcomes(self) -> dict[str, int]:
        assert self.processor.force_flush(LIMIT_MS)
        return outcomes_of(self.pipeline)

    def answer(self, text: str | None = "Wait, please.", *, operation: str = "chat") -> None:
        """An agent's span with one model call below it."""
        said = {} if text is None else {"gen_ai.output.messages": messages("assistant", text)}
        with self.tracer.start_as_current_span("invoke_agent support") as span:
            span.set_attributes(
                {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
            )
            with self.tracer.start_as_current_span("chat m-1") as model:
                model.set_attributes(
                    {"gen_ai.operation.name": operation, "gen_ai.request.model": "m-1", **said}
                )
                if text is not None:
                    model.set_attribute("gen_ai.input.messages", messages("user", "When?"))


@pytest.fixture
def application() -> Iterator[Callable[..., Application]]:
    """Makes applications, which end with the test."""
    made: list[Application] = []

    def make(**settings: Any) -> Application:
        made.append(Application(**settings))
        return made[-1]

    yield make
    for each in made:
        each.processor.shutdown()
        each.pipeline.shutdown(5.0)
        each.telemetry.shutdown()


Make = Callable[..., Application]


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def test_an_answer_is_scored_in_its_trace(application: Make) -> None:
    """The run span lies below the agent's span, the event belongs to it, and the call is counted
    once.
    """
    app = application()
    app.answer()
    assert app.outcomes == {"evaluated": 1}
    spans = {span.name: span for span in app.telemetry.spans()}
    agent, run = spans["invoke_agent support"], spans["evaluation support"]
    assert run.parent == agent.context
    assert dict(run.attributes or {})["gen_ai.evaluation.polite.label"] == "pass"
    (event,) = app.telemetry.events()
    assert event.span_id == agent.context.span_id
    assert app.outcomes == {"evaluated": 1}


def test_what_the_processor_passes_by_is_counted_by_reason(application: Make) -> None:
    """Without content, switched off, not sampled; and its own output is no answer."""
    without_content = application()
    without_content.answer(None)
    assert without_content.outcomes == {"capture_failed": 1}
    off = application(enabled=False)
    off.answer()
    assert off.outcomes == {"disabled": 1}
    unsampled = application(ratio=0.0)
    unsampled.answer()
    assert unsampled.outcomes == {"not_sampled": 1}


def test_an_answer_that_the_decorator_takes_is_scored_once(application: Make) -> None:
    """The spans below its call are the same answer: seen, counted and passed by."""
    app = application()

    @monitor(agent="support", pipeline=app.pipeline)
    def handler() -> str:
        app.answer()
        return "Wait, please."

    handler()
    assert app.outcomes == {"evaluated": 1, "already_monitored": 1}
    runs = [span for span in app.telemetry.spans() if span.name == "evaluation support"]
    assert len(runs) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_model_calls_of_evaluators_are_no_answers(is_async: bool, application: Make) -> None:
    """An instrumented client that an evaluator uses makes spans as the application's does."""
    app = application()

    def ask(_: EvaluationInput) -> bool:
        with app.tracer.start_as_current_span("chat judge") as span:
            content = messages("assistant", "It is polite.")
            span.set_attributes(
                {"gen_ai.operation.name": "chat", "gen_ai.output.messages": content}
            )
        return True

    async def ask_later(evaluation_input: EvaluationInput) -> bool:
        return ask(evaluation_input)

    evaluator = Func(criterion_name="judged", function=ask_later if is_async else ask)
    handlers = app.pipeline.handlers
    handlers.defaults = handlers.defaults.model_copy(update={"evaluators": (evaluator,)})
    app.answer()
    assert app.outcomes == {"evaluated": 1}
    assert [span.name for span in app.telemetry.spans()].count("chat judge") == 1
    assert app.outcomes == {"evaluated": 1}


def test_an_answer_of_which_no_part_is_text_is_counted_with_its_reason(application: Make) -> None:
    """It is not judged as an empty answer."""
    app = application()
    image = '[{"role": "assistant", "parts": [{"type": "blob", "content": "iVBO"}]}]'
    with app.tracer.start_as_current_span("chat") as span:
        span.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.output.messages": image})
    app.answer()
    assert app.outcomes == {"evaluated": 1, "capture_failed": 1}
    details = app.pipeline.accounting.details().values()
    assert [reason for counts in details for _, reason in counts] == ["unknown_parts"]


def test_a_flush_leaves_an_agent_that_is_at_work_alone(application: Make) -> None:
    """Its model call has ended and waits for it: together they are one answer. A parent elsewhere
    is not waited for.
    """
    app = application()
    content = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": messages("assistant", "Wait, please."),
    }
    with app.tracer.start_as_current_span("invoke_agent support") as agent:
        agent.set_attributes(
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
        )
        with app.tracer.start_as_current_span("chat m-1", attributes=content):
            pass
        assert app.outcomes == {}
    assert app.outcomes == {"evaluated": 1}
    elsewhere = NonRecordingSpan(SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1)))
    app.tracer.start_span(
        "chat m-1", context=set_span_in_context(elsewhere), attributes=content
    ).end()
    assert app.outcomes == {"evaluated": 2}


def test_spans_that_wait_are_bounded(application: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their size, and what does not fit is counted; nothing stays reserved when their answers
    are read.
    """
    app = application(quiet_s=3_600.0)  # no trace is taken meanwhile
    monkeypatch.setattr(MEMORY.read_spans, "max_bytes", 1_000_000)
    for _ in range(30):
        app.answer("please " * 10_000)
    dropped = app.pipeline.accounting.failures["spans:dropped"]
    assert 10 < dropped < 30
    assert 0 < MEMORY.read_spans.used_bytes <= 1_000_000
    monkeypatch.undo()
    app.answer()
    assert app.outcomes["evaluated"] > 5
    assert MEMORY.read_spans.used_bytes == 0


def test_an_answer_of_which_a_span_finds_no_room_is_left_out(
    application: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other spans count as dropped too: without the model call it would be scored as another."""
    app = application(quiet_s=3_600.0)
    monkeypatch.setattr(MEMORY.read_spans, "max_bytes", 100_000)
    app.answer("Wait, please.")
    app.answer("please " * 100_000)  # the model call finds no room, its agent does
    monkeypatch.undo()
    assert app.outcomes == {"evaluated": 1}
    assert app.pipeline.accounting.failures["spans:dropped"] == 2


def test_spans_that_wait_count_as_python_keeps_them(application: Make) -> None:
    """A text with an emoji, a list of texts, names of attributes, and what links and events have."""
    app = application(quiet_s=3_600.0)  # no trace is taken meanwhile
    link = Link(SpanContext(1, 2, is_remote=True), {"text": "l" * 50_000})
    attributes = {"text": "x" * 50_000 + "\U0001f600", "list": ["y" * 50_000] * 2, "n" * 50_000: 1}
    used_bytes = MEMORY.read_spans.used_bytes
    span = app.tracer.start_span("s" * 50_000, attributes=attributes, links=[link])
    span.add_event("event", {"text": "e" * 50_000})
    span.end()
    used_bytes = MEMORY.read_spans.used_bytes - used_bytes
    assert 9 * 50_000 < used_bytes < 9 * 50_000 + 10_000


@pytest.mark.parametrize("end", ["shutdown", "pipeline"])
def test_what_has_ended_is_evaluated_before_the_end(end: str, application: Make) -> None:
    """The provider's shutdown and the pipeline's own both take what waits for a quiet trace."""
    app = application(quiet_s=3_600.0)
    app.answer()
    if end == "shutdown":
        app.processor.shutdown()
        app.answer()  # too late
        assert app.pipeline.flush(LIMIT_MS / 1e3)
    else:
        app.pipeline.shutdown(30.0)
    assert app.pipeline.accounting.outcomes()["evaluated"] == 1
