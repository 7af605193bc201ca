"""OpenAI: chat completions and the Responses API, whole and streamed; LiteLLM and other clients use the same forms."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.answers import add_answer, total_usage
from agenteval_otel.capture.fields import field, first, items, kind_of, last_items, real_id, usage_of
from agenteval_otel.capture.messages import Turn, content_text, result_of, turns_of
from agenteval_otel.capture.reading import OpenTurn, Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.streams import add_chunk
from agenteval_otel.capture.tool_calls import call_of

__all__ = ["read_completion", "read_completion_chunk", "read_helper_event", "read_response", "read_response_event"]

_OF_ONE: Final = frozenset({"message", "function_call", "reasoning", "custom_tool_call"})
"""Items that one response of a model puts out; `_ITEMS` are those of several, with what the tools gave between them."""
_ITEMS: Final = _OF_ONE | {"function_call_output", "custom_tool_call_output"}


@response_format(
    "openai_completion", libraries=("openai", "litellm"), fields=("choices", "message", "delta", "function", "refusal")
)
def read_completion(reading: Reading, answer: Any) -> bool:
    """A chat completion: its first choice."""
    choices = items(field(answer, "choices"))
    message = field(choices[0], "message") if choices else None
    if not choices or (message is None and not isinstance(field(choices[0], "text"), str)):
        return False
    turns = turns_of(message)
    turn = turns[0] if turns else Turn("assistant", content_text(field(message, "content")))
    if message is None:
        turn.text = content_text(field(choices[0], "text"))
    turn.text = turn.text or ""
    turn.usage = usage_of(field(answer, "usage")) or turn.usage
    turn.model = first(answer, "model")
    turn.key = turn.response_id = first(answer, "id")
    turn.finish_reason = first(choices[0], "finish_reason")
    reading.add_turn(turn)
    return True


@response_format("openai_response", fields=("output", "incomplete_details", "provider_data"))
def read_response(reading: Reading, answer: Any) -> bool:
    """A response of the Responses API, or the list of its output items."""
    if isinstance(answer, list):
        return _read_output(reading, answer)
    output = items(field(answer, "output"))
    named = kind_of(answer, "object") == "response" and isinstance(field(answer, "output"), list | tuple)
    if not named and not (output and all(kind_of(item) in _ITEMS for item in output)):
        return False
    turn = Turn("assistant", usage=total_usage(field(answer, "usage")), model=first(answer, "model"))
    turn.key = turn.response_id = real_id(first(answer, "id", "response_id"))
    stopped = first(field(answer, "incomplete_details"), "reason")
    turn.finish_reason = stopped or first(answer, "status")
    _add_items(reading, output, turn)
    return True


def _read_output(reading: Reading, answer: list[Any]) -> bool:
    output = last_items(answer)
    is_output = bool(output) and all(kind_of(i) in _OF_ONE and kind_of(i, "role") in ("", "assistant") for i in output)
    if is_output:
        _add_items(reading, output, Turn("assistant"))
    return is_output


def _add_items(reading: Reading, output: list[Any], turn: Turn) -> None:
    texts: list[str] = []
    for item in output:
        kind = kind_of(item)
        if kind == "message":
            texts.append(content_text(field(item, "content")) or "")
        elif kind in ("function_call", "custom_tool_call"):
            turn.calls += [call] if (call := call_of(item)) is not None else []
        elif kind.endswith("_output"):
            turn.results.append(result_of(item))
        provider_data = field(item, "provider_data")
        turn.model = turn.model or first(provider_data, "model")
        turn.response_id = turn.response_id or first(provider_data, "response_id")
    turn.text = "".join(texts)
    reading.add_turn(turn)


@response_format("openai_completion", stream=True)
def read_completion_chunk(reading: Reading, chunk: Any) -> bool:
    """A chunk of a chat completion; the first choice's delta, and usage where it comes."""
    listed = field(chunk, "choices")
    if not isinstance(listed, list):
        return False
    choices = [choice for choice in items(listed) if field(choice, "index") in (0, None)]
    delta = field(choices[0], "delta") if choices else None
    if choices and delta is None:
        return False  # a whole completion
    turn = reading.open_turn(first(chunk, "id"))
    chunk_turn = Turn("assistant", usage=usage_of(field(chunk, "usage")), model=first(chunk, "model"))
    chunk_turn.response_id = first(chunk, "id")
    if choices:
        chunk_turn.finish_reason = first(choices[0], "finish_reason")
        reading.extend(turn, content_text(field(delta, "content")) or content_text(field(delta, "refusal")))
        for position, call in enumerate(items(field(delta, "tool_calls"))):
            _grow_call(reading, turn, call, position)
    reading.update(turn, chunk_turn)
    return True


