"""The demo's application: planned traffic, and a support agent that answers it.

Request, agent, model and tool spans are the application's own. The answers are scripted; the waiting is real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from agenteval_otel import annotate, monitor
from agenteval_otel import semconv as names
from agenteval_otel.pipeline import Pipeline

__all__ = ["AGENT", "NO_TRACER", "OrderSystemError", "SupportAgent", "Turn", "plan_turns"]

AGENT = "support"
NO_TRACER = trace.NoOpTracer()
_MODEL = "scripted-1"
_SYSTEM = "You are the support agent of a small shop. Be brief, name what was asked about, say what happens next."
_STREAMED, _SLOW, _TOOL_FAILS, _GOES_ON = 0.3, 0.05, 0.05, 0.5
_MAX_MESSAGES = 8


class Topic(NamedTuple):
    """A subject of questions, the tool that looks it up and the result."""

    word: str
    question: str
    tool: str
    fact: str


_TOPICS = (
    Topic("refund", "Where is my refund for order {order}?", "lookup_order",
          "it was approved on Monday and takes three working days to reach your account"),
    Topic("delivery", "When will the delivery of order {order} arrive?", "track_delivery",
          "the parcel left the depot this morning and arrives tomorrow before noon"),
    Topic("invoice", "The invoice of order {order} has the wrong address, can you fix it?", "lookup_order",
          "it still shows your old address, and a corrected copy is on its way to your inbox"),
    Topic("password", "My password does not work any more, what can I do?", "search_help",
          "it expired after ninety days, and the sign-in page sends you a fresh link"),
)  # fmt: skip
_FOLLOW_UPS = (
    "Thanks. And what does that mean for my {topic}?", "Is there anything that I have to do about the {topic} myself?",
)  # fmt: skip

# Kinds of answers, and their percentages with either prompt. Version 2 fails and breaks off no more often than
# version 1: latency and error rate stay the same, and the answers get worse.
_KINDS = {
    "good": (84, 29), "vague": (2, 20), "long": (3, 22), "open_ended": (2, 13), "refused": (2, 9), "empty": (2, 2),
    "cut": (2, 2), "failed": (3, 3),
}  # fmt: skip
_GREETINGS = ("Thanks for waiting.", "Thank you for asking.", "Happy to look.")
_NEXT_STEPS = (
    "Reply here if anything is missing.", "I opened a ticket and will reply in it by tomorrow.",
    "Please reply with a photo if it looks different on your side.",
)  # fmt: skip
_PADDING = (
    " There are several cases to tell apart, which our general terms explain in some detail, and in most of them the"
    " answer depends on when and how things were ordered, on what was agreed, and on who looks at it first."
)


class Turn(NamedTuple):
    """One planned call: it begins `at_s` seconds after the start, `messages` end with the question."""

    at_s: float
    release: int
    conversation: str
    messages: list[dict[str, Any]]
    topic: Topic
    kind: str
    answer: str
    streamed: bool
    slow: bool
    tool_fails: bool
    seed: int


def plan_turns(*, calls: int, seconds: float, seed: int, drop: bool = True) -> list[Turn]:
    """Exactly `calls` turns in order of time, spread over `seconds`; the same for the same seed.

    From half-way the second prompt applies; with `drop` it is worse than the first.
    """
    rng = random.Random(seed)
    turns: list[Turn] = []
    open_turns: list[Turn] = []
    for number in range(calls):
        at_s = (number + rng.random()) * seconds / calls
        before = next((turn for turn in open_turns if turn.at_s + seconds / 8 <= at_s), None)
        if before is not None:
            open_turns.remove(before)
        turn = _turn(rng, at_s, 2 if at_s >= seconds / 2 else 1, drop, f"c-{number:04d}", before)
        turns.append(turn)
        if turn.answer and len(turn.messages) < _MAX_MESSAGES and rng.random() < _GOES_ON:
            open_turns.append(turn)
    return turns


def _turn(rng: random.Random, at_s: float, release: int, drop: bool, name: str, before: Turn | None) -> Turn:
    if before is None:
        topic, messages = rng.choice(_TOPICS), [{"role": "system", "content": _SYSTEM}]
        question = topic.question.format(order=f"#{rng.randrange(4000, 9999)}")
    else:
        topic, messages = before.topic, [*before.messages, {"role": "assistant", "content": before.answer}]
        question = rng.choice(_FOLLOW_UPS).format(topic=topic.word)
    (kind,) = rng.choices(list(_KINDS), [shares[1 if drop and release == 2 else 0] for shares in _KINDS.values()])
    return Turn(
        at_s=at_s, release=release, conversation=before.conversation if before else name,
        messages=[*messages, {"role": "user", "content": question}],
        topic=topic, kind=kind, answer=_answer(rng, kind, topic),
        streamed=rng.random() < _STREAMED and kind not in ("failed", "empty"), slow=rng.random() < _SLOW,
        tool_fails=rng.random() < _TOOL_FAILS, seed=rng.randrange(1 << 16),
    )  # fmt: skip


def _answer(rng: random.Random, kind: str, topic: Topic) -> str:
    greeting, next_step = rng.choice(_GREETINGS), rng.choice(_NEXT_STEPS)
    about = f"{greeting} About your {topic.word}: {topic.fact}."
    return {
        "failed": "",
        "empty": "",
        "refused": f"I'm sorry, but I can't help with that request. {greeting}",
        "vague": f"{greeting} We are aware of things like this and will look at it as soon as we can.",
        "long": f"{greeting}{_PADDING}{_PADDING} As to your {topic.word}, {topic.fact}. {next_step}",
        "open_ended": about,
        "cut": f"{about}{_PADDING} We will also look at the",
        "good": f"{about} {next_step}",
    }[kind]


class OrderSystemError(Exception):
    """The shop's order system did not answer."""


