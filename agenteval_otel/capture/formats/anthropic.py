"""Anthropic: events of the Messages API. A whole `Message` is read as any message is."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.fields import field, first, kind_of, usage_of
from agenteval_otel.capture.messages import Turn
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.tool_calls import call_of

__all__ = ["read_helper_event", "read_message_event"]

_MESSAGE_EVENTS: Final = frozenset({
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "ping",
})  # fmt: skip


@response_format("anthropic", stream=True, libraries=("anthropic",), fields=("content_block", "partial_json"))
def read_message_event(reading: Reading, event: Any) -> bool:
    """An event of the Messages API."""
    kind = kind_of(event)
    if kind not in _MESSAGE_EVENTS:
        return False
    if kind == "message_start":
        message = field(event, "message")
        turn, usage = reading.begin_turn(first(message, "id")), usage_of(field(message, "usage"))
        message_turn = Turn("assistant", model=first(message, "model"))
        message_turn.usage = None if usage is None else (usage[0], None)  # the output has only begun
        message_turn.response_id = first(message, "id")
        reading.update(turn, message_turn)
    elif kind == "message_delta":
        message_turn = Turn("assistant", usage=_output_only(event))
        message_turn.finish_reason = first(field(event, "delta"), "stop_reason")
        reading.update(reading.open_turn(), message_turn)
    elif kind in ("content_block_start", "content_block_delta"):
        _add_block(reading, event, kind)
    return True


def _output_only(event: Any) -> tuple[int | None, int | None] | None:
    """The usage at the end; its input tokens only where they are told with those of the cache again."""
    tokens = usage_of(field(event, "usage"))
    return tokens if tokens is None or tokens[0] else (None, tokens[1])


def _add_block(reading: Reading, event: Any, kind: str) -> None:
    turn, index = reading.open_turn(), field(event, "index")
    if kind == "content_block_start":
        block = field(event, "content_block")
        if kind_of(block) == "text":
            reading.extend(turn, field(block, "text"))
        elif kind_of(block) in ("tool_use", "server_tool_use") and (call := call_of(block)) is not None:
            call.arguments = call.arguments or None
            reading.add_call(turn, call, index)
        return
    delta = field(event, "delta")
    if kind_of(delta) == "text_delta":
        reading.extend(turn, field(delta, "text"))
    elif kind_of(delta) == "input_json_delta":
        reading.extend_call(turn, index, piece=field(delta, "partial_json"))


@response_format("anthropic_helper", stream=True, fields=("snapshot",))
def read_helper_event(reading: Reading, event: Any) -> bool:
    """An event that the client's stream helper adds, which repeats what the provider's own events say."""
    kind = kind_of(event)
    if kind != "signature" and not (kind in _ECHOES and field(event, "snapshot") is not None):
        return False
    if kind == "text":
        reading.echo(field(event, "text"))
    return True


_ECHOES: Final = frozenset({"text", "input_json", "thinking", "citation", "compaction"})
