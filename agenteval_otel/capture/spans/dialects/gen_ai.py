"""The GenAI conventions of OpenTelemetry, from v1.28 to now.

In v1.28 messages are events. Now they are attributes, in JSON text or structured, or are in one
event with the details of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import MAX_ITEMS, kind_of, short
from agenteval_otel.capture.messages import (
    Call,
    Turn,
    calls_in,
    content_text,
    has_unread_parts,
    is_message,
    part_calls,
    part_results,
    result_of,
    result_value,
    turns_of,
)
from agenteval_otel.capture.spans.base import COMMON, Names, Role, SpanMapper, span_mapper
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan
from agenteval_otel.capture.spans.values import (
    MAX_JSON_CHARS,
    answer_turns,
    definitions,
    prompt_turns,
    structured,
    unread_answer,
)
from agenteval_otel.models.tool_calls import CALL_FIELDS, CALL_KINDS, RESULT_FIELDS, RESULT_KINDS
from agenteval_otel.semconv import (
    AGENT_NAME,
    OPERATION_INVOKE_AGENT,
    OPERATION_NAME,
    REQUEST_MODEL,
    RESPONSE_ID,
)

_ROLES: Final[Mapping[str, Role]] = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    OPERATION_INVOKE_AGENT: "agent",
    "invoke_workflow": "workflow",
    "execute_tool": "tool",
    "retrieval": "retrieval",
    "search_memory": "retrieval",
    "plan": "plan",
}
_MESSAGE_ROLES: Final = {
    "model": "assistant",
    "ai": "assistant",
    "human": "user",
    "developer": "system",
}
_INPUTS: Final = ("gen_ai.input.messages",)
_OUTPUTS: Final = ("gen_ai.output.messages",)
_OLD_INPUTS: Final = ("gen_ai.prompt",)
_OLD_OUTPUTS: Final = ("gen_ai.completion",)
"""Before v1.28: text, messages, or a provider's request and response."""
_DOCUMENTS: Final = ("gen_ai.retrieval.documents", "gen_ai.memory.records")
_QUERY: Final = "gen_ai.retrieval.query.text"
_TOOL_ARGUMENTS: Final = ("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args")
_TOOL_RESULTS: Final = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response")
"""The conventions' attributes, and those of Google's Agent Development Kit."""
_PART_FIELDS: Final = frozenset({"text", *CALL_FIELDS, *RESULT_FIELDS})
_DUMPS: Final = ("[{", '{"', "{'")
"""How data begins that is no JSON: its Python form, or JSON that a limit has cut."""
_CHOICE: Final = "gen_ai.choice"
_MESSAGES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    _CHOICE: "assistant",
}


