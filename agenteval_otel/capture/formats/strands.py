"""Strands: the result of an agent, and the events of its stream."""

from __future__ import annotations

from agenteval_otel.capture.fields import field, first, total_usage
from agenteval_otel.capture.formats.bedrock import read_converse_event
from agenteval_otel.capture.messages import is_message, turns_of
from agenteval_otel.capture.reading import Reading, response_format


@response_format("strands", fields=("accumulated_usage", "metrics"))
def read_agent_result(reading: Reading, answer: object) -> bool:
    """Read the result of a Strands agent: its last message, why it stopped, and the usage."""
    message = field(answer, "message")
    metrics = field(answer, "metrics")
    if first(answer, "stop_reason") is None or not is_message(message):
        return False
    turns = turns_of(message)
    for turn in turns:
        turn.text = turn.text or ""
        turn.finish_reason = first(answer, "stop_reason")
        reading.add_turn(turn)
    reading.usage_total = total_usage(field(metrics, "accumulated_usage"))
    return bool(turns)


@response_format(
    "strands", stream=True, fields=("event_loop_cycle_id",), running=("strands.Agent",)
)
def read_agent_event(reading: Reading, event: object) -> bool:
    """Read an event of an agent's stream: the model's own event, or what repeats its pieces.

    Whole messages with calls and results, and the result at the end, are read as such.
    """
    if not isinstance(event, dict):
        return False
    model_event = field(event, "event")
    if isinstance(model_event, dict):
        return read_converse_event(reading, model_event)
    if field(event, "event_loop_cycle_id") is None or field(event, "delta") is None:
        return False
    reading.echo(field(event, "data"))
    return True
