"""Detached values: what a handler takes and returns, as plain data of our own.

They are made on the caller's thread.

`take` walks containers through the base classes' own methods, and objects through their
``__dict__`` and slots: no method, property or descriptor that is written in Python runs. Text,
bytes and numbers are taken by reference, because they cannot change. Objects that are neither data
nor known to a response format are left out: the queue keeps no file, connection or row alive. The
walk is bounded.
"""

from __future__ import annotations

import enum
import functools
import io
import sys
import types
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from itertools import accumulate, chain, islice, repeat
from operator import is_
from sys import getsizeof
from typing import Any, Final, NamedTuple, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from agenteval_otel.capture.classes import bases_of, flags_of, members_of, module_of, name_of
from agenteval_otel.capture.ownership import STANDARD_LIBRARY
from agenteval_otel.models.tool_calls import WORDS
from agenteval_otel.runtime.memory import most_parsed_bytes
from agenteval_otel.semconv import CaptureReason

ATOMS: Final[frozenset[type]] = frozenset(
    {str, bytes, int, float, bool, type(None), complex, Decimal, UUID, date, timedelta, range}
)
"""Types whose values cannot change and whose text the interpreter makes."""
_ATOM_IDS: Final = frozenset(map(id, ATOMS))
"""Looked up instead of the types: hashing a class may run its metaclass's code."""
_ATOMS_AND_TIMES: Final = ATOMS | {datetime, time}
_LISTS: Final[frozenset[Any]] = frozenset({list, tuple, set, frozenset, deque})
# What stands for values that cannot be read, and for those that lie beyond the limits.
_LEFT_OUT: Final = object()
_CUT: Final = object()

_BUDGET: Final = 5_000  # parts of one value: items, and `_CONTAINER_COSTS` for each container
_CONTAINER_COSTS: Final = 10
_DEPTH: Final = 24  # of containers. An object counts twice: it, and the fields in it
_HEAD: Final = 512  # items of a long list that are taken: so many at its beginning,
_TAIL: Final = 1_000  # and so many at its end
_MOST: Final = _HEAD + _TAIL
_MOST_FIELDS: Final = 1_000  # of one object
_MOST_BYTES: Final = 2 * 1024 * 1024  # of a `bytearray`
_MOST_TYPES: Final = 2_048  # whose readers are remembered
_FEW: Final = 4  # dictionaries that are walked sooner than they are copied all at once
_text_bytes: Final = str.__sizeof__  # a fifth of the time of `getsizeof`
_MEASURED: Final = 64  # items of a long list from which its size is estimated


@dataclass(slots=True, eq=False, repr=False)
class Detached:
    """Holds the stored fields of an object that was the host's.

    Attributes:
        type_name: The name of its class.
        module: The module of its class.
        is_data: The fields are all of its data.
    """

    type_name: str
    fields: dict[Any, Any]
    is_data: bool
    module: str = "builtins"


class NamedList(list[Any]):
    """Holds the items of a list, a tuple or a set of a class of its own.

    Attributes:
        type_name: The name of its class.
        module: The module of its class.
    """

    __slots__ = ("module", "type_name")
    type_name: str
    module: str


@dataclass(slots=True, eq=False)
class Unreadable:
    """Stands for an answer, prompt or fact of which nothing can be read.

    Attributes:
        type_name: The name of its class, or what it is.
        problem: Why, in words.
        reason: Why, as it is counted.
    """

    type_name: str
    problem: str
    reason: CaptureReason = "unreadable_object"


class Taken(NamedTuple):
    """Holds what `take` made of a value.

    The value is made of atoms, lists, tuples, dictionaries and `Detached` objects, or is
    `Unreadable`. Beside it are its size in memory, whether it was cut, and how many parts could not
    be read.
    """

    value: Any
    size_bytes: int
    truncated: bool
    left_out: int


def take(value: object) -> Taken:
    """Detach a value from the host, within a fixed number of parts.

    Never raises for what the value is.
    """
    kind = type(value)
    if id(kind) in _ATOM_IDS:
        return Taken(value, _atom_bytes(value), False, 0)
    walk = _Walk()
    try:
        taken = walk.take(value, kind, _DEPTH)
    except Exception as error:
        # It was changed by another thread while it was read, or the stack is exhausted.
        taken = Unreadable(name_of(kind), f"{type(error).__name__} while it was read")
    if taken is _LEFT_OUT:
        is_stream = walk.reason == _IS_A_STREAM
        reason: CaptureReason = "unread_stream" if is_stream else "unreadable_object"
        taken = Unreadable(name_of(kind), walk.reason, reason)
    return Taken(taken, walk.size_bytes, walk.truncated, walk.left_out)