def _grow_call(reading: Reading, turn: OpenTurn, call: Any, position: int) -> None:
    function, index = field(call, "function"), field(call, "index")
    reading.extend_call(
        turn, index if isinstance(index, int) else position, id=first(call, "id"), name=first(function, "name"),
        piece=field(function, "arguments"),
    )  # fmt: skip


@response_format("openai_response", stream=True, fields=("output_index",))
def read_response_event(reading: Reading, event: Any) -> bool:
    """An event of the Responses API."""
    kind = kind_of(event)
    if not kind.startswith("response."):
        return False
    response = field(event, "response")
    if kind in ("response.created", "response.queued"):
        reading.begin_turn()
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        # The pieces came before; what the whole says again is the last turn's.
        turn = reading.open_turn()
        turn.key = first(response, "id") or turn.key
        add_answer(reading, response)
    elif response is not None:
        turn = reading.open_turn()
        turn.key = first(response, "id")
        known = Turn("assistant", model=first(response, "model"))
        known.response_id = real_id(turn.key)
        reading.update(turn, known)
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        reading.extend(reading.open_turn(), field(event, "delta"))
    elif kind in _CALL_EVENTS:
        _add_call_event(reading, event, kind)
    return True


_CALL_EVENTS: Final = frozenset({
    "response.output_item.added", "response.output_item.done", "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
})  # fmt: skip


def _add_call_event(reading: Reading, event: Any, kind: str) -> None:
    turn, index, item = reading.open_turn(), field(event, "output_index"), field(event, "item")
    place = index if isinstance(index, int) else None
    if kind == "response.function_call_arguments.delta":
        reading.extend_call(turn, place, piece=field(event, "delta"))
    elif kind == "response.function_call_arguments.done":
        reading.calls.complete((turn.number, place), field(event, "arguments"))
    elif kind_of(item) in ("function_call", "custom_tool_call") and (call := call_of(item)) is not None:
        call.arguments = call.arguments or None
        reading.add_call(turn, call, place)
        data = field(item, "provider_data")
        known = Turn("assistant", model=first(data, "model"), response_id=first(data, "response_id"))
        reading.update(turn, known)
    elif (data := field(item, "provider_data")) is not None:
        reading.update(turn, Turn("assistant", model=first(data, "model"), response_id=first(data, "response_id")))


@response_format("openai_helper", stream=True, fields=("chunk", "snapshot"))
def read_helper_event(reading: Reading, event: Any) -> bool:
    """An event of the client's stream helper: a chunk with the answer so far beside it, or an echo of the chunks."""
    kind, has_snapshot = kind_of(event), field(event, "snapshot") is not None
    if kind == "chunk" and has_snapshot:
        return add_chunk(reading, field(event, "chunk"))
    if kind not in _DONE and not (kind in _ECHOES and has_snapshot):
        return False
    if kind == "content.delta":
        reading.echo(field(event, "delta"))
    return True


_DONE: Final = frozenset(
    {"content.done", "refusal.done", "tool_calls.function.arguments.done", "logprobs.content.done"}
)
_ECHOES: Final = frozenset({
    "content.delta", "refusal.delta", "tool_calls.function.arguments.delta", "logprobs.content.delta",
})  # fmt: skip