class SupportAgent:
    """Answers planned turns, through `monitor`. `pace` multiplies every latency."""

    def __init__(self, pipeline: Pipeline, tracer: trace.Tracer = NO_TRACER, *, pace: float = 1.0) -> None:
        self._tracer, self._pace = tracer, pace
        monitored = monitor(agent=AGENT, pipeline=pipeline)
        self._answer, self._stream = monitored(self._plain_answer), monitored(self._streamed_answer)

    async def serve(self, turn: Turn) -> None:
        """Serve one request, as a web framework would call it. Failures of the agent end here."""
        span = self._tracer.start_as_current_span
        attributes: dict[str, Any] = {
            names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT, names.AGENT_NAME: AGENT,
            names.CONVERSATION_ID: turn.conversation, "app.prompt.version": turn.release,
        }  # fmt: skip
        with (
            span("POST /support", kind=SpanKind.SERVER, attributes={"http.request.method": "POST"}) as request,
            span(f"invoke_agent {AGENT}", attributes=attributes) as agent,
        ):
            try:
                if turn.streamed:
                    async for _ in self._stream(turn.messages, turn):
                        pass
                else:
                    await self._answer(turn.messages, turn)
            except OrderSystemError as error:
                _set_failed(request, type(error).__name__)
                _set_failed(agent, type(error).__name__)

    async def _plain_answer(self, messages: list[dict[str, Any]], turn: Turn) -> str:
        latency = await self._begin(turn)
        with self._chat():
            await self._wait(latency.uniform(0.1, 0.35) + (latency.uniform(1.2, 1.8) if turn.slow else 0.0))
        if turn.kind == "failed":
            raise OrderSystemError("no answer within 3 s")
        return self._finished(turn)

    async def _streamed_answer(self, messages: list[dict[str, Any]], turn: Turn) -> AsyncGenerator[str, None]:
        latency = await self._begin(turn)
        await self._wait(latency.uniform(0.05, 0.2) + (latency.uniform(1.2, 1.8) if turn.slow else 0.0))
        words = self._finished(turn).split(" ")
        for start in range(0, len(words), 3):
            yield " ".join(words[start : start + 3]) + (" " if start + 3 < len(words) else "")
            await self._wait(latency.uniform(0.01, 0.03))

    async def _begin(self, turn: Turn) -> random.Random:
        """Annotate the call and use the tool; gives the source of the latencies."""
        annotate(model=_MODEL, conversation_id=turn.conversation, metadata={"prompt_version": turn.release})
        latency, tool = random.Random(turn.seed), turn.topic.tool
        if turn.kind == "empty":
            return latency  # without a tool call, because a turn with one may have no text
        attributes = {names.OPERATION_NAME: "execute_tool", "gen_ai.tool.name": tool}
        with self._tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes) as span:
            await self._wait(latency.uniform(0.02, 0.12))
            if turn.tool_fails:
                _set_failed(span, "upstream_timeout")
        result = {"error": "upstream timeout"} if turn.tool_fails else {"status": "ok", "note": turn.topic.fact}
        annotate(tool_calls=[{"name": tool, "arguments": {"topic": turn.topic.word}, "result": result}])
        return latency

    def _finished(self, turn: Turn) -> str:
        usage = {"input_tokens": 180 + 40 * len(turn.messages), "output_tokens": len(turn.answer) // 4}
        annotate(finish_reason="length" if turn.kind == "cut" else "stop", usage=usage)
        return turn.answer

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._pace)

    def _chat(self) -> AbstractContextManager[trace.Span]:
        attributes = {names.OPERATION_NAME: "chat", names.REQUEST_MODEL: _MODEL}
        return self._tracer.start_as_current_span(f"chat {_MODEL}", kind=SpanKind.CLIENT, attributes=attributes)


def _set_failed(span: trace.Span, error_type: str) -> None:
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(trace.StatusCode.ERROR)
