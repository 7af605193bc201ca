"""Messages: one message of a conversation, in any client's form, as a `Turn`.

Reasoning, images, audio and files are no text of an answer. They are skipped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.detached import Detached
from agenteval_otel.capture.fields import (
    Tokens,
    field,
    first,
    first_value,
    items,
    kind_of,
    last_items,
    short,
    usage_of,
)
from agenteval_otel.capture.text import CAP_CHARS, cap, to_text
from agenteval_otel.models.tool_calls import (
    ARGUMENTS,
    CALL_FIELDS,
    CALL_IDS,
    CALL_ITEMS,
    CALL_KINDS,
    CALL_RESULTS,
    FAILED_VALUES,
    FUNCTIONS,
    IDS,
    NAMES,
    PROVIDER_CALLS,
    RESULT_FIELDS,
    RESULT_ITEMS,
    RESULT_KINDS,
    RESULTS,
    VALUE_KINDS,
    is_result_kind,
    says_failed,
)

TEXT_KEYS: Final = (
    "content",
    "text",
    "output",
    "output_text",
    "answer",
    "response",
    "message",
    "result",
)
_TEXTS: Final = frozenset({"", "text", "output_text", "input_text", "refusal", "text-delta"})
_REASONING: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction"})
_SILENT_FIELDS: Final = (
    "reasoningContent",
    "reasoning_content",
    "cachePoint",
    "reasoning",
    "reasoning_text",
)
"""Fields of a part without a kind that say nothing to the user: reasoning, and Bedrock's mark for its
cache.
"""
_OTHERS: Final = frozenset({
    "image", "image_url", "input_image", "input_audio", "input_file", "file", "document", "audio", "video",
})  # fmt: skip
_BLOCK_FIELDS: Final = frozenset({"document", "image", "json", "text", "video"})
"""The one field of a block without a kind: Bedrock's."""
_KNOWN_PARTS: Final = (_TEXTS | CALL_KINDS | RESULT_KINDS | _REASONING | _OTHERS) - {""}
_ROLES: Final = {
    "user": "user", "human": "user", "HumanMessageChunk": "user", "assistant": "assistant", "ai": "assistant",
    "model": "assistant", "AIMessageChunk": "assistant", "system": "system", "developer": "system",
    "SystemMessageChunk": "system", "tool": "tool", "function": "tool", "ToolMessageChunk": "tool",
}  # fmt: skip
_PART_ROLES: Final = {
    "system-prompt": "system",
    "user-prompt": "user",
    "retry-prompt": "user",
    "tool-return": "tool",
    "builtin-tool-return": "tool",
}
_KIND_FIELDS: Final = ("type", "part_kind", "block_type", "content_type")
"""Fields that name a part's kind: nearly all clients', pydantic-ai's, LlamaIndex's, Semantic Kernel's."""
_CONTENT_FIELDS: Final = (
    "content",
    "contentParts",
    "content_parts",
    "parts",
    "blocks",
    "items",
    "_content",
)
"""Fields that hold a message's content."""
_MADE_UP: Final = ("lc_", "run-", "__")  # how ids begin that a client makes up


class Result(NamedTuple):
    """Holds the result of a tool call: the call's id, what the tool gave, and why it failed."""

    id: str | None
    value: Any
    error: str | None = None


@dataclass(slots=True)
class Call:
    """Holds one tool call. `pieces` are its arguments as far as they came."""

    id: str | None
    name: str
    arguments: Any = None
    pieces: list[str] = dataclasses.field(default_factory=list)
    result: Any = None
    error: str | None = None
    duration_s: float | None = None


@dataclass(slots=True)
class Turn:
    """Holds one message. `key` identifies it.

    An answer's turn has a number and may have no output yet. The text of a turn that `is_json` is
    the JSON of the application's own data, of which `data` is the detached form where that is
    known.
    """

    role: str
    text: str | None = None
    calls: list[Call] = dataclasses.field(default_factory=list)
    results: list[Result] = dataclasses.field(default_factory=list)
    key: str | None = None
    name: str | None = None
    usage: Tokens | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    conversation_id: str | None = None
    number: int = 0
    has_output: bool = False
    has_unread_parts: bool = False
    is_json: bool = False
    data: Any = None


def content_text(content: object) -> str | None:
    """Return the text of a message's content: text itself, or its text parts one after another.

    Return None if it has none.
    """
    if isinstance(content, list | tuple):
        parts = [_part_text(part) for part in items(content)]
        texts = [text for text in parts if text is not None]
        return "".join(texts) if texts else None
    return _part_text(content)


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return cap(part, 2 * CAP_CHARS)
    if part is None or _part_kind(part) not in _TEXTS or field(part, "thought") is True:
        return None
    text = first_value(part, "text", "refusal", "content")
    if not isinstance(text, str):
        text = field(text, "value")
    return cap(text, 2 * CAP_CHARS) if isinstance(text, str) else None


