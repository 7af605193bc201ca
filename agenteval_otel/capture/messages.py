"""Messages: one message of a conversation, in any client's form, as a `Turn`: role, text, tool calls, results.

Reasoning, images, audio and files are not text of an answer; they are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as has
from typing import Any, Final

from agenteval_otel.capture.fields import Tokens, field, first, items, kind_of, last_items, real_id, short, usage_of
from agenteval_otel.capture.text import CAP_CHARS, cap, to_text
from agenteval_otel.capture.tool_calls import Call, call_of

__all__ = [
    "TEXT_KEYS", "Result", "Turn", "all_turns", "content_text", "is_content", "is_message", "part_calls",
    "part_results", "result_of", "text_field", "turns_of",
]  # fmt: skip

Result = tuple[str | None, Any]
"""The id of a tool call, and what it gave."""

TEXT_KEYS: Final = ("content", "text", "output", "output_text", "answer", "response", "message", "result")
"""Names of fields that hold an answer's text."""
_TEXTS: Final = frozenset({"", "text", "output_text", "input_text", "refusal", "text-delta"})
_CALLS: Final = frozenset(
    {"tool_use", "function_call", "tool_call", "tool-call", "server_tool_use", "custom_tool_call"}
)
_RESULTS: Final = frozenset(
    {"tool_result", "function_call_output", "tool-return", "tool-result", "custom_tool_call_output"}
)
_OTHERS: Final = frozenset({
    "thinking", "redacted_thinking", "reasoning", "image", "image_url", "input_image", "input_audio", "input_file",
    "file", "document", "audio", "video", "web_search_call", "file_search_call", "computer_call",
    "code_interpreter_call", "web_search_tool_result", "compaction",
})  # fmt: skip


def content_text(content: Any) -> str | None:
    """The text of a message's content: text itself, or its text parts one after another; None where it has none."""
    if isinstance(content, str):
        return cap(content, 2 * CAP_CHARS)
    texts = [text for part in items(content) if (text := part_text(part)) is not None]
    if texts:
        return "".join(texts)
    return part_text(content) if not isinstance(content, list | tuple) else None


def part_text(part: Any) -> str | None:
    """The text of one part; None for parts of another kind."""
    if isinstance(part, str):
        return cap(part, 2 * CAP_CHARS)
    kind = kind_of(part) or kind_of(part, "part_kind")
    if kind not in _TEXTS or field(part, "thought") is True:
        return None
    text_found = next((text for key in ("text", "refusal", "content") if (text := field(part, key)) is not None), None)
    if not isinstance(text_found, str):
        text_found = field(text_found, "value")
    return cap(text_found, 2 * CAP_CHARS) if isinstance(text_found, str) else None


def part_calls(content: Any) -> list[Call]:
    """The tool calls among the parts."""
    calls = [call_of(part) for part in items(content) if _kind(part) in _CALLS]
    return [call for call in calls if call is not None]


def part_results(content: Any) -> list[Result]:
    """The results of tool calls among the parts."""
    return [result_of(part) for part in items(content) if _kind(part) in _RESULTS]


def result_of(part: Any) -> Result:
    """What a tool gave, as text where it is text; the id of its call."""
    raw = next((content for key in ("content", "output", "result") if (content := field(part, key)) is not None), None)
    text = content_text(raw) if isinstance(raw, str | list | tuple) else None
    id = first(part, "tool_use_id", "tool_call_id", "call_id", "toolCallId")
    return id, raw if text is None else text


def is_content(value: Any) -> bool:
    """Whether a list is the content of one message: parts of known kinds, not only text."""
    parts = items(value)
    known = _TEXTS | _CALLS | _RESULTS | _OTHERS
    return bool(parts) and all((kind := _kind(part)) and kind in known for part in parts)


def text_field(value: Any) -> str | None:
    """The text of the first field that is known to hold text; None where there is none."""
    if value is None or isinstance(value, str | bool | int | float | bytes | list | tuple | set | frozenset):
        return None
    for name in TEXT_KEYS:
        content = field(value, name)
        if isinstance(content, str):
            return content_text(content)
        if name == "content" and is_content(content):
            return content_text(content) or ""
    return None


