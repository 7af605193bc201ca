"""Whole conversations of live answers: one more call through the same engine, linked to its turns."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Settings, annotate, monitor
from agenteval_otel.capture.assembly.conversations import ConversationSettings
from agenteval_otel.config.process import build
from agenteval_otel.engine.capabilities.conversations import Conversations
from agenteval_otel.engine.pipeline import InlineDispatcher, PoolDispatcher
from agenteval_otel.engine.pipeline.unsampled import FEEDBACK
from agenteval_otel.engine.task import Origin, Task
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Func, Repetition, ResponseHealth, TaskAdherence, ToolLoops
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import ConversationSampler, RateLimitSampler, RatioSampler
from agenteval_otel.storage import JsonFileStorageProvider
from agenteval_otel.testing import RecordedTelemetry, ScriptedJudge
from tests.pipeline.support import eventually
from tests.pipelines import pipeline_with
from tests.promises.served import messages
from tests.testing.doubles import Keeping

SAME = "It is on its way to you, and arrives on Tuesday."
LOOPS = ToolLoops(evaluates="conversation")
SOON = ConversationSettings(idle_s=0.2, settle_s=0.0)


class Application:
    """A process whose agent answers within conversations."""

    def __init__(
        self, *evaluators: Any, conversations: ConversationSettings = SOON, **settings: Any
    ) -> None:
        self.telemetry = RecordedTelemetry()
        storage = settings.pop("storage", ())
        self.pipeline = pipeline_with(
            **{
                "sampler": RatioSampler(),
                "evaluators": evaluators or (ResponseHealth(), Repetition()),
                "storage": (self.telemetry.storage(), *storage),
                "capabilities": [Conversations.made_by(conversations)],
                "dispatcher": PoolDispatcher(linger_s=0),
                **settings,
            }
        )

        @monitor(agent="shop", pipeline=self.pipeline)
        def chat(question: str, conversation_id: str | None = None, **facts: Any) -> str:
            annotate(**facts)
            return SAME

        self.chat = chat

    def say(self, id: str | None, *questions: str, **facts: Any) -> None:
        for question in questions:
            self.chat(question, conversation_id=id, **facts)

    @property
    def conversations(self) -> Conversations:
        conversations = self.pipeline.capabilities.of(Conversations)
        assert conversations is not None
        return conversations

    def counts(self) -> dict[str, int]:
        return self.pipeline.accounting.conversations().get(("shop", ()), {})

    def closed(self, number: int) -> bool:
        """Whether so many conversations are settled, and all that came of them is emitted."""
        return eventually(lambda: sum(self.counts().values()) >= number) and self.pipeline.flush(
            10.0
        )

    def runs(self) -> list[Any]:
        """The run spans of whole conversations."""
        return [
            span
            for span in self.telemetry.spans("evaluation")
            if {"agenteval.conversation.turns", "gen_ai.operation.name"}
            <= dict(span.attributes or {}).keys()
        ]


@pytest.fixture
def application() -> Iterator[Callable[..., Application]]:
    made: list[Application] = []

    def make(*evaluators: Any, **settings: Any) -> Application:
        made.append(Application(*evaluators, **settings))
        return made[-1]

    yield make
    for each in made:
        each.pipeline.shutdown(5.0)
        each.telemetry.shutdown()


Make = Callable[..., Application]


def test_a_conversation_is_scored_when_it_is_over(application: Make) -> None:
    """In the last turn's trace, with links to the turns before; turns are calls as ever, with
    scores of their own.
    """
    app = application()
    app.say("c-1", "Where is it?", "And now?")
    app.say("c-2", "Hello?")
    app.say("c-1", "Goodbye", conversation_ends=True)
    assert app.closed(2)
    assert app.pipeline.accounting.outcomes()["evaluated"] == 4
    assert app.counts() == {"evaluated": 2, "failed": 0, "dropped": 0}
    by_id = {span.attributes["gen_ai.conversation.id"]: span for span in app.runs()}
    marked, idle = by_id["c-1"], by_id["c-2"]
    turns = [span.context for span in app.telemetry.spans("invoke_agent")]
    assert [link.context.span_id for link in marked.links] == [turns[at].span_id for at in (0, 1)]
    assert marked.parent.span_id == turns[3].span_id
    attributes = dict(marked.attributes)
    assert attributes["gen_ai.evaluation.repetition.score"] == 0.0
    assert (
        attributes["agenteval.conversation.turns"],
        attributes["agenteval.conversation.end"],
    ) == (3, "marked")
    assert "gen_ai.evaluation.response_health.score" not in attributes
    assert (len(idle.links), idle.attributes["agenteval.conversation.end"]) == (0, "idle")
    (event,) = [
        item
        for item in app.telemetry.events()
        if item.attributes["gen_ai.evaluation.name"] == "repetition"
    ]
    assert event.span_id == turns[3].span_id
    assert event.attributes["agenteval.conversation.turns"] == 3
    assert MEMORY.conversations.used_bytes == 0


def test_the_wait_for_the_end_is_no_lag(application: Make) -> None:
    """A conversation is over when nobody has said anything: its results are late by what came after
    that.
    """
    idle_s = 3.0  # far beyond what a busy machine holds three evaluations up
    app = application(conversations=ConversationSettings(idle_s=idle_s))
    app.say("c-1", "One", "Two")
    assert app.closed(1)
    (point,) = app.telemetry.points("agenteval.evaluation.lag")
    assert point.count == 3
    assert point.sum < idle_s


def test_the_moment_of_a_conversation_is_its_last_turn(application: Make) -> None:
    """On its event, its run span and in storage, beside the time of the evaluation."""
    kept = Keeping()
    app = application(Repetition(), storage=(kept,))
    app.say("c-1", "One", "Two")
    assert app.closed(1)
    last_ns = max(span.end_time for span in app.telemetry.spans("invoke_agent"))
    last = datetime.fromtimestamp(last_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    carriers = [*app.runs(), *app.telemetry.events()]
    assert len(carriers) == 2
    assert {item.attributes["agenteval.response.ended_at"] for item in carriers} == {
        last.replace("+00:00", "Z")
    }
    (stored,) = [item for item in kept.saved if item.results]
    assert (stored.response_ended_ns, stored.due_ns, stored.late) == (last_ns, None, None)
    assert stored.ended_ns > last_ns


def test_counts_of_conversations_are_a_metric(application: Make) -> None:
    """By agent and outcome, each from 0 on; without conversations there is no series."""
    app, other = application(), application(ResponseHealth())
    app.say("c-1", "One", conversation_ends=True)
    other.say("c-1", "One", conversation_ends=True)
    assert app.closed(1)
    assert other.pipeline.flush(5.0)
    points = {
        point.attributes["agenteval.outcome"]: point.value
        for point in app.telemetry.points("agenteval.conversations")
    }
    assert points == {"evaluated": 1, "failed": 0, "dropped": 0}
    assert not other.telemetry.points("agenteval.conversations")


def test_without_evaluators_of_conversations_nothing_is_kept(application: Make) -> None:
    """What is not configured is not on the path."""
    app = application(ResponseHealth())
    app.say("c-1", "One", "Two")
    assert app.pipeline.flush(5.0)
    assert len(app.conversations.assembler) == 0


def test_evaluators_of_conversations_alone_leave_the_turns_alone(application: Make) -> None:
    """A turn is evaluated with its conversation: it has no run span of its own, and no skipped
    criteria.
    """
    app = application(LOOPS)
    app.say("c-1", "One", tool_calls=[{"name": "a"}])
    app.say("c-1", "Two", tool_calls=[{"name": "a"}], conversation_ends=True)
    assert app.closed(1)
    (run,) = app.telemetry.spans("evaluation")
    assert run.attributes["gen_ai.evaluation.tool_loops.score"] == 0.5
    assert app.pipeline.accounting.outcomes()["evaluated"] == 2
    assert app.pipeline.accounting.results == {"scored": 1, "skipped": 0, "failed": 0}


def test_a_turn_without_an_id_belongs_to_no_conversation(application: Make) -> None:
    """It is evaluated as an answer, and counted."""
    app = application()
    app.say(None, "One", conversation_ends=True)
    assert app.pipeline.flush(5.0)
    assert app.pipeline.accounting.failures == {"conversations:no_id": 1}
    assert app.pipeline.accounting.outcomes()["evaluated"] == 1
    assert len(app.conversations.assembler) == 0


def test_a_judge_is_asked_once_about_a_conversation(application: Make, tmp_path: Path) -> None:
    """Its call nests below the conversation's run span; the stored result says what it is about."""
    judge = ScriptedJudge(fallback={"evidence": [], "reason": "r", "score": 4})
    store = JsonFileStorageProvider(path=str(tmp_path / "results.jsonl"))
    app = application(
        ResponseHealth(), TaskAdherence(judge=judge, evaluates="conversation"), storage=(store,)
    )
    app.say("c-1", "One", "Two")
    app.say("c-1", "Three", conversation_ends=True)
    assert app.closed(1)
    assert judge.calls == 1
    assert all(text in judge.requests[0].prompt for text in ("One", "Two", "Three"))
    (run,) = app.runs()
    (result,) = app.telemetry.spans("evaluation TaskAdherence")
    assert result.parent.span_id == run.context.span_id
    assert len(run.links) == 2
    stored = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [item["metadata"].get("conversation") for item in stored] == [
        None,
        None,
        None,
        {"turns": 3, "end": "marked"},
    ]


