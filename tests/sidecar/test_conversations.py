"""Conversations, feedback and late ground truth where the sidecar evaluates: as in the
application's own process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from agenteval_otel import accounting, annotate, evaluation_reference, flush, monitor
from agenteval_otel.capture.assembly.conversations import ConversationSettings
from agenteval_otel.cli import main
from agenteval_otel.config.process import build
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.capabilities.conversations import Conversations
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.evaluators import (
    ExactMatch,
    Repetition,
    ResponseHealth,
    ToolLoops,
    TurnsToResolution,
    UnansweredQuestions,
)
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.sampling import ConversationSampler
from agenteval_otel.sidecar.journal import TRACES
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.promises.served import messages
from tests.sidecar.applications import PATIENCE_S, Application, Served, until
from tests.testing.doubles import Keeping

OF_CONVERSATIONS = (
    Repetition(),
    TurnsToResolution(max_turns=5, user_phrases=["that was all"]),
    UnansweredQuestions(),
    ToolLoops(evaluates="conversation"),
)
SAME = "It is on its way to you, and arrives on Tuesday."
TURNS = [
    ("When does it come?", SAME),
    ("But when does it come?", SAME),
    ("Thanks, that was all.", "You are welcome."),
]


@pytest.fixture(autouse=True)
def _no_earlier_feedback() -> None:
    RECORDER.reset()


Serve, Run = Callable[..., Served], Callable[..., Application]


def chat(question: str, conversation_id: str, is_last: bool) -> str:
    annotate(
        conversation_ends=is_last,
        tool_calls=[{"name": "track", "arguments": {"order": 7}, "result": "Tuesday", "id": "c1"}],
    )
    return dict(TURNS)[question]


def talk(handler: Any, *ids: str) -> None:
    """Conversations whose turns come in between each other."""
    for number, (question, _) in enumerate(TURNS, 1):
        for id in ids:
            handler(question, id, number == len(TURNS))


def wholes(kept: Keeping) -> list[Any]:
    saved = [each for each in kept.saved if "conversation" in (each.metadata or {})]
    return sorted(saved, key=lambda each: str(each.conversation_id))


def test_a_conversation_has_the_scores_of_the_process(serve: Serve, run: Run) -> None:
    """`@monitor` in the application, evaluators of answers and of conversations in the sidecar:
    every score is that of a process that evaluates by itself, of all turns, in the last turn's
    trace, with links to the turns before.
    """
    settled = ConversationSettings(settle_s=0.0)
    kept, telemetry = Keeping(), RecordedTelemetry()
    storage = kept, telemetry.storage(content="span_and_event")
    process = pipeline_of(
        ResponseHealth(),
        *OF_CONVERSATIONS,
        storage=storage,
        sampler=ConversationSampler(),
        sheds=False,
        capabilities=(Conversations.made_by(settled),),
        dispatcher=PoolDispatcher(linger_s=0),
    )
    talk(monitor(pipeline=process, agent="shop")(chat), "c-1", "c-2")
    assert process.flush(PATIENCE_S)
    assert until(lambda: len(wholes(kept)) == 2)
    process.shutdown(5.0)
    served = serve(
        ResponseHealth(),
        *OF_CONVERSATIONS,
        sampler=ConversationSampler(),
        conversations=settled,
        dispatcher=PoolDispatcher(linger_s=0),
    )
    app = run(served.endpoint(), sampler={"type": "conversation"}, sample_rate=None)
    talk(app.monitor(chat, agent="shop"), "c-1", "c-2")
    assert app.flush()
    assert app.outcomes == {"sent": 6}
    assert until(lambda: bool(served.results()) and len(wholes(served.kept)) == 2)
    ours, theirs = wholes(kept), wholes(served.kept)
    assert [_scores(each) for each in theirs] == [_scores(each) for each in ours]
    assert {part.criterion_name for part in theirs[0].results} == {
        "repetition",
        "turns_to_resolution",
        "unanswered_questions",
        "tool_loops",
    }
    assert {part.status for part in theirs[0].results} == {"scored"}
    assert [each.metadata["conversation"] for each in theirs] == [{"turns": 3, "end": "marked"}] * 2
    agent_spans = [span for span in app.telemetry.spans() if span.name == "invoke_agent shop"]
    assert len(agent_spans) == 6
    of_first = [f"{span.context.span_id:016x}" for span in agent_spans[::2]]
    assert theirs[0].span.span_id == of_first[-1]
    [of_whole, *_] = [
        span
        for span in served.telemetry.spans()
        if f"{span.parent.span_id:016x}" == of_first[-1]
        and "agenteval.conversation.turns" in span.attributes
    ]
    assert [f"{link.context.span_id:016x}" for link in of_whole.links] == of_first[:-1]


def _scores(whole: Any) -> Any:
    return (
        whole.agent,
        whole.conversation_id,
        whole.sampling_probability,
        whole.overall_score,
        [
            (
                part.criterion_name,
                part.status,
                part.score,
                part.label,
                part.reasoning,
                part.probability,
            )
            for part in whole.results
        ],
    )


def test_an_application_that_shares_the_file_samples_by_conversation() -> None:
    """Single answers would leave holes in the conversations that the sidecar puts together."""
    for evaluate_in in ("process", "sidecar"):
        pipeline = build(Settings(evaluate_in=evaluate_in, evaluators=["Repetition"]), is_live=True)
        assert isinstance(pipeline.handlers.defaults.sampler, ConversationSampler)
        pipeline.shutdown(1.0)


# --- references
# -------------------------------------------------------------------------------------------------------


def tell(served: Served, said: dict[str, Any]) -> None:
    """Send feedback, or late truth."""
    assert served.post("/v1/feedback", said)[0] == 202


def of_people(served: Served) -> list[Any]:
    assert RECORDER.drain(5.0)
    assert flush(PATIENCE_S)
    return [each for each in served.kept.saved if each.results[0].evaluator_kind == "human"]


@pytest.mark.parametrize("agent_span", ["sampled", "never"])
def test_a_reference_of_the_application_leads_to_its_answer(
    serve: Serve, run: Run, agent_span: str
) -> None:
    """With the span that it names, and without any span: by the id of the call, which the answer
    brought along.
    """
    served = serve(ResponseHealth())
    app = run(served.endpoint(), agent_span=agent_span)
    references: list[str] = []

    def answer(question: str) -> str:
        annotate(conversation_id="conv-1", response_id="r-1")
        references.append(evaluation_reference())
        return "On Monday."

    app.monitor(answer, agent="support")("When?")
    assert app.flush()
    [first] = served.results()
    tell(served, {"reference": references[0], "thumbs": "down"})
    [feedback] = of_people(served)
    assert (feedback.agent, feedback.conversation_id, feedback.response_id) == (
        "support",
        "conv-1",
        "r-1",
    )
    assert feedback.span == first.span
    assert len(app.telemetry.spans()) == (agent_span == "sampled"), (
        "else it is a span that the sidecar has made"
    )


def spans_of_another_library() -> tuple[Any, str, str]:
    """A request of an application without this package, with a model call in it; its trace and its
    own span.
    """
    recorded = RecordedTelemetry()
    with (
        recorded.tracer("web").start_as_current_span("POST /chat") as request,
        recorded.tracer("a-model-library").start_as_current_span("chat m") as span,
    ):
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": "conv-9",
                "gen_ai.response.id": "r-9",
                "gen_ai.output.messages": messages("assistant", "On Monday."),
            }
        )
    context = request.get_span_context()
    encoded = encode_spans(recorded.spans())
    recorded.shutdown()
    return encoded, f"{context.trace_id:032x}", f"{context.span_id:016x}"


@pytest.mark.parametrize("by", ["trace", "span"])
def test_spans_are_the_reference_of_other_applications(serve: Serve, by: str) -> None:
    """What an application knows of its own request, the ids of trace and span, leads to the answer
    in it.
    """
    served = serve(ResponseHealth(), feedback_window_s=60.0)
    request, trace_id, span_id = spans_of_another_library()
    served.sidecar.intake.take(TRACES, request)
    assert served.results() == []  # not sampled
    ids = {"trace_id": trace_id} | ({"span_id": span_id} if by == "span" else {})
    tell(served, {**ids, "thumbs": "down"})
    people = of_people(served)
    if not people:  # by the trace alone it waits for the answer, which is evaluated now
        people = of_people(served)
    assert [each.results[0].criterion_name for each in served.kept.saved if each not in people] == [
        "response_health"
    ]
    assert accounting()["evaluated"] == 1
    assert people[0].span.trace_id == trace_id
    tell(served, {**ids, "score": 0.1})
    again = of_people(served)[-1]
    assert (again.conversation_id, again.response_id, again.span.trace_id) == (
        "conv-9",
        "r-9",
        trace_id,
    )
    assert again.agent is not None


def test_late_truth_comes_over_http_and_from_the_command_line(
    serve: Serve, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the reference of an application that sends its answers, and by the trace of one that sends
    spans.
    """
    served = serve(ExactMatch(), ground_truth_window_s=600.0)
    app = run(served.endpoint())
    references: list[str] = []

    def answer(question: str) -> str:
        references.append(evaluation_reference())
        return "On Monday."

    app.monitor(answer, agent="support")("When?")
    app.monitor(answer, agent="support")("Where?")
    assert app.flush()
    assert [each.results[0].status for each in served.results()] == ["skipped", "skipped"]
    served.kept.saved.clear()
    tell(served, {"reference": references[0], "ground_truth": "On Monday.", "prompt": "When?"})
    url = served.addresses.http
    command = ["feedback", "--url", url, "--reference", references[1], "--ground-truth", "At home."]
    assert main(command) == 0
    assert main([*command, "--thumbs", "down"]) == 2
    assert "thumbs" in capsys.readouterr().err
    assert RECORDER.drain(5.0)
    assert flush(PATIENCE_S)
    assert [(each.results[0].score, each.has_ground_truth) for each in served.kept.saved] == [
        (1.0, True),
        (0.0, True),
    ]
    assert {each.span.span_id for each in served.kept.saved} == {
        f"{span.context.span_id:016x}" for span in app.telemetry.spans()
    }
