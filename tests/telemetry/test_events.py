"""The event ``gen_ai.evaluation.result``: one for each result, on the evaluated span."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber

from agenteval_otel import monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.testing import RecordedTelemetry
from tests.telemetry.support import Watch, fail, skip, trace_of
from tests.testing.doubles import Free, Thinking

QUESTION, ANSWER = "A question?", "An answer."


def test_one_event_a_result_on_the_evaluated_span(watch: Watch) -> None:
    """Scores and failures give an event each with the evaluated span's ids, a timestamp and our
    scope; skips none.
    """
    host = watch.answer(
        Free(criterion_name="a"),
        Free(criterion_name="b", action=fail),
        Free(criterion_name="c", action=skip),
    )
    events = watch.telemetry.events()
    assert [event.attributes["gen_ai.evaluation.name"] for event in events] == ["a", "b"]
    for event in events:
        assert event.event_name == "gen_ai.evaluation.result"
        assert (event.trace_id, event.span_id) == trace_of(host)
        assert event.trace_flags == host.get_span_context().trace_flags
        assert abs(event.timestamp - time.time_ns()) < 60 * 10**9
        for content in (QUESTION, ANSWER, "secret text"):
            assert content not in repr(event)


def test_the_attributes_of_a_score(watch: Watch) -> None:
    """A scored result says raw score, label, normalized, threshold, reason code, evaluator and
    sampling.
    """
    facts = {"model": "m", "conversation_id": "c", "response_id": "r"}
    evaluator = Free(
        criterion_name="tone", value=2, scale="likert5", threshold=3, reason_code="too_harsh"
    )
    host = watch.answer(evaluator, facts=facts)
    (event,) = watch.telemetry.events()
    attributes = dict(event.attributes)
    answered = datetime.fromisoformat(attributes.pop("agenteval.response.ended_at"))
    began_s, evaluated_s = host.start_time / 1e9, event.timestamp / 1e9
    assert began_s - 0.001 <= answered.timestamp() <= evaluated_s
    assert attributes == {
        "gen_ai.evaluation.name": "tone",
        "gen_ai.evaluation.score.value": 2.0,
        "gen_ai.evaluation.score.label": "fail",
        "agenteval.evaluation.reason_code": "too_harsh",
        "gen_ai.response.id": "r",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": "c",
        "gen_ai.request.model": "m",
        "gen_ai.evaluation.evaluator.id": "Free:tone",
        "gen_ai.evaluation.evaluator.version": evaluator.fingerprint,
        "gen_ai.evaluation.evaluator.type": "deterministic",
        "agenteval.evaluation.score.normalized": 0.25,
        "agenteval.evaluation.threshold": 3.0,
        "agenteval.sampling.probability": 1.0,
        "agenteval.sampling.reason": "ratio",
        "agenteval.sampling.scope": "received",
    }
    assert event.body == "tone fail (too_harsh)"


def test_a_failure_has_neither_score_nor_label(watch: Watch) -> None:
    """A failed result says ``error.type`` and nothing that could be taken for a score; it alone is
    a warning.
    """
    watch.answer(
        Free(value=0.0, threshold=0.5), Free(criterion_name="b", threshold=0.5, action=fail)
    )
    low, broken = watch.telemetry.events()
    assert broken.attributes["error.type"] == "rate_limited"
    assert not [name for name in broken.attributes if "score" in name]
    assert broken.body == "evaluation of b failed: rate_limited"
    assert (broken.severity_number, broken.severity_text) == (SeverityNumber.WARN, "WARN")
    assert (low.severity_number, low.severity_text, low.body) == (
        SeverityNumber.INFO,
        "INFO",
        "fixed fail",
    )


def test_scores_and_labels_by_kind(watch: Watch) -> None:
    """Numbers and booleans are scores, categories are labels, and booleans pass or fail; without a
    trace as well.
    """
    kinds = [(True, "binary"), (False, "binary"), (3, "0-10"), ("warm", "words"), (0.5, "numeric")]
    watch.answer(
        *(
            Free(criterion_name=f"c{at}", value=kind[0], scale=kind[1])
            for at, kind in enumerate(kinds)
        ),
        traced=False,
    )
    names, events = ("score.value", "score.label"), watch.telemetry.events()
    own = watch.span("invoke_agent support").context
    assert {(event.trace_id, event.span_id) for event in events} == {trace_of(own)}
    assert [
        tuple(event.attributes.get(f"gen_ai.evaluation.{name}") for name in names)
        for event in events
    ] == [(1.0, "pass"), (0.0, "fail"), (3.0, None), (None, "warm"), (0.5, None)]


def test_the_run_span_has_prompt_and_answer(telemetry: RecordedTelemetry) -> None:
    """Where content is asked for; what leaves by which way is promise B1."""
    watch = Watch(telemetry, content="span_only")
    watch.answer(Free())
    attributes = watch.span().attributes
    assert (attributes["gen_ai.evaluation.user_prompt"], attributes["gen_ai.full_nl_response"]) == (
        QUESTION,
        ANSWER,
    )
    watch.shutdown()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "no_content"),
        ("NO_CONTENT", "no_content"),
        ("false", "no_content"),
        ("SPAN_ONLY", "span_only"),
        ("event_only", "event_only"),
        ("SPAN_AND_EVENT", "span_and_event"),
        (" true ", "span_and_event"),
        ("maybe", "no_content"),
    ],
)
def test_the_standard_variable_for_content(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch, value: str, expected: str
) -> None:
    """``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` is honoured; what it does not say is
    off.
    """
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    assert telemetry.storage().emitter.content == expected
    assert telemetry.storage(content="no_content").emitter.content == "no_content"


def test_a_stream_tells_how_it_ended(watch: Watch) -> None:
    """Events and run span of a streamed answer say how it ended."""

    @monitor(agent="support", pipeline=watch.pipeline([ResponseHealth()]))
    def stream(question: str) -> Any:
        yield "An "
        yield "answer."

    list(stream("q"))
    (event,) = watch.telemetry.events()
    assert event.attributes["agenteval.stream.end"] == "completed"
    assert watch.span().attributes["agenteval.stream.end"] == "completed"


@pytest.mark.parametrize("signal", ["traces", "events", "metrics"])
def test_each_signal_can_be_switched_off(telemetry: RecordedTelemetry, signal: str) -> None:
    """What is not among the signals is not emitted; the others are."""
    watch = Watch(telemetry, signals={"traces", "events", "metrics"} - {signal})
    watch.answer(Thinking())
    watch.shutdown()
    assert bool(telemetry.spans("evaluation")) is (signal != "traces")
    assert bool(telemetry.events()) is (signal != "events")
    assert bool(telemetry.metrics()) is (signal != "metrics")