def list_bytes(items: list[Any]) -> int:
    """Return how many bytes a list of atoms keeps alive.

    Of a list that is longer than an answer's may be, which only a stream has, the size is estimated
    from its first and last items: `STREAM_CHARS` bounds all of them.
    """
    count = len(items)
    # An empty list takes 56 bytes, and each item a pointer of 8.
    if count <= _MOST:
        return 56 + 8 * count + sum(map(_atom_bytes, items))
    half = _MEASURED // 2
    sample = items[:half] + items[-half:]
    return 56 + 8 * count + sum(map(_atom_bytes, sample)) * count // _MEASURED


def _atom_bytes(atom: object) -> int:
    """Return how many bytes an atom takes.

    Bytes may take four times as many once they are read as text.
    """
    return most_parsed_bytes(atom) if type(atom) is bytes else getsizeof(atom)


def _keys_bytes(keys: Iterable[Any]) -> int:
    try:
        return sum(map(_text_bytes, keys))
    except TypeError:  # one of them is no text
        return sum(map(getsizeof, keys))


class _Walk:
    """Takes one value apart. `reason` says why the value itself has no detached form."""

    __slots__ = ("_left", "_seen", "left_out", "reason", "size_bytes", "truncated")

    def __init__(self) -> None:
        self._left = _BUDGET  # how many parts may still be taken
        self.size_bytes = 0
        self.truncated = False
        self.left_out = 0
        self.reason = ""
        # By id, with the original, so that no id is used again; shared and cyclic parts are taken
        # once.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def take(self, value: Any, kind: type, depth: int) -> Any:
        """Return the detached form of a value that is no atom.

        Return `_LEFT_OUT` if it has none, and `_CUT` beyond the limits.
        """
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        if depth == 0 or self._left <= 0:
            self.truncated = True
            return _CUT
        if kind is dict:
            return self._dict(value, depth)
        if kind is list:
            return self._list(value, list, depth)
        reader: Any = _reader_of(kind)
        if type(reader) is ObjectReader:
            return self._object(value, reader, depth)
        if reader is dict:
            return self._mapping(value, kind, depth)
        if type(reader) is _NamedTuple:
            return self._named_tuple(value, reader, depth)
        if reader in _LISTS:
            return self._named_list(value, reader, kind, depth)
        if isinstance(reader, str):
            self.reason = reader
            return _LEFT_OUT
        return self._atom(value, reader)

    def _atom(self, value: object, reader: Callable[[Any], Any]) -> Any:
        try:
            atom = reader(value)
        except Exception:
            return _LEFT_OUT
        if not any(type(atom) is known for known in _ATOMS_AND_TIMES):
            return _LEFT_OUT
        self.size_bytes += _atom_bytes(atom)
        return atom

    def _list(self, value: Any, base: Any, depth: int) -> Any:
        items = self._items(value, base)
        self._left -= _CONTAINER_COSTS + len(items)
        if _ATOM_IDS.issuperset(map(id, map(type, items))):
            self.size_bytes += list_bytes(items)
            return tuple(items) if base is tuple else items
        texts = self._dicts_of_text(items, depth - 1)
        if texts is not None:
            copied = tuple(texts) if base is tuple else texts
            self._seen[id(value)] = value, copied
            return copied
        taken: list[Any] = []
        if base is not tuple:
            self._seen[id(value)] = value, taken
        # The last items first: where the budget ends, a conversation keeps its latest messages.
        for item in reversed(items):
            kind = type(item)
            if id(kind) in _ATOM_IDS:
                self.size_bytes += _atom_bytes(item)
                taken.append(item)
                continue
            part = self.take(item, kind, depth - 1)
            if part is _LEFT_OUT:
                self.left_out += 1
            elif part is not _CUT:
                taken.append(part)
        taken.reverse()
        self.size_bytes += 56 + 8 * len(items)
        if base is not tuple:
            return taken
        self._seen[id(value)] = value, tuple(taken)
        return tuple(taken)

    def _items(self, value: Any, base: Any) -> list[Any]:
        """Return the items of a list, a tuple or a set: of a long one its beginning and its end."""
        if base.__len__(value) <= _MOST:
            return list(base.__iter__(value))
        self.truncated = True
        if base is list or base is tuple:
            return [
                *base.__getitem__(value, slice(_HEAD)),
                *base.__getitem__(value, slice(-_TAIL, None)),
            ]
        return list(islice(base.__iter__(value), _MOST))

    def _dicts_of_text(self, items: list[Any], depth: int) -> list[dict[str, str]] | None:
        """Copy dictionaries that hold text alone, all at once: the plain messages of a history.

        It takes a fifth of the time of walking each, for which the caller waits. As there, the
        last items count if they are more than may still be taken. Return None if an item is
        anything else.
        """
        if depth == 0 or self._left <= 0 or len(items) < _FEW:
            return None
        if not all(map(is_, map(type, items), repeat(dict))):
            return None
        costs = list(accumulate(map(_CONTAINER_COSTS.__add__, map(len, reversed(items)))))
        room = bisect_left(costs, self._left) + 1  # the last one may exceed it
        last_items = items[-room:]
        if max(map(len, last_items)) > _MOST:
            return None
        copies = list(map(dict.copy, last_items))
        texts = [*chain.from_iterable(copies), *chain.from_iterable(map(dict.values, copies))]
        if not all(map(is_, map(type, texts), repeat(str))):
            return None
        self._left -= costs[len(copies) - 1]
        self.truncated = self.truncated or len(copies) < len(items)
        self.size_bytes += sum(map(_text_bytes, texts)) + sum(map(getsizeof, copies))
        self.size_bytes += 56 + 8 * len(items)
        return copies

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        taken: dict[Any, Any] = {}
        self._seen[id(value)] = value, taken
        is_long = dict.__len__(value) > _MOST
        self.truncated = self.truncated or is_long
        pairs = list(islice(dict.items(value), _MOST)) if is_long else list(dict.items(value))
        self._pairs(pairs, taken, depth)
        self.size_bytes += _keys_bytes(taken)
        return taken

    def _mapping(self, value: dict[Any, Any], kind: type, depth: int) -> Any:
        """Copy a dictionary. One of a class of its own keeps the name of its class."""
        fields = self._dict(value, depth)
        module = module_of(kind)
        if module.partition(".")[0] in STANDARD_LIBRARY:
            return fields
        taken = Detached(name_of(kind), fields, True, module)
        self._seen[id(value)] = value, taken
        return taken

    def _named_list(self, value: object, base: Any, kind: type, depth: int) -> Any:
        """Copy a list or the like. One of a class of its own keeps the name of its class."""
        items = self._list(value, base, depth)
        module = module_of(kind)
        if module.partition(".")[0] in STANDARD_LIBRARY:
            return items
        taken = NamedList(items)
        taken.type_name = name_of(kind)
        taken.module = module
        self._seen[id(value)] = value, taken
        return taken

    def _named_tuple(self, value: tuple[Any, ...], reader: _NamedTuple, depth: int) -> Any:
        taken = Detached(reader.type_name, {}, True, reader.module)
        self._seen[id(value)] = value, taken
        pairs = list(zip(reader.fields, tuple.__iter__(value), strict=False))
        self._pairs(pairs, taken.fields, depth - 1)
        return taken

    def _object(self, value: object, reader: ObjectReader, depth: int) -> Any:
        stored = reader.stored(value)
        if type(stored) is str:
            self.reason = stored
            return _LEFT_OUT
        taken = Detached(reader.type_name, dict(reader.defaults), reader.is_data, reader.module)
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
                key = self._key(key)
                if key is _LEFT_OUT:
                    self.left_out += 1
                    continue
            kind = type(item)
            if kind is str:  # as most are: without the two lookups below
                size += _text_bytes(item)
                taken[key] = item
                continue
            if id(kind) in _ATOM_IDS:
                size += _atom_bytes(item)
                taken[key] = item
                continue
            part = self.take(item, kind, depth - 1)
            if part is _LEFT_OUT:
                self.left_out += 1
            elif part is not _CUT:
                taken[key] = part
        self.size_bytes += size + getsizeof(taken)

    def _key(self, key: Any) -> Any:
        """Return a key that is an atom, a tuple of atoms, or read as an atom.

        Return `_LEFT_OUT` for any other: it may hash or compare by the host's code.
        """
        kind = type(key)
        if id(kind) in _ATOM_IDS or (
            kind is tuple and _ATOM_IDS.issuperset(map(id, map(type, key)))
        ):
            return key
        reader = _reader_of(kind)
        if isinstance(reader, str | type | ObjectReader | _NamedTuple):
            return _LEFT_OUT
        return self._atom(key, reader)