def has_unread_parts(content: object) -> bool:
    """Tell whether a message's content has images, or parts of an unknown kind.

    Text, calls, results and reasoning are not such parts.
    """
    return any(_is_unread(part) for part in items(content))


def _is_unread(part: object) -> bool:
    if part is None or _part_text(part) is not None or field(part, "thought") is True:
        return False
    kind = _part_kind(part)
    if kind in _REASONING or first_value(part, *_SILENT_FIELDS) is not None:
        return False
    if kind in _TEXTS and kind:
        return first_value(part, "text", "refusal", "content") is not None
    return _call_in(part) is None and _result_in(part) is None


def _part_kind(part: object) -> str:
    for name in _KIND_FIELDS:
        kind = kind_of(part, name)
        if kind:
            return kind
    return ""


def part_calls(content: object) -> list[Call]:
    """Return the tool calls among the parts of a message, or among the items of a response."""
    return calls_in([_call_in(part) for part in items(content)])


def _call_in(part: object) -> Any:
    """Return the call in a part: the part itself, or the field that holds it. None without one."""
    kind = _part_kind(part)
    if kind:
        return part if kind in CALL_KINDS else None
    if field(part, "tool_name") is not None and field(part, "arguments") is not None:
        return part  # Haystack's own object
    call = first_value(part, *CALL_FIELDS)
    return None if isinstance(call, str) else call


def part_results(content: object) -> list[Result]:
    """Return the results of tool calls among the parts of a message."""
    return [result_of(part) for part in map(_result_in, items(content)) if part is not None]


def _result_in(part: object) -> Any:
    """Return the result in a part: the part itself, or the field that holds it. None without one."""
    kind = _part_kind(part)
    if kind:
        return part if is_result_kind(kind) else None
    if field(part, "origin") is not None and field(part, "result") is not None:
        return part  # Haystack's own object
    return first_value(part, *RESULT_FIELDS)


def call_of(value: object) -> Call | None:
    """Return one tool call of any known form, or None.

    Known are the words of `models.tool_calls`: ``{id, function: {name, arguments}}``, ``{name,
    args}``, a part that calls a tool, an item for a tool that the provider runs, and the form of
    `ToolCall`.
    """
    kind = kind_of(value)
    if kind in PROVIDER_CALLS and kind != "mcp_call":
        return _provider_call(value, kind)
    function = first_value(value, *FUNCTIONS)
    source = value if function is None or isinstance(function, str) else function
    name = function if isinstance(function, str) else first(source, *NAMES)
    if name is None:
        return None
    call = Call(first(value, *IDS), name, first_value(source, *ARGUMENTS))
    call.result = first_value(value, *CALL_RESULTS)
    error = field(value, "error")
    if error is not None and (kind == "mcp_call" or isinstance(error, str)):
        call.error = to_text(error)
    return call


def _provider_call(item: object, kind: str) -> Call:
    """Return the call of a tool that the provider runs: what it was given, and what came of it."""
    arguments = field(item, "action")
    if arguments is None:
        inputs = {name: field(item, name) for name in ("queries", "code")}
        arguments = {name: value for name, value in inputs.items() if value is not None} or None
    return Call(
        first(item, *IDS),
        kind.removesuffix("_call"),
        _without_none(arguments),
        result=_without_none(first_value(item, "results", "outputs", "result")),
    )


def _without_none(value: object, depth: int = 4) -> Any:
    """Return a value without its empty fields, which a client's objects have and its JSON has not."""
    if isinstance(value, list | tuple):
        return [_without_none(item, depth - 1) for item in items(value)] if depth else value
    fields = value.fields if type(value) is Detached else value
    if not isinstance(fields, dict) or depth == 0:
        return value
    return {
        name: _without_none(item, depth - 1) for name, item in fields.items() if item is not None
    }


def calls_in(values: list[Any]) -> list[Call]:
    calls = [call_of(value) for value in values]
    return [call for call in calls if call is not None]


def result_of(part: object) -> Result:
    """Return the result of a tool call: text where it is text, and why the tool failed."""
    raw = first_value(part, *RESULTS)
    value = result_value(raw)
    has_failed = kind_of(raw) in FAILED_VALUES
    error = _error_text(part, value) if has_failed else _failure(part, value)
    id = first(part, *IDS) or first(field(part, "origin"), "id")  # Haystack's result has its call
    return Result(id, value, error)