def test_an_evaluator_that_breaks_is_no_failed_conversation(application: Make) -> None:
    """Its criterion has failed; the others are scored."""

    def broken(_: EvaluationInput) -> float:
        raise ValueError("no")

    app = application(
        Func(criterion_name="broken", function=broken, evaluates="conversation"), Repetition()
    )
    app.say("c-1", "One")
    app.say("c-1", "Two", conversation_ends=True)
    assert app.closed(1)
    assert app.counts() == {"evaluated": 1, "failed": 0, "dropped": 0}
    assert app.pipeline.accounting.results == {"scored": 1, "skipped": 0, "failed": 1}


def test_open_conversations_are_evaluated_at_the_end(application: Make) -> None:
    """The process ends, or other settings come: what there is of them is scored, and says why it
    was closed.
    """
    app = application(conversations=ConversationSettings())
    app.say("c-1", "One", "Two")
    app.say("c-2", "One")
    assert app.pipeline.flush(5.0)
    assert not app.runs()
    assert app.pipeline.shutdown(10.0)
    assert app.counts() == {"evaluated": 2, "failed": 0, "dropped": 0}
    assert {span.attributes["agenteval.conversation.end"] for span in app.runs()} == {"shutdown"}
    other = application(conversations=ConversationSettings())
    other.say("c-1", "One")
    assert other.pipeline.flush(5.0)
    other.pipeline.retire()
    assert other.closed(1)
    assert other.runs()[0].attributes["agenteval.conversation.end"] == "reload"


