"""What a handler takes and gives, detached from the host: plain data of our own, made on the caller's thread.

`take` walks lists, tuples, sets and dictionaries through the base classes' own methods, and the stored fields of
objects through their class's ``__dict__`` and slots. It never calls a method, property or descriptor that the host's
code or a library wrote in Python, so nothing is fetched and nothing raises into the host. Text, bytes and numbers are
taken by reference, for they cannot change. Every other object is left out, so that no file, cursor, connection or row
of the host lives on in the queue. The walk is bounded: what an answer costs the caller does not grow with its size.
"""

from __future__ import annotations

from datetime import datetime, time
from itertools import islice
from sys import getsizeof
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.type_readers import ObjectReader, name_of, reader_of, why_unreadable
from agenteval_otel.capture.values import ATOMS, CUT, GROUPS, LEFT_OUT, Detached, Unreadable

__all__ = ["Taken", "list_bytes", "take"]

_BUDGET: Final = 5_000
_CONTAINER_COSTS: Final = 10
_DEPTH: Final = 24
_HEAD: Final = 512
_TAIL: Final = 1_000
_MOST: Final = _HEAD + _TAIL
_SAMPLED: Final = 64


class Taken(NamedTuple):
    """What `take` made of a value.

    Attributes:
        value: Atoms, lists, tuples, dictionaries and `Detached` objects; `Unreadable` where there is nothing to read.
        size_bytes: About how much memory it keeps alive.
        truncated: It is larger than what is taken.
        left_out: How many parts could not be read.
    """

    value: Any
    size_bytes: int
    truncated: bool
    left_out: int


def take(value: Any) -> Taken:
    """Detach a value from the host, within a fixed number of parts; never raises for what the value is."""
    kind = type(value)
    if kind in ATOMS:
        return Taken(value, getsizeof(value), False, 0)
    walk = _Walk()
    try:
        taken = walk.take(value, kind, _DEPTH)
    except Exception as error:  # changed by another thread while it was read, or the stack is exhausted
        taken = Unreadable(name_of(kind), f"{type(error).__name__} while it was read")
    if taken is LEFT_OUT:
        taken = Unreadable(name_of(kind), why_unreadable(value, kind))
    return Taken(taken, walk.size_bytes, walk.truncated, walk.left_out)


def list_bytes(items: list[Any]) -> int:
    """About how many bytes a list of atoms keeps alive: of a long one, as its first and last items say."""
    count = len(items)
    if count <= _SAMPLED:
        return 56 + 8 * count + sum(map(getsizeof, items))
    half = _SAMPLED // 2
    return 56 + 8 * count + (sum(map(getsizeof, items[:half])) + sum(map(getsizeof, items[-half:]))) * count // _SAMPLED


