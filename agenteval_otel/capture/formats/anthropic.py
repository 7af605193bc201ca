"""Anthropic: events of the Messages API. A whole `Message` is read as any message is."""

from __future__ import annotations

from agenteval_otel.capture.fields import field, first, kind_of, usage_of
from agenteval_otel.capture.messages import part_calls, part_results
from agenteval_otel.capture.reading import Reading, response_format

_ECHOES = frozenset({"text", "input_json", "thinking", "citation", "compaction"})
"""Events that the client's stream helper adds. They repeat what the provider's own say."""


@response_format(
    "anthropic",
    stream=True,
    libraries=("anthropic",),
    fields=("content_block", "partial_json", "snapshot"),
)
def read_message_event(reading: Reading, event: object) -> bool:
    """Read an event of the Messages API."""
    kind = kind_of(event)
    if kind == "message_start":
        message = field(event, "message")
        id = first(message, "id")
        usage = usage_of(field(message, "usage"))
        usage = usage and (usage[0], None)  # the output has only begun
        reading.update(
            reading.begin_turn(id), usage=usage, model=first(message, "model"), response_id=id
        )
    elif kind == "message_delta":
        usage = usage_of(field(event, "usage"))
        # input is repeated only together with the cache's
        usage = usage and (usage[0] or None, usage[1])
        stopped = first(field(event, "delta"), "stop_reason")
        reading.update(reading.open_turn(), usage=usage, finish_reason=stopped)
    elif kind == "content_block_start":
        block = field(event, "content_block")
        if kind_of(block) == "text":
            reading.extend(reading.open_turn(), field(block, "text"))
        for call in part_calls([block]):
            call.arguments = call.arguments or None
            reading.add_call(reading.open_turn(), call, field(event, "index"))
        reading.calls.set_results(part_results([block]))
    elif kind == "content_block_delta":
        delta = field(event, "delta")
        if kind_of(delta) == "text_delta":
            reading.extend(reading.open_turn(), field(delta, "text"))
        elif kind_of(delta) == "input_json_delta":
            reading.extend_call(
                reading.open_turn(), field(event, "index"), piece=field(delta, "partial_json")
            )
    elif kind in _ECHOES and field(event, "snapshot") is not None:
        reading.echo(field(event, "text"))
    else:
        return kind in ("content_block_stop", "message_stop", "ping", "signature")
    return True
