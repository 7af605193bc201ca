"""Cohere: replies of the chat interface (v2), and its events."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.fields import Tokens, field, first, items, kind_of, usage_of
from agenteval_otel.capture.messages import content_text, turns_of
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS: Final = ("billed_units", "tokens", "citations", "tool_plan")
_EVENTS: Final = frozenset(
    {"citation-end", "citation-start", "content-end", "debug", "tool-call-end"}
)


@response_format("cohere", fields=_FIELDS, libraries=("cohere",))
def read_chat(reading: Reading, answer: object) -> bool:
    """Read a reply: its message with calls, why it ended, and the usage in its `tokens`."""
    usage = _usage_of(field(answer, "usage"))
    message = field(answer, "message")
    if usage is None or message is None:
        return False
    for turn in turns_of(message):
        turn.text = turn.text or ""
        turn.usage = usage
        turn.finish_reason = first(answer, "finish_reason")
        turn.key = turn.response_id = first(answer, "id")
        reading.add_turn(turn)
    return True


@response_format("cohere", stream=True)
def read_chat_event(reading: Reading, event: object) -> bool:
    """Read an event: pieces of text and of calls. What the model plans is no answer."""
    kind = kind_of(event)
    delta = field(event, "delta")
    message = field(delta, "message")
    if kind in ("content-start", "content-delta"):
        reading.extend(reading.open_turn(), content_text(field(message, "content")))
    elif kind in ("tool-call-start", "tool-call-delta"):
        _add_call(reading, field(message, "tool_calls"), field(event, "index"))
    elif kind == "message-start" and first(event, "id") is not None:
        reading.update(reading.begin_turn(first(event, "id")), response_id=first(event, "id"))
    elif kind == "message-end" and delta is not None:
        usage = _usage_of(field(delta, "usage"))
        stopped = first(delta, "finish_reason")
        reading.update(reading.open_turn(), usage=usage, finish_reason=stopped)
    else:
        return kind in _EVENTS or (kind == "tool-plan-delta" and message is not None)
    return True


def _add_call(reading: Reading, call: object, index: object) -> None:
    call = next(iter(items(call)), call)
    function = field(call, "function")
    reading.extend_call(
        reading.open_turn(),
        index,
        id=first(call, "id"),
        name=first(function, "name"),
        piece=field(function, "arguments"),
    )


def _usage_of(usage: object) -> Tokens | None:
    """Return the tokens that were used, else those that are billed. Both may be floats."""
    for name in ("tokens", "billed_units"):
        counted = field(usage, name)
        counts = {key: _whole(field(counted, key)) for key in ("input_tokens", "output_tokens")}
        tokens = usage_of(counts)
        if tokens is not None:
            return tokens
    return None


def _whole(count: Any) -> int | None:
    is_whole = type(count) is int or (type(count) is float and count.is_integer())
    return int(count) if is_whole else None
