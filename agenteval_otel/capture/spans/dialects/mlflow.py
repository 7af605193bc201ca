"""MLflow Tracing: spans whose every attribute is JSON.

The spans have the input and output of what they stand for. With
``MLFLOW_ENABLE_OTEL_GENAI_SEMCONV`` they are the conventions'.
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
    data_below,
    definitions,
    document_of,
    prompt_turns,
    set_result,
    structured,
    tags_of,
)

_TYPE: Final = "mlflow.spanType"
_ROLES: Final[Mapping[str, Role]] = {
    "CHAT_MODEL": "model",
    "LLM": "model",
    "AGENT": "agent",
    "TOOL": "tool",
    "RETRIEVER": "retrieval",
    "MEMORY": "retrieval",
    "CHAIN": "workflow",
    "WORKFLOW": "workflow",
}
_INPUT = "mlflow.spanInputs"
_OUTPUT = "mlflow.spanOutputs"
_TAG: Final = "mlflow.traceTag."
_OF_RESPONSE: Final = {"response_id": "id", "model": "model"}
_TOKENS: Final[Mapping[str, str]] = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


@span_mapper
class MlFlow(SpanMapper):
    """Reads any span with ``mlflow.spanType``. An agent's name is its span's."""

    name = "mlflow"
    reads_later = True
    content_switch = (
        "leave the inputs and outputs of MLflow's spans in place (span processors may clear them)"
    )
    kind = _TYPE
    workflows_ask_models = True
    facts: ClassVar[Mapping[str, Names]] = {
        **COMMON,
        "model": ("mlflow.llm.model",),
        "conversation_id": (*COMMON["conversation_id"], "session.id"),
        "streamed": ("stream",),
    }

    def role(self, span: ReadSpan) -> Role | None:
        return _ROLES.get(str(structured(span.attributes[_TYPE])))

    def facts_of(self, span: ReadSpan) -> dict[str, Any]:
        attributes = span.attributes
        facts = {name: _unquoted(value) for name, value in super().facts_of(span).items()}
        if self.role(span) == "agent":
            facts.setdefault("agent", span.name)
        usage = structured(attributes.get("mlflow.chat.tokenUsage"))
        if isinstance(usage, dict):
            counts = {name: usage.get(word) for name, word in _TOKENS.items()}
            facts |= {name: count for name, count in counts.items() if count is not None}
        cost = structured(attributes.get("mlflow.llm.cost"))
        if isinstance(cost, dict) and "total_cost" in cost:
            facts["cost"] = cost["total_cost"]
        if self.role(span) == "model":
            facts = self._facts_of_response(span) | facts
        return facts

    def _facts_of_response(self, span: ReadSpan) -> dict[str, Any]:
        """Return what a model's response says of itself, in the form of its provider."""
        response = structured(span.attributes.get(_OUTPUT))
        if not isinstance(response, dict):
            return {}
        facts = {name: short(response.get(word)) for name, word in _OF_RESPONSE.items()}
        choices = items(response.get("choices"))
        ended = choices[0] if choices and isinstance(choices[0], dict) else response
        facts["finish_reason"] = short(ended.get("finish_reason") or ended.get("stop_reason"))
        return {name: value for name, value in facts.items() if value is not None}

    def before(self, span: ReadSpan) -> list[Turn]:
        return prompt_turns(structured(span.attributes.get(_INPUT)))

    def answer(self, span: ReadSpan) -> list[Turn]:
        return answer_turns(structured(span.attributes.get(_OUTPUT)))

    def tool_call(self, span: ReadSpan) -> Call | None:
        call = Call(None, span.name, structured(span.attributes.get(_INPUT)))
        set_result(call, structured(span.attributes.get(_OUTPUT)))
        call.id = call.id or short(_unquoted(span.attributes.get("tool_call_id")))
        return call

    def documents(self, span: ReadSpan) -> list[Any]:
        return [document_of(item) for item in items(structured(span.attributes.get(_OUTPUT)))]

    def tool_definitions(self, span: ReadSpan) -> Any:
        return definitions(span.attributes.get("mlflow.chat.tools"))

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        return {**tags_of((), data_below(span.attributes, _TAG)), **super().tags(span)}


def _unquoted(value: object) -> Any:
    """Return the value that an attribute is the JSON of."""
    if value == "true" or value == "false":
        return value == "true"
    return structured(value)