READ: Final = {
    "action", "answer", "args", "arguments", "audio", "blocks", "block_type", "cache_creation_input_tokens",
    "cache_read_input_tokens", "call_id", "code", "completionTokens", "completion_tokens", "content",
    "contentParts", "content_parts", "content_type", "conversation_id", "data", "delta", "error", "event",
    "finish_reason", "function", "functionCall", "functionResponse", "function_call", "function_response",
    "history", "id", "incomplete_details", "index", "input", "inputTokens", "input_tokens", "instructions",
    "invalid_tool_calls", "is_complete", "items", "json", "kind", "kwargs", "message", "messages",
    "message_history", "model", "model_name", "name", "newMessage", "new_message", "object", "output", "outputs",
    "outputTokens", "output_text", "output_tokens", "params", "parts", "part_kind", "prompt", "promptTokens",
    "prompt_tokens", "provider_response_id", "queries", "query", "question", "reason", "refusal", "request_tokens",
    "response", "response_id", "response_metadata", "response_tokens", "result", "results", "role", "session_id",
    "status", "stop_reason", "summary", "system", "system_prompt", "text", "thought", "thread_id", "token",
    "token_usage", "toolCallId", "toolName", "toolResult", "toolUse", "toolUseId", "tool_calls", "tool_call_id",
    "tool_name", "tool_use_id", "transcript", "type", "usage", "usage_metadata", "user_input", "user_prompt",
    "value", "vendor_id",
} | WORDS  # fmt: skip
"""Names of the stored fields that are read of objects which are not plain data. Response formats
add theirs.
"""
_PRIVATE: Final = frozenset({"_container", "_content", "_status_code"})
"""Names of private fields that are read: the bodies of responses of Django, requests and httpx, and
Flask's status.
"""
_CLIENTS: Final[set[str]] = set()
"""Libraries whose objects hold more than data (agents, tools, clients). Response formats add
theirs.
"""
_RUNNING: Final[set[tuple[str, str]]] = set()
"""Classes, as (root package, name), whose objects are never walked. The name of the class replaces
them: an agent that is stored in each of its events would be walked for each.
"""
_DATA_MARKS: Final = frozenset(
    {
        "__attrs_attrs__",
        "__dataclass_fields__",
        "__mapper__",
        "__pydantic_fields__",
        "__struct_fields__",
    }
)
"""Marks of classes whose objects are plain data: attrs, dataclasses, SQLAlchemy and SQLModel,
pydantic, msgspec.
"""
_EXTRA: Final = "__pydantic_extra__"
_IS_A_STREAM: Final = "it is a stream for its reader: monitor what makes its pieces"
_AS_TEXT: Final = ("ipaddress", "pathlib", "pathlib._local", "pydantic_core._pydantic_core")
"""Modules whose own values are taken as their text."""
_NATIVE: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_HEAP_TYPE: Final = 1 << 9

