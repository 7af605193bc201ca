"""Content: the parts of a message, told apart into text, tool calls and their results.

Reasoning, images, audio and files are no text of the answer and are passed by.
"""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.shapes.calls import Call, call_of
from agenteval_otel.capture.shapes.fields import field, first, items, kind_of
from agenteval_otel.capture.text import CAP_CHARS, cap

__all__ = ["TEXT_KEYS", "Result", "content_text", "is_content", "part_calls", "part_results", "part_text", "text_field"]

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
    found = next((text for key in ("text", "refusal", "content") if (text := field(part, key)) is not None), None)
    if not isinstance(found, str):
        found = field(found, "value")
    return cap(found, 2 * CAP_CHARS) if isinstance(found, str) else None


def part_calls(content: Any) -> list[Call]:
    """The tool calls among the parts."""
    found = [call_of(part) for part in items(content) if _kind(part) in _CALLS]
    return [call for call in found if call is not None]


def part_results(content: Any) -> list[Result]:
    """The results of tool calls among the parts."""
    return [result_of(part) for part in items(content) if _kind(part) in _RESULTS]


def result_of(part: Any) -> Result:
    """What a tool gave, as text where it is text; the id of its call."""
    raw = next((found for key in ("content", "output", "result") if (found := field(part, key)) is not None), None)
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
        found = field(value, name)
        if isinstance(found, str):
            return content_text(found)
        if name == "content" and is_content(found):
            return content_text(found) or ""
    return None


def _kind(part: Any) -> str:
    return "" if isinstance(part, str) else kind_of(part) or kind_of(part, "part_kind")