def result_value(raw: object) -> Any:
    """Return what a tool gave, of its form in any client's message: text, else data."""
    if isinstance(raw, str):
        return content_text(raw)
    if kind_of(raw) in VALUE_KINDS:
        inner = first_value(raw, "value", "reason")
        raw = raw if inner is None else inner
    blocks = items(raw)
    is_text = isinstance(raw, str) or (bool(blocks) and all(map(_is_block, blocks)))
    text = content_text(raw) if is_text else None
    return _result_data(raw) if text is None else text


def _is_block(part: object) -> bool:
    """Tell whether a result's item is a block of a client's, and not the tool's own data."""
    kind = _part_kind(part)
    if kind:
        return kind in _KNOWN_PARTS
    fields = part.fields if type(part) is Detached else part
    return isinstance(fields, dict) and len(fields) == 1 and not _BLOCK_FIELDS.isdisjoint(fields)


def _failure(part: object, value: object) -> str | None:
    """Return why a tool failed, where its result says that it did."""
    fields = part.fields if type(part) is Detached else part
    has_failed = isinstance(fields, dict) and says_failed(fields)
    return _error_text(part, value) if has_failed else None


def _error_text(part: object, value: object) -> str:
    return to_text(first_value(part, "error") if value is None else value) or "error"


def _result_data(raw: object) -> Any:
    """Return a result as data: Bedrock's content is a list of parts with ``json``."""
    parts = [field(part, "json") for part in items(raw)]
    if not parts or any(part is None for part in parts):
        return raw
    return parts[0] if len(parts) == 1 else parts


def is_content(value: object) -> bool:
    """Tell whether a list is the content of one message: parts of known kinds."""
    kinds = [_part_kind(part) for part in items(value)]
    return bool(kinds) and all(kind in _KNOWN_PARTS or is_result_kind(kind) for kind in kinds)


def text_field(value: object) -> str | None:
    """Return the text of the first field that is known to hold text. Return None if there is none."""
    for name in TEXT_KEYS:
        content = field(value, name)
        if isinstance(content, str):
            return content_text(content)
        if name == "content" and is_content(content):
            return content_text(content) or ""
    return None


def is_message(value: object) -> bool:
    """Tell whether a value is a message, or an item that may be among messages."""
    role = value.get("role") if type(value) is dict else None
    if type(role) is str and role in _ROLES:
        return True  # as most are: without the tests of other forms below
    if isinstance(value, tuple):
        if len(value) != 2:
            return False
        role, content = value
        return isinstance(role, str) and role in _ROLES and isinstance(content, str | list)
    return _is_agent_message(value) or _role_of(value) is not None or _is_item(value)


def _plain_role(message: object) -> str | None:
    """Return the role of a message that is a dictionary of role and text alone, or None.

    Most messages of a history are, and each answer brings its whole history. Reading them as all
    others are read gives the same, and takes ten times as long.
    """
    if type(message) is not dict or len(message) != 2 or type(message.get("content")) is not str:
        return None
    name = message.get("role")
    role = _ROLES.get(name) if type(name) is str else None
    return None if role == "tool" else role


def turns_of(message: object) -> list[Turn]:
    """Return the turns of one message. A value that is no message has none."""
    plain_role = _plain_role(message)
    if plain_role is not None:
        return [Turn(plain_role, content_text(field(message, "content")))]
    if isinstance(message, tuple):
        return [Turn(_ROLES[message[0]], content_text(message[1]))] if is_message(message) else []
    if _is_agent_message(message):
        return _agent_turns(message)
    role = _role_of(message)
    if role is not None:
        return [_turn(_inner(message), role)]
    return _item_turns(message) if _is_item(message) else []


def all_turns(messages: object) -> list[Turn]:
    """Return the turns of the last messages of a list. Other items are ignored."""
    turns: list[Turn] = []
    for message in last_items(messages):
        for turn in turns_of(message):
            # pydantic-ai repeats the instructions in each request.
            is_repeated = turn.role == "system" and any(
                known.role == "system" and known.text == turn.text for known in turns
            )
            if not is_repeated:
                turns.append(turn)
    return turns


def _inner(message: object) -> Any:
    """Return the message, or its data if it has the form of LangChain's ``messages_to_dict``."""
    data = field(message, "data")
    return data if kind_of(message) in _ROLES and field(data, "content") is not None else message


def _role_of(message: object) -> str | None:
    role = kind_of(message, "role") or kind_of(message, "_role")
    has_content = first_value(_inner(message), "content", "_content") is not None
    if not role:
        return _ROLES.get(kind_of(message)) if has_content else None
    return _ROLES.get(role) or (short(role) if has_content else None)


