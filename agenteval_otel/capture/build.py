"""From the captured call to the frozen evaluation input, on the background thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict
from uuid import UUID

from pydantic import ValidationError

from agenteval_otel.capture.answers import read_answer, read_chunks
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.detached import Unreadable, take
from agenteval_otel.capture.fields import MAX_ITEMS, Tokens, short, usage_of
from agenteval_otel.capture.prompts import history_fields, history_of, last_question, read_prompt
from agenteval_otel.capture.reading import Reading, read_calls
from agenteval_otel.capture.text import CAP_CHARS, plain, to_text
from agenteval_otel.components.blocking import part_of
from agenteval_otel.errors import CaptureError
from agenteval_otel.models import EvaluationInput, MemoryStats
from agenteval_otel.models.value import construct


class Facts(TypedDict, total=False):
    """What `annotate` and a `capture=` function may set; None leaves a fact as it was captured.

    `tool_calls`, `usage`, `message_history`, `prompt` and `response` may be a client's own objects.
    """

    agent_config: Mapping[str, Any] | None
    agent_id: str | None
    context: Mapping[str, Any] | Sequence[Any] | None
    conversation_id: str | int | UUID | None
    cost: float | None
    finish_reason: str | None
    ground_truth: object
    memory_stats: MemoryStats | Mapping[str, Any] | None
    message_history: Sequence[object] | None
    metadata: Mapping[str, Any] | None
    model: str | None
    prompt: object
    response: object
    response_id: str | None
    session_id: str | int | UUID | None
    tool_calls: Sequence[object] | None
    turns: int | None
    usage: object


FACTS: Final = frozenset(Facts.__annotations__)
"""The names of `Facts`."""
SNAPSHOT: Final = "agenteval.snapshot"
"""Key in the input's metadata: there, where what is evaluated is not the whole answer."""
TRUNCATED: Final = "truncated"
_SHORT_TEXTS: Final = frozenset({"agent_id", "conversation_id", "finish_reason", "model", "response_id", "session_id"})
_NESTED: Final = ("message_history", "tool_calls", "usage")


def build_input(
    call: CapturedCall,
    *,
    on_bad_fact: Callable[[str], None],
    capture: Callable[..., Any] | None = None,
    function: Callable[..., Any] | None = None,
) -> EvaluationInput:
    """Build the input of a call: text capped and sanitised, annotated facts laid over what was captured.

    A fact that does not fit its field is reported by name to `on_bad_fact` and left out; the rest stands.

    Raises:
        CaptureError: The answer has no text that can be read, or `capture` raised.
    """
    facts = dict(call.facts or {})
    if capture is not None and function is not None:
        facts |= _captured_facts(call, capture, function)
    try:
        fields = _fields_of(call, _read(call, has_response=facts.get("response") is not None))
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(f"no evaluation input: {type(error).__name__}") from error
    cleaned = _clean_facts(facts, on_bad_fact)
    fields |= cleaned
    is_long = type(call.answer) in (str, bytes) and len(call.answer) > CAP_CHARS
    if "response" not in cleaned and (call.truncated or is_long):
        fields["metadata"] = {**cleaned.get("metadata", {}), SNAPSHOT: TRUNCATED}
    elif not cleaned and all(fields[name] is None for name in _NESTED):
        return construct(EvaluationInput, fields)  # our own readers clean what they give
    return _validated(fields, on_bad_fact)


def _read(call: CapturedCall, *, has_response: bool) -> Reading:
    """What the answer says; nothing where it cannot be read and the facts say it instead."""
    try:
        return read_chunks(call.chunks) if call.chunks is not None else read_answer(call.answer)
    except CaptureError:
        if has_response:
            return Reading()
        raise


def _fields_of(call: CapturedCall, reading: Reading) -> dict[str, Any]:
    prompt = read_prompt(call.prompt, **(call.others or {}))
    turns = prompt.turns if prompt.turns is not None else reading.history or None
    return {
        "prompt": prompt.text if call.prompt is not None or not turns else last_question(turns),
        "message_history": None if turns is None else history_fields(turns),
        "response": reading.text,
        "tool_calls": reading.calls.finished(),
        "usage": _usage_fields(reading.usage),
        "model": reading.model,
        "response_id": reading.response_id,
        "finish_reason": reading.finish_reason,
        "conversation_id": short(call.conversation) or prompt.conversation_id or reading.conversation_id,
        "timestamp": call.ended_ns // 1_000_000,
        "agent": call.agent,
        "agent_id": call.agent,
        "duration_s": max(0.0, (call.ended_ns - call.started_ns) / 1e9),
        "error_type": call.error_type,
        "stream_end": call.stream_end,
    }


def _usage_fields(usage: Tokens | None) -> dict[str, int | None] | None:
    return None if usage is None else {"input_tokens": usage[0], "output_tokens": usage[1]}


def _captured_facts(call: CapturedCall, capture: Callable[..., Any], function: Callable[..., Any]) -> dict[str, Any]:
    args, kwargs = call.arguments or ((), {})
    try:
        arguments = dict(inspect.signature(function).bind_partial(*args, **kwargs).arguments)
        with part_of("capture", capture):
            facts = capture(arguments, call.originals())
    except Exception as error:
        raise CaptureError(f"capture= raised {type(error).__name__}") from error
    if not isinstance(facts, Mapping):
        raise CaptureError(f"capture= must give a mapping, found {type(facts).__name__}")
    return {name: take(value).value for name, value in facts.items()}


def _clean_facts(facts: dict[str, Any], on_bad_fact: Callable[[str], None]) -> dict[str, Any]:
    cleaned: dict[str, Any] = {}
    for name, value in facts.items():
        if (
            name not in FACTS
            or type(value) is Unreadable
            or (name == "metadata" and not isinstance(value, dict | None))
        ):
            on_bad_fact(name)
        elif value is not None:
            try:
                cleaned[name] = _clean_fact(name, value)
            except Exception:  # nothing of it can be read
                on_bad_fact(name)
                continue
            if name == "tool_calls" and isinstance(value, list | tuple) and len(value) > MAX_ITEMS:
                on_bad_fact(name)  # those beyond are left out
    return cleaned


def _clean_fact(name: str, value: Any) -> Any:
    if name in _SHORT_TEXTS:
        return short(to_text(value))
    if name == "prompt":
        return read_prompt(value).text
    if name == "response":
        return read_answer(value).text
    if name == "message_history":
        return history_of(value) or plain(value)
    if name == "tool_calls":
        return read_calls(value) or plain(value)
    if name == "usage":
        return _usage_fields(usage_of(value)) or plain(value)
    if name == "context" and isinstance(value, str | list | tuple):
        return {"documents": plain([value] if isinstance(value, str) else value)}
    return plain(value)


def _validated(fields: dict[str, Any], on_bad_fact: Callable[[str], None]) -> EvaluationInput:
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        wrong = {str(item["loc"][0]) for item in error.errors(include_url=False, include_input=False) if item["loc"]}
    for name in [name for name in fields if {name, EvaluationInput.model_fields[name].alias} & wrong]:
        del fields[name]
        on_bad_fact(name)
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        raise CaptureError(f"no evaluation input: {error.error_count()} fields do not fit") from error