def _kind(part: Any) -> str:
    return "" if isinstance(part, str) else kind_of(part) or kind_of(part, "part_kind")


_ROLES: Final = {
    "user": "user", "human": "user", "HumanMessageChunk": "user", "assistant": "assistant", "ai": "assistant",
    "model": "assistant", "AIMessageChunk": "assistant", "system": "system", "developer": "system",
    "SystemMessageChunk": "system", "tool": "tool", "function": "tool", "ToolMessageChunk": "tool",
}  # fmt: skip
_TYPED: Final = frozenset({
    "human", "ai", "system", "tool", "function", "AIMessageChunk", "HumanMessageChunk", "SystemMessageChunk",
    "ToolMessageChunk",
})  # fmt: skip


@dataclass(slots=True)
class Turn:
    """What one message says.

    Attributes:
        key: What tells the message from others of its conversation; None where nothing does.
        text: None where the message has no text at all.
    """

    role: str
    text: str | None = None
    calls: list[Call] = has(default_factory=list)
    results: list[Result] = has(default_factory=list)
    key: str | None = None
    name: str | None = None
    usage: Tokens | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None


def is_message(value: Any) -> bool:
    """Whether a value is a message, or an item that stands among messages."""
    if isinstance(value, tuple):
        return (
            len(value) == 2
            and _ROLES.get(value[0] if isinstance(value[0], str) else "") is not None
            and isinstance(value[1], str | list)
        )
    if isinstance(value, str | bytes | list):
        return False
    if _role_of(value) is not None or _is_item(value):
        return True
    return kind_of(value, "kind") in ("request", "response") and isinstance(field(value, "parts"), list | tuple)


def all_turns(messages: Any) -> list[Turn]:
    """The turns of a list of messages, at most of the last thousand, in order; other items are ignored."""
    turns: list[Turn] = []
    seen: set[str | None] = set()
    for turn in (turn for message in last_items(messages) for turn in turns_of(message)):
        if turn.role == "system" and turn.text in seen:
            continue  # instructions that stand in each request
        seen |= {turn.text} if turn.role == "system" else set()
        turns.append(turn)
    return turns


def turns_of(message: Any) -> list[Turn]:
    """The turns of one message; empty if it is not a message."""
    if isinstance(message, tuple) and is_message(message):
        return [Turn(_ROLES[message[0]], content_text(message[1]))]
    if isinstance(message, str | bytes | list | tuple):
        return []
    if kind_of(message, "kind") in ("request", "response") and isinstance(field(message, "parts"), list | tuple):
        return _agent_turns(message)
    role = _role_of(message)
    if role is not None:
        inner = _unwrapped(message)
        return [_turn(inner, role)]
    return _item_turns(message)


def _role_of(message: Any) -> str | None:
    role = field(message, "role")
    if isinstance(role, str):
        known = _ROLES.get(str.__str__(role))
        if known is not None:
            return known
        return short(role) if field(message, "content") is not None else None
    message = _unwrapped(message)
    kind = kind_of(message)
    if kind in _TYPED and field(message, "content") is not None:
        return _ROLES[kind]
    return None


def _unwrapped(message: Any) -> Any:
    """A message that was dumped together with its class, without it: ``{type, data}`` or ``{lc, id, kwargs}``."""
    if not isinstance(message, Mapping):
        return message
    for name in ("data", "kwargs"):
        inner = field(message, name)
        if isinstance(inner, Mapping) and field(inner, "content") is not None and kind_of(inner):
            return inner
    return message


def _turn(message: Any, role: str) -> Turn:
    content = next(
        (raw for name in ("content", "contentParts", "content_parts", "parts")
         if (raw := field(message, name)) is not None), None,
    )  # fmt: skip
    turn = Turn(role, content_text(content), name=first(message, "name", "tool_name"))
    if turn.text is None and content is not None and not isinstance(content, list | tuple):
        turn.text = to_text(content)
    if turn.text is None and isinstance(refusal := field(message, "refusal"), str):
        turn.text = content_text(refusal)
    turn.key = first(message, "id")
    if role == "tool":
        id = first(message, "tool_call_id", "call_id", "toolCallId")
        turn.results = [(id, content if turn.text is None else turn.text)] if id else part_results(content)
        return turn
    turn.calls = _calls_of(message, content)
    turn.results = part_results(content)
    if role == "user" and turn.results and turn.text is None:
        turn.role = "tool"
    if role == "assistant":
        _tell(turn, message)
    return turn


