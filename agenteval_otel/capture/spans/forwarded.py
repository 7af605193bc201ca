"""A captured answer as one event of the GenAI conventions, for the sidecar, and back.

Nothing of the input is lost. Messages and facts stand where the conventions have a place for them.
All else is in one own attribute, as JSON. How the answer was sampled is in another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from agenteval_otel import semconv as names
from agenteval_otel.capture.fields import short
from agenteval_otel.capture.spans.span import ReadEvent
from agenteval_otel.models import EvaluationInput, Message, ToolCall, Usage
from agenteval_otel.models.scoring.probability import Sampled, known

Attributes = dict[str, "str | int | list[str]"]

_TEXTS: Final = {
    "agent": names.AGENT_NAME,
    "agent_id": names.AGENT_ID,
    "conversation_id": names.CONVERSATION_ID,
    "model": names.REQUEST_MODEL,
    "response_id": names.RESPONSE_ID,
    "error_type": names.ERROR_TYPE,
    "stream_end": names.STREAM_END,
    "response_form": names.RESPONSE_FORM,
    **names.ANNOTATIONS,
}
_TOKENS: Final = {
    "input_tokens": names.INPUT_TOKENS,
    "output_tokens": names.OUTPUT_TOKENS,
    "cache_read_tokens": names.CACHE_READ_TOKENS,
    "cache_write_tokens": names.CACHE_WRITE_TOKENS,
}
_RESULT: Final = ("result", "error", "duration_s")
_AS_JSON: Final = ("context", "ground_truth", "metadata")
_AS_IT_IS: Final = ("timestamp", "session_id", "cost", "duration_s", "turns", "conversation_ends")
_OWN: Final = "agenteval"
"""Key in a message, and in a call of it, for what the conventions' form lacks."""
_LARGEST: Final = 1 << 63
_CALL_ID: Final = re.compile(r"[0-9a-f]{16}")
_LOW_64: Final = (1 << 64) - 1


class ForwardedAnswer(NamedTuple):
    """An event as it was received, not read yet."""

    trace_id: int
    span_id: int
    flags: int
    event: ReadEvent
    resource: Mapping[str, Any]

    @property
    def call_id(self) -> str | None:
        """Return the answer's own id. Return None if it is not of the form that we send."""
        call_id = self.event.attributes.get(names.CALL_ID)
        return call_id if isinstance(call_id, str) and _CALL_ID.fullmatch(call_id) else None

    def read(self) -> tuple[EvaluationInput, Sampled]:
        """Return the input and how it was sampled.

        Raises if the event is not one of `attributes_of`.
        """
        attributes = self.event.attributes
        return _input_of(attributes), _sampled_of(from_json(attributes[names.SAMPLING_DECISION]))


def attributes_of(
    value: EvaluationInput, sampled: Sampled, call_id: str | None = None
) -> Attributes:
    """Return the event's attributes, without criteria: the sidecar has its own.

    Raises if a value has no JSON form.

    `call_id` identifies this answer alone. Feedback may know no other id, and a span may have
    several answers.
    """
    attributes: Attributes = {names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT}
    if call_id is not None:
        attributes[names.CALL_ID] = call_id
    fields = value.__dict__
    for name, attribute in _TEXTS.items():
        text = fields[name]
        if text is not None:
            attributes[attribute] = text
    rest: dict[str, Any] = {}
    for name in (*_AS_IT_IS, *_AS_JSON):
        if fields[name] is not None:
            rest[name] = fields[name]
    _add_tags(value, attributes, rest)
    _add_usage(value.usage, attributes, rest)
    _add_messages(value, attributes, rest)
    _add_answer(value, attributes, rest)
    config = value.agent_config
    if config is not None:
        if config.get("tools") is not None:
            attributes[names.TOOL_DEFINITIONS] = _json(config["tools"])
            config = {name: item for name, item in config.items() if name != "tools"} or None
        if config is not None:
            rest["agent_config"] = config
    _add_values(value, rest)
    attributes[names.INPUT] = _json(rest)
    decision_head = _decision_head(sampled._replace(randomness=0))
    attributes[names.SAMPLING_DECISION] = f"{decision_head}{sampled.randomness}}}"
    return attributes


@lru_cache(maxsize=64)  # most answers of a handler differ in the randomness alone
def _decision_head(sampled: Sampled) -> str:
    """Return the decision's JSON up to the value of its last member, the randomness."""
    fields = sampled._asdict()
    del fields["randomness"]
    return f'{_json(fields)[:-1]},"randomness":'


def _json(value: object) -> str:
    return to_json(value, inf_nan_mode="constants").decode()


def _add_tags(value: EvaluationInput, attributes: Attributes, rest: dict[str, Any]) -> None:
    if value.tags:
        attributes.update({names.TAG + key: text for key, text in value.tags.items()})
    elif value.tags is not None:
        rest["tags"] = {}


def _add_usage(usage: Usage | None, attributes: Attributes, rest: dict[str, Any]) -> None:
    if usage is None:
        return
    counts = {}
    for name, attribute in _TOKENS.items():
        count = getattr(usage, name)
        if count is not None:
            counts[attribute] = count
    if counts and all(-_LARGEST <= count < _LARGEST for count in counts.values()):
        attributes.update(counts)
    else:
        rest["usage"] = usage.model_dump(exclude_none=True)


def _add_values(value: EvaluationInput, rest: dict[str, Any]) -> None:
    """Add our own values that the conventions have no place for."""
    if value.memory_stats is not None:
        rest["memory_stats"] = value.memory_stats.model_dump(exclude_none=True)
    if value.steps is not None:
        rest["steps"] = [step.model_dump(exclude_none=True) for step in value.steps]


