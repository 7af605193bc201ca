"""Feedback and the application's own scores: joined with the answer that they are about."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import SpanContext, TraceFlags

from agenteval_otel import (
    accounting,
    annotate,
    configure,
    evaluation_reference,
    flush,
    monitor,
    record_feedback,
    record_score,
    shutdown,
)
from agenteval_otel.capture.reference import Reference, read_reference
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.storage import SqliteStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Keeping


@pytest.fixture
def telemetry() -> Iterator[RecordedTelemetry]:
    recorded = RecordedTelemetry()
    RECORDER.reset()  # what an earlier test has recorded is not known
    configure(storage=[recorded.storage()], sample_rate=1.0)
    yield recorded
    recorded.shutdown()


def failures() -> dict[str, int]:
    counted = default_pipeline().accounting.failures
    return {part: count for part, count in counted.items() if part.startswith("feedback:")}


def of_feedback(telemetry: RecordedTelemetry, kind: str = "human") -> list[dict[str, object]]:
    name = "gen_ai.evaluation.evaluator.type"
    return [
        dict(event.attributes) for event in telemetry.events() if event.attributes.get(name) == kind
    ]


def feedback_spans(telemetry: RecordedTelemetry) -> list[Any]:
    scored = "gen_ai.evaluation.user_feedback.score"
    return [span for span in telemetry.spans("evaluation") if scored in (span.attributes or {})]


@monitor(agent="support")
def answer(question: str) -> tuple[str, str]:
    annotate(response_id="resp-1", conversation_id="conv-1", response="It is due.")
    return "It is due.", evaluation_reference()


def test_a_thumb_stands_in_the_trace_of_its_answer(telemetry: RecordedTelemetry) -> None:
    """A thumb down is a failing result of type human, in the answer's trace, with a span beside the
    others.
    """
    with telemetry.tracer().start_as_current_span("request") as span:
        _, reference = answer("When?")
    assert record_feedback(reference, thumbs="down", comment="Wrong day", user_id="ann")
    assert flush()
    (event,) = of_feedback(telemetry)
    assert event["gen_ai.evaluation.name"] == "user_feedback"
    assert event["gen_ai.evaluation.score.value"] == 0.0
    assert event["gen_ai.evaluation.score.label"] == "fail"
    assert event["gen_ai.agent.name"] == "support"
    assert event["user.id"] != "ann"
    assert "gen_ai.evaluation.explanation" not in event
    runs = feedback_spans(telemetry)
    assert [part.context.trace_id for part in runs] == [span.get_span_context().trace_id]
    assert [part.parent.span_id for part in runs] == [span.get_span_context().span_id]
    assert "agenteval.evaluation.overall_score" not in runs[0].attributes


def test_a_score_may_be_a_number_of_any_library(telemetry: RecordedTelemetry) -> None:
    """What the application records is read as what an evaluator returns."""
    _, reference = answer("When?")
    assert record_score("share", np.float32(0.5), reference)
    assert record_score("solved", np.bool_(True), reference)
    assert not record_score("vector", np.array([0.5, 1.0]), reference)
    assert flush()
    values = {
        event["gen_ai.evaluation.name"]: event["gen_ai.evaluation.score.value"]
        for event in of_feedback(telemetry, "application")
    }
    assert values == {"share": 0.5, "solved": 1.0}


def test_feedback_is_no_call_and_is_in_the_metrics(telemetry: RecordedTelemetry) -> None:
    """Feedback changes no outcome; its results are counted as those of evaluators are."""
    _, reference = answer("When?")
    assert flush()
    before = accounting()
    record_feedback(reference, thumbs="up")
    record_score("resolved", True, reference)
    assert flush()
    assert accounting() == before
    assert before["evaluated"] == 1
    points = telemetry.points("agenteval.evaluation.results")
    counted = {
        point.attributes["gen_ai.evaluation.name"]: point.value
        for point in points
        if point.attributes.get("gen_ai.evaluation.score.label") == "pass"
    }
    assert counted["user_feedback"] == 1
    assert counted["resolved"] == 1
    assert [event["gen_ai.evaluation.name"] for event in of_feedback(telemetry, "application")] == [
        "resolved"
    ]


def test_an_unsampled_call_can_be_praised(telemetry: RecordedTelemetry) -> None:
    """A call that was not evaluated has a reference all the same, and its feedback counts."""
    configure(storage=[telemetry.storage()], sample_rate=0.0)
    with telemetry.tracer().start_as_current_span("request") as span:
        _, reference = answer("When?")
    assert record_feedback(reference, thumbs="up")
    assert flush()
    assert [event["gen_ai.evaluation.score.label"] for event in of_feedback(telemetry)] == ["pass"]
    runs = telemetry.spans("evaluation")
    assert [part.context.trace_id for part in runs] == [span.get_span_context().trace_id]


def test_an_answer_is_known_by_its_ids(telemetry: RecordedTelemetry) -> None:
    """A response id, a conversation id or a trace id alone leads to the answer's span."""
    with telemetry.tracer().start_as_current_span("request") as span:
        answer("When?")
    assert flush()
    trace_id = f"{span.get_span_context().trace_id:032x}"
    assert record_feedback(score=0.5, response_id="resp-1")
    assert record_feedback(score=0.25, conversation_id="conv-1")
    assert record_feedback(score=0.75, trace_id=trace_id)
    assert flush()
    runs = feedback_spans(telemetry)
    assert sorted(part.attributes["gen_ai.evaluation.user_feedback.score"] for part in runs) == [
        0.25,
        0.5,
        0.75,
    ]
    assert {part.parent.span_id for part in runs} == {span.get_span_context().span_id}


