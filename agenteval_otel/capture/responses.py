"""Shapes of answers and prompts: from what a handler took and gave to text and messages.

Runs on the pool's thread. Vendors' objects are met by their shape, never by an import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agenteval_otel.capture.text import clean, plain, to_text
from agenteval_otel.errors import CaptureError

__all__ = ["answer_text", "history_of", "join_chunks", "prompt_text", "tool_calls_of"]

_TEXT_KEYS = ("content", "text", "output", "output_text", "answer", "response", "message")
_MAX_MESSAGES = 1_000
T = TypeVar("T")


def _translated(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Whatever the methods of a foreign object raise becomes a CaptureError."""

    @functools.wraps(read)
    def reading(value: Any) -> T:
        try:
            return read(value)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(f"no text from {type(value).__name__}: {type(error).__name__}") from error

    return reading


@_translated
def answer_text(answer: Any) -> str:
    """The text of an answer; of a mapping or an object with a text field such as ``content`` that field.

    Raises:
        CaptureError: The object's own methods raised.
    """
    if isinstance(answer, str):
        return clean(answer)
    field = _text_field(answer)
    return clean(field) if field is not None else to_text(answer)


def join_chunks(chunks: Sequence[Any]) -> str:
    """The text of a streamed answer: its chunks one after another, capped."""
    return clean("".join(chunk if type(chunk) is str else answer_text(chunk) for chunk in chunks))


@_translated
def tool_calls_of(answer: Any) -> list[dict[str, Any]] | None:
    """The tool calls of an answer that is a message; None where it has none."""
    calls = answer.get("tool_calls") if isinstance(answer, Mapping) else None
    if not isinstance(calls, list):
        return None
    return [_tool_call(call) for call in calls[:_MAX_MESSAGES] if isinstance(call, Mapping)] or None


@_translated
def prompt_text(prompt: Any) -> str | None:
    """The question: text as it is, of a list of messages the last one of the user."""
    if prompt is None:
        return None
    if _is_messages(prompt):
        for message in reversed(prompt):
            if message.get("role") == "user":
                return answer_text(message.get("content"))
        return None
    return answer_text(prompt)


@_translated
def history_of(prompt: Any) -> list[dict[str, Any]] | None:
    """The messages of a conversation, where the prompt is one; at most the last 1,000."""
    if not _is_messages(prompt):
        return None
    return [_message(message) for message in prompt[-_MAX_MESSAGES:]]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    shape: dict[str, Any] = {
        "role": to_text(message["role"]),
        "content": None if content is None else answer_text(content),
    }
    calls = tool_calls_of(message)
    if calls is not None:
        shape["tool_calls"] = calls
    for source, target in (("tool_call_id", "tool_call_id"), ("name", "tool_name")):
        if isinstance(message.get(source), str):
            shape[target] = clean(message[source], 256)
    return shape


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """One call in the shape of chat completions (``{id, function: {name, arguments}}``) or in our own."""
    function = call.get("function")
    source = function if isinstance(function, Mapping) else call
    return {
        "id": to_text(call.get("id")) or None,
        "name": to_text(source.get("name")),
        "arguments": plain(source.get("arguments")),
        "result": plain(call.get("result")),
    }


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(item, Mapping) and isinstance(item.get("role"), str) for item in value)
    )


def _text_field(answer: Any) -> str | None:
    if isinstance(answer, Mapping):
        found = next((answer[key] for key in _TEXT_KEYS if isinstance(answer.get(key), str)), None)
        # A message without content is one that calls tools: it has no text, and its JSON form is none either.
        return "" if found is None and isinstance(answer.get("role"), str) and not answer.get("content") else found
    if answer is None or isinstance(answer, bool | int | float | bytes | list | tuple | set | frozenset):
        return None
    for key in _TEXT_KEYS:
        try:
            value = getattr(answer, key, None)
        except Exception:
            continue
        if isinstance(value, str):
            return value
    return None