def _add_messages(value: EvaluationInput, attributes: Attributes, rest: dict[str, Any]) -> None:
    """Add the conversation up to the answer. Without a history, the prompt is its only message."""
    history = value.message_history
    if history is not None:
        attributes[names.INPUT_MESSAGES] = _json([_message(message) for message in history])
        rest["prompt"] = value.prompt
    elif value.prompt is not None:
        attributes[names.INPUT_MESSAGES] = _json([{"role": "user", "parts": [_text(value.prompt)]}])


def _add_answer(value: EvaluationInput, attributes: Attributes, rest: dict[str, Any]) -> None:
    calls = value.tool_calls
    response = value.response
    parts = [_call(call) for call in calls or ()]
    if calls is not None:
        rest["tool_results"] = [_without_none(call, _RESULT) for call in calls]
    if type(response) is str:
        parts.append(_text(response))
    elif response is not None:
        rest["response"] = response
    if value.finish_reason is not None:
        attributes[names.FINISH_REASONS] = [value.finish_reason]
    if parts:
        message: dict[str, Any] = {"role": "assistant", "parts": parts}
        if value.finish_reason is not None:
            message["finish_reason"] = value.finish_reason
        attributes[names.OUTPUT_MESSAGES] = _json([message])


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", **_without_none(call, ("id", "name", "arguments"))}


def _without_none(value: object, fields: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(value, name) for name in fields}
    return {name: item for name, item in values.items() if item is not None}


def _message(message: Message) -> dict[str, Any]:
    own: dict[str, Any] = dict(message.__pydantic_extra__ or {})
    parts: list[dict[str, Any]] = []
    names_of_own = ["id", "content_parts", "tool_name"]
    if message.role == "tool" and message.content is not None:
        part: dict[str, Any] = {"type": "tool_call_response"}
        if message.tool_call_id is not None:
            part["id"] = message.tool_call_id
        part["response"] = message.content
        parts.append(part)
    else:
        names_of_own.append("tool_call_id")
        if message.content is not None:
            parts.append(_text(message.content))
    for call in message.tool_calls or ():
        part = _call(call)
        result = _without_none(call, _RESULT)
        parts.append({**part, _OWN: result} if result else part)
    if message.tool_calls == []:
        own["tool_calls"] = []
    own |= _without_none(message, tuple(names_of_own))
    return {"role": message.role, "parts": parts, **({_OWN: own} if own else {})}


# --- back
# -------------------------------------------------------------------------------------------------------------


def _input_of(attributes: Mapping[str, Any]) -> EvaluationInput:
    attributes = {names.FORMER_NAMES.get(name, name): value for name, value in attributes.items()}
    fields: dict[str, Any] = from_json(attributes[names.INPUT])
    results = fields.pop("tool_results", None)
    # As the application has shortened them: ids outlive their answer, in tables of many.
    fields |= {
        name: short(attributes[attribute])
        for name, attribute in _TEXTS.items()
        if attribute in attributes
    }
    if "session_id" in fields:
        fields["session_id"] = short(fields["session_id"])
    tags = {key: text for key, text in attributes.items() if key.startswith(names.TAG)}
    if tags:
        fields["tags"] = {key.removeprefix(names.TAG): text for key, text in tags.items()}
    usage = {
        name: attributes[attribute]
        for name, attribute in _TOKENS.items()
        if attribute in attributes
    }
    if usage:
        fields["usage"] = usage
    reasons = attributes.get(names.FINISH_REASONS)
    if reasons:
        fields["finish_reason"] = reasons[0]
    tools = attributes.get(names.TOOL_DEFINITIONS)
    if tools is not None:
        fields["agent_config"] = {**(fields.get("agent_config") or {}), "tools": from_json(tools)}
    messages = _messages_in(attributes, names.INPUT_MESSAGES)
    has_history = "prompt" in fields  # `_add_messages` sets the prompt apart beside a history alone
    if has_history:
        fields["message_history"] = [_message_of(message) for message in messages]
    elif messages:
        fields["prompt"] = messages[0]["parts"][0]["content"]
    fields |= _answer_fields_of(attributes, results)
    return EvaluationInput.model_validate(fields)


def _answer_fields_of(attributes: Mapping[str, Any], results: list[Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    for message in _messages_in(attributes, names.OUTPUT_MESSAGES):
        parts += message["parts"]
    texts = [part["content"] for part in parts if part["type"] == "text"]
    if texts:
        fields["response"] = texts[0]
    if results is not None:
        calls = [part for part in parts if part["type"] == "tool_call"]
        fields["tool_calls"] = [
            _call_of(part) | result for part, result in zip(calls, results, strict=True)
        ]
    return fields


def _messages_in(attributes: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = from_json(attributes.get(name, "[]"))
    return messages


def _call_of(part: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: part[name] for name in ("id", "name", "arguments") if name in part
    }
    fields.update(part.get(_OWN, {}))
    return fields


def _message_of(message: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message["role"], **message.get(_OWN, {})}
    calls = []
    for part in message["parts"]:
        if part["type"] == "tool_call":
            calls.append(_call_of(part))
        elif part["type"] == "text":
            fields["content"] = part["content"]
        else:
            fields["content"] = part["response"]
            if "id" in part:
                fields["tool_call_id"] = part["id"]
    if calls:
        fields["tool_calls"] = calls
    return fields


def _sampled_of(fields: Mapping[str, Any]) -> Sampled:
    probability = known(fields.get("probability"))
    reason = fields.get("reason")
    randomness = int(fields["randomness"]) & _LOW_64
    upstream = known(fields.get("upstream"))
    least = known(fields.get("least"))
    return Sampled(
        probability,
        None if reason is None else str(reason),
        randomness,
        upstream,
        same_randomness=bool(fields.get("same_randomness")),
        clustered=bool(fields.get("clustered")),
        least=least,
    )
