"""The providers' own chunks and events: chat completions, the Responses API, the Messages API."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.shapes.answers import take_answer
from agenteval_otel.capture.shapes.calls import call_of
from agenteval_otel.capture.shapes.content import content_text
from agenteval_otel.capture.shapes.fields import field, first, items, kind_of, real_id
from agenteval_otel.capture.shapes.reading import OpenTurn, Reading
from agenteval_otel.capture.shapes.turns import Turn
from agenteval_otel.capture.shapes.usage import usage_of

__all__ = ["Echoes", "take_completion_chunk", "take_message_event", "take_response_event"]


def take_completion_chunk(reading: Reading, chunk: Any) -> bool:
    """A chunk of a chat completion; the first choice's delta, and usage where it comes."""
    listed = field(chunk, "choices")
    if not isinstance(listed, list):
        return False
    choices = [choice for choice in items(listed) if field(choice, "index") in (0, None)]
    delta = field(choices[0], "delta") if choices else None
    if choices and delta is None:
        return False  # a whole completion
    turn = reading.turn(first(chunk, "id"))
    told = Turn("assistant", usage=usage_of(field(chunk, "usage")), model=first(chunk, "model"))
    told.response_id = first(chunk, "id")
    if choices:
        told.finish_reason = first(choices[0], "finish_reason")
        reading.grow(turn, content_text(field(delta, "content")) or content_text(field(delta, "refusal")))
        for position, call in enumerate(items(field(delta, "tool_calls"))):
            _grow_call(reading, turn, call, position)
    reading.tell(turn, told)
    return True


def _grow_call(reading: Reading, turn: OpenTurn, call: Any, position: int) -> None:
    function, index = field(call, "function"), field(call, "index")
    reading.grow_call(
        turn, index if isinstance(index, int) else position, id=first(call, "id"), name=first(function, "name"),
        piece=field(function, "arguments"),
    )  # fmt: skip


def take_response_event(reading: Reading, event: Any) -> bool:
    """An event of the Responses API."""
    kind = kind_of(event)
    if not kind.startswith("response."):
        return False
    told = field(event, "response")
    if kind in ("response.created", "response.queued"):
        reading.begin()
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        # The pieces came before; what the whole says again is the last turn's.
        turn = reading.turn()
        turn.key = first(told, "id") or turn.key
        take_answer(reading, told)
    elif told is not None:
        turn = reading.turn()
        turn.key = first(told, "id")
        known = Turn("assistant", model=first(told, "model"))
        known.response_id = real_id(turn.key)
        reading.tell(turn, known)
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        reading.grow(reading.turn(), field(event, "delta"))
    elif kind in _CALL_EVENTS:
        _take_call_event(reading, event, kind)
    return True


_CALL_EVENTS: Final = frozenset({
    "response.output_item.added", "response.output_item.done", "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
})  # fmt: skip


def _take_call_event(reading: Reading, event: Any, kind: str) -> None:
    turn, index, item = reading.turn(), field(event, "output_index"), field(event, "item")
    place = index if isinstance(index, int) else None
    if kind == "response.function_call_arguments.delta":
        reading.grow_call(turn, place, piece=field(event, "delta"))
    elif kind == "response.function_call_arguments.done":
        reading.calls.complete((turn.number, place), field(event, "arguments"))
    elif kind_of(item) in ("function_call", "custom_tool_call") and (call := call_of(item)) is not None:
        call.arguments = call.arguments or None
        reading.add_call(turn, call, place)
        told = field(item, "provider_data")
        known = Turn("assistant", model=first(told, "model"), response_id=first(told, "response_id"))
        reading.tell(turn, known)
    elif (told := field(item, "provider_data")) is not None:
        reading.tell(turn, Turn("assistant", model=first(told, "model"), response_id=first(told, "response_id")))


_MESSAGE_EVENTS: Final = frozenset({
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "ping",
})  # fmt: skip


def take_message_event(reading: Reading, event: Any) -> bool:
    """An event of the Messages API."""
    kind = kind_of(event)
    if kind not in _MESSAGE_EVENTS:
        return False
    if kind == "message_start":
        message = field(event, "message")
        turn, usage = reading.begin(first(message, "id")), usage_of(field(message, "usage"))
        told = Turn("assistant", model=first(message, "model"))
        told.usage = None if usage is None else (usage[0], None)  # the output has only begun
        told.response_id = first(message, "id")
        reading.tell(turn, told)
    elif kind == "message_delta":
        told = Turn("assistant", usage=_output_only(event))
        told.finish_reason = first(field(event, "delta"), "stop_reason")
        reading.tell(reading.turn(), told)
    elif kind in ("content_block_start", "content_block_delta"):
        _take_block(reading, event, kind)
    return True


def _output_only(event: Any) -> tuple[int | None, int | None] | None:
    """The usage at the end; its input tokens only where they are told with those of the cache again."""
    told = usage_of(field(event, "usage"))
    return told if told is None or told[0] else (None, told[1])


def _take_block(reading: Reading, event: Any, kind: str) -> None:
    turn, index = reading.turn(), field(event, "index")
    if kind == "content_block_start":
        block = field(event, "content_block")
        if kind_of(block) == "text":
            reading.grow(turn, field(block, "text"))
        elif kind_of(block) in ("tool_use", "server_tool_use") and (call := call_of(block)) is not None:
            call.arguments = call.arguments or None
            reading.add_call(turn, call, index)
        return
    delta = field(event, "delta")
    if kind_of(delta) == "text_delta":
        reading.grow(turn, field(delta, "text"))
    elif kind_of(delta) == "input_json_delta":
        reading.grow_call(turn, index, piece=field(delta, "partial_json"))


class Echoes:
    """Events that a client's stream helper adds to the provider's own, which tell the same once more.

    They count only where a handler passed on nothing else.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, event: Any) -> bool:
        """Whether it is one of them."""
        kind = kind_of(event)
        if kind not in _ECHOED or (field(event, "snapshot") is None and kind not in _ENDS):
            return False
        if kind in ("text", "content.delta"):
            text = field(event, "text" if kind == "text" else "delta")
            self._texts += [text] if isinstance(text, str) else []
        return True

    def finish(self, reading: Reading) -> None:
        """What they said, where they are all there is."""
        for text in self._texts:
            reading.grow(reading.turn(), text)


_ENDS: Final = frozenset({
    "content.done", "refusal.done", "tool_calls.function.arguments.done", "logprobs.content.done", "signature",
})  # fmt: skip
_ECHOED: Final = _ENDS | {
    "text", "input_json", "thinking", "citation", "content.delta", "refusal.delta",
    "tool_calls.function.arguments.delta", "logprobs.content.delta", "compaction",
}  # fmt: skip
