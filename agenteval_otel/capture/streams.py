"""Streamed answers: strings, server-sent events, chunks and events of any registered format, also mixed."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from agenteval_otel.capture.answers import add_answer
from agenteval_otel.capture.fields import field, items
from agenteval_otel.capture.messages import is_message, text_field, turns_of
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import CHUNK_FORMATS
from agenteval_otel.capture.text import CAP_CHARS, cap, model_fields, to_text
from agenteval_otel.capture.values import Detached, Unreadable
from agenteval_otel.errors import CaptureError

__all__ = ["MAX_UPDATES", "add_chunk", "read_chunks"]

MAX_UPDATES: Final = 64
"""How many nodes of a graph one update may come from."""
_MAX_DEPTH: Final = 4
_FEW: Final = 16
_MAX_MESSAGES: Final = 20_000


def read_chunks(chunks: Sequence[Any]) -> Reading:
    """Read a streamed answer, as far as it came.

    Raises:
        CaptureError: No chunk has text that can be read.
    """
    return _Stream().read(chunks)


def add_chunk(reading: Reading, chunk: Any) -> bool:
    """Add one chunk, event or message of a stream; False where it has no known form and no text field."""
    if reading.depth >= _MAX_DEPTH or isinstance(chunk, bool | int | float):
        return False
    reading.depth += 1
    try:
        if any(read(reading, chunk) for read in CHUNK_FORMATS.values()):
            return True
    finally:
        reading.depth -= 1
    turns = turns_of(chunk) if is_message(chunk) else []
    for turn in turns:
        reading.add_message(turn)  # what the user or the system said is no answer
    return bool(turns) or (chunk != [] and add_answer(reading, chunk)) or _add_own(reading, chunk)


def _add_own(reading: Reading, chunk: Any) -> bool:
    """A chunk of the handler's own making: its text field, or the one in its ``delta``."""
    delta = field(chunk, "delta")
    text = delta if isinstance(delta, str) else text_field(delta)
    if text is None:
        text = text_field(chunk)
    if text is None:
        return False
    reading.add_text(to_text(text))
    return True


class _Stream:
    """One stream: its reading, and the chunks without a known form."""

    def __init__(self) -> None:
        self.reading = Reading()
        self._others: list[Any] = []
        self._messages, self._last_passed = 0, None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self, chunks: Sequence[Any]) -> Reading:
        texts = [self._text(chunk) for chunk in chunks]
        whole = "".join(text for text in texts if text is not None) if None not in texts else None
        events = events_in(whole) if whole is not None else None
        if events is not None:
            for event in events:
                self._add(event)
        elif whole is not None:
            self.reading.add_text(whole)
        else:
            for chunk, text in zip(chunks, texts, strict=True):
                if text is not None or not self._goes_too_far(chunk):
                    self._add(chunk if text is None else text)
            self._add(self._last_passed)
        self._finish()
        return self.reading

    def _goes_too_far(self, chunk: Any) -> bool:
        """Whether a chunk is one more of many long conversations, such as a graph's states: the last one tells all."""
        part = chunk[-1] if type(chunk) is tuple and chunk else chunk
        listed = field(field(part, "data") or part, "messages") if not isinstance(part, list) else part
        if listed is None and isinstance(part, Mapping):
            updates = [field(field(part, name), "messages") for name in islice(part, MAX_UPDATES)]
            listed = [message for update in updates for message in items(update)]
        count = len(items(listed))
        if count > _FEW:
            self._messages += count
        if count <= _FEW or self._messages <= _MAX_MESSAGES:
            return False
        self._last_passed = chunk
        return True

    def _text(self, chunk: Any) -> str | None:
        if isinstance(chunk, bytes | bytearray):
            return self._decode(bytes(chunk[: CAP_CHARS * 4]))
        return str.__str__(chunk) if isinstance(chunk, str) else None

    def _add(self, chunk: Any) -> None:
        if isinstance(chunk, str):
            self.reading.add_text(cap(chunk, 2 * CAP_CHARS))
        elif chunk is not None and not add_chunk(self.reading, chunk):
            self._others.append(chunk)

    def _finish(self) -> None:
        self.reading.use_echoes()
        if self.reading.empty:
            for chunk in self._others:
                if type(chunk) not in (Detached, Unreadable) or model_fields(chunk) is not None:
                    self.reading.add_text(to_text(chunk))
            if self.reading.empty and any(type(chunk) is Unreadable for chunk in self._others):
                raise CaptureError("no text from the stream: none of its chunks can be read")


_LINE: Final = re.compile(r"(?:data|event|id|retry)?:")
_BEGINS: Final = ("data:", "event:", "id:", "retry:", ":")


def events_in(text: str) -> list[Any] | None:
    """What the events of a stream carry: JSON data, or text; None where the text is no such stream.

    A stream that breaks off in an event, or goes beyond the cap, gives those before it.
    """
    text = text.lstrip("\r\n\ufeff")
    if not text.startswith(_BEGINS) or "data:" not in text:
        return None
    if len(text) > CAP_CHARS:
        text = text[: max(text.rfind("\n\n", 0, CAP_CHARS), text.rfind("\r\n\r\n", 0, CAP_CHARS), 0)]
    events: list[Any] = []
    for block in re.split(r"\r?\n\r?\n", text):
        lines = block.splitlines()
        if any(line and _LINE.match(line) is None for line in lines):
            return None
        data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
        if data and (joined := "\n".join(data)) != "[DONE]":
            events.append(_read(joined))
    return [event for event in events if event is not None]


def _read(data: str) -> Any:
    if data[:1] not in ("{", "["):
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None  # broken off
