"""Prompts: what was asked, by a text, a message, a conversation, a request or a graph's state."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from agenteval_otel.capture.fields import field, is_connection, items, last_items, short
from agenteval_otel.capture.messages import Turn, all_turns, content_text, is_content, is_message
from agenteval_otel.capture.parameters import CONVERSATION_NAMES
from agenteval_otel.capture.text import PlainCopy, clean, to_text
from agenteval_otel.capture.tool_calls import plain_calls
from agenteval_otel.capture.values import Detached, Unreadable

__all__ = ["Asked", "history_fields", "history_of", "last_question", "read_prompt"]

_PROMPT_KEYS: Final = (
    "prompt", "question", "query", "user_prompt", "user_input", "message", "input", "text", "content",
)  # fmt: skip
_CONVERSATION_KEYS: Final = ("messages", "input", "history", "message_history")
_SYSTEM_KEYS: Final = ("system", "system_prompt", "instructions")


class Asked(NamedTuple):
    """The question, the conversation that it ends, and the conversation's id where the prompt itself has it."""

    prompt: str | None = None
    turns: list[Turn] | None = None
    conversation_id: str | None = None


def read_prompt(prompt: Any, *, system: Any = None, history: Any = None) -> Asked:
    """What was asked.

    Args:
        prompt: What the handler took as its prompt.
        system: The system text that it was given beside it.
        history: The conversation before it, where the prompt is only its last message.

    Raises:
        CaptureError: The prompt's own methods raised.
    """
    if type(prompt) is str and system is None and history is None:
        return Asked(clean(prompt))
    if is_connection(prompt):
        prompt = None
    turns = _turns(prompt)
    question = last_question(turns) if turns is not None else _text(prompt)
    before = _pairs(history) if turns is None else None
    system_text = _system(system) or (_system_of(prompt) if turns is not None else None)
    if turns is None and (before or system_text):
        turns = [*(before or ()), *([] if question is None else [Turn("user", question)])]
    if turns is not None and system_text and not (turns and turns[0].role == "system"):
        turns = [Turn("system", system_text), *turns]
    return Asked(question, turns, _conversation_id(prompt))


def history_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a conversation as fields of `Message`, at most the last 1,000; None if it is not one."""
    turns = _turns(value)
    return None if turns is None else history_fields(turns)


def last_question(turns: list[Turn]) -> str | None:
    """The user's last message."""
    return next((clean(turn.text or "") for turn in reversed(turns) if turn.role == "user"), None)


def history_fields(turns: list[Turn]) -> list[dict[str, Any]]:
    """Turns as fields of `Message`; results of tools stand with their calls and in messages of their own."""
    copy = PlainCopy()
    calls = {call.id: call for turn in turns for call in turn.calls if call.id}
    for turn in turns:
        for id, result in turn.results:
            if id in calls:
                calls[id].result = result
    return [message for turn in turns for message in _messages(turn, copy)]


def _messages(turn: Turn, copy: PlainCopy) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for id, result in turn.results:
        shape: dict[str, Any] = {"role": "tool", "content": to_text(result)}
        if id is not None:
            shape["tool_call_id"] = id
        messages.append(shape | ({"tool_name": turn.name} if turn.name else {}))
    if (turn.results and turn.text is None) or turn.role == "tool":
        return messages or [{"role": "tool", "content": None if turn.text is None else clean(turn.text)}]
    message: dict[str, Any] = {"role": turn.role, "content": None if turn.text is None else clean(turn.text)}
    calls = plain_calls(turn.calls, copy)
    if calls is not None:
        message["tool_calls"] = calls
    return [*messages, message | ({"tool_name": turn.name} if turn.name else {})]


def _turns(prompt: Any) -> list[Turn] | None:
    """The messages of a prompt that is a conversation or holds one; None if it is not one."""
    if isinstance(prompt, list | tuple):
        messages = last_items(prompt)
        return all_turns(messages) if messages and all(is_message(item) for item in messages) else None
    if prompt is None or isinstance(prompt, str | bytes | int | float):
        return None
    for name in _CONVERSATION_KEYS:
        messages = last_items(field(prompt, name))
        if messages and all(is_message(item) for item in messages):
            return all_turns(messages)
    return None


def _text(prompt: Any) -> str | None:
    if prompt is None or isinstance(prompt, str):
        return None if prompt is None else to_text(prompt)
    if isinstance(prompt, list | tuple):
        return clean(content_text(prompt) or "") if is_content(prompt) else to_text(prompt)
    if isinstance(prompt, bool | int | float | bytes | bytearray | set | frozenset):
        return to_text(prompt)
    for name in _PROMPT_KEYS:
        content = field(prompt, name)
        if isinstance(content, str):
            return to_text(content)
        if name in ("content", "message", "input") and (is_content(content) or is_message(content)):
            return clean(content_text(content if isinstance(content, list) else field(content, "content")) or "")
    if type(prompt) is Unreadable or (type(prompt) is Detached and not prompt.type.is_data):
        return None
    return to_text(prompt)


def _pairs(history: Any) -> list[Turn] | None:
    """A history of messages, or of pairs of what the user and the assistant said."""
    turns = _turns(history)
    if turns is not None or not isinstance(history, list):
        return turns
    collected: list[Turn] = []
    for pair in last_items(history):
        texts = items(pair)
        if len(texts) != 2 or not all(isinstance(text, str | None) for text in texts):
            return None
        collected += [
            Turn(role, text) for role, text in zip(("user", "assistant"), texts, strict=True) if text is not None
        ]
    return collected or None


def _system(value: Any) -> str | None:
    text = content_text(value) if isinstance(value, str | list) else content_text(field(value, "content"))
    return clean(text) if text else None


def _system_of(prompt: Any) -> str | None:
    if isinstance(prompt, list | tuple):
        return None
    return next((text for name in _SYSTEM_KEYS if (text := _system(field(prompt, name)))), None)


def _conversation_id(prompt: Any) -> str | None:
    for name in CONVERSATION_NAMES:
        conversation = field(prompt, name)
        if isinstance(conversation, str | UUID) or type(conversation) is int:
            return short(str(conversation)) or None
    return None