def test_feedback_that_comes_before_its_answer_waits_for_it(telemetry: RecordedTelemetry) -> None:
    """Feedback on an id that is not known yet joins the answer that has it later."""
    assert record_feedback(thumbs="down", response_id="resp-1")
    assert flush()
    assert of_feedback(telemetry) == []
    with telemetry.tracer().start_as_current_span("request") as span:
        answer("When?")
    assert flush()
    assert flush()
    assert len(of_feedback(telemetry)) == 1
    runs = feedback_spans(telemetry)
    assert [part.parent.span_id for part in runs] == [span.get_span_context().span_id]


def test_feedback_without_its_answer_is_recorded_at_the_end(telemetry: RecordedTelemetry) -> None:
    """What no answer was known for is emitted without a trace, and counted."""
    record_feedback(thumbs="down", response_id="never seen")
    assert shutdown(10.0)
    (event,) = telemetry.events()
    assert event.trace_id in (None, 0)
    assert event.attributes["gen_ai.response.id"] == "never seen"
    assert failures()["feedback:unjoined"] == 1


def test_the_same_click_counts_once_and_a_changed_mind_again(telemetry: RecordedTelemetry) -> None:
    """A repeated click is one result; up after down is another, and so is another user's."""
    _, reference = answer("When?")
    for thumbs, user in (("down", "a"), ("down", "a"), ("up", "a"), ("down", "b")):
        assert record_feedback(reference, thumbs=thumbs, user_id=user)  # type: ignore[arg-type]
    assert flush()
    assert [event["gen_ai.evaluation.score.label"] for event in of_feedback(telemetry)] == [
        "fail",
        "pass",
        "fail",
    ]
    assert failures()["feedback:repeated"] == 1


def test_a_correction_is_stored_and_not_exported(
    telemetry: RecordedTelemetry, tmp_path: object
) -> None:
    """With content capture, a comment and a correction are in the database; the event has the
    comment alone.
    """
    store = SqliteStorageProvider(path=f"{tmp_path}/scores.db")
    configure(storage=[telemetry.storage(content="span_and_event"), store], sample_rate=1.0)
    _, reference = answer("When?")
    record_feedback(reference, comment="Wrong day", correction="It is due on Monday.")
    assert flush()
    (stored,) = store.query(criterion="user_feedback")
    assert stored.result.reasoning == "Wrong day"
    assert stored.result.metadata == {"correction": "It is due on Monday."}
    assert stored.result.evaluator_kind == "human"
    (event,) = of_feedback(telemetry)
    assert event["gen_ai.evaluation.explanation"] == "Wrong day"
    assert "Monday" not in str(event)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"thumbs": "sideways", "response_id": "r"}, "thumbs: expected 'up' or 'down'"),
        ({"thumbs": "up", "score": 1.0, "response_id": "r"}, "not both"),
        ({"response_id": "r"}, "expected thumbs, a score, a comment or a correction"),
        ({"thumbs": "up"}, "expected a reference, a trace_id"),
        ({"thumbs": "up", "trace_id": "xyz"}, "32"),
        ({"thumbs": "up", "span_id": "1" * 16}, "needs its trace_id"),
        ({"score": 7.0, "response_id": "r"}, "0 to 1"),
        ({"score": float("nan"), "response_id": "r"}, "finite"),
        ({"thumbs": "up", "response_id": "r", "name": "score"}, "must not begin"),
    ],
)
def test_wrong_feedback_is_refused_and_named(
    telemetry: RecordedTelemetry,
    caplog: pytest.LogCaptureFixture,
    arguments: dict[str, object],
    problem: str,
) -> None:
    """Wrong arguments raise nothing: they are logged with what was expected, and counted."""
    assert record_feedback(**arguments) is False  # type: ignore[arg-type]
    assert failures()["feedback:wrong"] == 1
    assert problem in caplog.text


