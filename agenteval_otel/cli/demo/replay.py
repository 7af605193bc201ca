"""Recorded conversations in the agent's place. A turn is one answer, with the tool calls that led to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agenteval_otel.cli.evaluate.dataset import Source
from agenteval_otel.cli.evaluate.parsing import input_of, json_object, values_of
from agenteval_otel.errors import ConfigurationError

__all__ = ["RecordedTurn", "recorded_turns"]


class RecordedTurn(NamedTuple):
    """The messages before an answer, the answer, and its tool calls with their results."""

    conversation: str
    messages: list[dict[str, Any]]
    answer: str
    tool_calls: list[Any]


def recorded_turns(path: str) -> Iterator[RecordedTurn]:
    """The turns of a JSONL file: conversations (``messages``), or the inputs that ``evaluate`` reads.

    Raises:
        ConfigurationError: It cannot be read, or a line is neither, with its number.
    """
    with Source(path) as source:
        for number, line in enumerate(source.lines(), 1):
            if not line.strip():
                continue
            try:
                record = json_object(line)
                conversation = str(record.get("id", f"line-{number}"))[:128]
                if "messages" in record:
                    yield from _turns(_checked(record["messages"]), conversation)
                else:
                    yield _single_turn(record, conversation)
            except ConfigurationError as error:
                place = f"{source.name}:{number}"
                raise ConfigurationError.of(
                    [(place, f"{name}: {message}" if name else message) for name, message in error.problems]
                ) from None


def _single_turn(record: Mapping[str, Any], conversation: str) -> RecordedTurn:
    recorded = input_of(values_of(record.items()))
    messages = [{"role": "user", "content": recorded.prompt}] if recorded.prompt is not None else []
    calls = [call.model_dump(by_alias=True, exclude_none=True) for call in recorded.tool_calls or ()]
    return RecordedTurn(conversation, messages, recorded.response_text, calls)


def _checked(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        raise ConfigurationError("expected a list of objects with a role", path="messages")
    if not any(message["role"] == "assistant" for message in messages):
        raise ConfigurationError("no message of the assistant", path="messages")
    return messages


def _turns(messages: list[dict[str, Any]], conversation: str) -> Iterator[RecordedTurn]:
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
        yield RecordedTurn(conversation, messages[:first], answer, _tool_calls(messages[first:end]))
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
