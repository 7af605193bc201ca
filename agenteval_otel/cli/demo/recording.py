"""Recorded conversations: JSON lines, read one by one; what cannot be read is told by its line and does not stop us.

A turn is what a handler would have answered to one message of the user: the tool calls that the agent made on the way,
with their results, and its last text.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agenteval_otel.errors import ConfigurationError

__all__ = ["EXPECTED", "RecordedTurn", "Recording"]

EXPECTED = (
    'one JSON object a line, {"id": ..., "messages": [{"role": "user", "content": ...}, {"role": "assistant", ...}]} '
    'or {"prompt": ..., "response": ...}'
)
_MAX_LINE = 16 * 1024 * 1024
_SHOWN = 5


class RecordedTurn(NamedTuple):
    """What stood before an answer, the answer, and the tool calls that led to it."""

    conversation: str
    messages: list[dict[str, Any]]
    answer: str
    tool_calls: list[dict[str, Any]]


class _WrongLine(Exception):
    """A line that holds no conversation; the message says why."""


class Recording:
    """A file of recorded conversations.

    Args:
        path: Where it is.

    Attributes:
        line: The line that was read last, from 1.
        conversations: Read so far.
        malformed: Lines that held none.
        problems: The first of them: line and reason.

    Raises:
        ConfigurationError: No such file, or not one conversation in it.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.line = self.conversations = self.malformed = 0
        self.problems: list[tuple[int, str]] = []
        self._read_bytes = 0
        try:
            self._size = max(1, self.path.stat().st_size)
            if next(self.turns(), None) is None:
                raise ConfigurationError(self._nothing(), path="--traffic")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigurationError(
                f"cannot read {path!r}: {reason}; expected a file of {EXPECTED}", path="--traffic"
            ) from error

    def __repr__(self) -> str:
        return f"<Recording {self.path.name} line={self.line} malformed={self.malformed}>"

    @property
    def done(self) -> float:
        """Share of the file that is read, 0 to 1."""
        return min(1.0, self._read_bytes / self._size)

    def turns(self) -> Generator[RecordedTurn]:
        """The turns, from the beginning of the file; counts anew."""
        self.line = self.conversations = self.malformed = self._read_bytes = 0
        self.problems = []
        with self.path.open("rb") as file:
            for raw in self._lines(file):
                try:
                    turns = _turns_of(_parsed(raw), f"line-{self.line}")
                except _WrongLine as error:
                    self.malformed += 1
                    if len(self.problems) < _SHOWN:
                        self.problems.append((self.line, str(error)))
                    continue
                self.conversations += 1
                yield from turns

    def _lines(self, file: BinaryIO) -> Iterator[bytes | None]:
        """Lines that are not blank; None for one that is too long to be read."""
        while raw := file.readline(_MAX_LINE):
            self.line += 1
            self._read_bytes += len(raw)
            too_long = len(raw) == _MAX_LINE and not raw.endswith(b"\n")
            while raw and not raw.endswith(b"\n") and too_long:
                raw = file.readline(_MAX_LINE)
                self._read_bytes += len(raw)
            if too_long or raw.strip():
                yield None if too_long else raw

    def _nothing(self) -> str:
        if self.line == 0:
            return f"{str(self.path)!r} is empty; expected {EXPECTED}"
        first = f"; line {self.problems[0][0]}: {self.problems[0][1]}" if self.problems else ""
        return f"no conversation in {str(self.path)!r} ({self.line} lines){first}; expected {EXPECTED}"


def _parsed(raw: bytes | None) -> Mapping[str, Any]:
    if raw is None:
        raise _WrongLine(f"longer than {_MAX_LINE // 1024 // 1024} MiB")
    try:
        value = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _WrongLine("not UTF-8") from None
    except (ValueError, RecursionError):
        raise _WrongLine("not JSON") from None
    if not isinstance(value, dict):
        raise _WrongLine(f"a {type(value).__name__} where an object was expected")
    return value


def _turns_of(record: Mapping[str, Any], fallback: str) -> list[RecordedTurn]:
    conversation = record.get("id")
    name = str(conversation)[:128] if isinstance(conversation, str | int) else fallback
    if "messages" not in record:
        if not isinstance(record.get("response"), str):
            found = ", ".join(list(record)[:6]) or "nothing"
            raise _WrongLine(f"neither messages nor prompt and response, found {found}")
        prompt = record.get("prompt")
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
        return [RecordedTurn(name, messages, record["response"], [])]
    turns = list(_split(_checked(record["messages"]), name))
    if not turns:
        raise _WrongLine("no message of the assistant")
    return turns


def _checked(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list):
        raise _WrongLine(f"messages is a {type(messages).__name__}, expected a list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _WrongLine(f"messages[{index}] is no object with a role")
    return messages


def _split(messages: list[dict[str, Any]], conversation: str) -> Iterator[RecordedTurn]:
    """Cut a conversation before each message of the user that follows the assistant."""
    begin = 0
    for index in range(1, len(messages) + 1):
        over = index == len(messages) or messages[index]["role"] == "user"
        said = [message for message in messages[begin:index] if message["role"] == "assistant"] if over else []
        if not said:
            continue
        first = next(place for place in range(begin, index) if messages[place]["role"] == "assistant")
        texts = [text for text in (_text(message.get("content")) for message in said) if text]
        answer = texts[-1] if texts else ""
        yield RecordedTurn(conversation, messages[:first], answer, _tool_calls(messages[first:index]))
        begin = index


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _tool_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results = {message.get("tool_call_id"): _text(message.get("content")) for message in messages
               if message["role"] == "tool" and isinstance(message.get("tool_call_id"), str)}  # fmt: skip
    calls = []
    for message in messages:
        made = message.get("tool_calls")
        for call in made if isinstance(made, list) else ():
            if isinstance(call, dict):
                found = call.get("id")
                calls.append({**call, "result": results.get(found) if isinstance(found, str) else None})
    return calls
