"""Whole answers: a registered format, a message, a list of messages, or plain data of the handler's own making."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agenteval_otel.capture.fields import Tokens, field, first, items, json_object, kind_of, last_items, usage_of
from agenteval_otel.capture.messages import (
    TEXT_KEYS,
    Turn,
    all_turns,
    content_text,
    is_content,
    is_message,
    part_calls,
    part_results,
    text_field,
    turns_of,
)
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import ANSWER_FORMATS
from agenteval_otel.capture.text import model_fields, to_text
from agenteval_otel.capture.tool_calls import call_of
from agenteval_otel.capture.values import Detached
from agenteval_otel.errors import CaptureError

__all__ = ["add_answer", "add_plain", "must_be_complete", "read_answer", "total_usage"]

_MAX_DEPTH: Final = 3
"""How deep answers are looked for within answers."""
_IS_A_STREAM: Final = "is a stream for its reader: monitor what makes its pieces"


def read_answer(answer: Any) -> Reading:
    """What an answer says.

    Raises:
        CaptureError: It is a stream, which belongs to its reader, or its own methods raised.
    """
    reading = Reading()
    if not add_answer(reading, answer):
        add_plain(reading, answer)
    return reading


def add_answer(reading: Reading, answer: Any) -> bool:
    """Add an answer of a known form to the reading; False where it has none."""
    if answer is None or isinstance(answer, bool | int | float | bytes | bytearray):
        return False
    if isinstance(answer, str):
        return _add_json(reading, answer)
    if reading.depth >= _MAX_DEPTH:
        return False
    reading.depth += 1
    try:
        if any(read(reading, answer) for read in ANSWER_FORMATS.values()):
            return True
        if isinstance(answer, list | tuple):
            return _add_list(reading, answer)
        return _add_message(reading, answer) or _add_remains(reading, answer) or _add_nested(reading, answer)
    finally:
        reading.depth -= 1


def add_plain(reading: Reading, answer: Any) -> None:
    """Add an answer of no known form: text, a text field, or data as JSON.

    Raises:
        CaptureError: As `read_answer`.
    """
    if isinstance(answer, str):
        reading.add_text(to_text(answer))
        return
    if isinstance(answer, Mapping) or model_fields(answer) is not None:
        _add_beside(reading, answer)
    text = text_field(answer)
    if text is None:
        if type(answer) is Detached and not answer.type.is_data:
            raise CaptureError(f"no text from {answer.type.name}: it is no plain data and has no field of a known name")
        text = to_text(answer)
    reading.add_text(text)


def _add_json(reading: Reading, text: str) -> bool:
    """The dump of a response as JSON text; any other JSON is the answer itself."""
    if text[:1] != "{":
        return False
    read = json_object(text)
    kind, role = kind_of(read), kind_of(read, "role")
    dumped = (
        kind_of(read, "object").startswith(("chat.completion", "response"))
        or (kind == "message" and role == "assistant")
        or (kind == "ai" and field(read, "response_metadata") is not None)
        or (kind_of(read, "kind") == "response" and field(read, "parts") is not None)
    )
    return dumped and add_answer(reading, read)


def _add_list(reading: Reading, answer: Any) -> bool:
    messages = last_items(answer)
    if messages and all(is_message(item) for item in messages):
        reading.add_conversation(all_turns(messages))
        return True
    if is_content(messages):
        reading.add_turn(Turn("assistant", content_text(messages) or "", calls=part_calls(messages)))
        reading.add_results(part_results(messages))
        return True
    return False


def _add_message(reading: Reading, answer: Any) -> bool:
    turns = turns_of(answer)
    for turn in turns:
        turn.text = turn.text if turn.text is not None or turn.results else ""
        turn.role = turn.role if turn.role == "tool" else "assistant"
        reading.add_message(turn)
    return bool(turns)


def _add_remains(reading: Reading, answer: Any) -> bool:
    """A provider's response that has lost what it said: it is no answer of the handler's own making."""
    kind, of = kind_of(answer), kind_of(answer, "object")
    lost = kind == "message" and (field(answer, "stop_reason") or field(answer, "role")) is not None
    if not lost and not of.startswith(("chat.completion", "text_completion")) and of != "response":
        return False
    turn = Turn("assistant", "", usage=usage_of(field(answer, "usage")), model=first(answer, "model"))
    turn.key = turn.response_id = first(answer, "id")
    turn.finish_reason = first(answer, "stop_reason")
    reading.add_turn(turn)
    return True


def _add_nested(reading: Reading, answer: Any) -> bool:
    """A mapping or a model that holds a response under one of the names of an answer."""
    if not isinstance(answer, Mapping) and model_fields(answer) is None:
        return False
    for name in TEXT_KEYS:
        inner = field(answer, name)
        if inner is None or inner is answer:
            continue
        if (
            not isinstance(inner, str)
            and not (name == "content" and isinstance(inner, list | tuple))
            and add_answer(reading, inner)
        ):
            _add_beside(reading, answer)
            return True
    return False


def _add_beside(reading: Reading, answer: Any) -> None:
    """Tool calls and usage beside the text of an answer of the handler's own making."""
    for item in items(field(answer, "tool_calls")):
        call = call_of(item)
        if call is not None:
            reading.calls.add(call)
    reading.usage_total = reading.usage_total or usage_of(field(answer, "usage"))


def total_usage(usage: Any) -> Tokens | None:
    """The usage of a run; None for zeros, which mean that nothing was reported."""
    tokens = usage_of(usage)
    return tokens if tokens != (0, 0) else None


def must_be_complete(answer: Any) -> None:
    """Raises `CaptureError` for a run's result that is a stream nobody has read to its end."""
    if field(answer, "is_complete") is False:
        name = answer.type.name if type(answer) is Detached else type(answer).__name__
        raise CaptureError(f"{name} {_IS_A_STREAM}")
