"""The demo's traffic and its agent.

The traffic is planned questions with scripted answers, or recorded conversations.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, NamedTuple, cast

from opentelemetry.trace import NoOpTracer, Span, SpanKind, StatusCode, Tracer
from pydantic import TypeAdapter, ValidationError

from agenteval_otel import annotate, monitor
from agenteval_otel import semconv as names
from agenteval_otel.capture.build import FACTS, Facts
from agenteval_otel.cli.evaluate.dataset import input_of, lines_of, named_values
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import Message

_SYSTEM = "You are the support agent of a small shop. Be brief, name what was asked about, say what happens next."
_STREAMED = 0.3
_SLOW = 0.05
_TOOL_FAILS = 0.05
_GOES_ON = 0.5
_MAX_MESSAGES = 8
_SEED = 7
_MODEL = "scripted-1"
_OF_THE_TURN = frozenset({"prompt", "response", "tool_calls"})
_MESSAGES = TypeAdapter(list[Message])


class DemoTurn(NamedTuple):
    """Describes one call, whose `messages` end with the question.

    Planned calls begin `at_s` seconds after the start.
    """

    conversation: str
    messages: list[dict[str, Any]]
    answer: str
    tool_calls: list[Any]
    at_s: float = 0.0
    release: int = 1
    topic: Topic | None = None
    kind: str = "recorded"
    streamed: bool = False
    slow: bool = False
    facts: Mapping[str, Any] = {}


class Topic(NamedTuple):
    """A subject of questions, the tool that looks it up and the result."""

    word: str
    question: str
    tool: str
    fact: str


_TOPICS = (
    Topic(
        "refund",
        "Where is my refund for order {order}?",
        "lookup_order",
        "it was approved on Monday and takes three working days to reach your account",
    ),
    Topic(
        "delivery",
        "When will the delivery of order {order} arrive?",
        "track_delivery",
        "the parcel left the depot this morning and arrives tomorrow before noon",
    ),
    Topic(
        "invoice",
        "The invoice of order {order} has the wrong address, can you fix it?",
        "lookup_order",
        "it still shows your old address, and a corrected copy is on its way to your inbox",
    ),
    Topic(
        "password",
        "My password does not work any more, what can I do?",
        "search_help",
        "it expired after ninety days, and the sign-in page sends you a fresh link",
    ),
)
_FOLLOW_UPS = (
    "Thanks. And what does that mean for my {topic}?",
    "Is there anything that I have to do about the {topic} myself?",
)
_GREETINGS = ("Thanks for waiting.", "Thank you for asking.", "Happy to look.")
_NEXT_STEPS = (
    "Reply here if anything is missing.",
    "I opened a ticket and will reply in it by tomorrow.",
    "Please reply with a photo if it looks different on your side.",
)
_PADDING = (
    " There are several cases to tell apart, which our general terms explain in some detail, and in most of them the"
    " answer depends on when and how things were ordered, on what was agreed, and on who looks at it first."
)
# Kinds of answers: their percentages with either prompt, and the answer. Version 2 fails and breaks
# off no more often than version 1: latency and error rate stay the same, and the answers get worse.
_KINDS = {
    "good": (84, 29, "{hello} About your {word}: {fact}. {next}"),
    "vague": (
        2,
        20,
        "{hello} We are aware of things like this and will look at it as soon as we can.",
    ),
    "long": (3, 22, f"{{hello}}{_PADDING}{_PADDING} As to your {{word}}, {{fact}}. {{next}}"),
    "open_ended": (2, 13, "{hello} About your {word}: {fact}."),
    "refused": (2, 9, "I'm sorry, but I can't help with that request. {hello}"),
    "empty": (2, 2, ""),
    "cut": (2, 2, f"{{hello}} About your {{word}}: {{fact}}.{_PADDING} We will also look at the"),
    "failed": (3, 3, ""),
}


def plan_turns(*, calls: int, seconds: float, drop: bool = True) -> list[DemoTurn]:
    """Return exactly `calls` turns in order of time, spread over `seconds`.

    They are the same each time.

    From half-way the second prompt applies. With `drop` it is worse than the first.
    """
    rng = random.Random(_SEED)
    turns: list[DemoTurn] = []
    open_turns: list[DemoTurn] = []
    for number in range(calls):
        at_s = (number + rng.random()) * seconds / calls
        before = next((turn for turn in open_turns if turn.at_s + seconds / 8 <= at_s), None)
        if before is not None:
            open_turns.remove(before)
        release = 2 if at_s >= seconds / 2 else 1
        turn = _turn(rng, at_s, release, drop, f"c-{number:04d}", before)
        turns.append(turn)
        if turn.answer and len(turn.messages) < _MAX_MESSAGES and rng.random() < _GOES_ON:
            open_turns.append(turn)
    return turns


def _turn(
    rng: random.Random, at_s: float, release: int, drop: bool, name: str, before: DemoTurn | None
) -> DemoTurn:
    if before is None or before.topic is None:
        topic = rng.choice(_TOPICS)
        messages = [{"role": "system", "content": _SYSTEM}]
        question = topic.question.format(order=f"#{rng.randrange(4000, 9999)}")
    else:
        name = before.conversation
        topic = before.topic
        messages = [*before.messages, {"role": "assistant", "content": before.answer}]
        question = rng.choice(_FOLLOW_UPS).format(topic=topic.word)
    is_worse = drop and release == 2
    shares = [worse if is_worse else better for better, worse, _ in _KINDS.values()]
    (kind,) = rng.choices(list(_KINDS), shares)
    fails = rng.random() < _TOOL_FAILS
    result = {"error": "upstream timeout"} if fails else {"status": "ok", "note": topic.fact}
    call = {"name": topic.tool, "arguments": {"topic": topic.word}, "result": result}
    hello = rng.choice(_GREETINGS)
    next_step = rng.choice(_NEXT_STEPS)
    _, _, template = _KINDS[kind]
    answer = template.format(hello=hello, word=topic.word, fact=topic.fact, next=next_step)
    tool_calls = [] if kind == "empty" else [call]  # a turn with a tool call may have no text
    # The order of the random numbers decides the traffic.
    streamed = rng.random() < _STREAMED and kind not in ("failed", "empty")
    slow = rng.random() < _SLOW
    return DemoTurn(
        name,
        [*messages, {"role": "user", "content": question}],
        answer,
        tool_calls=tool_calls,
        at_s=at_s,
        release=release,
        topic=topic,
        kind=kind,
        streamed=streamed,
        slow=slow,
    )


def recorded_turns(path: str) -> Iterator[DemoTurn]:
    """Yield the turns of a JSONL file: conversations (``messages``), or the inputs of ``evaluate``."""
    lines = lines_of(lambda: open(path, "rb"), path, path)  # noqa: SIM115 - `lines_of` closes it
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield from _turns_of(dict(named_values(line)), f"line-{number}")
            except ConfigurationError as error:
                raise SettingsError(
                    Problem(f"{path}:{number}", *problem) for problem in error.problems
                ) from None


def _turns_of(record: dict[str, Any], name: str) -> Iterator[DemoTurn]:
    conversation = str(record.get("id", name))[:128]
    if "messages" in record:
        yield from _split(record["messages"], conversation)
        return
    recorded = input_of(list(record.items()))
    question = [{"role": "user", "content": recorded.prompt}] if recorded.prompt is not None else []
    calls = [
        call.model_dump(by_alias=True, exclude_none=True) for call in recorded.tool_calls or ()
    ]
    named = {name: getattr(recorded, name) for name in FACTS - _OF_THE_TURN}
    facts = {name: value for name, value in named.items() if value is not None}
    yield DemoTurn(conversation, question, recorded.response_text, calls, facts=facts)


def _split(raw: list[dict[str, Any]], conversation: str) -> Iterator[DemoTurn]:
    """Split a conversation before each message of the user that follows the assistant."""
    try:  # only role and content: other fields may vary, such as numeric ids
        messages = _MESSAGES.validate_python(
            [{"role": item["role"], "content": item.get("content")} for item in raw]
        )
    except (ValidationError, TypeError, KeyError, AttributeError):
        raise ConfigurationError(
            "expected a list of objects with a role", path="messages"
        ) from None
    if not any(message.role == "assistant" for message in messages):
        raise ConfigurationError("no message of the assistant", path="messages")
    begin = 0
    for end in range(1, len(messages) + 1):
        if end < len(messages) and messages[end].role != "user":
            continue
        first = next((i for i in range(begin, end) if messages[i].role == "assistant"), None)
        if first is None:
            continue
        answer = ""  # the assistant's last text
        results: dict[str, Any] = {}
        for item, message in zip(raw[first:end], messages[first:end], strict=True):
            if message.role == "assistant" and message.content:
                answer = message.content
            elif message.role == "tool":
                results[str(item.get("tool_call_id"))] = message.content
        calls = _calls_with_results(raw[first:end], results)
        yield DemoTurn(conversation, raw[:first], answer, calls)
        begin = end


def _calls_with_results(
    raw: list[dict[str, Any]], results: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the tool calls of the messages, each with its result by the call's id."""
    calls: list[dict[str, Any]] = []
    for item in raw:
        listed = item.get("tool_calls")
        if not isinstance(listed, list):
            continue
        for call in listed:
            if isinstance(call, dict):
                calls.append({**call, "result": results.get(str(call.get("id")))})
    return calls


