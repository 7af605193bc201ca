"""Tool calls: the words of every provider, client and span dialect for a call and its result.

The one table of them for `ToolCall`, capture and span mappers. The tool evaluators read the entries
of ``context["toolCalls"]`` by words of their own. Of several words that a value has, the first one
listed counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NAMES: Final = ("name", "tool_name", "toolName")
"""Fields with the name of the tool."""
ARGUMENTS: Final = ("arguments", "args", "input", "parameters", "server_tool_call")
"""Fields of a call with its arguments."""
CALL_IDS: Final = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "toolUseId")
"""Fields with a call's id, of a result and of a message that has an id of its own."""
IDS: Final = (*CALL_IDS, "id")
"""Fields with a call's id, of the call and of its result. An item of OpenAI's Responses API has two,
of which ``call_id`` is the call's."""
CALL_RESULTS: Final = ("result", "output")
"""Fields of a call with its result, where it has one."""
RESULTS: Final = ("content", "output", "result", "response", "server_tool_call_response")
"""Fields of a result with what the tool gave."""

PROVIDER_CALLS: Final = frozenset({
    "code_interpreter_call", "computer_call", "file_search_call", "image_generation_call", "local_shell_call",
    "mcp_call", "web_search_call",
})  # fmt: skip
"""Items of the Responses API for tools that the provider runs. Their results stand in them."""
CALL_ITEMS: Final = frozenset({"function_call", "custom_tool_call"}) | PROVIDER_CALLS
"""Items of the Responses API that are tool calls."""
RESULT_ITEMS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
"""Items of the Responses API that are results of tool calls."""
CALL_KINDS: Final = CALL_ITEMS | {
    "builtin-tool-call", "mcp_tool_use", "server_tool_call", "server_tool_use", "tool-call", "tool_call", "tool_use",
}  # fmt: skip
"""Kinds of parts that are tool calls."""
RESULT_KINDS: Final = RESULT_ITEMS | {
    "builtin-tool-return", "server_tool_call_response", "tool-error", "tool-result", "tool-return",
    "tool_call_response", "tool_result",
}  # fmt: skip
"""Kinds of parts that are results of tool calls."""
RESULT_ENDING: Final = "_tool_result"
"""The ending of the kinds of results of Anthropic's own tools, such as ``web_search_tool_result``."""
CALL_FIELDS: Final = ("toolUse", "functionCall", "function_call", "tool_call")
"""Fields that hold a part's call, where the part has no kind: Bedrock's, Gemini's, Haystack's."""
RESULT_FIELDS: Final = ("toolResult", "functionResponse", "function_response", "tool_call_result")
"""Fields that hold a part's result, where the part has no kind."""
FUNCTIONS: Final = ("function", "custom")
"""Fields of a call that hold its name and arguments: OpenAI's."""

ERROR_FLAGS: Final = ("is_error", "isError", "error")
"""Fields of a result that are true where the tool failed."""
STATUSES: Final = ("status", "outcome")
"""Fields of a result that say how the tool ended."""
FAILED_STATUSES: Final = frozenset({"denied", "error", "failed"})
"""The values of `STATUSES` that say that the tool failed."""
FAILED_KINDS: Final = frozenset({"retry-prompt", "tool-error"})
"""Kinds of results that say that the tool failed."""
VALUE_KINDS: Final = frozenset(
    {"content", "error-json", "error-text", "execution-denied", "json", "text"}
)
"""Kinds of ``{type, value}``, the AI SDK's form of a result."""
FAILED_VALUES: Final = frozenset({"error-json", "error-text", "execution-denied"})
"""The `VALUE_KINDS` that say that the tool failed."""

WORDS: Final = frozenset({
    *NAMES, *ARGUMENTS, *IDS, *CALL_RESULTS, *RESULTS, *CALL_FIELDS, *RESULT_FIELDS, *FUNCTIONS, *ERROR_FLAGS,
    *STATUSES, "error",
})  # fmt: skip
"""All fields that are read of a call and of a result."""

_FIELDS: Final = {"name": NAMES, "arguments": ARGUMENTS, "result": CALL_RESULTS, "id": IDS}
_OTHER_FORMS: Final = frozenset(
    {*NAMES, *ARGUMENTS, *CALL_RESULTS, *IDS, *CALL_FIELDS, *FUNCTIONS}
).difference(_FIELDS)


def is_result_kind(kind: str) -> bool:
    """Tell whether parts of this kind are results of tool calls."""
    return kind in RESULT_KINDS or kind.endswith(RESULT_ENDING)


def says_failed(result: Mapping[str, Any]) -> bool:
    """Tell whether a result says that its tool failed: by a flag, its status or its kind."""
    for name in ERROR_FLAGS:
        if result.get(name) is True:
            return True
    for name in STATUSES:
        if _is_in(result.get(name), FAILED_STATUSES):
            return True
    kind_names = ("type", "part_kind")
    return any(_is_in(result.get(name), FAILED_KINDS) for name in kind_names)


def _is_in(value: object, words: frozenset[str]) -> bool:
    return isinstance(value, str) and value in words


def fields_of_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call of any provider's form with the fields of `ToolCall`.

    A call in that form is returned as it is.
    """
    if _OTHER_FORMS.isdisjoint(call):
        return call
    fields = dict(call)
    if "name" not in fields:
        for word in (*FUNCTIONS, *CALL_FIELDS):
            inner = fields.get(word)
            if isinstance(inner, str):
                fields["name"] = inner
            elif isinstance(inner, Mapping):
                fields |= inner
    for name, words in _FIELDS.items():
        values = (fields[word] for word in words if fields.get(word) is not None)
        value = next(values, None)
        if value is not None:
            fields[name] = value
    return fields
