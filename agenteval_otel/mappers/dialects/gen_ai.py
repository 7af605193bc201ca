"""The GenAI conventions of OpenTelemetry, from v1.28 (messages as events) to now (messages as
attributes, in JSON text or structured, or in one event with the details of the call)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import MAX_ITEMS, short
from agenteval_otel.capture.messages import Call, Turn, turns_of
from agenteval_otel.mappers.base import COMMON, Names, Role, SpanMapper, span_mapper
from agenteval_otel.mappers.span import ReadEvent, ReadSpan
from agenteval_otel.mappers.values import definitions, structured
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
}
_MESSAGE_ROLES: Final = {
    "model": "assistant",
    "ai": "assistant",
    "human": "user",
    "developer": "system",
}
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
    content_switch = (
        "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY, and for instrumentation that knows newer "
        "conventions as well OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
    )
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

    def reads(self, span: ReadSpan) -> bool:
        return OPERATION_NAME in span.attributes

    def role(self, span: ReadSpan) -> Role | None:
        return _ROLES.get(str(span.attributes[OPERATION_NAME]))

    def before(self, span: ReadSpan) -> list[Turn]:
        attributes = _with_messages(span, "gen_ai.input.messages")
        turns = turns_of_messages(attributes.get("gen_ai.input.messages"))
        if not turns:
            turns = _turns_of_events(span, choices=False)
        instructions = attributes.get("gen_ai.system_instructions")
        if instructions and not (turns and turns[0].role == "system"):
            turns = [*system_turns(instructions), *turns]
        return turns

    def answer(self, span: ReadSpan) -> list[Turn]:
        attributes = _with_messages(span, "gen_ai.output.messages")
        return turns_of_messages(attributes.get("gen_ai.output.messages")) or _turns_of_events(
            span, choices=True
        )

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        name = short(attributes.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool ")
        # A result is kept as the tool gave it, which may be JSON text.
        return Call(
            short(attributes.get("gen_ai.tool.call.id")),
            name,
            structured(attributes.get("gen_ai.tool.call.arguments")),
            result=attributes.get("gen_ai.tool.call.result"),
        )

    def documents(self, span: ReadSpan) -> list[Any]:
        documents = structured(span.attributes.get("gen_ai.retrieval.documents"))
        return documents if isinstance(documents, list) else []

    def tool_definitions(self, span: ReadSpan) -> Any:
        return definitions(span.attributes.get("gen_ai.tool.definitions"))


def _with_messages(span: ReadSpan, name: str) -> Mapping[str, Any]:
    """The attributes that hold the messages: the span's, or those of an event with the call's
    details.
    """
    if name in span.attributes:
        return span.attributes
    return next(
        (event.attributes for event in span.events if name in event.attributes), span.attributes
    )


def turns_of_messages(messages: Any) -> list[Turn]:
    """The turns of messages with parts, in JSON text or structured; the last 1,000."""
    messages = structured(messages)
    if isinstance(messages, dict):
        messages = [messages]
    if not isinstance(messages, list):
        return []
    return [turn for message in messages[-MAX_ITEMS:] for turn in _turns_of(message)]


def system_turns(instructions: Any) -> list[Turn]:
    """Instructions as the system's turn: parts, or plain text."""
    parts = structured(instructions)
    turn = turn_of_parts("system", parts if isinstance(parts, list) else [parts])
    return [turn] if turn.text else []


def _turns_of(message: Any) -> list[Turn]:
    if not isinstance(message, dict):
        return []
    parts, role = message.get("parts"), short(message.get("role"))
    if not isinstance(parts, list) or not role:
        return turns_of(message)  # a provider's own form
    turn = turn_of_parts(_MESSAGE_ROLES.get(role, role), parts)
    reason = message.get("finish_reason")
    turn.finish_reason = reason if isinstance(reason, str) else None
    return [turn]


def turn_of_parts(role: str, parts: list[Any]) -> Turn:
    """The turn of a message's parts. Reasoning, images and files are no text of it."""
    turn = Turn(role)
    texts: list[str] = []
    for part in parts[:MAX_ITEMS]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind = part.get("type")
            if kind == "text":
                content = part.get("content", part.get("text"))
                if isinstance(content, str):
                    texts.append(content)
            elif kind == "tool_call" or kind == "server_tool_call":
                turn.calls.append(_call_of(part))
            elif kind == "tool_call_response" or kind == "server_tool_call_response":
                turn.results.append(
                    (
                        short(part.get("id")),
                        _first(part, "response", "result", "server_tool_call_response"),
                    )
                )
    if texts:
        turn.text = "".join(texts)
    if turn.results and turn.text is None and role != "assistant":
        turn.role = "tool"  # some put results into messages of the user
    return turn


def _call_of(part: dict[str, Any]) -> Call:
    name = part.get("name")
    return Call(
        short(part.get("id")),
        name if isinstance(name, str) else "",
        _first(part, "arguments", "server_tool_call"),
    )


def _first(part: dict[str, Any], *names: str) -> Any:
    return next((value for name in names if (value := part.get(name)) is not None), None)


def _turns_of_events(span: ReadSpan, *, choices: bool) -> list[Turn]:
    """The messages of v1.28, an event each; what they say is in the body, or in attributes of a
    span event.
    """
    events = [
        event
        for event in span.events
        if event.name in _MESSAGES and (event.name == _CHOICE) is choices
    ]
    return [turn for event in events[-MAX_ITEMS:] for turn in _turns_of_event(event)]


def _turns_of_event(event: ReadEvent) -> list[Turn]:
    body = structured(event.body)
    if not isinstance(body, dict):
        body = {
            key.rpartition(".")[2]: structured(value) for key, value in event.attributes.items()
        }
    message = body.get("message") if event.name == _CHOICE else body
    if isinstance(message, str):
        message = {"content": message}
    if not isinstance(message, dict):
        return []
    message = {"role": _MESSAGES[event.name], **message}
    if message["role"] == "tool" and "id" in message:
        message["tool_call_id"] = message.pop("id")
    if "parts" in message:
        return _turns_of(message)
    if message.get("content") is None:
        message["content"] = []  # calls only
    turns = turns_of(message)
    for turn in turns:
        reason = body.get("finish_reason")
        turn.finish_reason = reason if isinstance(reason, str) else None
    return turns
