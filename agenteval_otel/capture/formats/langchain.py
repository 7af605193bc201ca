"""LangChain and LangGraph: a graph's state, message chunks, and what a graph streams."""

from __future__ import annotations

from itertools import islice
from typing import Any

from agenteval_otel.capture.answers import add_chunk
from agenteval_otel.capture.fields import add_tokens, field, first, items, kind_of, last_items
from agenteval_otel.capture.messages import all_turns, is_message, turns_of
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS = (
    "additional_kwargs", "data", "invalid_tool_calls", "ns", "response_metadata", "token_usage",
    "tool_call_chunks", "usage_metadata",
)  # fmt: skip
_MODES = frozenset({"values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"})
_MAX_UPDATES = 64


@response_format("langgraph", libraries=("langchain_core", "langgraph"), fields=_FIELDS)
def read_state(reading: Reading, answer: object) -> bool:
    """Read a graph's state: its messages."""
    messages = last_items(field(answer, "messages"))
    if not any(is_message(message) for message in messages):
        return False
    reading.add_messages(messages)
    return True


@response_format("langchain", stream=True)
def read_message_chunk(reading: Reading, chunk: object) -> bool:
    """Read a chunk of a message."""
    pieces = field(chunk, "tool_call_chunks")
    if not is_message(chunk) or (pieces is None and not kind_of(chunk).endswith("MessageChunk")):
        return False
    for turn in turns_of(chunk):
        if turn.role != "assistant":
            reading.calls.set_results(turn.results)
            continue
        open_turn = reading.open_turn(turn.key)
        reading.extend(open_turn, turn.text)
        for position, piece in enumerate(items(pieces)):
            index = field(piece, "index")
            place = index if isinstance(index, int | str) else position
            reading.extend_call(
                open_turn,
                place,
                id=first(piece, "id"),
                name=first(piece, "name"),
                piece=field(piece, "args"),
            )
        # The counts of a message's chunks add up to the message's.
        usage = add_tokens(open_turn.usage, turn.usage) if turn.usage is not None else None
        reading.update(
            open_turn,
            usage=usage,
            model=turn.model,
            response_id=turn.response_id,
            finish_reason=turn.finish_reason,
        )
    return True


@response_format("langgraph", stream=True)
def read_graph_chunk(reading: Reading, chunk: object) -> bool:
    """Read what a graph streams: ``(message, metadata)`` or ``(mode, payload)``.

    Either may have a namespace before it. It may also be an update of some nodes, or the whole
    state as it is now.
    """
    if kind_of(chunk) in _MODES and field(chunk, "ns") is not None:
        return read_graph_chunk(reading, field(chunk, "data"))
    if not isinstance(chunk, tuple):
        return isinstance(chunk, dict) and _add_payload(reading, chunk)
    if len(chunk) > 1 and isinstance(chunk[0], tuple):
        chunk = chunk[1:]  # without the subgraph's name
    if len(chunk) == 2 and isinstance(chunk[1], dict) and is_message(chunk[0]):
        return add_chunk(reading, chunk[0])
    has_mode = len(chunk) == 2 and isinstance(chunk[0], str) and chunk[0] in _MODES
    return (has_mode or len(chunk) == 1) and read_graph_chunk(reading, chunk[-1])


@response_format(
    "langchain_events", stream=True, fields=("chunk", "event", "generations", "run_id")
)
def read_run_event(reading: Reading, event: object) -> bool:
    """Read an event of ``astream_events``: what models and tools give, not what is passed on."""
    kind = kind_of(event, "event")
    data = field(event, "data")
    if not kind.startswith("on_") or field(event, "run_id") is None:
        return False
    if kind == "on_chat_model_stream":
        add_chunk(reading, field(data, "chunk"))
    elif kind == "on_chat_model_end":
        _add_model_output(reading, field(data, "output"))
    elif kind == "on_llm_stream":
        turn = reading.open_turn(first(event, "run_id"))
        reading.extend(turn, field(field(data, "chunk"), "text"))
    elif kind == "on_tool_end":
        for turn in turns_of(field(data, "output")):
            reading.calls.set_results(turn.results)
    return True


def _add_model_output(reading: Reading, output: object) -> None:
    """Add a model's message at its end: whole if it was not streamed, else what was missing of it."""
    batches = items(field(output, "generations"))
    generations = items(batches[0]) if batches else []
    generation = generations[0] if generations else None
    message = output if generation is None else field(generation, "message")
    for turn in turns_of(message):
        reading.add_message(turn)


def _add_payload(reading: Reading, payload: dict[Any, Any]) -> bool:
    if read_state(reading, payload):
        return True
    updates = list(islice(payload.values(), _MAX_UPDATES))
    updated = [update for update in updates if isinstance(field(update, "messages"), list)]
    are_of_nodes = all(isinstance(update, dict | None) for update in updates)
    if not updated or not are_of_nodes:
        return False
    for update in updated:
        for turn in all_turns(field(update, "messages")):
            if turn.role != "user":
                reading.add_message(turn)
    return True