def _turn(message: object, role: str) -> Turn:
    content = first_value(message, *_CONTENT_FIELDS)
    turn = Turn(
        role,
        content_text(content),
        key=first(message, "id"),
        name=first(message, "name", "tool_name", "_name"),
    )
    if role == "tool":
        id = first(message, *CALL_IDS)
        # pydantic-ai's tools return data, of which the text is only a part.
        is_data = kind_of(message, "part_kind") and not isinstance(content, str)
        value = content if is_data or turn.text is None else turn.text
        turn.results = (
            [Result(id, value, _failure(message, value))] if id else part_results(content)
        )
    if turn.text is None and content is not None and not isinstance(content, list | tuple):
        turn.text = to_text(content)
        if isinstance(content, dict | Detached):
            turn.data = content
            turn.is_json = True
    if role == "tool":
        return turn
    if turn.text is None:
        transcript = field(field(message, "audio"), "transcript")  # of a spoken answer
        turn.text = content_text(field(message, "refusal") if transcript is None else transcript)
    turn.calls = calls_in(
        [*items(field(message, "tool_calls")), *items(field(message, "invalid_tool_calls"))]
    )
    turn.calls = turn.calls or part_calls(content) or calls_in([field(message, "function_call")])
    turn.results = part_results(content)
    turn.has_unread_parts = has_unread_parts(content) or not _has_content_field(message)
    if role == "user" and turn.results and turn.text is None:
        turn.role = "tool"
    if role == "assistant":
        _add_facts(turn, message)
    return turn


def _has_content_field(message: object) -> bool:
    """Tell whether a message has a field for its content, which may be empty."""
    fields = message.fields if type(message) is Detached else message
    return isinstance(fields, dict) and any(name in fields for name in _CONTENT_FIELDS)


def real_id(id: str | None) -> str | None:
    """Return a response's id. Return None for one that the client made up."""
    return None if id is not None and id.startswith(_MADE_UP) else id


def _add_facts(turn: Turn, message: object) -> None:
    """Add usage, model, id and finish reason from the places where this client keeps them."""
    metadata = first_value(message, "response_metadata", "meta", "_meta")
    turn.usage = usage_of(field(message, "usage_metadata")) or usage_of(field(message, "usage"))
    turn.usage = (
        turn.usage or usage_of(field(metadata, "token_usage")) or usage_of(field(metadata, "usage"))
    )
    turn.model = first(metadata, "model_name", "model") or first(message, "model")
    incomplete = field(metadata, "incomplete_details")
    stopped = first(metadata, "finish_reason", "stop_reason") or first(incomplete, "reason")
    turn.finish_reason = (
        stopped or first(metadata, "status") or first(message, "stop_reason", "finish_reason")
    )
    # A message's id is the response's only if it is the whole response, with usage, model or finish
    # reason.
    whole = turn.usage is not None or turn.model is not None or turn.finish_reason is not None
    turn.response_id = real_id(first(metadata, "id") or (first(message, "id") if whole else None))


def _is_item(value: object) -> bool:
    """Tell whether a value is an item of the Responses API that may be among messages.

    It is a call, its output, or reasoning.
    """
    kind = kind_of(value)
    is_item = kind in CALL_ITEMS or kind in RESULT_ITEMS
    return is_item or (kind == "reasoning" and field(value, "summary") is not None)


def _item_turns(value: object) -> list[Turn]:
    if kind_of(value).endswith("_output"):
        return [Turn("tool", content_text(field(value, "output")), results=[result_of(value)])]
    calls = part_calls([value])
    return [Turn("assistant", None, calls=calls, key=first(value, "id"))] if calls else []


def _is_agent_message(message: object) -> bool:
    is_kind = kind_of(message, "kind") in ("request", "response")
    return is_kind and isinstance(field(message, "parts"), list | tuple)


def _agent_turns(message: object) -> list[Turn]:
    """Return the turns of a request or a response of pydantic-ai. Each part of a request is a turn."""
    if kind_of(message, "kind") == "response":
        turn = _turn(message, "assistant")
        turn.model = first(message, "model_name")
        turn.response_id = turn.key = first(message, "provider_response_id", "vendor_id")
        turn.conversation_id = first(message, "conversation_id")
        return [turn]
    instructions = content_text(field(message, "instructions"))
    turns = [Turn("system", instructions)] if instructions else []
    for part in items(field(message, "parts")):
        role = _PART_ROLES.get(kind_of(part, "part_kind"))
        if role == "user" and first(part, "tool_call_id"):
            role = "tool"  # asks for a call to be repeated
        if role is not None:
            turns.append(_turn(part, role))
    return turns
