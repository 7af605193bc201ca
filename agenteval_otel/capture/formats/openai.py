"""OpenAI, and LiteLLM: chat completions, the Responses API and runs of the Agents SDK.

They are read whole and streamed.
"""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.answers import add_answer, add_chunk, must_be_complete
from agenteval_otel.capture.fields import (
    field,
    first,
    items,
    kind_of,
    last_items,
    total_usage,
    usage_of,
)
from agenteval_otel.capture.messages import (
    Call,
    Turn,
    content_text,
    part_calls,
    real_id,
    result_of,
    turns_of,
)
from agenteval_otel.capture.reading import Reading, response_format
from agenteval_otel.models.tool_calls import CALL_ITEMS, RESULT_ITEMS

_OF_ONE: Final = CALL_ITEMS | {"message", "reasoning", "mcp_list_tools"}
"""Items of one response of a model. `_ITEMS` are those of several, with the results of tools
between them.
"""
_ITEMS: Final = _OF_ONE | RESULT_ITEMS
_HELPER_EVENTS: Final = frozenset(
    {"content", "refusal", "tool_calls.function.arguments", "logprobs.content"}
)
_RUN_FIELDS: Final = (
    "context_wrapper", "data", "final_output", "is_complete", "item", "last_agent", "new_items", "raw_item",
    "raw_responses", "_last_agent",
)  # fmt: skip


@response_format(
    "openai_completion",
    libraries=("openai", "litellm", "mistralai"),
    fields=("choices", "message", "delta", "function", "refusal"),
)
def read_completion(reading: Reading, answer: object) -> bool:
    """Read a chat completion: its first choice."""
    choice = next(iter(items(field(answer, "choices"))), None)
    message = field(choice, "message")
    text = field(choice, "text")
    if message is None and not isinstance(text, str):
        return False
    turns = turns_of(message)
    if not turns:
        turns = [Turn("assistant", content_text(field(message, "content") or text))]
    turn = turns[0]
    turn.text = turn.text or ""
    turn.usage = usage_of(field(answer, "usage")) or turn.usage
    turn.model = first(answer, "model")
    turn.key = turn.response_id = first(answer, "id")
    turn.finish_reason = first(choice, "finish_reason")
    reading.add_turn(turn)
    return True


@response_format("openai_completion", stream=True)
def read_completion_chunk(reading: Reading, chunk: object) -> bool:
    """Read a chunk of a chat completion: the first choice's delta, and usage if it comes."""
    choices = field(chunk, "choices")
    if not isinstance(choices, list):
        return False
    first_choices = (choice for choice in items(choices) if field(choice, "index") in (0, None))
    choice = next(first_choices, None)
    delta = field(choice, "delta")
    if choice is not None and delta is None:
        return False  # a whole completion
    id = first(chunk, "id")
    turn = reading.open_turn(id)
    text = content_text(field(delta, "content")) or content_text(field(delta, "refusal"))
    reading.extend(turn, text)
    for position, call in enumerate(items(field(delta, "tool_calls"))):
        function = field(call, "function")
        index = field(call, "index")
        place = index if isinstance(index, int) else position
        reading.extend_call(
            turn,
            place,
            id=first(call, "id"),
            name=first(function, "name"),
            piece=field(function, "arguments"),
        )
    reading.update(
        turn,
        usage=usage_of(field(chunk, "usage")),
        model=first(chunk, "model"),
        response_id=id,
        finish_reason=first(choice, "finish_reason"),
    )
    return True


@response_format("openai_response", fields=("output", "incomplete_details", "provider_data"))
def read_response(reading: Reading, answer: object) -> bool:
    """Read a response of the Responses API, or the list of its output items."""
    if isinstance(answer, list):
        output = last_items(answer)
        are_of_one = all(
            kind_of(item) in _OF_ONE and kind_of(item, "role") in ("", "assistant")
            for item in output
        )
        if not output or not are_of_one:
            return False
        _add_items(reading, output, Turn("assistant"))
        return True
    output = items(field(answer, "output"))
    is_named = kind_of(answer, "object") == "response" and isinstance(
        field(answer, "output"), list | tuple
    )
    if not is_named and not (output and all(kind_of(item) in _ITEMS for item in output)):
        return False
    turn = Turn(
        "assistant", usage=total_usage(field(answer, "usage")), model=first(answer, "model")
    )
    turn.key = turn.response_id = real_id(first(answer, "id", "response_id"))
    stopped = first(field(answer, "incomplete_details"), "reason")
    turn.finish_reason = stopped or first(answer, "status")
    _add_items(reading, output, turn)
    return True


