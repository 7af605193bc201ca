"""How values of a type are read without running a method of theirs: decided once for each type, and remembered."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from agenteval_otel.capture.values import BY_BASE, TypeFacts

__all__ = ["READ", "ObjectReader", "name_of", "read_also", "reader_of", "why_unreadable"]

READ: Final = {
    "answer", "args", "arguments", "cache_creation_input_tokens", "cache_read_input_tokens", "call_id",
    "completionTokens", "completion_tokens", "content", "contentParts", "content_parts", "conversation_id",
    "data", "delta", "finish_reason", "function", "function_call", "history", "id", "incomplete_details", "index",
    "input", "inputTokens", "input_tokens", "instructions", "invalid_tool_calls", "is_complete", "kind", "kwargs",
    "message", "message_history", "messages", "model", "model_name", "name", "object", "output", "outputTokens",
    "output_text", "output_tokens", "part_kind", "parts", "prompt", "promptTokens", "prompt_tokens",
    "provider_response_id", "query", "question", "reason", "refusal", "request_tokens", "response", "response_id",
    "response_metadata", "response_tokens", "result", "role", "session_id", "status", "stop_reason", "summary",
    "system", "system_prompt", "text", "thought", "thread_id", "token_usage", "toolCallId", "toolName",
    "toolUseId", "tool_call_id", "tool_calls", "tool_name", "tool_use_id", "type", "usage", "usage_metadata",
    "user_input", "user_prompt", "value", "vendor_id",
}  # fmt: skip
"""Names of the stored fields that are read of objects which are not plain data; response formats add theirs."""

_CLIENTS: Final[set[str]] = set()
"""Libraries whose objects hold more than data (agents, tools, clients); response formats add theirs."""
_DATA_MARKS: Final = frozenset({
    "__attrs_attrs__", "__dataclass_fields__", "__mapper__", "__pydantic_fields__", "__struct_fields__",
})  # fmt: skip
"""What a class has whose objects are plain data: attrs, dataclasses, SQLAlchemy and SQLModel, pydantic, msgspec."""
_IS_A_STREAM: Final = "it is a stream for its reader: monitor what makes its pieces"
_AS_TEXT: Final = ("ipaddress", "pathlib", "pathlib._local", "pydantic_core._pydantic_core")
"""Modules of the interpreter's and of pydantic's whose own values are taken as their text."""
_NATIVE: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_MOST_FIELDS: Final = 1_000
_MOST_TYPES: Final = 2_048
_HEAP_TYPE: Final = 1 << 9


_bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_members_of: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_stored: Final[Callable[[Any, str], Any]] = object.__getattribute__
_module_from: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_flags_of: Final[Callable[[type], int]] = type.__dict__["__flags__"].__get__


def _module_of(kind: type) -> str:
    module = _module_from(kind)
    return module if type(module) is str else "builtins"


class ObjectReader:
    """Reads the stored fields of the objects of one type.

    Attributes:
        type: What the readers of response formats learn of it.
        defaults: Texts and numbers that the class itself has under names that formats read.
        is_client: It is of a client library.
    """

    __slots__ = ("_has_dict", "_has_extra", "_slots", "defaults", "is_client", "type")

    def __init__(self, kind: type, bases: tuple[type, ...]) -> None:
        modules = [_module_of(base) for base in bases]
        roots = {module.partition(".")[0] for module in modules}
        members = [_members_of(base) for base in bases]
        self.is_client = not roots.isdisjoint(_CLIENTS)
        is_pydantic = any("__pydantic_fields__" in own for own in members)
        is_data = any(base is types.SimpleNamespace for base in bases)
        is_data = is_data or any(not _DATA_MARKS.isdisjoint(own) for own in members)
        is_data = is_data or any(module.startswith("django.db.models") for module in modules)
        self.type = TypeFacts(name_of(kind), modules[0], is_data=is_data and (is_pydantic or not self.is_client))
        self.defaults: dict[str, Any] = {}
        first: dict[Any, tuple[type, Any]] = {}
        for base, own in zip(reversed(bases), reversed(members), strict=True):
            first |= {name: (base, value) for name, value in own.items()}
        # Only names are remembered: a descriptor would keep its class alive. That `object.__getattribute__` finds the
        # interpreter's own descriptor under them, which runs no code of the class, is made sure of here.
        self._has_dict = type(first.get("__dict__", (None, None))[1]) in _NATIVE
        self._slots = [name for name, (base, value) in first.items() if self._is_slot(base, name, value)]
        self._has_extra = type(first.get("__pydantic_extra__", (None, None))[1]) is types.MemberDescriptorType
        for name in READ.intersection(first):
            if type(value := first[name][1]) in (str, int, bool):
                self.defaults[name] = value

    def _is_slot(self, base: type, name: Any, value: Any) -> bool:
        return (
            type(value) is types.MemberDescriptorType and bool(_flags_of(base) & _HEAP_TYPE) and self._is_wanted(name)
        )

    def _is_wanted(self, name: Any) -> bool:
        if type(name) is not str:
            return False
        if name[:1] == "_":
            return name == "_content" or (self.is_client and name in READ)
        return self.type.is_data or name in READ

    @property
    def can_store(self) -> bool:
        """Whether an object of the type can have a field that we read."""
        return self._has_dict or bool(self._slots)

    def is_used_up(self, value: Any) -> bool:
        """Whether it is a response whose body only its reader may read."""
        own = _stored(value, "__dict__") if self._has_dict else {}
        return dict.get(own, "body_iterator") is not None or dict.get(own, "_content") is False

    def stored(self, value: Any) -> list[tuple[str, Any]] | None:
        """The fields that are stored; None where there is none that we read, or where they are not ours to read.

        Raises:
            RuntimeError: Another thread changed the object.
        """
        own = _stored(value, "__dict__") if self._has_dict else {}
        if not self.type.is_data and (self.is_used_up(value) or _is_connection(own)):
            return None
        pairs = [pair for pair in islice(dict.items(own), _MOST_FIELDS) if self._is_wanted(pair[0])]
        for name in self._slots:
            try:
                pairs.append((name, _stored(value, name)))
            except AttributeError:
                continue  # an empty slot
        if self._has_extra:
            try:
                extra = _stored(value, "__pydantic_extra__")
            except AttributeError:
                extra = None  # made without its constructor
            pairs += islice(dict.items(extra), _MOST_FIELDS) if isinstance(extra, dict) else ()
        return pairs or None


def why_unreadable(value: Any, kind: type) -> str:
    """Why nothing was taken of a value, in words that name no content."""
    reader = reader_of(kind)
    if type(reader) is str:
        return reader
    if type(reader) is ObjectReader and reader.is_used_up(value):
        return _IS_A_STREAM
    return "it has no stored fields that are read"


def _is_connection(stored: dict[Any, Any]) -> bool:
    """Whether an object is a web framework's request, whose headers hold cookies and keys."""
    return any(isinstance(dict.get(stored, name), dict) for name in ("scope", "META", "environ"))