def test_a_forged_reference_is_refused(telemetry: RecordedTelemetry) -> None:
    """What is not a reference is refused."""
    for forged in ("", "no reference", "ä" * 40, "A" * 2_000, 7, b"A" * 60):
        assert record_feedback(forged, thumbs="up") is False  # type: ignore[arg-type]


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(0, 255),
    st.text(max_size=300),
    st.booleans(),
)
def test_a_reference_is_read_as_it_was_written(
    trace_id: int, span_id: int, flags: int, agent: str, has_span: bool
) -> None:
    """Ids, flags and the agent's name survive the way through a form."""
    context = SpanContext(trace_id, span_id, True, TraceFlags(flags)) if has_span else None
    reference = Reference.to(None, context, agent)
    read = read_reference(str(reference))
    assert (read.call_id, read.span_context) == (reference.call_id, context)
    assert agent.isascii() is False or "\0" in agent or read.agent == agent[:200]


@pytest.mark.parametrize("call_id", ["f8" * 8, "ff" * 8, "00" * 8])
def test_no_reference_reads_as_an_option(call_id: str) -> None:
    """It begins with a letter whatever its ids are, so that `--reference` takes each of them."""
    text = str(Reference(call_id, None, "support"))
    assert text[0].isalpha()
    assert read_reference(text).call_id == call_id


def test_feedback_goes_out_here_where_answers_are_evaluated_in_the_sidecar(
    telemetry: RecordedTelemetry,
) -> None:
    """With evaluate_in: sidecar, feedback is emitted by this process, and is no answer that is
    sent.
    """
    configure(evaluate_in="sidecar", endpoint="http://127.0.0.1:9", telemetry=telemetry.storage())
    assert record_feedback(thumbs="down", trace_id="1" * 32, span_id="2" * 16, agent="support")
    flush(1.0)
    (event,) = of_feedback(telemetry)
    assert event["gen_ai.evaluation.score.label"] == "fail"
    assert sum(accounting().values()) == 0


def test_feedback_at_the_end_is_counted(telemetry: RecordedTelemetry) -> None:
    """What comes when the pipeline takes nothing any more is dropped, and counted once."""
    assert shutdown(5.0)
    record_feedback(thumbs="down", trace_id="1" * 32, span_id="2" * 16)
    assert RECORDER.drain(10.0)
    assert failures() == {"feedback:dropped": 1}
    assert sum(accounting().values()) == 0


def test_a_reference_asked_for_after_the_answer_is_that_of_the_answer() -> None:
    """By a thread that the handler has started, which outlives it."""
    kept = Keeping()
    configure(storage=[kept], sample_rate=1.0, agent_span="never")
    later: list[contextvars.Context] = []

    @monitor(agent="support")
    def starting(question: str) -> str:
        later.append(contextvars.copy_context())
        return "It is due."

    starting("When?")
    assert flush()
    reference = later[0].run(evaluation_reference)
    assert read_reference(reference).call_id == kept.saved[0].call_id
    assert record_feedback(reference, thumbs="down")
    assert flush()
    assert kept.saved[-1].call_id == kept.saved[0].call_id


def test_agents_from_outside_share_the_settings_of_all_others() -> None:
    """One form of them, however many names come."""
    configure(sample_rate=1.0, agents={"support": {}})
    pipeline = default_pipeline()
    others = {id(pipeline.settings_of(f"agent-{number}")) for number in range(50)}
    assert len(others) == 1
    assert pipeline.settings_of("support").agent == "support"
