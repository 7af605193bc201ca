"""Pydantic AI: the result of an agent's run, and its events."""

from __future__ import annotations

from typing import Any

from agenteval_otel.capture.answers import add_answer, must_be_complete, total_usage
from agenteval_otel.capture.fields import field, first, kind_of
from agenteval_otel.capture.messages import Turn, all_turns, result_of
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.text import to_text
from agenteval_otel.capture.tool_calls import call_of

__all__ = ["read_run_event", "read_run_result"]

_FIELDS = (
    "args_delta", "content_delta", "delta", "event_kind", "is_complete", "part", "part_delta_kind", "result",
    "tool_name_delta", "_all_messages", "_state",
)  # fmt: skip


@response_format("pydantic_ai", libraries=("pydantic_ai", "pydantic_graph"), fields=_FIELDS)
def read_run_result(reading: Reading, answer: Any) -> bool:
    """The result of an agent's run that holds its messages in its state, or the event that brings it."""
    if kind_of(answer, "event_kind") == "agent_run_result":
        return add_answer(reading, field(answer, "result"))
    state = field(answer, "_state")
    listed = field(state, "message_history")
    if listed is None:
        listed = field(answer, "_all_messages")
    turns = all_turns(listed)
    if not turns:
        return False
    must_be_complete(answer)
    reading.add_conversation(turns)
    output, text = field(answer, "output"), reading.text
    if output is not None and (output_text := output if isinstance(output, str) else to_text(output)) != text:
        reading.add_turn(Turn("assistant", output_text, response_id=reading.response_id))
    reading.usage_total = total_usage(field(state, "usage")) or total_usage(field(answer, "usage"))
    return True


@response_format("pydantic_ai", stream=True)
def read_run_event(reading: Reading, event: Any) -> bool:
    """An event of an agent's run."""
    kind = kind_of(event, "event_kind")
    if kind in ("part_start", "part_delta"):
        _add_part(reading, event, kind)
    elif kind == "agent_run_result":
        return add_answer(reading, event)
    elif kind in ("function_tool_call", "function_tool_result", "output_tool_call", "output_tool_result"):
        part = field(event, "part") or field(event, "result")
        if kind.endswith("_result"):
            reading.add_results([result_of(part)])
        elif (call := call_of(part)) is not None:
            reading.calls.add(call)
    return bool(kind)


def _add_part(reading: Reading, event: Any, kind: str) -> None:
    index, part = field(event, "index"), field(event, "part")
    if kind == "part_start":
        # A response's parts are counted from zero: the first one begins a new response.
        turn = reading.begin_turn() if index == 0 else reading.open_turn()
        if kind_of(part, "part_kind") == "text":
            reading.extend(turn, field(part, "content"))
        elif kind_of(part, "part_kind") == "tool-call" and (call := call_of(part)) is not None:
            first_piece, call.arguments = call.arguments, None
            reading.add_call(turn, call, index)
            reading.extend_call(turn, index, id=call.id, piece=first_piece)
        return
    delta, turn = field(event, "delta"), reading.open_turn()
    if kind_of(delta, "part_delta_kind") == "text":
        reading.extend(turn, field(delta, "content_delta"))
    elif kind_of(delta, "part_delta_kind") == "tool_call":
        reading.extend_call(
            turn, index, name=first(delta, "tool_name_delta"), piece=field(delta, "args_delta")
        )  # fmt: skip