class OrderSystemError(Exception):
    """The shop's order system did not answer."""


class Agent:
    """Answers turns. `pace` multiplies every latency."""

    def __init__(
        self, name: str, pipeline: Pipeline, tracer: Tracer | None = None, *, pace: float = 1.0
    ) -> None:
        self._name = name
        self._tracer = tracer or NoOpTracer()
        self._pace = pace
        self._latency = random.Random(_SEED)
        monitored = monitor(agent=name, pipeline=pipeline)
        self._answer = monitored(self._plain_answer)
        self._stream = monitored(self._streamed_answer)

    async def serve(self, turn: DemoTurn) -> None:
        """Serve one request, as a web framework would call it. Failures of the agent end here."""
        span = self._tracer.start_as_current_span
        post = {"http.request.method": "POST"}
        attributes: dict[str, Any] = {
            names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT,
            names.AGENT_NAME: self._name,
            names.CONVERSATION_ID: turn.conversation,
            "app.prompt.version": turn.release,
        }
        with (
            span(f"POST /{self._name}", kind=SpanKind.SERVER, attributes=post) as request,
            span(f"invoke_agent {self._name}", attributes=attributes) as agent,
        ):
            try:
                if turn.streamed:
                    async for _ in self._stream(turn.messages, turn):
                        pass
                else:
                    await self._answer(turn.messages, turn)
            except OrderSystemError as error:
                for failed in (request, agent):
                    _set_failed(failed, type(error).__name__)

    async def _plain_answer(self, messages: list[dict[str, Any]], turn: DemoTurn) -> str:
        await self._use_tools(turn)
        chat = {names.OPERATION_NAME: "chat", names.REQUEST_MODEL: _MODEL}
        with self._tracer.start_as_current_span(
            f"chat {_MODEL}", kind=SpanKind.CLIENT, attributes=chat
        ):
            await self._wait(0.1, 0.35, turn)
        if turn.kind == "failed":
            raise OrderSystemError("no answer within 3 s")
        return self._finished(turn)

    async def _streamed_answer(
        self, messages: list[dict[str, Any]], turn: DemoTurn
    ) -> AsyncGenerator[str, None]:
        await self._use_tools(turn)
        await self._wait(0.05, 0.2, turn)
        words = self._finished(turn).split(" ")
        for start in range(0, len(words), 3):
            end = start + 3
            separator = " " if end < len(words) else ""
            yield " ".join(words[start:end]) + separator
            await self._wait(0.01, 0.03)

    async def _use_tools(self, turn: DemoTurn) -> None:
        facts = {
            "model": _MODEL,
            "conversation_id": turn.conversation,
            "prompt_version": turn.release,
        }
        annotate(**cast(Facts, facts | dict(turn.facts)))
        for call in turn.tool_calls:
            tool = str(call.get("function", call).get("name"))
            attributes = {names.OPERATION_NAME: "execute_tool", "gen_ai.tool.name": tool}
            with self._tracer.start_as_current_span(
                f"execute_tool {tool}", attributes=attributes
            ) as span:
                await self._wait(0.02, 0.12)
                if isinstance(call["result"], dict) and "error" in call["result"]:
                    _set_failed(span, "upstream_timeout")
        if turn.tool_calls:
            annotate(tool_calls=turn.tool_calls)

    def _finished(self, turn: DemoTurn) -> str:
        if turn.kind != "recorded":
            usage = {
                "input_tokens": 180 + 40 * len(turn.messages),
                "output_tokens": len(turn.answer) // 4,
            }
            finish_reason = "length" if turn.kind == "cut" else "stop"
            annotate(finish_reason=finish_reason, usage=usage)
        return turn.answer

    async def _wait(self, low_s: float, high_s: float, turn: DemoTurn | None = None) -> None:
        slow_s = 0.0
        if turn is not None and turn.slow:
            slow_s = self._latency.uniform(1.2, 1.8)
        usual_s = self._latency.uniform(low_s, high_s)
        await asyncio.sleep((usual_s + slow_s) * self._pace)


def _set_failed(span: Span, error_type: str) -> None:
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR)
