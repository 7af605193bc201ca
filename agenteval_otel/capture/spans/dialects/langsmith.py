"""LangSmith: runs as spans, whose input and output are JSON in the conventions' old attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import items, short
from agenteval_otel.capture.messages import Call, Turn
from agenteval_otel.capture.spans.base import Names, Role, names_below, span_mapper
from agenteval_otel.capture.spans.dialects.gen_ai import GenAi
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import (
    answer_turns,
    data_below,
    definitions,
    document_of,
    prompt_turns,
    set_result,
    structured,
    tags_of,
    without_lc,
)

_KIND: Final = "langsmith.span.kind"
_ROLES: Final[Mapping[str, Role]] = {
    "llm": "model",
    "chain": "workflow",
    "tool": "tool",
    "retriever": "retrieval",
}
_INPUT = "gen_ai.prompt"
_OUTPUT = "gen_ai.completion"
_METADATA: Final = "langsmith.metadata."
_CONVERSATIONS: Final = ("session_id", "conversation_id", "thread_id")
"""Names in the metadata by which LangSmith puts the runs of a thread together."""
_OWN_METADATA: Final = (
    *_CONVERSATIONS, "LANGCHAIN_", "LANGSMITH_", "_type", "checkpoint_ns", "langgraph_", "lc_", "ls_", "model",
    "revision_id", "stream", "tool_call_id", "usage_metadata", "user_id",
)  # fmt: skip


@span_mapper
class LangSmith(GenAi):
    """Reads any span with ``langsmith.span.kind``.

    LangSmith sets ``gen_ai.operation.name`` to ``chat`` for prompt templates too, so the role comes
    from the kind alone.
    """

    name = "langsmith"
    reads_later = True
    content_switch = "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS"
    kind = _KIND
    roles = _ROLES
    workflows_ask_models = True
    facts: ClassVar[Mapping[str, Names]] = {
        **GenAi.facts,
        "agent": (*GenAi.facts["agent"], *names_below(_METADATA, "lc_agent_name")),
        "streamed": ("langsmith.request.streaming",),
        "user_id": (*GenAi.facts["user_id"], *names_below(_METADATA, "user_id")),
        "session_id": (*GenAi.facts["session_id"], *names_below(_METADATA, "session_id")),
        "conversation_id": (
            *GenAi.facts["conversation_id"],
            *names_below(_METADATA, *_CONVERSATIONS),
        ),
    }

    def facts_of(self, span: ReadSpan) -> dict[str, Any]:
        facts = super().facts_of(span)
        usage = structured(span.attributes.get(f"{_METADATA}usage_metadata"))
        if isinstance(usage, dict):
            facts.setdefault("input_tokens", usage.get("input_tokens"))
            facts.setdefault("output_tokens", usage.get("output_tokens"))
        return facts

    def before(self, span: ReadSpan) -> list[Turn]:
        value = without_lc(span.attributes.get(_INPUT))
        if self.role(span) == "model" and isinstance(value, dict):
            messages = value.get("messages")
            if isinstance(messages, list) and messages and isinstance(messages[0], list):
                value = messages[0]  # LangChain's lists of one batch
        return prompt_turns(value) if value else []

    def answer(self, span: ReadSpan) -> list[Turn]:
        value = without_lc(span.attributes.get(_OUTPUT))
        generation = _first_generation(value)
        if generation is not None:
            return answer_turns(generation)
        return answer_turns(_output(value)) if value else []

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        name = short(attributes.get("gen_ai.tool.name")) or span.name
        call = Call(short(attributes.get("gen_ai.tool.call.id")), name)
        call.arguments = without_lc(attributes.get(_INPUT))
        set_result(call, _output(without_lc(attributes.get(_OUTPUT))))
        return call

    def documents(self, span: ReadSpan) -> list[Any]:
        output = structured(span.attributes.get(_OUTPUT))
        if isinstance(output, dict):
            output = output.get("documents", output.get("output"))
        return [document_of(item) for item in items(output)]

    def tool_definitions(self, span: ReadSpan) -> Any:
        known = super().tool_definitions(span)
        if known is not None:
            return known
        request = structured(span.attributes.get(_INPUT))
        return definitions(request.get("tools")) if isinstance(request, dict) else None

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        words = span.attributes.get("langsmith.span.tags")
        listed = words.split(", ") if isinstance(words, str) else words
        metadata = data_below(span.attributes, _METADATA)
        return {**tags_of(listed, metadata, _OWN_METADATA), **super().tags(span)}


def _output(value: object) -> Any:
    """Return what a run gave: LangSmith puts a value that is no mapping under ``output``."""
    return value["output"] if isinstance(value, dict) and value.keys() == {"output"} else value


def _first_generation(value: object) -> Any:
    """Return the message of the first generation of LangChain's result. None without one."""
    generations = items(value.get("generations")) if isinstance(value, dict) else []
    batch = generations[0] if generations else None
    first = batch[0] if isinstance(batch, list) and batch else batch
    return first.get("message") or first.get("text") if isinstance(first, dict) else None