def test_conversations_that_the_end_leaves_no_time_for_are_counted(application: Make) -> None:
    """Closed are as many as were evaluated, have failed or were dropped."""
    release = threading.Event()

    def slow(_: EvaluationInput) -> float:
        release.wait(20.0)
        return 1.0

    hanging = Func(
        criterion_name="slow",
        function=slow,
        evaluates="conversation",
        execution="thread",
        timeout_s=30.0,
    )
    app = application(hanging, conversations=ConversationSettings())
    for number in range(20):
        app.say(f"c-{number}", "One")
    assert app.pipeline.flush(5.0)
    assert not app.pipeline.shutdown(0.4)
    release.set()
    assert app.counts()["dropped"] > 0
    assert sum(app.counts().values()) == 20
    assert MEMORY.conversations.used_bytes == 0


def test_what_joins_when_the_end_has_come_is_counted_as_dropped(application: Make) -> None:
    """A call that was under way: nothing takes its conversation any more, and its bytes come back."""
    app = application(conversations=ConversationSettings())
    app.say("c-1", "One")
    assert app.pipeline.flush(5.0)
    app.conversations.drop_all()
    assert app.counts() == {"evaluated": 0, "failed": 0, "dropped": 1}
    assert MEMORY.conversations.used_bytes == 0


