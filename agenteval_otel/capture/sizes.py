"""How much memory a value keeps alive: an estimate in time independent of its size, for the queue's bound by bytes.

Runs on the caller's thread. No method of the host's classes is called: what they override, their bases answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from types import MemberDescriptorType, ModuleType
from typing import Any, Final

__all__ = ["estimate_bytes"]

_WALK_ITEMS: Final = 32
_WALK_DEPTH: Final = 8
_WALK_VALUES: Final = 160
_CONTAINER_COSTS: Final = 3
_SMALL: Final = 64
_HEAP_TYPE: Final = 1 << 9
_EXACT: Final = frozenset({str, bytes, int, float, bool, type(None)})
_GROUPS: Final[tuple[Any, ...]] = (list, tuple, set, frozenset, deque)
_NOT_ENTERED: Final = (type, ModuleType)


def estimate_bytes(value: Any) -> int:
    """About how many bytes a value keeps alive.

    Text and bytes are exact (their header knows). Containers and objects, slotted ones too, are walked eight levels
    deep, 32 items of each (the first and the last) and some 160 values in all; the rest is extrapolated. Nothing counts
    twice.
    """
    kind = type(value)
    return getsizeof(value) if kind in _EXACT else _Walk().size_of(value, kind, _WALK_DEPTH)


class _Walk:
    """One estimate: how much may still be looked at, and which containers and objects were."""

    __slots__ = ("left", "met")

    def __init__(self) -> None:
        self.left, self.met = _WALK_VALUES, set[int]()

    def size_of(self, value: Any, kind: type, depth: int) -> int:
        self.left -= _CONTAINER_COSTS
        if depth == 0 or self.left < 0 or id(value) in self.met:
            return _SMALL
        self.met.add(id(value))
        if kind is list or kind is tuple:
            count = len(value)
            return self._items(value if count <= _WALK_ITEMS else _ends(value, kind), count, depth)
        if kind is dict:
            return self._dict(value, depth)
        return self._other(value, kind, depth)

    def _dict(self, value: Any, depth: int) -> int:
        count = dict.__len__(value)
        # Lists are made in one step, which no other thread interrupts.
        keys, values = list(islice(dict.keys(value), _WALK_ITEMS)), list(islice(dict.values(value), _WALK_ITEMS))
        of_keys = sum([getsizeof(key) for key in keys if type(key) is str]) * count // max(1, len(keys))
        return 64 * count + of_keys + self._items(values, count, depth)

    def _other(self, value: Any, kind: type, depth: int) -> int:
        """Subclasses of containers, and objects: what they contain and what their fields hold."""
        if issubclass(kind, _NOT_ENTERED):
            return _SMALL
        group = next((group for group in _GROUPS if issubclass(kind, group)), None)
        if issubclass(kind, dict):
            size = self._dict(value, depth)
        elif group is list or group is tuple:
            size = self._items(_ends(value, group), group.__len__(value), depth)
        elif group is not None:
            size = self._items(list(islice(group.__iter__(value), _WALK_ITEMS)), group.__len__(value), depth)
        else:
            size = _own_size(value, kind)
        return size + self._fields(value, kind, depth) if kind.__flags__ & _HEAP_TYPE else size

    def _items(self, looked_at: Iterable[Any], count: int, depth: int) -> int:
        total = seen = 0
        for item in looked_at:
            if self.left <= 0:
                break
            self.left -= 1
            kind = type(item)
            if kind in _EXACT:
                total += getsizeof(item)
            else:
                total += self.size_of(item, kind, depth - 1)
            seen += 1
        return 56 + 8 * count + (total * count // seen if seen else 0)

    def _fields(self, value: Any, kind: type, depth: int) -> int:
        fields = _slots_of(value, kind)
        try:
            named = object.__getattribute__(value, "__dict__")
            if type(named) is dict:
                fields.extend(islice(named.values(), _WALK_ITEMS))
        except Exception:
            return self._items(fields, len(fields), depth) if fields else 0
        return self._items(fields, len(fields), depth) if fields else 0


def _ends(value: Any, base: Any) -> list[Any]:
    """The first and the last items of a list or tuple."""
    half = _WALK_ITEMS // 2
    if base.__len__(value) <= _WALK_ITEMS:
        return list(base.__iter__(value))
    return [*base.__getitem__(value, slice(half)), *base.__getitem__(value, slice(-half, None))]


def _own_size(value: Any, kind: Any) -> int:
    """The size of a value without its fields: as the nearest class that is not written in Python says."""
    native: Any = next((base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE), object)
    return _SMALL if native is object else max(_SMALL, native.__sizeof__(value))


def _slots_of(value: Any, kind: type) -> list[Any]:
    found: list[Any] = []
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__")
        if type(names) is str:
            names = (names,)
        for name in names if type(names) is tuple or type(names) is list else ():
            if name[:2] == "__":
                if name[-2:] == "__":
                    continue
                name = f"_{base.__name__.lstrip('_')}{name}"
            slot = base.__dict__.get(name)
            if type(slot) is MemberDescriptorType:
                try:
                    found.append(slot.__get__(value))
                except AttributeError:
                    continue  # empty
    return found
