"""Prompts: the question in a text, a message, a conversation, a request or a graph's state."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from agenteval_otel.capture.calls import CONVERSATION_NAMES
from agenteval_otel.capture.detached import Detached, Unreadable
from agenteval_otel.capture.fields import field, items, last_items, short
from agenteval_otel.capture.messages import Turn, all_turns, content_text, is_content, is_message
from agenteval_otel.capture.reading import plain_calls
from agenteval_otel.capture.text import PlainCopy, clean, to_text

_PROMPT_KEYS: Final = (
    "prompt", "question", "query", "user_prompt", "user_input", "message", "input", "text", "content",
)  # fmt: skip
_CONVERSATION_KEYS: Final = ("messages", "input", "history", "message_history")
_SYSTEM_KEYS: Final = ("system", "system_prompt", "instructions")


class Prompt(NamedTuple):
    """The question, the conversation that it ends, and the conversation's id where the prompt itself has it."""

    text: str | None = None
    turns: list[Turn] | None = None
    conversation_id: str | None = None


def read_prompt(prompt: Any, *, system: Any = None, history: Any = None) -> Prompt:
    """Read a handler's prompt.

    Args:
        prompt: The argument that is the prompt.
        system: The system text that was passed beside it.
        history: The conversation before it, where the prompt is only its last message.
    """
    if type(prompt) is str and system is None and history is None:
        return Prompt(clean(prompt))
    if field(prompt, "type") in ("http", "websocket") and field(prompt, "headers") is not None:
        prompt = None  # a web framework's request: its headers hold cookies and keys
    turns = _turns(prompt)
    question = last_question(turns) if turns is not None else _text(prompt)
    system_text = _system(system)
    if turns is not None:
        beside = (_system(field(prompt, name)) for name in _SYSTEM_KEYS)
        system_text = system_text or next(filter(None, beside), None)
    else:
        before = _history(history)
        if before or system_text:
            turns = [*before, *([] if question is None else [Turn("user", question)])]
    if turns is not None and system_text and not (turns and turns[0].role == "system"):
        turns = [Turn("system", system_text), *turns]
    return Prompt(question, turns, _conversation_id(prompt))


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
    for id, result in (result for turn in turns for result in turn.results):
        if id in calls:
            calls[id].result = result
    return [message for turn in turns for message in _messages(turn, copy)]


def _messages(turn: Turn, copy: PlainCopy) -> list[dict[str, Any]]:
    name = {"tool_name": turn.name} if turn.name else {}
    messages: list[dict[str, Any]] = [
        {"role": "tool", "content": to_text(result)} | ({} if id is None else {"tool_call_id": id}) | name
        for id, result in turn.results
    ]
    content = None if turn.text is None else clean(turn.text)
    if turn.role == "tool":
        return messages or [{"role": "tool", "content": content}]
    if messages and content is None:
        return messages
    calls = plain_calls(turn.calls, copy)
    return [*messages, {"role": turn.role, "content": content} | ({"tool_calls": calls} if calls else {}) | name]


def _turns(prompt: Any) -> list[Turn] | None:
    """The messages of a prompt that is a conversation or holds one; None if it is not one."""
    for candidate in (prompt, *(field(prompt, name) for name in _CONVERSATION_KEYS)):
        messages = last_items(candidate)
        if messages and all(is_message(item) for item in messages):
            return all_turns(messages)
    return None


def _text(prompt: Any) -> str | None:
    if is_content(prompt):
        return clean(content_text(prompt) or "")
    for name in _PROMPT_KEYS:
        content = field(prompt, name)
        if isinstance(content, str):
            return to_text(content)
        if name in ("content", "message", "input") and (is_content(content) or is_message(content)):
            return clean(content_text(content if isinstance(content, list) else field(content, "content")) or "")
    if prompt is None or type(prompt) is Unreadable or (type(prompt) is Detached and not prompt.is_data):
        return None
    return to_text(prompt)


def _history(history: Any) -> list[Turn]:
    """A history of messages, or of pairs of the user's and the assistant's text."""
    turns = _turns(history)
    if turns is not None or not isinstance(history, list):
        return turns or []
    collected: list[Turn] = []
    for pair in last_items(history):
        texts = items(pair)
        if len(texts) != 2 or not all(isinstance(text, str | None) for text in texts):
            return []
        collected += [
            Turn(role, text) for role, text in zip(("user", "assistant"), texts, strict=True) if text is not None
        ]
    return collected


def _system(value: Any) -> str | None:
    text = content_text(value) if isinstance(value, str | list) else content_text(field(value, "content"))
    return clean(text) if text else None


def _conversation_id(prompt: Any) -> str | None:
    for name in CONVERSATION_NAMES:
        conversation = field(prompt, name)
        if isinstance(conversation, str | UUID) or type(conversation) is int:
            return short(str(conversation)) or None
    return None
