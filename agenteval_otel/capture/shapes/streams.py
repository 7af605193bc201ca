"""Answers that came in pieces: strings, server-sent events, providers' chunks and frameworks' events, also mixed."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from agenteval_otel.capture.shapes.agents import MAX_UPDATES, take_agent_event, take_graph_chunk, take_message_chunk
from agenteval_otel.capture.shapes.answers import take_answer
from agenteval_otel.capture.shapes.content import text_field
from agenteval_otel.capture.shapes.events import Echoes, take_completion_chunk, take_message_event, take_response_event
from agenteval_otel.capture.shapes.fields import field, items, kind_of
from agenteval_otel.capture.shapes.reading import Reading
from agenteval_otel.capture.shapes.sse import events_in
from agenteval_otel.capture.text import CAP_CHARS, cap, model_fields, to_text
from agenteval_otel.capture.values import Detached, Unreadable
from agenteval_otel.errors import CaptureError

__all__ = ["read_chunks"]

_MAX_DEPTH: Final = 4
_FEW: Final = 16
_MAX_MESSAGES: Final = 20_000
Take = Callable[[Reading, Any], bool]


def read_chunks(chunks: Sequence[Any]) -> Reading:
    """What a streamed answer says, as far as it came.

    Raises:
        CaptureError: Nothing that came has text that can be had.
    """
    return _Stream().read(chunks)


class _Stream:
    """One stream: its reading, what only repeats what else is told, and what is of no known shape."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.echoes = Echoes()
        self._others: list[Any] = []
        self._messages, self._last_passed = 0, None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self, chunks: Sequence[Any]) -> Reading:
        texts = [self._text(chunk) for chunk in chunks]
        whole = "".join(text for text in texts if text is not None) if None not in texts else None
        found = events_in(whole) if whole is not None else None
        if found is not None:
            for event in found:
                self._one(event)
        elif whole is not None:
            self.reading.say(whole)
        else:
            for chunk, text in zip(chunks, texts, strict=True):
                if text is not None or not self._goes_too_far(chunk):
                    self._one(chunk if text is None else text)
            self._one(self._last_passed)
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

    def _one(self, chunk: Any) -> None:
        if isinstance(chunk, str):
            self.reading.say(cap(chunk, 2 * CAP_CHARS))
        elif chunk is not None and not self._take(chunk, _MAX_DEPTH):
            self._others.append(chunk)

    def _take(self, chunk: Any, depth: int) -> bool:
        if depth == 0 or isinstance(chunk, bool | int | float):
            return False
        if kind_of(chunk) == "raw_response_event":
            return self._take(field(chunk, "data"), depth - 1)
        if kind_of(chunk) == "chunk" and field(chunk, "snapshot") is not None:
            return self._take(field(chunk, "chunk"), depth - 1)
        if self.echoes.take(chunk):
            return True
        return any(take(self.reading, chunk) for take in _KNOWN) or self._plain(chunk)

    def _plain(self, chunk: Any) -> bool:
        """A chunk of the handler's own making: its text field, or the one in its ``delta``."""
        delta = field(chunk, "delta")
        text = delta if isinstance(delta, str) else text_field(delta)
        if text is None:
            text = text_field(chunk)
        if text is None:
            return False
        self.reading.say(to_text(text))
        return True

    def _finish(self) -> None:
        if self.reading.empty:
            self.echoes.finish(self.reading)
        if self.reading.empty:
            for chunk in self._others:
                if type(chunk) not in (Detached, Unreadable) or model_fields(chunk) is not None:
                    self.reading.say(to_text(chunk))
            if self.reading.empty and any(type(chunk) is Unreadable for chunk in self._others):
                raise CaptureError("no text from the stream: none of its chunks can be read")


def _take_list(reading: Reading, chunk: Any) -> bool:
    return isinstance(chunk, list) and bool(items(chunk)) and take_answer(reading, chunk)


_KNOWN: Final[tuple[Take, ...]] = (
    take_completion_chunk, take_response_event, take_message_event, take_agent_event, take_graph_chunk,
    take_message_chunk, _take_list, take_answer,
)  # fmt: skip
