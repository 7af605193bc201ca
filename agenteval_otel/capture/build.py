"""From the captured call to the frozen evaluation input: on the pool's thread, where time is ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypedDict, TypeVar
from uuid import UUID

from pydantic import ValidationError

from agenteval_otel.capture import answers, prompts, streams
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.detached import take
from agenteval_otel.capture.fields import MAX_ITEMS, short, usage_of
from agenteval_otel.capture.prompts import history_fields, last_question
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.text import CAP_CHARS, plain, to_text
from agenteval_otel.capture.tool_calls import read_calls
from agenteval_otel.components.blocking import part_of
from agenteval_otel.errors import CaptureError
from agenteval_otel.models import EvaluationInput, MemoryStats
from agenteval_otel.models.value import made

__all__ = [
    "FACTS", "SNAPSHOT", "TRUNCATED", "Facts", "answer_text", "build_input", "history_of", "prompt_text", "read_answer",
    "read_chunks", "read_prompt",
]  # fmt: skip  # fmt: skip


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


P = ParamSpec("P")
T = TypeVar("T")


def _translated(read: Callable[P, T]) -> Callable[P, T]:
    """Whatever reading raises becomes a CaptureError."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(f"no text from {type(args[0]).__name__}: {type(error).__name__}") from error

    return reading


read_answer = _translated(answers.read_answer)
read_chunks = _translated(streams.read_chunks)
read_prompt = _translated(prompts.read_prompt)
history_of = _translated(prompts.history_of)


def answer_text(answer: Any) -> str:
    """The text of an answer.

    Raises:
        CaptureError: It is a stream, or its own methods raised.
    """
    return read_answer(answer).text


def prompt_text(prompt: Any) -> str | None:
    """The question: text as it is, of a list of messages the last one of the user. Raises `CaptureError`."""
    return read_prompt(prompt).prompt


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
        CaptureError: The answer has no text that can be had.
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
    for name in [name for name in facts if name not in FACTS]:
        on_bad_fact(name)
        del facts[name]
    facts_set = _clean_facts(facts, on_bad_fact)
    fields |= facts_set
    if "response" not in facts_set and (call.truncated or _is_long(call.answer)):
        fields["metadata"] = _marked(facts_set.get("metadata"), on_bad_fact)
    return _validated(fields, on_bad_fact, own=not facts_set and "metadata" not in fields)


def _read(call: CapturedCall, *, has_response: bool) -> Reading:
    """What the answer says; nothing where it cannot be read, and the facts say it instead."""
    try:
        return read_chunks(call.chunks) if call.chunks is not None else read_answer(call.answer)
    except CaptureError:
        if has_response:
            return Reading()
        raise


def _is_long(answer: Any) -> bool:
    return type(answer) in (str, bytes) and len(answer) > CAP_CHARS


def _marked(metadata: Any, on_bad_fact: Callable[[str], None]) -> dict[str, Any]:
    """The metadata that was said, with the mark of an answer that is not whole."""
    if metadata is not None and not isinstance(metadata, dict):
        on_bad_fact("metadata")
        metadata = None
    return {**(metadata or {}), SNAPSHOT: TRUNCATED}


def _fields_of(call: CapturedCall, reading: Reading) -> dict[str, Any]:
    """What the call itself tells, without what was said about it."""
    read = read_prompt(call.prompt, **(call.others or {}))
    turns = read.turns if read.turns is not None else reading.history or None
    usage = reading.usage
    conversation = short(call.conversation) or read.conversation_id or reading.conversation_id
    return {
        "prompt": read.prompt if call.prompt is not None or not turns else last_question(turns),
        "message_history": None if turns is None else history_fields(turns),
        "response": reading.text,
        "tool_calls": reading.calls.finished(),
        "usage": None if usage is None else {"input_tokens": usage[0], "output_tokens": usage[1]},
        "model": reading.model,
        "response_id": reading.response_id,
        "finish_reason": reading.finish_reason,
        "conversation_id": conversation,
        "timestamp": call.ended_ns // 1_000_000,
        "agent": call.agent,
        "agent_id": call.agent,
        "duration_s": max(0.0, (call.ended_ns - call.started_ns) / 1e9),
        "error_type": call.error_type,
        "stream_end": call.stream_end,
    }


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


_SHORT_TEXTS = frozenset({"agent_id", "conversation_id", "finish_reason", "model", "response_id", "session_id"})


def _clean_facts(facts: dict[str, Any], on_bad_fact: Callable[[str], None]) -> dict[str, Any]:
    cleaned: dict[str, Any] = {}
    for name, value in facts.items():
        if value is None:
            continue  # nothing was said: what was found stands
        try:
            cleaned[name] = _clean_fact(name, value)
            if name == "tool_calls" and isinstance(value, list | tuple) and len(value) > MAX_ITEMS:
                on_bad_fact(name)  # those beyond are left out
        except Exception:  # whatever the fact's own methods raise
            on_bad_fact(name)
    return cleaned


def _clean_fact(name: str, value: Any) -> Any:
    if name in _SHORT_TEXTS:
        return short(to_text(value))
    if name == "prompt":
        return prompt_text(value)
    if name == "response":
        return answer_text(value)
    if name == "message_history":
        return history_of(value) or plain(_first(value))
    if name == "tool_calls":
        return read_calls(value) or plain(_first(value))
    if name == "usage" and (usage := usage_of(value)) is not None:
        return {"input_tokens": usage[0], "output_tokens": usage[1]}
    if name == "context" and isinstance(value, str | list | tuple):
        return {"documents": plain([value] if isinstance(value, str) else value)}
    return plain(value)


def _first(value: Any) -> Any:
    """Of a list without an entry that could be read so many: validation tells what is wrong with each."""
    return value[:MAX_ITEMS] if isinstance(value, list | tuple) else value


_NESTED = ("message_history", "tool_calls", "usage")


def _validated(fields: dict[str, Any], on_bad_fact: Callable[[str], None], *, own: bool) -> EvaluationInput:
    """The input of these fields; `own` says that all of them come from our own readers, which clean what they give."""
    if own and all(fields[name] is None for name in _NESTED):
        return made(EvaluationInput, fields)
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        wrong = {str(item["loc"][0]) for item in error.errors(include_url=False, include_input=False) if item["loc"]}
    by_alias = {EvaluationInput.model_fields[name].alias or name: name for name in fields}
    for name in {by_alias.get(name, name) for name in wrong}:
        fields.pop(name, None)
        on_bad_fact(name)
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        raise CaptureError(f"no evaluation input: {error.error_count()} fields do not fit") from error
