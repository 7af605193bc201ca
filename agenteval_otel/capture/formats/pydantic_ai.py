"""Pydantic AI: the result of an agent's run, and its events."""

from __future__ import annotations

from agenteval_otel.capture.answers import add_answer, must_be_complete
from agenteval_otel.capture.fields import field, first, kind_of, total_usage
from agenteval_otel.capture.messages import (
    Turn,
    all_turns,
    calls_in,
    part_calls,
    part_results,
    result_of,
)
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS = (
    "args_delta", "content_delta", "delta", "event_kind", "is_complete", "part", "part_delta_kind", "result",
    "tool_name_delta", "_all_messages", "_state",
)  # fmt: skip


@response_format("pydantic_ai", libraries=("pydantic_ai", "pydantic_graph"), fields=_FIELDS)
def read_run_result(reading: Reading, answer: object) -> bool:
    """Read the result of an agent's run, or the event that brings it.

    The messages of the run are in the result's state.
    """
    if kind_of(answer, "event_kind") == "agent_run_result":
        return add_answer(reading, field(answer, "result"))
    state = field(answer, "_state")
    messages = field(state, "message_history")
    turns = all_turns(field(answer, "_all_messages") if messages is None else messages)
    if not turns:
        return False
    must_be_complete(answer)
    reading.add_conversation(turns)
    output = field(answer, "output")
    text = None if output is None else reading.data_text(output)
    if text is not None and text != reading.text:
        reading.add_turn(Turn("assistant", text, response_id=reading.last.response_id))
    reading.usage_total = total_usage(field(state, "usage")) or total_usage(field(answer, "usage"))
    return True


@response_format("pydantic_ai", stream=True)
def read_run_event(reading: Reading, event: object) -> bool:
    """Read an event of an agent's run."""
    kind = kind_of(event, "event_kind")
    if kind == "part_start":
        _begin_part(reading, field(event, "part"), field(event, "index"))
    elif kind == "part_delta":
        _extend_part(reading, field(event, "delta"), field(event, "index"))
    elif kind == "agent_run_result":
        return add_answer(reading, event)
    elif kind in ("function_tool_call", "output_tool_call"):
        for call in calls_in([field(event, "part")]):
            reading.calls.add(call)
    elif kind in ("function_tool_result", "output_tool_result"):
        reading.calls.set_results([result_of(field(event, "part") or field(event, "result"))])
    return bool(kind)


def _begin_part(reading: Reading, part: object, index: object) -> None:
    # A response's parts are counted from zero: the first one begins a new response.
    turn = reading.begin_turn() if index == 0 else reading.open_turn()
    if kind_of(part, "part_kind") == "text":
        reading.extend(turn, field(part, "content"))
    reading.calls.set_results(part_results([part]))  # of a tool that the provider runs
    for call in part_calls([part]):
        first_piece = call.arguments
        call.arguments = None
        reading.add_call(turn, call, index)
        reading.extend_call(turn, index, id=call.id, piece=first_piece)


def _extend_part(reading: Reading, delta: object, index: object) -> None:
    turn = reading.open_turn()
    if kind_of(delta, "part_delta_kind") == "text":
        reading.extend(turn, field(delta, "content_delta"))
    elif kind_of(delta, "part_delta_kind") == "tool_call":
        reading.extend_call(
            turn, index, name=first(delta, "tool_name_delta"), piece=field(delta, "args_delta")
        )
