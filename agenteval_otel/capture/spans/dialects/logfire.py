"""Pydantic AI and Logfire: the conventions' attributes for model calls.

An agent's span holds all of its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agenteval_otel.capture.fields import short
from agenteval_otel.capture.messages import Call, Turn, all_turns
from agenteval_otel.capture.spans.base import Names, Role, span_mapper
from agenteval_otel.capture.spans.dialects.gen_ai import GenAi, turns_of_messages
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import answer_turns, prompt_turns, structured, tags_of
from agenteval_otel.capture.text import to_text
from agenteval_otel.semconv import AGENT_NAME, OPERATION_NAME

_ALL: Final = "pydantic_ai.all_messages"
_OLD_ALL: Final = "all_messages_events"
_OLD: Final = "events"
_REQUEST = "request_data"
_RESPONSE = "response_data"
_PENDING: Final = "pending_span"


def _with_aggregated(attributes: Names) -> Names:
    """Return the attributes, then the same with ``aggregated_usage`` in place of ``usage``."""
    return attributes + tuple(name.replace("usage", "aggregated_usage") for name in attributes)


@span_mapper
class Logfire(GenAi):
    """Spans of the scopes ``pydantic-ai`` and ``logfire``, with those below the latter."""

    name = "logfire"
    reads_later = True
    content_switch = "leave include_content=True in pydantic-ai's InstrumentationSettings"
    facts: ClassVar[Mapping[str, Names]] = {
        **GenAi.facts,
        "agent": (AGENT_NAME, "agent_name"),
        "model": (*GenAi.facts["model"], "model_name"),
        "cost": ("operation.cost", *GenAi.facts["cost"]),
    }
    tokens: ClassVar[Mapping[str, Names]] = {
        name: _with_aggregated(attributes) for name, attributes in GenAi.tokens.items()
    }

    def reads(self, span: ReadSpan) -> bool:
        return span.scope == "pydantic-ai" or span.scope.partition(".")[0] == "logfire"

    def role(self, span: ReadSpan) -> Role | None:
        attributes = span.attributes
        if attributes.get("logfire.span_type") == _PENDING:
            return None
        role = super().role(span) if OPERATION_NAME in attributes else None
        if role is None and span.scope == "pydantic-ai":
            if "agent_name" in attributes:
                return "agent"
            return "tool" if "gen_ai.tool.name" in attributes else None
        if role is None and _REQUEST in attributes:
            role = "model"
        may_be_begin = role == "model" and span.scope != "pydantic-ai" and not span.is_error
        if may_be_begin and not self.answer(span):
            return None  # a stream's begin: a span of its own follows, with the answer
        return role

    def conversation(self, span: ReadSpan) -> tuple[list[Turn], list[Turn]]:
        turns = _messages(span)
        first = 1 + max(
            (index for index, turn in enumerate(turns) if turn.role in ("user", "system")),
            default=-1,
        )
        before = (
            turns[:first]
            or super().before(span)
            or prompt_turns(structured(span.attributes.get(_REQUEST)))
        )
        return before, self._answer(span, turns[first:])

    def before(self, span: ReadSpan) -> list[Turn]:
        return self.conversation(span)[0]

    def answer(self, span: ReadSpan) -> list[Turn]:
        return self.conversation(span)[1] if _has_all(span) else self._answer(span, [])

    def _answer(self, span: ReadSpan, turns: list[Turn]) -> list[Turn]:
        attributes = span.attributes
        turns = turns or super().answer(span)
        if "final_result" in attributes and not any(turn.text for turn in turns):
            turns = [*turns, Turn("assistant", to_text(attributes["final_result"]))]
        if turns or _RESPONSE not in attributes:
            return turns
        response = structured(attributes[_RESPONSE])
        if isinstance(response, dict):
            response = response.get("message", response)
        return answer_turns(response)

    def tool_call(self, span: ReadSpan) -> Call | None:
        call = super().tool_call(span)
        if call is not None and call.arguments is None:
            call.arguments = structured(span.attributes.get("tool_arguments"))
        if call is not None and call.result is None:
            call.result = span.attributes.get("tool_response")
        return call

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        metadata = span.attributes.get("metadata")
        words = span.attributes.get("logfire.tags")
        if metadata is None and words is None:
            return super().tags(span)
        own = [word for word in words if word != "LLM"] if isinstance(words, list | tuple) else ()
        known = structured(metadata)
        return {**tags_of(own, known if isinstance(known, dict) else {}), **super().tags(span)}


def _has_all(span: ReadSpan) -> bool:
    return not span.attributes.keys().isdisjoint((_ALL, _OLD_ALL, _OLD))


def _messages(span: ReadSpan) -> list[Turn]:
    """Return all messages of an agent.

    In a version before the conventions' attributes they are those of a model call.
    """
    if _ALL in span.attributes:
        return turns_of_messages(span.attributes[_ALL], "user")
    name = next((name for name in (_OLD_ALL, _OLD) if name in span.attributes), None)
    if name is None:
        return []
    events = structured(span.attributes[name])
    return all_turns([_message(event) for event in events]) if isinstance(events, list) else []


def _message(event: object) -> Any:
    if not isinstance(event, dict):
        return None
    message = event.get("message", event)
    if isinstance(message, dict) and message.get("role") == "tool" and "id" in message:
        message = {**message, "tool_call_id": short(message["id"])}
    return {"content": [], **message} if isinstance(message, dict) else None
