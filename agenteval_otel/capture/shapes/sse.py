"""Server-sent events: the lines in which a proxy passes a stream on, back as what they carry."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from agenteval_otel.capture.text import CAP_CHARS

__all__ = ["events_in"]

_LINE: Final = re.compile(r"(?:data|event|id|retry)?:")
_BEGINS: Final = ("data:", "event:", "id:", "retry:", ":")


def events_in(text: str) -> list[Any] | None:
    """What the events of a stream carry: JSON data, or text where it is none; None where the text is no such stream.

    A stream that breaks off in an event, or goes beyond the cap, gives those before it.
    """
    text = text.lstrip("\r\n\ufeff")
    if not text.startswith(_BEGINS) or "data:" not in text:
        return None
    if len(text) > CAP_CHARS:
        text = text[: max(text.rfind("\n\n", 0, CAP_CHARS), text.rfind("\r\n\r\n", 0, CAP_CHARS), 0)]
    found: list[Any] = []
    for block in re.split(r"\r?\n\r?\n", text):
        lines = block.splitlines()
        if any(line and _LINE.match(line) is None for line in lines):
            return None
        data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
        if data and (joined := "\n".join(data)) != "[DONE]":
            found.append(_read(joined))
    return [event for event in found if event is not None]


def _read(data: str) -> Any:
    if data[:1] not in ("{", "["):
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None  # broken off
