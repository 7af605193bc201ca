"""The tool calls of an input, from history, context or the answer.

Their arguments are read as values and as JSON text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, Message
from agenteval_otel.models.inputs import ToolCall
from agenteval_otel.models.tool_calls import (
    CALL_FIELDS,
    CALL_KINDS,
    ERROR_FLAGS,
    fields_of_call,
)

Source = Literal["messageHistory", "context", "toolCalls"]
DEFINITIONS = ("tools", "tool_definitions", "toolDefinitions")
_ERROR = re.compile(r"\W{0,8}(?:error|exception|failed|failure|traceback)\b", re.IGNORECASE)


class MadeCall(NamedTuple):
    """Holds a tool call. Its arguments are a value, JSON text or None."""

    name: object
    arguments: object = None
    id: object = None


def calls_of(
    evaluation_input: EvaluationInput, source: Source, *, any_role: bool = False
) -> list[MadeCall]:
    """Return the calls of a source in order, then those of the answer that the source lacks.

    The sources are ``messageHistory`` (``tool_call`` parts of messages, or the ``tool_calls`` of a
    message without any), ``context`` (``context.toolCalls``), and ``toolCalls``, only the answer's
    own. Of messages the assistant's count, or with `any_role` all.
    """
    own = _called(evaluation_input)
    if source == "toolCalls":
        return own
    if source == "context":
        recorded = _in_context(evaluation_input.context)
    else:
        recorded = []
        for message in evaluation_input.message_history or ():
            if any_role or message.role == "assistant":
                # If a message has both forms, the parts (as specified) are used.
                recorded += _in_parts(message) or _called(message)
    if not recorded:
        return own
    if not own:
        return recorded
    return [*recorded, *_additional(recorded, own)]


def trajectory_of(evaluation_input: EvaluationInput) -> list[ToolCall]:
    """Return the agent's own calls in their order, of a conversation those of all turns.

    Raises `EvaluationSkipped` without any.
    """
    if not evaluation_input.tool_calls:
        raise EvaluationSkipped("no tool calls")
    return list(evaluation_input.tool_calls)


def tool_definitions(evaluation_input: EvaluationInput) -> Any:
    """Return what tools the agent has, or None if they are listed nowhere.

    Its configuration lists them, else the context.
    """
    for source in (evaluation_input.agent_config, evaluation_input.context):
        for name in DEFINITIONS:
            if source and source.get(name):
                return source[name]
    return None


def has_failed(call: ToolCall) -> bool:
    """Tell whether the tool failed: the call has an `error`, or its result says so.

    The result says so by a text that begins with an error, by ``error``, or by a flag such as
    ``isError``.
    """
    result = call.result
    if isinstance(result, Mapping):
        flags = (result.get(name) is True for name in ERROR_FLAGS)
        says_so = any(flags) or bool(result.get("error"))
    else:
        says_so = isinstance(result, str) and _ERROR.match(result) is not None
    return says_so or call.error is not None


def key_of(call: ToolCall) -> tuple[str, str]:
    """Return the tool and its normalized arguments: the same key for equal calls."""
    return _content(MadeCall(call.name, call.arguments))


def parsed_arguments(arguments: object) -> Any:
    """Return the arguments as a value.

    JSON text of an object or a list is read. Everything else stays as it is.
    """
    if not isinstance(arguments, str) or not looks_like_json(arguments):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def looks_like_json(text: str) -> bool:
    """Tell whether the text begins as an object or a list."""
    return text.lstrip()[:1] in ("{", "[")


def raw_arguments(arguments: object) -> str:
    """Return the arguments as JSON text, which is empty without arguments.

    Text stays as it is. Values are written without spaces.
    """
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        raise EvaluationError("arguments without a JSON form", error_type="invalid_value") from None


def _called(source: EvaluationInput | Message) -> list[MadeCall]:
    return [MadeCall(call.name, call.arguments, call.id) for call in source.tool_calls or ()]


def _in_parts(message: Message) -> list[MadeCall]:
    calls = [fields_of_call(part) for part in message.content_parts or () if _is_call(part)]
    return [MadeCall(call.get("name"), call.get("arguments"), call.get("id")) for call in calls]


def _is_call(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if isinstance(kind, str):
        return kind in CALL_KINDS
    return any(isinstance(part.get(name), Mapping) for name in CALL_FIELDS)


def _first_of(part: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if part.get(name) is not None:
            return part[name]
    return None


def _in_context(context: Mapping[str, Any] | None) -> list[MadeCall]:
    listed = (context or {}).get("toolCalls")
    if not isinstance(listed, list | tuple):
        return []
    calls: list[MadeCall] = []
    for entry in listed:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("toolName"), str):
            continue
        has_arguments = any(
            isinstance(entry.get(name, ""), Mapping | list | tuple | None)
            for name in ("args", "toolArguments")
        )
        if has_arguments:
            arguments = _first_of(entry, "args", "toolArguments")
            calls.append(MadeCall(entry["toolName"], arguments, entry.get("toolCallId")))
    return calls


def _additional(recorded: list[MadeCall], own: list[MadeCall]) -> list[MadeCall]:
    """Return the own calls that are not recorded.

    Calls are compared by id if both have one, else by name and arguments, each as often.
    """
    ids = {call.id for call in recorded if isinstance(call.id, str)}
    without_id = Counter(_content(call) for call in recorded if not isinstance(call.id, str))
    all_recorded = Counter(map(_content, recorded))
    additional: list[MadeCall] = []
    for call in own:
        if isinstance(call.id, str) and call.id in ids:
            continue
        recordings = all_recorded if call.id is None else without_id
        content = _content(call)
        if recordings[content] > 0:
            recordings[content] -= 1
        else:
            additional.append(call)
    return additional


def _content(call: MadeCall) -> tuple[str, str]:
    try:
        arguments = parsed_arguments(call.arguments)
        return str(call.name), json.dumps(arguments, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(call.name), "?"
