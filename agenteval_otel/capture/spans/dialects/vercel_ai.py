"""The Vercel AI SDK (``experimental_telemetry``).

Spans of ``ai.generateText`` and its like are around those of model and tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import items, short
from agenteval_otel.capture.messages import Call, Turn, all_turns, calls_in
from agenteval_otel.capture.spans.base import (
    COMMON,
    Names,
    Role,
    SpanMapper,
    names_below,
    span_mapper,
)
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import definitions, structured, tags_of

_OPERATION: Final = "ai.operationId"
_METADATA: Final = "ai.telemetry.metadata."
_ROLES: Final[Mapping[str, Role]] = {
    "ai.generateText": "agent",
    "ai.streamText": "agent",
    "ai.generateObject": "agent",
    "ai.streamObject": "agent",
    "ai.generateText.doGenerate": "model",
    "ai.streamText.doStream": "model",
    "ai.generateObject.doGenerate": "model",
    "ai.streamObject.doStream": "model",
    "ai.toolCall": "tool",
}
_ANSWERS: Final = ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object")
_CALLS: Final = ("ai.response.toolCalls", "ai.result.toolCalls")
_OWN_METADATA: Final = (
    "userId", "sessionId", "chatId", "threadId", "conversationId", "promptName", "promptVersion", "tags",
)  # fmt: skip


@span_mapper
class VercelAi(SpanMapper):
    """Reads any span with ``ai.operationId``. An agent's name is its ``functionId``."""

    name = "vercel_ai"
    reads_later = True
    content_switch = "leave recordInputs and recordOutputs on in experimental_telemetry"
    kind = _OPERATION
    roles = _ROLES
    facts: ClassVar[Mapping[str, Names]] = {
        **COMMON,
        "agent": ("ai.telemetry.functionId", *COMMON["agent"]),
        "model": ("ai.response.model", "ai.model.id"),
        "response_id": ("ai.response.id",),
        "finish_reason": ("ai.response.finishReason", "ai.finishReason"),
        "user_id": (*names_below(_METADATA, "userId"), *COMMON["user_id"]),
        "session_id": (*names_below(_METADATA, "sessionId"), *COMMON["session_id"]),
        "conversation_id": (
            *COMMON["conversation_id"],
            *names_below(_METADATA, "conversationId", "threadId", "chatId"),
        ),
        "prompt_name": (*COMMON["prompt_name"], *names_below(_METADATA, "promptName")),
        "prompt_version": (*COMMON["prompt_version"], *names_below(_METADATA, "promptVersion")),
    }
    tokens: ClassVar[Mapping[str, Names]] = {
        "input_tokens": ("ai.usage.inputTokens", "ai.usage.promptTokens"),
        "output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
        "cache_read_tokens": (
            "ai.usage.inputTokenDetails.cacheReadTokens",
            "ai.usage.cachedInputTokens",
        ),
        "cache_write_tokens": ("ai.usage.inputTokenDetails.cacheWriteTokens",),
    }

    def facts_of(self, span: ReadSpan) -> dict[str, Any]:
        return {**super().facts_of(span), "streamed": ".stream" in str(span.attributes[_OPERATION])}

    def before(self, span: ReadSpan) -> list[Turn]:
        attributes = span.attributes
        if "ai.prompt.messages" in attributes:
            return all_turns(structured(attributes["ai.prompt.messages"]))
        prompt = structured(attributes.get("ai.prompt"))
        if not isinstance(prompt, dict):
            return [Turn("user", prompt)] if isinstance(prompt, str) and prompt else []
        system = prompt.get("system")
        question = prompt.get("prompt")
        turns = all_turns(prompt.get("messages") or question)
        if isinstance(question, str):
            turns.append(Turn("user", question))
        return [Turn("system", system), *turns] if isinstance(system, str) else turns

    def answer(self, span: ReadSpan) -> list[Turn]:
        attributes = span.attributes
        texts = (attributes.get(name) for name in _ANSWERS)
        text = next(filter(None, texts), None)
        lists_of_calls = (attributes.get(name) for name in _CALLS)
        calls = next(filter(None, lists_of_calls), None)
        if text is None and calls is None:
            return []
        turn = Turn("assistant", text if isinstance(text, str) else None)
        turn.calls = calls_in(items(structured(calls)))
        return [turn]

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        name = short(attributes.get("ai.toolCall.name"))
        if name is None:
            return None
        arguments = structured(attributes.get("ai.toolCall.args"))
        return Call(
            short(attributes.get("ai.toolCall.id")),
            name,
            arguments,
            result=structured(attributes.get("ai.toolCall.result")),
        )

    def tool_definitions(self, span: ReadSpan) -> Any:
        return definitions(span.attributes.get("ai.prompt.tools"))

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        metadata = {
            name[len(_METADATA) :]: value
            for name, value in span.attributes.items()
            if name.startswith(_METADATA)
        }
        return {**tags_of(metadata.get("tags"), metadata, _OWN_METADATA), **super().tags(span)}
