"""The demo's traffic: planned questions with scripted answers, or recorded conversations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from agenteval_otel.cli.evaluate.dataset import Source
from agenteval_otel.cli.evaluate.parsing import input_of, json_object, values_of
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError

_SYSTEM = "You are the support agent of a small shop. Be brief, name what was asked about, say what happens next."
_STREAMED, _SLOW, _TOOL_FAILS, _GOES_ON = 0.3, 0.05, 0.05, 0.5
_MAX_MESSAGES = 8


class Turn(NamedTuple):
    """One call: `messages` end with the question. Planned calls begin `at_s` seconds after the start."""

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
    if before is None or before.topic is None:
        topic, messages = rng.choice(_TOPICS), [{"role": "system", "content": _SYSTEM}]
        question = topic.question.format(order=f"#{rng.randrange(4000, 9999)}")
    else:
        name, topic = before.conversation, before.topic
        messages = [*before.messages, {"role": "assistant", "content": before.answer}]
        question = rng.choice(_FOLLOW_UPS).format(topic=topic.word)
    (kind,) = rng.choices(list(_KINDS), [shares[1 if drop and release == 2 else 0] for shares in _KINDS.values()])
    fails = rng.random() < _TOOL_FAILS
    result = {"error": "upstream timeout"} if fails else {"status": "ok", "note": topic.fact}
    call = {"name": topic.tool, "arguments": {"topic": topic.word}, "result": result}
    return Turn(
        name, [*messages, {"role": "user", "content": question}], _answer(rng, kind, topic),
        tool_calls=[] if kind == "empty" else [call],  # a turn with a tool call may have no text
        at_s=at_s, release=release, topic=topic, kind=kind,
        streamed=rng.random() < _STREAMED and kind not in ("failed", "empty"), slow=rng.random() < _SLOW,
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


def recorded_turns(path: str) -> Iterator[Turn]:
    """The turns of a JSONL file: conversations (``messages``), or the inputs that ``evaluate`` reads."""
    source = Source(path)
    try:
        for number, line in enumerate(source.lines(), 1):
            if line.strip():
                try:
                    yield from _turns_of(json_object(line), f"line-{number}")
                except ConfigurationError as error:
                    place = f"{source.name}:{number}"
                    raise SettingsError(Problem(place, *problem) for problem in error.problems) from None
    finally:
        source.close()


def _turns_of(record: dict[str, Any], name: str) -> Iterator[Turn]:
    conversation, messages = str(record.get("id", name))[:128], record.get("messages")
    if "messages" not in record:
        recorded = input_of(values_of(list(record.items())))
        question = [{"role": "user", "content": recorded.prompt}] if recorded.prompt is not None else []
        calls = [call.model_dump(by_alias=True, exclude_none=True) for call in recorded.tool_calls or ()]
        yield Turn(conversation, question, recorded.response_text, calls)
        return
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        raise ConfigurationError("expected a list of objects with a role", path="messages")
    if not any(message["role"] == "assistant" for message in messages):
        raise ConfigurationError("no message of the assistant", path="messages")
    yield from _split(messages, conversation)


def _split(messages: list[dict[str, Any]], conversation: str) -> Iterator[Turn]:
    """Split a conversation before each message of the user that follows the assistant."""
    begin = 0
    for end in range(1, len(messages) + 1):
        if end < len(messages) and messages[end]["role"] != "user":
            continue
        first = next((i for i in range(begin, end) if messages[i]["role"] == "assistant"), None)
        if first is None:
            continue
        texts = [_text(message.get("content")) for message in messages[first:end] if message["role"] == "assistant"]
        answer = next((text for text in reversed(texts) if text), "")
        yield Turn(conversation, messages[:first], answer, _tool_calls(messages[first:end]))
        begin = end


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _tool_calls(messages: list[dict[str, Any]]) -> list[Any]:
    results = {str(message.get("tool_call_id")): _text(message.get("content"))
               for message in messages if message["role"] == "tool"}  # fmt: skip
    return [
        {**call, "result": results.get(str(call.get("id")))}
        for message in messages if isinstance(message.get("tool_calls"), list)
        for call in message["tool_calls"] if isinstance(call, dict)
    ]  # fmt: skip
