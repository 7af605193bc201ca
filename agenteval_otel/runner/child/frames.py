"""Frames: how the three processes speak. A kind, a number, the length, then so many bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = [
    "ANSWER",
    "CRITERIA",
    "DEFINE",
    "HELLO",
    "INPUT",
    "LOADED",
    "READY",
    "STATUS",
    "TASK",
    "Frames",
    "TaskOrder",
    "frame",
]

DEFINE, CRITERIA, INPUT, TASK = 1, 2, 3, 4
"""To the template, and from it to the worker."""
HELLO, LOADED, ANSWER, STATUS, READY = 5, 6, 7, 8, 9
"""The other way. READY and ANSWER come from the worker."""

_HEAD = struct.Struct("!BQI")
_ORDER = struct.Struct("!QQQd?")


class TaskOrder:
    """A task's frame: which evaluator on which input against which criteria (0: the input's own), and its limit."""

    __slots__ = ("criteria", "evaluator", "input", "last", "limit_s")

    def __init__(self, evaluator: int, input: int, criteria: int, limit_s: float, last: bool) -> None:
        self.evaluator, self.input, self.criteria, self.limit_s, self.last = evaluator, input, criteria, limit_s, last

    def encoded(self) -> bytes:
        """The bytes for a frame."""
        return _ORDER.pack(self.evaluator, self.input, self.criteria, self.limit_s, self.last)

    @classmethod
    def decoded(cls, payload: bytes) -> TaskOrder:
        """The order from its bytes."""
        return cls(*_ORDER.unpack(payload))


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    """One frame, ready to be sent."""
    return _HEAD.pack(kind, number, len(payload)) + payload


class Frames:
    """Puts frames together from what arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Take what arrived; every frame that is complete with it, as kind, number and payload."""
        self._buffer += data
        begin = 0
        try:
            while len(self._buffer) - begin >= _HEAD.size:
                kind, number, length = _HEAD.unpack_from(self._buffer, begin)
                end = begin + _HEAD.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(self._buffer[begin + _HEAD.size : end])
                begin = end
                yield kind, number, payload
        finally:
            del self._buffer[:begin]
