"""Answers, whole and streamed: a registered format, messages, text, or data of the handler's own
making.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any, Final

from agenteval_otel.capture.detached import Detached, Unreadable
from agenteval_otel.capture.fields import (
    field,
    first,
    is_data,
    items,
    json_object,
    kind_of,
    last_items,
    usage_of,
)
from agenteval_otel.capture.messages import (
    TEXT_KEYS,
    Turn,
    all_turns,
    calls_in,
    content_text,
    is_content,
    is_message,
    part_calls,
    part_results,
    text_field,
    turns_of,
)
from agenteval_otel.capture.reading import ANSWER_FORMATS, CHUNK_FORMATS, Reading
from agenteval_otel.capture.text import CAP_CHARS, cap, to_text
from agenteval_otel.errors import CaptureError

_MAX_DEPTH: Final = 3  # how deep answers are looked for within answers
_MAX_CHUNK_DEPTH: Final = 4


def read_answer(answer: Any) -> Reading:
    """What an answer says; raises `CaptureError` for a stream, and where nothing of it can be read."""
    reading = Reading()
    if not add_answer(reading, answer):
        add_plain(reading, answer)
    return reading


def add_answer(reading: Reading, answer: Any) -> bool:
    """Add an answer of a known form to the reading; False where it has none."""
    if not isinstance(answer, dict | list | tuple | Detached) or reading.depth >= _MAX_DEPTH:
        return False
    reading.depth += 1
    try:
        if any(read(reading, answer) for read in ANSWER_FORMATS.values()):
            return True
        if isinstance(answer, list | tuple):
            return _add_list(reading, answer)
        return (
            _add_message(reading, answer)
            or _add_remains(reading, answer)
            or _add_nested(reading, answer)
        )
    finally:
        reading.depth -= 1


def add_plain(reading: Reading, answer: Any) -> None:
    """Add an answer of no known form: text, a text field, or data as JSON."""
    if is_data(answer):
        _add_beside(reading, answer)
    text = text_field(answer)
    if text is None and type(answer) is Detached and not answer.is_data:
        raise CaptureError(
            f"no text from {answer.type_name}: it is no plain data and has no field of a known name"
        )
    reading.add_text(to_text(answer) if text is None else text)


def _add_list(reading: Reading, answer: Any) -> bool:
    messages = last_items(answer)
    if messages and all(is_message(item) for item in messages):
        reading.add_conversation(all_turns(messages))
        return True
    if is_content(messages):
        text = content_text(messages) or ""
        reading.add_turn(Turn("assistant", text, part_calls(messages), part_results(messages)))
        return True
    return False


def _add_message(reading: Reading, answer: Any) -> bool:
    turns = turns_of(answer)
    for turn in turns:
        if turn.role != "tool":
            turn.role, turn.text = (
                "assistant",
                turn.text if turn.text is not None or turn.results else "",
            )
        reading.add_message(turn)
    return bool(turns)


def _add_remains(reading: Reading, answer: Any) -> bool:
    """A provider's response without its content, which is not to be read as the handler's own data."""
    of = kind_of(answer, "object")
    is_anthropic = kind_of(answer) == "message" and first(answer, "stop_reason", "role") is not None
    if not (
        is_anthropic or of == "response" or of.startswith(("chat.completion", "text_completion"))
    ):
        return False
    id, usage = first(answer, "id"), usage_of(field(answer, "usage"))
    reading.add_turn(
        Turn(
            "assistant",
            "",
            key=id,
            usage=usage,
            model=first(answer, "model"),
            response_id=id,
            finish_reason=first(answer, "stop_reason"),
        )
    )
    return True


def _add_nested(reading: Reading, answer: Any) -> bool:
    """A mapping or a model that holds a response under one of the names of an answer."""
    for name in TEXT_KEYS if is_data(answer) else ():
        inner = field(answer, name)
        is_text = isinstance(inner, str) or (name == "content" and isinstance(inner, list | tuple))
        if not is_text and add_answer(reading, inner):
            _add_beside(reading, answer)
            return True
    return False


def _add_beside(reading: Reading, answer: Any) -> None:
    """Tool calls and usage beside the text of an answer of the handler's own making."""
    for call in calls_in(items(field(answer, "tool_calls"))):
        reading.calls.add(call)
    reading.usage_total = reading.usage_total or usage_of(field(answer, "usage"))


def must_be_complete(answer: Any) -> None:
    """Raises `CaptureError` for a run's result that is a stream which has not been read to its end."""
    if field(answer, "is_complete") is False:
        name = answer.type_name if type(answer) is Detached else "the run"
        raise CaptureError(f"{name} is a stream for its reader: monitor what makes its pieces")


def read_chunks(chunks: Sequence[Any]) -> Reading:
    """What a streamed answer says, as far as it came; raises `CaptureError` where no chunk has
    readable text.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    texts = [
        decode(chunk[: CAP_CHARS * 4]) if isinstance(chunk, bytes) else chunk for chunk in chunks
    ]
    if all(isinstance(text, str) for text in texts):
        whole = "".join(texts)
        events = events_in(whole)
        texts = [whole] if events is None else events
    reading, others = Reading(), []
    for chunk in texts:
        if isinstance(chunk, str):
            reading.add_text(cap(chunk, 2 * CAP_CHARS))
        elif chunk is not None and not add_chunk(reading, chunk):
            others.append(chunk)
    if reading.empty:
        for chunk in others:
            if type(chunk) is not Unreadable and (type(chunk) is not Detached or chunk.is_data):
                reading.add_text(to_text(chunk))
        if reading.empty and any(type(chunk) is Unreadable for chunk in others):
            raise CaptureError("no text from the stream: none of its chunks can be read")
    return reading


def add_chunk(reading: Reading, chunk: Any) -> bool:
    """Add one chunk, event or message of a stream; False where it has no known form and no text
    field.
    """
    if reading.depth >= _MAX_CHUNK_DEPTH or isinstance(chunk, bool | int | float):
        return False
    reading.depth += 1
    try:
        if any(read(reading, chunk) for read in CHUNK_FORMATS.values()):
            return True
    finally:
        reading.depth -= 1
    turns = turns_of(chunk)
    for turn in turns:
        reading.add_message(turn)  # messages of the user or the system are no answer
    if turns or (chunk != [] and add_answer(reading, chunk)):
        return True
    # A chunk of the handler's own making.
    delta = field(chunk, "delta")
    text = delta if isinstance(delta, str) else text_field(delta)
    text = text_field(chunk) if text is None else text
    if text is not None:
        reading.add_text(to_text(text))
    return text is not None


_LINE: Final = re.compile(r"(?:data|event|id|retry)?:")


def events_in(text: str) -> list[Any] | None:
    """What the server-sent events of a text carry, as far as they are whole; None where the text is
    no such stream.
    """
    text = text.lstrip("\r\n\ufeff")
    if _LINE.match(text) is None or "data:" not in text:
        return None
    if len(text) > CAP_CHARS:
        text = text[
            : max(text.rfind("\n\n", 0, CAP_CHARS), text.rfind("\r\n\r\n", 0, CAP_CHARS), 0)
        ]
    events: list[Any] = []
    for block in re.split(r"\r?\n\r?\n", text):
        lines = block.splitlines()
        if any(line and _LINE.match(line) is None for line in lines):
            return None
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        if data and data != "[DONE]":
            # JSON that was cut off becomes None and is skipped.
            events.append(json_object(data) if data[:1] in ("{", "[") else data)
    return events