def _add_items(reading: Reading, output: list[Any], turn: Turn) -> None:
    turn.text = ""
    for item in output:
        kind = kind_of(item)
        if kind == "message":
            turn.text += content_text(field(item, "content")) or ""
        elif kind.endswith("_output"):
            turn.results.append(result_of(item))
        turn.calls += part_calls([item])
        provider_data = field(item, "provider_data")
        turn.model = turn.model or first(provider_data, "model")
        turn.response_id = turn.response_id or first(provider_data, "response_id")
    reading.add_turn(turn)


@response_format("openai_response", stream=True, fields=("output_index",))
def read_response_event(reading: Reading, event: object) -> bool:
    """Read an event of the Responses API."""
    kind = kind_of(event)
    if not kind.startswith("response."):
        return False
    response = field(event, "response")
    place = field(event, "output_index")
    place = place if isinstance(place, int) else None
    if kind in ("response.created", "response.queued"):
        reading.begin_turn()
    turn = reading.open_turn()
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        # The pieces came before: the whole response repeats the last turn.
        turn.key = first(response, "id") or turn.key
        add_answer(reading, response)
    elif response is not None:
        turn.key = first(response, "id")
        reading.update(turn, model=first(response, "model"), response_id=real_id(turn.key))
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        reading.extend(turn, field(event, "delta"))
    elif kind == "response.function_call_arguments.delta":
        reading.extend_call(turn, place, piece=field(event, "delta"))
    elif kind == "response.function_call_arguments.done":
        reading.add_call(turn, Call(None, "", field(event, "arguments")), place)
    elif kind in ("response.output_item.added", "response.output_item.done"):
        item = field(event, "item")
        for call in part_calls([item]):
            call.arguments = call.arguments or None
            reading.add_call(turn, call, place)
        data = field(item, "provider_data")
        reading.update(turn, model=first(data, "model"), response_id=first(data, "response_id"))
    return True


@response_format("openai_helper", stream=True, fields=("chunk", "snapshot"))
def read_helper_event(reading: Reading, event: object) -> bool:
    """Read an event of the client's stream helper.

    It is a chunk with the answer so far beside it, or an echo of the chunks.
    """
    kind = kind_of(event)
    has_snapshot = field(event, "snapshot") is not None
    if kind == "chunk" and has_snapshot:
        return add_chunk(reading, field(event, "chunk"))
    what, _, step = kind.rpartition(".")
    if what not in _HELPER_EVENTS or not (step == "done" or (step == "delta" and has_snapshot)):
        return False
    if kind == "content.delta":
        reading.echo(field(event, "delta"))
    return True


@response_format("openai_agents", libraries=("agents",), fields=_RUN_FIELDS)
def read_run_result(reading: Reading, answer: object) -> bool:
    """Read the result of an agent's run that lists its items and its model's raw responses."""
    new_items = field(answer, "new_items")
    responses = field(answer, "raw_responses")
    if not isinstance(new_items, list) or not isinstance(responses, list):
        return False
    must_be_complete(answer)
    for response in items(responses):
        read_response(reading, response)
    for item in items(new_items):
        _add_run_item(reading, item)
    output = field(answer, "final_output")
    if output is not None:
        turn = reading.add_turn(Turn("assistant", reading.data_text(output)))
        last_agent = field(answer, "last_agent") or field(answer, "_last_agent")
        model = field(last_agent, "model")  # a name, or an object that has it
        turn.model = turn.model or first(last_agent, "model") or first(model, "model")
    reading.usage_total = total_usage(field(field(answer, "context_wrapper"), "usage"))
    return True


@response_format("openai_agents", stream=True)
def read_run_event(reading: Reading, event: object) -> bool:
    """Read an event of a streamed run, or a provider's event within one."""
    kind = kind_of(event)
    if kind == "raw_response_event":
        return add_chunk(reading, field(event, "data"))
    if kind == "run_item_stream_event":
        _add_run_item(reading, field(event, "item"))
    return kind in ("run_item_stream_event", "agent_updated_stream_event")


def _add_run_item(reading: Reading, item: object) -> None:
    """Add one item of a run: a tool call, or its result. Messages are the responses' own."""
    raw_item = field(item, "raw_item")
    for turn in turns_of(raw_item) if kind_of(raw_item) != "message" else ():
        for call in turn.calls:
            reading.calls.add(call)
        reading.calls.set_results(turn.results)