def _calls_of(message: Any, content: Any) -> list[Call]:
    listed = [*items(field(message, "tool_calls")), *items(field(message, "invalid_tool_calls"))]
    calls = [call for item in listed if (call := call_of(item)) is not None]
    if not calls:
        calls = part_calls(content)
    if not calls and (old := field(message, "function_call")) is not None:
        call = call_of(old)
        calls = [call] if call is not None else []
    return calls


def _tell(turn: Turn, message: Any) -> None:
    """Usage, model, id and finish reason, where this client keeps them."""
    metadata = field(message, "response_metadata")
    turn.usage = usage_of(field(message, "usage_metadata")) or usage_of(field(message, "usage"))
    turn.usage = turn.usage or usage_of(field(metadata, "token_usage")) or usage_of(field(metadata, "usage"))
    turn.model = first(metadata, "model_name", "model") or first(message, "model")
    stopped = first(metadata, "finish_reason", "stop_reason") or first(field(metadata, "incomplete_details"), "reason")
    turn.finish_reason = stopped or first(metadata, "status") or first(message, "stop_reason", "finish_reason")
    # The id of a message is the response's only where the message is the whole response, with what belongs to one.
    whole = turn.usage is not None or turn.model is not None or turn.finish_reason is not None
    turn.response_id = real_id(first(metadata, "id") or (first(message, "id") if whole else None))


def _is_item(value: Any) -> bool:
    kind = kind_of(value)
    return kind in ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output") or (
        kind == "reasoning" and field(value, "summary") is not None
    )


def _item_turns(value: Any) -> list[Turn]:
    """An item of the Responses API that stands among messages: a call, or the output of one."""
    kind = kind_of(value)
    if kind in ("function_call", "custom_tool_call"):
        call = call_of(value)
        return [Turn("assistant", None, calls=[call], key=first(value, "id"))] if call is not None else []
    if kind in ("function_call_output", "custom_tool_call_output"):
        result = result_of(value)
        return [Turn("tool", content_text(field(value, "output")), results=[result])]
    return []


def _agent_turns(message: Any) -> list[Turn]:
    """A request or a response that is made of parts, each of which is a message's worth."""
    parts = items(field(message, "parts"))
    if kind_of(message, "kind") == "response":
        turn = Turn("assistant")
        texts = [text for part in parts if kind_of(part, "part_kind") == "text"
                 and isinstance(text := field(part, "content"), str)]  # fmt: skip
        turn.text = "".join(texts) if texts else None
        turn.calls = [call for part in parts if kind_of(part, "part_kind") == "tool-call"
                      and (call := call_of(part)) is not None]  # fmt: skip
        turn.usage, turn.model = usage_of(field(message, "usage")), first(message, "model_name")
        turn.response_id = turn.key = first(message, "provider_response_id", "vendor_id")
        turn.finish_reason = first(message, "finish_reason")
        turn.conversation_id = first(message, "conversation_id")
        return [turn]
    turns = [request_turn for part in parts if (request_turn := _request_turn(part)) is not None]
    instructions = field(message, "instructions")
    if isinstance(instructions, str) and instructions:
        turns.insert(0, Turn("system", content_text(instructions)))
    return turns


def _request_turn(part: Any) -> Turn | None:
    kind, content = kind_of(part, "part_kind"), field(part, "content")
    if kind in ("tool-return", "retry-prompt") and (id := first(part, "tool_call_id")):
        text = content_text(content) if isinstance(content, str) else None
        result = (id, content if text is None else text)
        return Turn("tool", text, results=[result], name=first(part, "tool_name"))
    role = {"system-prompt": "system", "user-prompt": "user", "retry-prompt": "user"}.get(kind)
    return Turn(role, content_text(content)) if role is not None else None