@span_mapper
class GenAi(SpanMapper):
    """Any span with ``gen_ai.operation.name``."""

    name = "gen_ai"
    reads_later = True
    content_switch = (
        "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY, and for instrumentation that knows newer "
        "conventions as well OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
    )
    kind = OPERATION_NAME
    roles = _ROLES
    facts: ClassVar[Mapping[str, Names]] = {
        **COMMON,
        "agent": (AGENT_NAME, "gen_ai.workflow.name"),
        "agent_id": ("gen_ai.agent.id",),
        "model": ("gen_ai.response.model", REQUEST_MODEL),
        "response_id": (RESPONSE_ID,),
        "finish_reason": ("gen_ai.response.finish_reasons",),
        "streamed": ("gen_ai.request.stream",),
        "cost": ("gen_ai.usage.cost",),
    }
    tokens: ClassVar[Mapping[str, Names]] = {
        "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "cache_read_tokens": (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
        ),
    }

    def before(self, span: ReadSpan) -> list[Turn]:
        turns = (
            turns_of_messages(_messages(span, _INPUTS), "user")
            or _turns_of_events(span, choices=False)
            or prompt_turns(structured(_messages(span, _OLD_INPUTS)))
            or prompt_turns(span.attributes.get(_QUERY))
        )
        instructions = _messages(span, ("gen_ai.system_instructions",))
        if instructions and not (turns and turns[0].role == "system"):
            turns = [*system_turns(instructions), *turns]
        return turns

    def answer(self, span: ReadSpan) -> list[Turn]:
        turns = turns_of_messages(_messages(span, _OUTPUTS), "assistant")
        count = span.attributes.get("gen_ai.request.choice.count")
        if turns and isinstance(count, int) and count > 1:
            return turns[:1]
        return (
            turns
            or _turns_of_events(span, choices=True)
            or _turns_of_old(_messages(span, _OLD_OUTPUTS))
        )

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        name = short(attributes.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool ")
        call = Call(short(attributes.get("gen_ai.tool.call.id")), name)
        call.arguments = structured(first_of(attributes, _TOOL_ARGUMENTS))
        call.result = result_value(structured(first_of(attributes, _TOOL_RESULTS)))
        _add_messages_of_tool(call, span)
        return call

    def documents(self, span: ReadSpan) -> list[Any]:
        documents = structured(first_of(span.attributes, _DOCUMENTS))
        return documents if isinstance(documents, list) else []

    def tool_definitions(self, span: ReadSpan) -> Any:
        return definitions(span.attributes.get("gen_ai.tool.definitions"))


def first_of(attributes: Mapping[str, Any], names: Names) -> Any:
    """Return the first of these attributes that is present. None if none is."""
    for name in names:
        value = attributes.get(name)
        if value is not None:
            return value
    return None


def _messages(span: ReadSpan, names: Names) -> Any:
    """Return the attribute with the messages: of the span, or of an event with the call's details."""
    value = first_of(span.attributes, names)
    if value is not None:
        return value
    for event in span.events:
        value = first_of(event.attributes, names)
        if value is not None:
            return value
    return None


def turns_of_messages(messages: object, role: str) -> list[Turn]:
    """Return the turns of messages with parts, in JSON text or structured. They are the last 1,000.

    A list of parts is one message of the role. An answer that cannot be read has a turn that says
    so.
    """
    if role == "assistant" and isinstance(messages, str):
        messages = messages[:MAX_JSON_CHARS]  # of a longer answer, what would be kept of it
    messages = structured(messages)
    if isinstance(messages, dict):
        messages = [messages]
    if not messages:
        return []
    unread = [unread_answer()] if role == "assistant" else []
    if not isinstance(messages, list):
        return unread
    messages = messages[-MAX_ITEMS:]
    if any(_is_message(message) for message in messages):
        turns: list[Turn] = []
        for message in messages:
            turns += _turns_of(message)
        return turns or unread
    are_parts = all(isinstance(message, dict) for message in messages)
    return [turn_of_parts(role, messages)] if are_parts else unread


def _turns_of_old(value: object) -> list[Turn]:
    """Return the turns of an answer in the attribute before v1.28."""
    value = structured(value)
    is_dump = isinstance(value, str) and value.startswith(_DUMPS)
    return [unread_answer()] if is_dump else answer_turns(value)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and (bool(value.get("role")) or is_message(value))


def system_turns(instructions: object) -> list[Turn]:
    """Return instructions as the system's turn: parts, or plain text."""
    parts = structured(instructions)
    turn = turn_of_parts("system", parts if isinstance(parts, list) else [parts])
    return [turn] if turn.text else []


def _turns_of(message: object) -> list[Turn]:
    if not isinstance(message, dict):
        return []
    parts = message.get("parts")
    role = short(message.get("role"))
    if not isinstance(parts, list) or not role:
        return turns_of(message)  # a provider's own form
    turn = turn_of_parts(_MESSAGE_ROLES.get(role, role), parts)
    reason = message.get("finish_reason")
    turn.finish_reason = reason if isinstance(reason, str) else None
    return [turn]


def turn_of_parts(role: str, parts: list[Any]) -> Turn:
    """Return the turn of a message's parts. Reasoning, images and files are no text of it."""
    turn = Turn(role)
    texts: list[str] = []
    for part in parts[:MAX_ITEMS]:
        kind = kind_of(part)
        if kind == "text" and isinstance(part.get("content"), str):
            texts.append(part["content"])
        elif kind in CALL_KINDS:
            turn.calls += calls_in([part])
        elif kind in RESULT_KINDS:
            turn.results.append(result_of(part))
        else:
            _add_other(turn, texts, [part])
    if texts:
        turn.text = "".join(texts)
    if turn.results and turn.text is None and role != "assistant":
        turn.role = "tool"  # some put results into messages of the user
    return turn


def _add_other(turn: Turn, texts: list[str], parts: list[Any]) -> None:
    """Add a part that is none of the conventions'."""
    text = content_text(parts)
    if text is not None:
        texts.append(text)
    turn.calls += part_calls(parts)
    turn.results += part_results(parts)
    turn.has_unread_parts = turn.has_unread_parts or has_unread_parts(parts)


def _turns_of_events(span: ReadSpan, *, choices: bool) -> list[Turn]:
    """Return the messages of v1.28, an event each.

    What they say is in the body, or in attributes of a span event.
    """
    events = [
        event
        for event in span.events
        if event.name in _MESSAGES and (event.name == _CHOICE) is choices
    ]
    bodies = [(event.name, _body_of(event)) for event in events[-MAX_ITEMS:]]
    if choices:
        indexes = [body["index"] for _, body in bodies if type(body.get("index")) is int]
        lowest = min(indexes, default=None)
        bodies = [item for item in bodies if item[1].get("index", lowest) == lowest]
    turns: list[Turn] = []
    for name, body in bodies:
        turns += _turns_of_body(name, body)
    return turns


def _body_of(event: ReadEvent) -> dict[str, Any]:
    body = structured(event.body)
    if isinstance(body, dict):
        return body
    return {key.rpartition(".")[2]: structured(value) for key, value in event.attributes.items()}


def _turns_of_body(name: str, body: dict[str, Any]) -> list[Turn]:
    message = body.get("message") if name == _CHOICE else body
    if isinstance(message, str | list):
        message = {"content": message}
    if not isinstance(message, dict):
        return [] if message is None else [unread_answer()]
    if "role" not in message and set(message) & _PART_FIELDS:
        message = {"content": [message]}
    message = {"role": _MESSAGES[name], **message}
    if message["role"] == "tool" and "id" in message:
        message["tool_call_id"] = message.pop("id")
    if "parts" in message:
        turns = _turns_of(message)
    else:
        if message.get("content") is None:
            message["content"] = []  # calls only
        turns = turns_of(message)
    for turn in turns:
        reason = body.get("finish_reason")
        turn.finish_reason = reason if isinstance(reason, str) else None
    return turns


def _add_messages_of_tool(call: Call, span: ReadSpan) -> None:
    """Complete a tool's call by its events: it is given a message and answers with one."""
    if call.arguments is not None and call.result is not None:
        return
    for event in span.events:
        body = _body_of(event)
        if event.name == "gen_ai.tool.message" and call.arguments is None:
            call.arguments = body.get("content")
        elif event.name == _CHOICE and call.result is None:
            result = result_of({"content": body.get("message")})
            call.result = result.value
        else:
            continue
        call.id = call.id or short(body.get("id"))
