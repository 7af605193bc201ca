"""The frameworks' chunks and events: message chunks, graph streams, events of agents' runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from agenteval_otel.capture.shapes.answers import take_answer, take_item
from agenteval_otel.capture.shapes.calls import call_of
from agenteval_otel.capture.shapes.content import result_of
from agenteval_otel.capture.shapes.fields import field, first, items, kind_of
from agenteval_otel.capture.shapes.reading import Reading
from agenteval_otel.capture.shapes.turns import all_turns, is_message, turns_of
from agenteval_otel.capture.shapes.usage import add

__all__ = ["MAX_UPDATES", "take_agent_event", "take_graph_chunk", "take_message_chunk"]

MAX_UPDATES: Final = 64
"""How many nodes of a graph one update may come from."""


def take_message_chunk(reading: Reading, chunk: Any) -> bool:
    """A chunk of a message, or a message among the chunks; what the user or the system said is no answer."""
    if not is_message(chunk):
        return False
    pieces = field(chunk, "tool_call_chunks")
    in_pieces = pieces is not None or kind_of(chunk).endswith("MessageChunk")
    for turn in turns_of(chunk):
        if turn.role != "assistant":
            reading.results(turn.results)
        elif in_pieces:
            open_turn = reading.turn(turn.key)
            reading.grow(open_turn, turn.text)
            for position, piece in enumerate(items(pieces)):
                index = field(piece, "index")
                place = position if index is None else index
                reading.grow_call(
                    open_turn, place if isinstance(place, int | str) else position, id=first(piece, "id"),
                    name=first(piece, "name"), piece=field(piece, "args"),
                )  # fmt: skip
            turn.usage = add(open_turn.usage, turn.usage) if turn.usage is not None else None  # told in parts
            reading.tell(open_turn, turn)
        else:
            reading.whole(turn)
    return True


def take_graph_chunk(reading: Reading, chunk: Any) -> bool:
    """What a graph streams: ``(message, metadata)``, ``(mode, payload)``, with a namespace before it, an update of some
    nodes, or the whole state as it is now."""
    if isinstance(chunk, tuple):
        return _take_tuple(reading, chunk)
    if kind_of(chunk) in _MODES and field(chunk, "ns") is not None:
        return _take_payload(reading, field(chunk, "data"))
    return _take_payload(reading, chunk)


_MODES = frozenset({"values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"})


def _take_tuple(reading: Reading, chunk: tuple[Any, ...]) -> bool:
    parts = list(chunk)
    if len(parts) > 1 and isinstance(parts[0], tuple):
        parts = parts[1:]  # a subgraph's name
    if len(parts) == 2 and isinstance(parts[0], str) and parts[0] in _MODES:
        parts = parts[1:]
        if isinstance(parts[0], tuple):
            return _take_tuple(reading, parts[0])
    if len(parts) == 2 and isinstance(parts[1], Mapping) and is_message(parts[0]):
        return take_message_chunk(reading, parts[0])
    return len(parts) == 1 and _take_payload(reading, parts[0])


def _take_payload(reading: Reading, payload: Any) -> bool:
    if not isinstance(payload, Mapping):
        return False
    messages = field(payload, "messages")
    if isinstance(messages, list) and is_message(messages[0] if messages else None):
        reading.conversation(all_turns(messages))
        return True
    updates = [field(payload, name) for name in islice(payload, MAX_UPDATES)]
    updated = [update for update in updates if isinstance(field(update, "messages"), list)]
    if not updated or any(update is not None and not isinstance(update, Mapping) for update in updates):
        return False
    for update in updated:
        for turn in all_turns(field(update, "messages")):
            if turn.role != "user":
                reading.follow(turn)
    return True


def take_agent_event(reading: Reading, event: Any) -> bool:
    """An event of an agent's run."""
    kind = kind_of(event)
    if kind in ("run_item_stream_event", "agent_updated_stream_event"):
        take_item(reading, field(field(event, "item"), "raw_item"))
        return True
    kind = kind_of(event, "event_kind")
    if kind in ("part_start", "part_delta"):
        _take_part(reading, event, kind)
    elif kind == "agent_run_result":
        return take_answer(reading, event)
    elif kind in ("function_tool_call", "function_tool_result", "output_tool_call", "output_tool_result"):
        part = field(event, "part") or field(event, "result")
        if kind.endswith("_result"):
            reading.results([result_of(part)])
        elif (call := call_of(part)) is not None:
            reading.calls.add(call)
    return bool(kind)


def _take_part(reading: Reading, event: Any, kind: str) -> None:
    index, part = field(event, "index"), field(event, "part")
    if kind == "part_start":
        # A response's parts are counted from zero: the first one begins a new response.
        turn = reading.begin() if index == 0 else reading.turn()
        if kind_of(part, "part_kind") == "text":
            reading.grow(turn, field(part, "content"))
        elif kind_of(part, "part_kind") == "tool-call" and (call := call_of(part)) is not None:
            first_piece, call.arguments = call.arguments, None
            reading.add_call(turn, call, index)
            reading.grow_call(turn, index, id=call.id, piece=first_piece)
        return
    delta, turn = field(event, "delta"), reading.turn()
    if kind_of(delta, "part_delta_kind") == "text":
        reading.grow(turn, field(delta, "content_delta"))
    elif kind_of(delta, "part_delta_kind") == "tool_call":
        reading.grow_call(
            turn, index, name=first(delta, "tool_name_delta"), piece=field(delta, "args_delta")
        )  # fmt: skip
