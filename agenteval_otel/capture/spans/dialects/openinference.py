"""OpenInference (Arize Phoenix), from Python and JavaScript.

The fields of its messages are attributes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import short
from agenteval_otel.capture.messages import Call, Result, Turn
from agenteval_otel.capture.spans.base import COMMON, Names, Role, SpanMapper, span_mapper
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import (
    answer_turns,
    definitions,
    numbered,
    prompt_turns,
    set_result,
    structured,
    tags_of,
)

_KIND: Final = "openinference.span.kind"
_ROLES: Final[Mapping[str, Role]] = {
    "LLM": "model",
    "AGENT": "agent",
    "CHAIN": "workflow",
    "TOOL": "tool",
    "RETRIEVER": "retrieval",
}
_REDACTED: Final = "__REDACTED__"
_JSON: Final = "application/json"
_HANDOFF: Final = "handoff to "
_OWN_METADATA: Final = ("ls_", "lc_", "langgraph_", "checkpoint_ns", "thread_id")


@span_mapper
class OpenInference(SpanMapper):
    """Any span with ``openinference.span.kind``."""

    name = "openinference"
    reads_later = True
    content_switch = "unset OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS (TraceConfig's hide_ settings)"
    kind = _KIND
    roles = _ROLES
    facts: ClassVar[Mapping[str, Names]] = {
        **COMMON,
        "agent": ("agent.name", *COMMON["agent"]),
        "model": ("llm.response.model_name", "llm.model_name"),
        "finish_reason": ("llm.finish_reason",),
        "conversation_id": (*COMMON["conversation_id"], "session.id"),
        "prompt_name": (*COMMON["prompt_name"], "llm.prompt_template.name", "prompt.id"),
        "prompt_version": (*COMMON["prompt_version"], "llm.prompt_template.version"),
        "cost": ("llm.cost.total",),
    }
    tokens: ClassVar[Mapping[str, Names]] = {
        "input_tokens": ("llm.token_count.prompt",),
        "output_tokens": ("llm.token_count.completion",),
        "cache_read_tokens": ("llm.token_count.prompt_details.cache_read",),
        "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
    }

    def before(self, span: ReadSpan) -> list[Turn]:
        # The messages of a chain's span are its last ones only.
        turns = _turns(span, "llm.input_messages") if span.attributes[_KIND] == "LLM" else []
        return turns or prompt_turns(_value(span, "input"))

    def answer(self, span: ReadSpan) -> list[Turn]:
        turns = _turns(span, "llm.output_messages") if span.attributes[_KIND] == "LLM" else []
        return turns or answer_turns(_value(span, "output"))

    def tool_call(self, span: ReadSpan) -> Call | None:
        name = short(span.attributes.get("tool.name"))
        if name is None and span.name.startswith(_HANDOFF):
            return None  # the model's call says it
        call = Call(
            short(span.attributes.get("tool_call.id")), name or span.name, _value(span, "input")
        )
        set_result(call, _value(span, "output"))
        return call

    def documents(self, span: ReadSpan) -> list[Any]:
        documents = numbered(span.attributes, "retrieval.documents")
        return [document.get("document.content") or document for document in documents]

    def tool_definitions(self, span: ReadSpan) -> Any:
        tools = numbered(span.attributes, "llm.tools")
        return definitions(
            [tool["tool.json_schema"] for tool in tools if "tool.json_schema" in tool]
        )

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        metadata = structured(span.attributes.get("metadata"))
        known = metadata if isinstance(metadata, dict) else {}
        return {
            **tags_of(span.attributes.get("tag.tags"), known, _OWN_METADATA),
            **super().tags(span),
        }


def _value(span: ReadSpan, side: str) -> Any:
    """Return the input or output of a span, read if it is JSON.

    Return None if it is missing or hidden.
    """
    value = span.attributes.get(f"{side}.value")
    if value is None or value == _REDACTED:
        return None
    return structured(value) if span.attributes.get(f"{side}.mime_type") == _JSON else value


def _turns(span: ReadSpan, prefix: str) -> list[Turn]:
    return [_turn(message) for message in numbered(span.attributes, prefix)]


def _turn(message: Mapping[str, Any]) -> Turn:
    content = message.get("message.content")
    if content is None:
        parts = numbered(message, "message.contents")
        texts = [
            part.get("message_content.text")
            for part in parts
            if part.get("message_content.type") == "text"
        ]
        content = "".join(text for text in texts if isinstance(text, str)) or None
    text = content if isinstance(content, str) and content != _REDACTED else None
    turn = Turn(
        short(message.get("message.role")) or "assistant",
        text,
        name=short(message.get("message.name")),
    )
    if turn.role == "tool":
        turn.results.append(Result(short(message.get("message.tool_call_id")), text))
    for call in numbered(message, "message.tool_calls"):
        name = call.get("tool_call.function.name")
        arguments = call.get("tool_call.function.arguments")
        turn.calls.append(Call(short(call.get("tool_call.id")), short(name) or "", arguments))
    return turn
