"""Amazon Bedrock: replies of Converse, and the events of ConverseStream."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.fields import field, first, usage_of
from agenteval_otel.capture.messages import call_of, turns_of
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS: Final = ("stopReason", "output", "metrics")
_EVENTS: Final = (
    "contentBlockDelta", "contentBlockIndex", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop",
    "metadata", "start",
)  # fmt: skip


@response_format("bedrock", fields=_FIELDS)
def read_converse(reading: Reading, answer: object) -> bool:
    """Read a reply of Converse: its message, why it stopped, and the usage."""
    message = field(field(answer, "output"), "message")
    if field(answer, "stopReason") is None or message is None:
        return False
    for turn in turns_of(message):
        turn.text = turn.text or ""
        turn.finish_reason = first(answer, "stopReason")
        turn.usage = usage_of(field(answer, "usage"))
        reading.add_turn(turn)
    return True


@response_format("bedrock", stream=True, fields=_EVENTS)
def read_converse_event(reading: Reading, event: object) -> bool:
    """Read an event of ConverseStream: text, pieces of calls, the stop reason, and the usage."""
    if not isinstance(event, dict):
        return False
    block = field(event, "contentBlockDelta")
    start = field(event, "contentBlockStart")
    stop = field(event, "messageStop")
    metadata = field(event, "metadata")
    if block is not None:
        delta = field(block, "delta")
        place = _place_of(reading, block)
        reading.extend(reading.open_turn(), field(delta, "text"))
        piece = field(field(delta, "toolUse"), "input")
        if piece is not None:
            reading.extend_call(reading.open_turn(), place, piece=piece)
    elif start is not None:
        call = call_of(field(field(start, "start"), "toolUse"))
        if call is not None:
            place = _place_of(reading, start, is_new=True)
            reading.add_call(reading.open_turn(), call, place)
    elif first(stop, "stopReason") is not None:
        reading.update(reading.open_turn(), finish_reason=first(stop, "stopReason"))
    elif field(metadata, "usage") is not None and field(metadata, "metrics") is not None:
        reading.update(reading.open_turn(), usage=usage_of(field(metadata, "usage")))
    elif first(field(event, "messageStart"), "role") is not None:
        reading.begin_turn()
    else:
        return field(event, "contentBlockStop") is not None
    return True


def _place_of(reading: Reading, block: object, *, is_new: bool = False) -> Any:
    """Return a block's index, or the number of its call where blocks come without an index."""
    index = field(block, "contentBlockIndex")
    return ("call", len(reading.calls) + is_new) if index is None else index
