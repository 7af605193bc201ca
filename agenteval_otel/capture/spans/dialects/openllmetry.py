"""OpenLLMetry (Traceloop): the conventions' attributes, and its own.

Newer versions have the conventions' attributes, older versions have numbered ones. Its decorators
and its LangChain instrumentation say something of agents, workflows and tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import short
from agenteval_otel.capture.messages import Call, Result, Turn
from agenteval_otel.capture.spans.base import Names, Role, span_mapper
from agenteval_otel.capture.spans.dialects.gen_ai import GenAi
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import (
    answer_turns,
    definitions,
    numbered,
    prompt_turns,
    set_result,
    structured,
    tags_of,
    without_lc,
)
from agenteval_otel.capture.text import plain
from agenteval_otel.semconv import AGENT_NAME, OPERATION_NAME

_KIND: Final = "traceloop.span.kind"
_REQUEST: Final = "llm.request.type"
_INPUT = "traceloop.entity.input"
_OUTPUT = "traceloop.entity.output"
_PROPERTY: Final = "traceloop.association.properties."
_OWN_PROPERTIES: Final = (
    "user_id", "session_id", "chat_id", "thread_id", "conversation_id", "ls_", "lc_", "langgraph_", "checkpoint_ns",
)  # fmt: skip
_PACKAGES: Final = (
    "openai.v0 openai.v1 langchain llamaindex haystack crewai anthropic bedrock cohere google_generativeai groq "
    "mistralai ollama replicate sagemaker together transformers vertexai watsonx writer agno openai_agents"
)
_SCOPES: Final = frozenset(
    {
        "traceloop.tracer",
        *(f"opentelemetry.instrumentation.{package}" for package in _PACKAGES.split()),
    }
)
_KINDS: Final[Mapping[str, Role]] = {"agent": "agent", "workflow": "workflow", "tool": "tool"}
_MODELS: Final = frozenset({"chat", "completion"})


@span_mapper
class OpenLlmetry(GenAi):
    """Spans of Traceloop's instrumentation libraries and decorators."""

    name = "openllmetry"
    reads_later = True
    content_switch = "set TRACELOOP_TRACE_CONTENT=true"
    facts: ClassVar[Mapping[str, Names]] = {
        **GenAi.facts,
        "agent": (AGENT_NAME, "traceloop.entity.name"),
        "agent_id": (),  # new for each run
        "finish_reason": ("gen_ai.response.finish_reasons", "gen_ai.completion.0.finish_reason"),
        "streamed": ("gen_ai.is_streaming", "llm.is_streaming"),
        "user_id": (f"{_PROPERTY}user_id", *GenAi.facts["user_id"]),
        "session_id": (f"{_PROPERTY}session_id", *GenAi.facts["session_id"]),
        "conversation_id": (
            *GenAi.facts["conversation_id"],
            f"{_PROPERTY}conversation_id",
            f"{_PROPERTY}thread_id",
            f"{_PROPERTY}chat_id",
        ),
        "prompt_name": ("traceloop.prompt.key", *GenAi.facts["prompt_name"]),
        "prompt_version": ("traceloop.prompt.version", *GenAi.facts["prompt_version"]),
    }

    def reads(self, span: ReadSpan) -> bool:
        return span.scope in _SCOPES or _KIND in span.attributes or _REQUEST in span.attributes

    def role(self, span: ReadSpan) -> Role | None:
        attributes = span.attributes
        role = super().role(span) if OPERATION_NAME in attributes else None
        if role is None and str(attributes.get(_REQUEST)) in _MODELS:
            return "model"
        return role or _KINDS.get(str(attributes.get(_KIND)))

    def before(self, span: ReadSpan) -> list[Turn]:
        if _INPUT in span.attributes:
            return prompt_turns(_inputs(span.attributes[_INPUT]))
        return super().before(span) or _turns(span, "gen_ai.prompt")

    def answer(self, span: ReadSpan) -> list[Turn]:
        if _OUTPUT in span.attributes:
            output = without_lc(span.attributes[_OUTPUT])
            if isinstance(output, dict):
                output = output.get("outputs", output)
            return answer_turns(output)
        return super().answer(span) or _turns(span, "gen_ai.completion")

    def tool_call(self, span: ReadSpan) -> Call | None:
        attributes = span.attributes
        name = short(attributes.get("gen_ai.tool.name")) or short(
            attributes.get("traceloop.entity.name")
        )
        if name is None:
            return None
        output = without_lc(attributes.get(_OUTPUT))
        if isinstance(output, dict) and "output" in output:
            output = output["output"]
        id = short(attributes.get("gen_ai.tool.call.id"))
        call = Call(id, name, _inputs(attributes.get(_INPUT)))
        set_result(call, output)
        return call

    def tool_definitions(self, span: ReadSpan) -> Any:
        known = super().tool_definitions(span)
        if known:
            return known
        tools = []
        for function in numbered(span.attributes, "llm.request.functions"):
            parameters = function.pop("parameters", None)
            tools.append({**plain(function), "parameters": definitions(parameters)})
        return tools

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        properties = {
            name[len(_PROPERTY) :]: value
            for name, value in span.attributes.items()
            if name.startswith(_PROPERTY)
        }
        return {**tags_of((), properties, _OWN_PROPERTIES), **super().tags(span)}


def _inputs(value: object) -> Any:
    """Return the input of a chain, or of a decorated function.

    The function's is its first positional argument, else its arguments by name.
    """
    value = without_lc(value)
    if not isinstance(value, dict):
        return value
    if "inputs" in value:
        return value["inputs"]
    args = value.get("args")
    kwargs = value.get("kwargs")
    if isinstance(args, list) and args:
        return structured(args[0])
    return kwargs if isinstance(kwargs, dict) and "args" in value else value


def _turns(span: ReadSpan, prefix: str) -> list[Turn]:
    """Return messages whose fields are attributes of their own, as older versions have them."""
    turns = []
    for message in numbered(span.attributes, prefix):
        content = structured(message.get("content"))
        turn = Turn(short(message.get("role")) or "assistant")
        text = prompt_turns(content) if content else []
        turn.text = text[0].text if text else None
        for call in numbered(message, "tool_calls"):
            turn.calls.append(
                Call(short(call.get("id")), short(call.get("name")) or "", call.get("arguments"))
            )
        if turn.role == "tool":
            turn.results.append(Result(short(message.get("tool_call_id")), message.get("content")))
        turns.append(turn)
    return turns
