"""What values take in memory, and one bound over everything that waits in this process.

Each part has a ceiling of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from sys import getsizeof
from typing import Any, Final

from agenteval_otel.runtime.fork import reset_in_child

_MIB = 1024 * 1024
ATOMS: Final = frozenset({str, bytes, int, float, bool, type(None)})
_COLLECTIONS: Final = (list, tuple, set, frozenset)
_SHARED_BYTES: Final = 1_024
"""A larger text is counted once, however often a value holds it."""
_TEXT_BYTES: Final = 80  # of a text beside its characters
_WIDEST: Final = 4  # bytes of one character
_LOOKED_AT_BYTES: Final = 8 * 1024  # the longest body that the caller's thread looks at
_READ_BYTES: Final = 2 * _MIB  # of a longer body capture reads the beginning and the end
_ESCAPES: Final = (b"\\u", b"%F", b"%f")  # in JSON, and in a form for what lies beyond 0xFFFF


def kept_bytes(value: Any) -> int:
    """Return how many bytes Python keeps for a value and all that it holds.

    It is for plain values, containers of them, and objects whose fields are in ``__dict__``. It is
    exact for texts: Python keeps one, two or four bytes for each character, as the widest one
    needs, so a single emoji makes a text four times as large.

    A container, an object and a text above 1,024 bytes count once, however often the value holds
    them. Short texts and numbers count each time.
    """
    if type(value) in ATOMS:
        atom_bytes: int = value.__sizeof__()
        return atom_bytes
    size_bytes = 0
    counted: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in counted:
            continue
        counted.add(id(item))
        size_bytes += getsizeof(item)
        for part in _parts_of(item):
            if type(part) not in ATOMS:
                waiting.append(part)
                continue
            # The collector adds nothing to an atom. `getsizeof` says the same in five times as long.
            part_bytes = part.__sizeof__()
            if part_bytes > _SHARED_BYTES:
                if id(part) in counted:
                    continue
                counted.add(id(part))
            size_bytes += part_bytes
    return size_bytes


def text_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes Python keeps for texts. A text counts each time."""
    return sum([text.__sizeof__() for text in texts])


def _parts_of(value: object) -> Collection[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, _COLLECTIONS):
        return value
    return [part for part in _fields_of(value) if part is not None]


def _fields_of(value: object) -> tuple[Any, Any]:
    """Return the fields of an object, and those beyond the ones that its pydantic model names."""
    return getattr(value, "__dict__", None), getattr(value, "__pydantic_extra__", None)


def decoded_bytes(data: bytes | bytearray) -> int:
    """Return how many bytes Python keeps for these once they are decoded as UTF-8.

    Unless they are ASCII they are decoded to find out, which takes as much memory meanwhile.
    """
    if data.isascii():
        return _TEXT_BYTES + len(data)
    return getsizeof(data.decode("utf-8", "replace"))


def parsed_bytes(data: bytes | bytearray) -> int:
    """Return the most that Python keeps for a body, as bytes or for the texts that are read of it.

    An escape of JSON or of a form may become a character of four bytes.
    """
    if any(escape in data for escape in _ESCAPES):
        return _TEXT_BYTES + _WIDEST * len(data)
    return max(getsizeof(data), decoded_bytes(data))


def most_parsed_bytes(data: bytes | bytearray) -> int:
    """Return `parsed_bytes` of a short body, and an upper bound of it for a long one.

    This is for the caller's thread, whose time must not grow with the body: above 8 KiB only the
    length is used.
    """
    if len(data) <= _LOOKED_AT_BYTES:
        return parsed_bytes(data)
    return max(getsizeof(data), _TEXT_BYTES + _WIDEST * min(len(data), _READ_BYTES))


class MemoryPart:
    """Counts the memory of one part.

    Its ceiling `max_bytes` is not a reservation, and may be changed at any time.
    """

    def __init__(self, budget: MemoryBudget, max_bytes: int) -> None:
        self._budget = budget
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Reserve bytes.

        Return False, and reserve nothing, if the ceiling or the budget has no room.

        No lock: ``self.used_bytes += n`` cannot lose an update, as threads switch at calls and
        jumps only.
        """
        budget = self._budget
        self.used_bytes += size_bytes
        budget.used_bytes += size_bytes
        # Added first, then checked: concurrent threads may all be refused, but never exceed the
        # limit together.
        if self.used_bytes <= self.max_bytes and budget.used_bytes <= budget.max_bytes:
            return True
        self.release(size_bytes)
        return False

    def release(self, size_bytes: int) -> None:
        """Give back bytes that `reserve` has granted. Any thread."""
        self.used_bytes -= size_bytes
        self._budget.used_bytes -= size_bytes


class MemoryBudget:
    """Bounds everything that waits in a process, in bytes, by one limit for all parts together."""

    def __init__(self, max_bytes: int = 64 * _MIB) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.captured_calls = MemoryPart(self, 32 * _MIB)  # until their inputs are built
        self.unsampled_calls = MemoryPart(self, 16 * _MIB)  # that feedback may ask for
        # evaluated ones whose ground truth is to come, compressed
        self.pending_answers = MemoryPart(self, 16 * _MIB)
        self.open_spans = MemoryPart(self, 32 * _MIB)
        # of other libraries, until their answer is read
        self.read_spans = MemoryPart(self, 32 * _MIB)
        self.conversations = MemoryPart(self, 32 * _MIB)  # open ones, compressed
        self.feedback = MemoryPart(self, 16 * _MIB)  # until its answer is known
        self.results = MemoryPart(self, 32 * _MIB)
        self.encoded_batches = MemoryPart(self, 32 * _MIB)
        self.events = MemoryPart(self, 32 * _MIB)  # for the sidecar, until it has them

    def reset(self) -> None:
        # In a forked child: what its parent keeps is the parent's.
        for part in (
            self,
            self.captured_calls,
            self.unsampled_calls,
            self.pending_answers,
            self.open_spans,
            self.read_spans,
            self.conversations,
            self.feedback,
            self.results,
            self.encoded_batches,
            self.events,
        ):
            part.used_bytes = 0


MEMORY = MemoryBudget()
"""This process's."""
reset_in_child(MEMORY.reset)
