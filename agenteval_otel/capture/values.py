"""What detached values are made of, and how values of the interpreter's own types become such."""

from __future__ import annotations

import enum
import functools
import io
import types
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

__all__ = ["ATOMS", "BY_BASE", "CUT", "GROUPS", "LEFT_OUT", "Detached", "TypeFacts", "Unreadable"]

_MOST_BYTES: Final = 2 * 1024 * 1024
ATOMS: Final[frozenset[type]] = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, UUID, date, timedelta, range}
)
"""Types whose values nobody can change and whose text the interpreter makes."""
GROUPS: Final[frozenset[Any]] = frozenset({list, set, frozenset, deque})
"""Types whose items are taken as a list."""
LEFT_OUT: Final = object()
"""Stands for what cannot be read."""
CUT: Final = object()
"""Stands for what was not looked at, because the walk had its fill."""


class TypeFacts:
    """What a detached object was: its class's name and module, and whether its fields are all of its data."""

    __slots__ = ("is_data", "module", "name")

    def __init__(self, name: str, module: str, *, is_data: bool) -> None:
        self.name, self.module, self.is_data = name, module, is_data


class Detached:
    """The stored fields of an object that was the host's."""

    __slots__ = ("fields", "type")

    def __init__(self, type: TypeFacts, fields: dict[str, Any]) -> None:
        self.type, self.fields = type, fields

    def __repr__(self) -> str:
        return f"<Detached {self.type.name} {sorted(self.fields)}>"


class Unreadable:
    """An answer, prompt or fact of which nothing can be read, and why."""

    __slots__ = ("reason", "type_name")

    def __init__(self, type_name: str, reason: str) -> None:
        self.type_name, self.reason = type_name, reason

    def __repr__(self) -> str:
        return f"<Unreadable {self.type_name}: {self.reason}>"


def _enum_value(member: enum.Enum) -> Any:
    """The value of an enumeration's member where it is an atom, else its name."""
    stored = _dict_of_enum(member)
    value = dict.get(stored, "_value_")
    return value if type(value) in ATOMS else dict.get(stored, "_name_", LEFT_OUT)


_dict_of_enum: Final[Callable[[Any], dict[str, Any]]] = enum.Enum.__dict__["__dict__"].__get__


def _fixed_datetime(value: datetime) -> datetime:
    """A moment without a time zone of the host's own class."""
    zone = datetime.tzinfo.__get__(value)
    if type(value) is datetime and (zone is None or type(zone) in (timezone, ZoneInfo)):
        return value
    return datetime(*(getattr(datetime, name).__get__(value) for name in _OF_A_DATETIME))


_OF_A_DATETIME: Final = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def _fixed_time(value: time) -> time:
    return time(*(getattr(time, name).__get__(value) for name in _OF_A_DATETIME[3:]))


def _first_bytes(value: bytearray) -> bytes:
    return bytes(bytearray.__getitem__(value, slice(_MOST_BYTES)))


BY_BASE: Final[tuple[tuple[type, Any], ...]] = (
    (enum.Enum, _enum_value), (str, str.__str__), (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, _first_bytes), (int, int.__int__), (float, float.__float__), (datetime, _fixed_datetime),
    (time, _fixed_time), (dict, dict), (list, list), (tuple, tuple), (set, set), (frozenset, frozenset), (deque, deque),
    *((base, "it is no answer") for base in (
        type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
        BaseException, io.IOBase,
    )),
)  # fmt: skip
"""How values of these types, and of classes that are made of them, are read; the first that fits."""