def test_a_full_queue_drops_a_conversation_and_counts_it(application: Make) -> None:
    """As it drops answers; the turns themselves were evaluated."""
    app = application(dispatcher=PoolDispatcher(linger_s=0, max_bytes=4_000))
    app.say("c-1", "One", conversation_ends=True)
    app.say("c-1", "One " * 400, conversation_ends=True)
    assert app.closed(2)
    assert app.counts()["dropped"] >= 1
    assert sum(app.counts().values()) == 2


def test_the_inline_dispatcher_evaluates_conversations_too(application: Make) -> None:
    """For tests and scripts: a marked one is evaluated before the last answer goes back."""
    # An idle time that a busy machine does not reach between two answers.
    at_once = ConversationSettings(idle_s=60.0, settle_s=0.0)
    app = application(dispatcher=InlineDispatcher(), conversations=at_once)
    app.say("c-1", "One", "Two")
    app.say("c-1", "Three", conversation_ends=True)
    assert app.counts()["evaluated"] == 1


def test_whole_conversations_are_sampled(application: Make) -> None:
    """By the conversation's id: all turns of a conversation or none, and its probability is the
    ratio.
    """
    app = application(sampler=ConversationSampler(ratio=0.5))
    for number in range(40):
        app.say(f"c-{number}", "One", "Two")
    assert app.pipeline.shutdown(20.0)
    outcomes = app.pipeline.accounting.outcomes()
    assert outcomes["evaluated"] + outcomes["not_sampled"] == 80
    assert 5 < app.counts()["evaluated"] < 35
    assert app.counts()["evaluated"] * 2 == outcomes["evaluated"]
    assert {span.attributes["agenteval.conversation.turns"] for span in app.runs()} == {2}
    assert {span.attributes["agenteval.sampling.probability"] for span in app.runs()} == {0.5}


def test_a_sampler_that_picks_single_answers_is_refused() -> None:
    """At start, with what to write; the default sampler takes whole conversations where evaluators
    look at them.
    """
    for sampler in (RatioSampler(ratio=0.1), RateLimitSampler()):
        pipeline = pipeline_with(sampler=sampler, evaluators=(Repetition(),))
        with pytest.raises(ConfigurationError, match="type: conversation"):
            pipeline.handler("shop")
    chosen = build(
        Settings(evaluators=["Repetition"], dispatcher="inline")
    ).handlers.defaults.sampler
    assert isinstance(chosen, ConversationSampler)
    assert not isinstance(
        build(Settings(dispatcher="inline")).handlers.defaults.sampler, ConversationSampler
    )
    with pytest.raises(ConfigurationError, match="evaluators of conversations"):
        build(Settings(agents={"shop": {"evaluators": ["Repetition"]}}, sample_rate=0.5))


def test_a_turn_that_another_thread_goes_on_with_joins_once(application: Make) -> None:
    """A thread that is held up is replaced, and its tasks are begun again."""
    app = application(conversations=ConversationSettings())
    task = Task(app.pipeline.handler("shop"), "shop", Origin())
    task.input = EvaluationInput(prompt="q", response=SAME, conversation_id="c")

    async def begun_twice() -> None:
        for _ in range(2):
            app.pipeline.engine.process([task], lambda *_: None, lambda: None)

    asyncio.run(begun_twice())
    (conversation,) = app.conversations.assembler.take_all("shutdown")
    assert len(conversation) == 1