class _Walk:
    """One value's walk: what may still be looked at, and what was seen."""

    __slots__ = ("_left", "_seen", "left_out", "size_bytes", "truncated")

    def __init__(self) -> None:
        self._left, self.size_bytes, self.truncated, self.left_out = _BUDGET, 0, False, 0
        # By id, with the original, so that no id is used again; shared and cyclic parts are taken once.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def take(self, value: Any, kind: type, depth: int) -> Any:
        """The detached form of a value that is no atom; `LEFT_OUT` where it has none, `CUT` where it comes too late."""
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        if depth == 0 or self._left <= 0:
            self.truncated = True
            return CUT
        if kind is dict:
            return self._dict(value, depth)
        if kind is list:
            return self._list(value, list, depth)
        reader: Any = reader_of(kind)
        if type(reader) is ObjectReader:
            return self._object(value, reader, depth)
        if type(reader) is str:
            return LEFT_OUT
        if reader is dict:
            return self._dict(value, depth)
        if reader is tuple:
            return tuple(self._list(value, tuple, depth))
        if reader in GROUPS:
            return self._list(value, reader, depth)
        return self._atom(value, reader)

    def _atom(self, value: Any, reader: Any) -> Any:
        """What a value of another type stands for: of a member of an enumeration its value, of a path its text."""
        try:
            atom = reader(value)
        except Exception:
            return LEFT_OUT
        if type(atom) not in ATOMS and type(atom) is not datetime and type(atom) is not time:
            return LEFT_OUT
        self.size_bytes += getsizeof(atom)
        return atom

    def _list(self, value: Any, base: Any, depth: int) -> list[Any]:
        """The items of a list, tuple, set or deque: of a long one the head and the tail."""
        count = base.__len__(value)
        if count <= _MOST:
            items = list(base.__iter__(value))
        elif base is list or base is tuple:
            items = [*base.__getitem__(value, slice(_HEAD)), *base.__getitem__(value, slice(-_TAIL, None))]
            self.truncated = True
        else:
            items = list(islice(base.__iter__(value), _MOST))
            self.truncated = True
        self._left -= _CONTAINER_COSTS + len(items)
        if ATOMS.issuperset(map(type, items)):
            self.size_bytes += list_bytes(items)
            return items
        taken: list[Any] = []
        if base is not tuple:
            self._seen[id(value)] = value, taken
        # The last items first: where the budget ends, a conversation keeps its latest messages.
        for item in reversed(items):
            kind = type(item)
            if kind in ATOMS:
                self.size_bytes += getsizeof(item)
                taken.append(item)
                continue
            part = self.take(item, kind, depth - 1)
            if part is LEFT_OUT:
                self.left_out += 1
            elif part is not CUT:
                taken.append(part)
        taken.reverse()
        self.size_bytes += 56 + 8 * count if count <= _MOST else 56 + 8 * _MOST
        if base is tuple:
            self._seen[id(value)] = value, tuple(taken)
        return taken

    def _dict(self, value: Any, depth: int) -> Any:
        if dict.__len__(value) <= _MOST:
            pairs = list(dict.items(value))
        else:
            self.truncated = True
            try:
                pairs = list(islice(dict.items(value), _MOST))
            except RuntimeError:  # another thread changed it
                return LEFT_OUT
        taken: dict[Any, Any] = {}
        self._seen[id(value)] = value, taken
        self._pairs(pairs, taken, depth)
        self.size_bytes += sum(map(getsizeof, taken))
        return taken

    def _object(self, value: Any, reader: ObjectReader, depth: int) -> Any:
        try:
            stored = reader.stored(value)
        except Exception:  # another thread changed it
            stored = None
        if stored is None:
            return LEFT_OUT
        taken = Detached(reader.type, dict(reader.defaults))
        self._seen[id(value)] = value, taken
        left_out = self.left_out
        self._pairs(stored, taken.fields, depth - 1)
        if reader.is_client:
            self.left_out = left_out  # a client's object holds more than data, which is no loss
        return taken

    def _pairs(self, pairs: list[tuple[Any, Any]], taken: dict[Any, Any], depth: int) -> None:
        self._left -= _CONTAINER_COSTS + len(pairs)
        size = 0
        for key, item in pairs:
            if type(key) is not str:
                key = _key_of(key)
                if key is LEFT_OUT:
                    self.left_out += 1
                    continue
            kind = type(item)
            if kind in ATOMS:
                size += getsizeof(item)
                taken[key] = item
                continue
            part = self.take(item, kind, depth - 1)
            if part is LEFT_OUT:
                self.left_out += 1
            elif part is not CUT:
                taken[key] = part
        self.size_bytes += size + getsizeof(taken)


def _key_of(key: Any) -> Any:
    """A key that is text, a number or a tuple of these; `LEFT_OUT` for any other, whose class may be the host's."""
    kind = type(key)
    if kind in ATOMS:
        return key
    if kind is tuple:
        return key if ATOMS.issuperset(map(type, key)) else LEFT_OUT
    reader = reader_of(kind)
    if isinstance(reader, str | type | ObjectReader):
        return LEFT_OUT
    plain = reader(key)
    return plain if type(plain) in ATOMS else LEFT_OUT