Reader = ObjectReader | type | Callable[[Any], Any] | str
"""How a type is read: its objects' fields, the items of this base class, one atom that it stands for; or why not."""


_READERS: dict[int, tuple[weakref.ref[type], Reader]] = {}


def read_also(fields: Iterable[str], libraries: Iterable[str]) -> None:
    """Read these fields too, and treat these root packages as client libraries."""
    READ.update(fields)
    _CLIENTS.update(libraries)
    _READERS.clear()


def reader_of(kind: type) -> Reader:
    """How values of a type are read. Types are remembered by id and weakly: none of the host's is kept alive."""
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


def _text_of_url(value: Any) -> str:
    return str(_stored(value, "_url"))


def _make_reader(kind: type) -> Reader:
    bases = _bases_of(kind)
    ids = {id(base) for base in bases}  # by id, because a class may be compared by its metaclass's methods
    of_base: Reader
    for base, of_base in BY_BASE:
        if id(base) in ids:
            return of_base
    if _module_of(kind) in _AS_TEXT:
        return str
    for base in bases:
        module, members = _module_of(base), _members_of(base)
        if module == "pydantic.networks" and name_of(base) in ("_BaseUrl", "_BaseMultiHostUrl"):
            return _text_of_url
        if module == "numpy" and name_of(base) == "generic":
            item: Reader = members["item"]  # a method that is not written in Python
            return item
    names = {name for base in bases for name in _members_of(base)}
    if "__await__" in names:
        return "it must be awaited first"
    if "__next__" in names or "__anext__" in names:
        return _IS_A_STREAM
    reader = ObjectReader(kind, bases)
    return reader if reader.can_store else "it has neither fields nor a text form"
