"""Events in a streamed text, by its lines, and which events are text of the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.fields import json_object, kind_of
from agenteval_otel.capture.text import CAP_CHARS
from agenteval_otel.runtime.text import words_of

_TEXT_WORDS: Final = frozenset(
    {
        "ai",
        "answer",
        "assistant",
        "chunk",
        "completion",
        "content",
        "delta",
        "final",
        "message",
        "output",
        "response",
        "text",
        "token",
    }
)
"""Words in the type of an event that is text of the answer."""
_OTHER_WORDS: Final = frozenset(
    {
        "args",
        "arguments",
        "citation",
        "citations",
        "custom",
        "debug",
        "error",
        "event",
        "file",
        "function",
        "heartbeat",
        "input",
        "keepalive",
        "log",
        "metadata",
        "ping",
        "progress",
        "raw",
        "reasoning",
        "source",
        "sources",
        "state",
        "status",
        "step",
        "summary",
        "system",
        "think",
        "thinking",
        "thought",
        "title",
        "tool",
        "usage",
        "user",
        "warning",
    }
)
"""Words in the type of an event that is never text of the answer, whatever else the type says."""
_SSE_LINE: Final = re.compile(r"(?:data|event|id|retry)?:")
_VERCEL_LINE: Final = re.compile(r'([0-9a-k]):(?=["\[{])')


class SentMessage(NamedTuple):
    """Holds the text of one message that was sent over a connection, as a piece of an answer."""

    text: str

    def read(self) -> Any:
        """Return the event that the text is the JSON of, else the text. Background thread only."""
        event = json_object(self.text)
        return self.text if event is None else event


def is_text_event(event: object) -> bool:
    """Tell whether an event may be text of the answer: it has no type, or one that says so."""
    kind = kind_of(event) or kind_of(event, "event")
    if not kind:
        return True
    words = words_of(kind)
    # Vercel's own data parts are ``data-NAME``.
    is_other = not _OTHER_WORDS.isdisjoint(words) or words[:1] == ["data"]
    return not is_other and not _TEXT_WORDS.isdisjoint(words)


def events_in(text: str) -> list[Any] | None:
    """Return what the lines of a text carry as events, as far as they are whole, or None.

    Known are server-sent events, JSON lines, and the AI SDK's data stream. The caller decides
    whether JSON lines are events or an answer in that form.
    """
    text = text.lstrip("\r\n\ufeff")
    for read in (_server_sent, _data_stream, _json_lines):
        events = read(text)
        if events is not None:
            return events
    return None


def is_json_lines(text: str) -> bool:
    """Tell whether a text may be an answer of JSON lines instead of a stream of events."""
    return text.lstrip("\r\n\ufeff")[:1] == "{"


def _server_sent(text: str) -> list[Any] | None:
    if _SSE_LINE.match(text) is None or "data:" not in text:
        return None
    if len(text) > CAP_CHARS:
        # `rfind` gives -1 if there is none: then no event is whole.
        last_event_end = max(
            text.rfind("\n\n", 0, CAP_CHARS), text.rfind("\r\n\r\n", 0, CAP_CHARS), 0
        )
        text = text[:last_event_end]
    events: list[Any] = []
    for block in re.split(r"\r?\n\r?\n", text):
        lines = block.splitlines()
        if any(line and _SSE_LINE.match(line) is None for line in lines):
            return None
        names = [line.removeprefix("event:").strip() for line in lines if line.startswith("event:")]
        name = "".join(names)
        if not _OTHER_WORDS.isdisjoint(words_of(name)):
            continue
        data_lines = [
            line.removeprefix("data:").removeprefix(" ")
            for line in lines
            if line.startswith("data:")
        ]
        data = "\n".join(data_lines)
        if data and data != "[DONE]":
            # JSON that was cut off becomes None and is skipped.
            events.append(json_object(data) if data[:1] in ("{", "[") else data)
    return events


def _json_lines(text: str) -> list[Any] | None:
    if text[:1] != "{":
        return None
    lines = [line for line in text[:CAP_CHARS].splitlines() if line.strip()]
    events = [json_object(line) for line in lines]
    if events and events[-1] is None:
        events.pop()  # it was cut off
    if len(events) < 2 or any(type(event) is not dict for event in events):
        return None
    return events


def _data_stream(text: str) -> list[Any] | None:
    """Read the AI SDK's data stream: each line a kind of one character, a colon and JSON."""
    events: list[Any] = []
    lines = [line for line in text[:CAP_CHARS].splitlines() if line]
    for number, line in enumerate(lines):
        match = _VERCEL_LINE.match(line)
        value = None if match is None else _json_of(line[2:])
        if match is None or value is None:
            is_last_of_several = 0 < number == len(lines) - 1
            if is_last_of_several:
                break  # it was cut off
            return None
        event = _DATA_STREAM.get(match[1])
        if event is not None:
            events.append(event(value))
    return events or None


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _with_type(kind: str) -> Callable[[Any], Any]:
    """Return what makes an event of this type of a line's value."""
    return lambda value: {**value, "type": kind} if type(value) is dict else None


def _text_delta(text: object) -> dict[str, Any]:
    return {"type": "text-delta", "delta": text}


def _tool_input(call: object) -> dict[Any, Any]:
    fields = call if type(call) is dict else {}
    return {**fields, "type": "tool-input-available", "input": fields.get("args")}


def _tool_output(result: object) -> dict[Any, Any]:
    fields = result if type(result) is dict else {}
    return {**fields, "type": "tool-output-available", "output": fields.get("result")}


_DATA_STREAM: Final[dict[str, Callable[[Any], Any]]] = {
    "0": _text_delta,
    "9": _tool_input,
    "a": _tool_output,
    "d": _with_type("finish"),
    "e": _with_type("finish-step"),
}
"""What a line's first character says, as an event of the UI message stream. Others are no answer."""