_stored: Final[Callable[[Any, str], Any]] = object.__getattribute__


def _member_of(kind: type, name: str) -> Any:
    """Return the class attribute of this name as it stands in the class. None without one."""
    for base in bases_of(kind):
        members = members_of(base)
        if name in members:
            return members[name]
    return None


class ObjectReader:
    """Reads the stored fields of the objects of one type.

    `defaults` are texts and numbers of the class itself.
    """

    __slots__ = (
        "_has_dict",
        "_slots",
        "can_store",
        "defaults",
        "is_client",
        "is_data",
        "module",
        "type_name",
    )

    def __init__(self, kind: type, bases: tuple[type, ...]) -> None:
        modules = [module_of(base) for base in bases]
        members = [members_of(base) for base in bases]
        self.type_name = name_of(kind)
        self.module = modules[0]
        self.is_client = not _CLIENTS.isdisjoint(module.partition(".")[0] for module in modules)
        names: set[Any] = set()
        for own in members:
            names.update(own)
        is_marked = not _DATA_MARKS.isdisjoint(names)
        is_row = any(module.startswith("django.db.models") for module in modules)
        is_namespace = any(base is types.SimpleNamespace for base in bases)
        is_data = is_marked or is_row or is_namespace
        self.is_data = is_data and (not self.is_client or "__pydantic_fields__" in names)
        # Reversed, so that the class nearest to `kind` wins, as in the lookup of an attribute.
        # By an attribute's name: the class that defines it, and what it is there.
        first: dict[Any, tuple[type, Any]] = {}
        for base, own in zip(reversed(bases), reversed(members), strict=True):
            first |= {name: (base, value) for name, value in own.items()}
        # Only names are kept, because a descriptor would keep its class alive. ``__dict__`` and slots
        # are read only where they are the interpreter's own descriptors, which run no code of the
        # class.
        self._has_dict = type(first.get("__dict__", (None, None))[1]) in _NATIVE
        self._slots = [
            name for name, (base, value) in first.items() if self._is_slot(base, name, value)
        ]
        self.can_store = self._has_dict or bool(self._slots)
        values = {name: first[name][1] for name in READ.intersection(first)}
        self.defaults = {
            name: value for name, value in values.items() if type(value) in (str, int, bool)
        }

    def _is_slot(self, base: type, name: object, value: object) -> bool:
        is_native = type(value) is types.MemberDescriptorType and bool(flags_of(base) & _HEAP_TYPE)
        return is_native and (name == _EXTRA or self._is_wanted(name))

    def _is_wanted(self, name: object) -> bool:
        if type(name) is not str:
            return False
        if name[:1] == "_":
            return name in _PRIVATE or (self.is_client and name in READ)
        return self.is_data or name in READ

    def stored(self, value: object) -> Any:
        """Return the stored fields as pairs. Return a text with the reason if no field may be read."""
        own = _stored(value, "__dict__") if self._has_dict else {}
        if not self.is_data:
            if dict.get(own, "body_iterator") is not None or dict.get(own, "_content") is False:
                return _IS_A_STREAM
            if any(
                issubclass(type(dict.get(own, name)), dict) for name in ("scope", "META", "environ")
            ):
                return "it is a web framework's request"  # its headers hold cookies and keys
        pairs = [
            pair for pair in list(islice(dict.items(own), _MOST_FIELDS)) if self._is_wanted(pair[0])
        ]
        for name in self._slots:
            # Looked up each time: the class may have put a property in the slot's place.
            descriptor = _member_of(type(value), name)
            if type(descriptor) is not types.MemberDescriptorType:
                continue
            try:
                item = descriptor.__get__(value)
            except AttributeError:
                continue  # an empty slot
            if name != _EXTRA:
                pairs.append((name, item))
            elif issubclass(type(item), dict):
                pairs += islice(dict.items(item), _MOST_FIELDS)
        return pairs or "it has no stored fields that are read"


