"""Langfuse: observations with their input and output as JSON.

They come from its decorator, its clients and its LangChain handler. Other spans of a trace only
have its user, session and tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import items, short
from agenteval_otel.capture.messages import Call, Turn
from agenteval_otel.capture.spans.base import COMMON, Names, Role, SpanMapper, span_mapper
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import (
    answer_turns,
    arguments_of,
    data_below,
    definitions,
    prompt_turns,
    set_result,
    structured,
    tags_of,
)

_TYPE: Final = "langfuse.observation.type"
_ROLES: Final[Mapping[str, Role]] = {
    "generation": "model",
    "agent": "agent",
    "tool": "tool",
    "retriever": "retrieval",
    "chain": "workflow",
    "span": "workflow",
}
_INPUT = "langfuse.observation.input"
_OUTPUT = "langfuse.observation.output"
_METADATA: Final = "langfuse.observation.metadata."
_TRACE_METADATA: Final = "langfuse.trace.metadata."
_OWN_METADATA: Final = (
    "checkpoint_ns", "finish_reason", "is_langchain_root", "langgraph_", "lc_", "ls_", "thread_id", "tool_call_id",
)  # fmt: skip
_TOKENS: Final[Mapping[str, Names]] = {
    "input_tokens": ("input", "prompt_tokens", "input_tokens"),
    "output_tokens": ("output", "completion_tokens", "output_tokens"),
    "cache_read_tokens": ("input_cache_read", "input_cached_tokens", "cache_read_input_tokens"),
    "cache_write_tokens": ("input_cache_creation", "cache_creation_input_tokens"),
}
"""Names in the usage of an observation: Langfuse's own, and those that a provider's usage has."""


@span_mapper
class Langfuse(SpanMapper):
    """Reads any span with ``langfuse.observation.type``. An agent's name is its observation's."""

    name = "langfuse"
    reads_later = True
    content_switch = (
        "leave capture_input and capture_output of @observe on, and mask nothing of them"
    )
    kind = _TYPE
    roles = _ROLES
    workflows_ask_models = True
    facts: ClassVar[Mapping[str, Names]] = {
        **COMMON,
        "model": ("langfuse.observation.model.name",),
        "conversation_id": (*COMMON["conversation_id"], "session.id"),
        "prompt_name": (*COMMON["prompt_name"], "langfuse.observation.prompt.name"),
        "prompt_version": (*COMMON["prompt_version"], "langfuse.observation.prompt.version"),
        "finish_reason": (f"{_METADATA}finish_reason",),
    }

    def facts_of(self, span: ReadSpan) -> dict[str, Any]:
        facts = super().facts_of(span)
        if "finish_reason" in facts:
            facts["finish_reason"] = structured(facts["finish_reason"])
        if self.role(span) == "agent":
            facts.setdefault("agent", span.name)
        usage = structured(span.attributes.get("langfuse.observation.usage_details"))
        if isinstance(usage, dict):
            for name, words in _TOKENS.items():
                count = next((usage[word] for word in words if word in usage), None)
                if count is not None:
                    facts[name] = count
        cost = structured(span.attributes.get("langfuse.observation.cost_details"))
        if isinstance(cost, dict) and cost:
            numbers = [part for part in cost.values() if isinstance(part, int | float)]
            facts["cost"] = cost["total"] if "total" in cost else sum(numbers)
        if "langfuse.observation.completion_start_time" in span.attributes:
            facts["streamed"] = True
        return facts

    def before(self, span: ReadSpan) -> list[Turn]:
        value = arguments_of(structured(span.attributes.get(_INPUT)))
        if self.role(span) == "model" and isinstance(value, list):
            # LangChain's handler lists the definitions of tools among the messages.
            value = [message for message in value if _definition_in(message) is None]
        return prompt_turns(value)

    def answer(self, span: ReadSpan) -> list[Turn]:
        return answer_turns(structured(span.attributes.get(_OUTPUT)))

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        arguments = arguments_of(structured(attributes.get(_INPUT)), first_alone=False)
        call = Call(None, span.name, arguments)
        set_result(call, structured(attributes.get(_OUTPUT)))
        call.id = call.id or short(structured(attributes.get(f"{_METADATA}tool_call_id")))
        if attributes.get("langfuse.observation.level") == "ERROR":
            call.error = short(attributes.get("langfuse.observation.status_message")) or "error"
        return call

    def documents(self, span: ReadSpan) -> list[Any]:
        return items(structured(span.attributes.get(_OUTPUT)))

    def tool_definitions(self, span: ReadSpan) -> Any:
        request = structured(span.attributes.get(_INPUT))
        if isinstance(request, dict):
            return definitions(request.get("tools")) if self.role(span) == "model" else None
        tools = [_definition_in(message) for message in items(request)]
        return definitions([tool for tool in tools if tool is not None])

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        metadata = data_below(span.attributes, _TRACE_METADATA)
        metadata |= data_below(span.attributes, _METADATA)
        known = {name: structured(value) for name, value in metadata.items()}
        words = span.attributes.get("langfuse.trace.tags")
        return {**tags_of(words, known, _OWN_METADATA), **super().tags(span)}


def _definition_in(message: object) -> Any:
    """Return the definition of a tool that stands in a message's place. None for a message."""
    content = message.get("content") if isinstance(message, dict) else None
    function = content.get("function") if isinstance(content, dict) else None
    return content if isinstance(function, dict) and "parameters" in function else None