def test_an_answer_that_is_evaluated_for_feedback_is_no_conversation(application: Make) -> None:
    """The other turns were not sampled: what is left of a conversation has no score."""
    app = application(conversations=ConversationSettings())
    task = Task(app.pipeline.handler("shop"), "shop", Origin())
    task.decision = FEEDBACK
    app.conversations.join(task, EvaluationInput(prompt="q", conversation_id="c"))
    assert len(app.conversations.assembler) == 0


def test_a_forked_child_leaves_open_conversations_to_its_parent(application: Make) -> None:
    """Or each worker of a preloaded server would evaluate them once more."""
    app = application(conversations=ConversationSettings())
    app.say("c-1", "One")
    assert app.pipeline.flush(5.0)
    pid = os.fork()
    if pid == 0:
        os._exit(len(app.conversations.assembler) + MEMORY.conversations.used_bytes)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(app.conversations.assembler) == 1


def test_conversations_are_put_together_from_spans(application: Make) -> None:
    """Of other libraries, as the sidecar reads them: by their conversation id, and by the mark on
    the last answer.
    """
    app = application()
    processor = AgentEvalSpanProcessor(quiet_s=0.0, pipeline=app.pipeline)
    app.telemetry.tracer_provider.add_span_processor(processor)
    tracer = app.telemetry.tracer("an-agent-library")
    for number, text in enumerate(("One", "Two", "Three")):
        with tracer.start_as_current_span("invoke_agent shop") as span:
            span.set_attributes(
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "shop",
                    "gen_ai.conversation.id": "c-9",
                    "gen_ai.input.messages": messages("user", text),
                    "gen_ai.output.messages": messages("assistant", SAME),
                }
            )
            if number == 2:
                span.set_attribute("agenteval.conversation.ends", True)
        assert processor.force_flush(30_000)
    assert app.closed(1)
    processor.shutdown()
    (run,) = app.runs()
    assert run.attributes["agenteval.conversation.turns"] == 3
    spans = [span.context.span_id for span in app.telemetry.spans("invoke_agent")]
    assert [link.context.span_id for link in run.links] == spans[:-1]
    assert run.parent.span_id == spans[-1]


def test_an_airline_conversation_is_scored_as_a_whole(application: Make, shared: Path) -> None:
    """Live, turn by turn, it has the scores that it has offline. (The recording has one id for
    different calls.)
    """
    rows = map(json.loads, (shared / "data" / "tau_airline_sample.jsonl").read_text().splitlines())
    row = next(row for row in rows if row["id"] == "airline-09-2")
    turns = [
        turn
        for turn in EvaluationInput(conversation=row["messages"]).conversation or ()
        if turn.response is not None
    ]
    app = application(LOOPS, Repetition())

    @monitor(
        agent="airline", pipeline=app.pipeline, capture=lambda arguments, answer: arguments["facts"]
    )
    def answer(prompt: str | None, facts: dict[str, Any]) -> str:
        return str(facts["response"])

    for number, turn in enumerate(turns):
        answer(
            turn.prompt,
            {
                "response": turn.response,
                "conversation_id": row["id"],
                "conversation_ends": number == len(turns) - 1,
                "tool_calls": [call.model_dump(exclude={"id"}) for call in turn.tool_calls or ()],
            },
        )
    assert eventually(
        lambda: (
            app.pipeline.accounting.conversations().get(("airline", ()), {}).get("evaluated") == 1
        )
    )
    assert app.pipeline.flush(10.0)
    (run,) = app.runs()
    assert run.attributes["gen_ai.evaluation.tool_loops.score"] == pytest.approx(18 / 23)
    assert run.attributes["gen_ai.evaluation.tool_loops.label"] == "fail"
    assert run.attributes["gen_ai.evaluation.repetition.score"] == pytest.approx(5 / 6)
    assert len(run.links) == len(turns) - 1