@dataclass(slots=True, frozen=True)
class _NamedTuple:
    """Reads the values of a named tuple by the names of its fields."""

    type_name: str
    module: str
    fields: tuple[str, ...]


Reader = ObjectReader | _NamedTuple | type | Callable[[Any], Any] | str
"""How a type is read: its objects' fields, the items of this base class, the atom that it stands
for, or why not.
"""
_READERS: dict[int, tuple[weakref.ref[type], Reader]] = {}


def read_also(fields: Iterable[str], libraries: Iterable[str], running: Iterable[str]) -> None:
    """Add to what is read, as `response_format` describes it. Types are looked at anew then."""
    READ.update(fields)
    _CLIENTS.update(libraries)
    for name in running:
        package, _, class_name = name.partition(".")
        _RUNNING.add((package, class_name))
    _READERS.clear()


def _reader_of(kind: type) -> Reader:
    """Return how values of a type are read.

    Types are remembered by id and weakly: no class of the host's is kept alive.
    """
    known = _READERS.get(id(kind))
    if known is not None and known[0]() is kind:
        return known[1]
    try:
        reader = _make_reader(kind)
    except Exception as error:
        reader = f"its class cannot be read: {type(error).__name__}"
    if len(_READERS) >= _MOST_TYPES:
        _READERS.clear()
    _READERS[id(kind)] = weakref.ref(kind), reader
    return reader


def _make_reader(kind: type) -> Reader:
    bases = bases_of(kind)
    by_base = _reader_by_base(kind, bases)
    if by_base is not None:
        return by_base
    if module_of(kind) in _AS_TEXT and _is_defined_in(kind, module_of(kind)):
        return str
    if (module_of(kind).partition(".")[0], name_of(kind)) in _RUNNING:
        shown = f"[{name_of(kind)}]"
        return lambda _: shown
    for base in bases:
        known = _reader_of_base(base)
        if known is not None:
            return known
    names: set[Any] = set()
    for base in bases:
        names.update(members_of(base))
    if "__await__" in names:
        return "it must be awaited first"
    if "__next__" in names or "__anext__" in names:
        return _IS_A_STREAM
    reader = ObjectReader(kind, bases)
    return reader if reader.can_store else "it has neither fields nor a text form"


def _reader_by_base(kind: type, bases: tuple[type, ...]) -> Reader | None:
    """Return how a type is read that is made of one of `_BY_BASE`. None for others."""
    # by id, because a class may be compared by its metaclass's methods
    ids = {id(base) for base in bases}
    for known_base, of_base in _BY_BASE:
        if id(known_base) in ids:
            if of_base is tuple:
                return _named_tuple_of(kind, bases) or tuple
            return of_base
    return None


def _reader_of_base(base: type) -> Reader | None:
    """Return how values of a base class of pydantic's or NumPy's are read. None for others."""
    module = module_of(base)
    name = name_of(base)
    if module == "pydantic.networks" and name in ("_BaseUrl", "_BaseMultiHostUrl"):
        return lambda url: str(_stored(url, "_url"))
    if module == "numpy" and name == "generic":
        item = members_of(base).get("item")
        if type(item) is types.MethodDescriptorType:  # not written in Python
            return cast("Reader", item)
    return None


def _is_defined_in(kind: type, module: str) -> bool:
    """Tell whether the module really holds this class under its name.

    A class can claim any ``__module__``.
    """
    loaded = sys.modules.get(module)
    if type(loaded) is not types.ModuleType:
        return False
    return loaded.__dict__.get(name_of(kind)) is kind


def _named_tuple_of(kind: type, bases: tuple[type, ...]) -> _NamedTuple | None:
    """Return how a named tuple of the host's is read.

    None for other tuples and for those of the standard library.
    """
    module = module_of(kind)
    if module.partition(".")[0] in STANDARD_LIBRARY:
        return None
    for base in bases:
        fields = members_of(base).get("_fields")
        if type(fields) is tuple and fields and all(type(name) is str for name in fields):
            return _NamedTuple(name_of(kind), module, fields)
    return None


_zone_of: Final[Callable[[datetime], Any]] = datetime.__dict__["tzinfo"].__get__
_dict_of_enum: Final[Callable[[Any], dict[str, Any]]] = enum.Enum.__dict__["__dict__"].__get__


def _enum_value(member: enum.Enum) -> Any:
    """Return the member's value if that is an atom, else its name."""
    stored = _dict_of_enum(member)
    value = dict.get(stored, "_value_")
    return value if id(type(value)) in _ATOM_IDS else dict.get(stored, "_name_", _LEFT_OUT)


def _time(value: time) -> time:
    """Return a time of day, without a time zone that is not the standard library's."""
    if type(value) is time and (value.tzinfo is None or type(value.tzinfo) in (timezone, ZoneInfo)):
        return value
    return datetime.combine(date.min, value, None).time()


def _moment(value: datetime) -> datetime:
    """Return a date with time.

    A time zone of a class that is not the standard library's is left out.
    """
    zone: tzinfo | None = _zone_of(value)
    is_known = zone is None or type(zone) in (timezone, ZoneInfo)
    if is_known and type(value) is datetime:
        return value
    return datetime.combine(datetime.date(value), datetime.time(value), zone if is_known else None)


_BY_BASE: Final[tuple[tuple[type, Reader], ...]] = (
    (enum.Enum, _enum_value),
    (str, str.__str__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytes(bytearray.__getitem__(value, slice(_MOST_BYTES)))),
    (int, int.__int__),
    (float, float.__float__),
    (datetime, _moment),
    (time, _time),
    (dict, dict),
    (list, list),
    (tuple, tuple),
    (set, set),
    (frozenset, frozenset),
    (deque, deque),
    *(
        (base, "it is no answer")
        for base in (
            type,
            types.ModuleType,
            types.FunctionType,
            types.BuiltinFunctionType,
            types.MethodType,
            functools.partial,
            BaseException,
            io.IOBase,
        )
    ),
)
"""How values of these types, and of classes that are made of them, are read. The first that fits counts.
"""
