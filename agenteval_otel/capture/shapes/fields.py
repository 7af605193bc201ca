"""Fields of foreign objects, read so that nothing of theirs can break or hold up the reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import Any, Final

from agenteval_otel.capture.text import CAP_CHARS, clean, model_fields

__all__ = [
    "MAX_ITEMS",
    "field",
    "first",
    "is_connection",
    "is_stream",
    "items",
    "json_object",
    "kind_of",
    "last_items",
    "number",
    "own_fields",
    "real_id",
    "says_nothing",
    "short",
]

MAX_ITEMS: Final = 1_000
"""How many messages, parts, tool calls or choices of one object are looked at."""
_ATOMS: Final = (str, bytes, bytearray, int, float, complex, list, tuple, set, frozenset, type(None))
_PROPERTIES: Final = (property, cached_property)
_SHORT_CHARS: Final = 512
_MADE_UP: Final = ("lc_", "run-", "__")
"""How ids begin that a client makes up where it does not know the provider's."""


def field(value: Any, name: str) -> Any:
    """A field of a mapping or an object; None where there is none or it cannot be read."""
    try:
        if isinstance(value, Mapping):
            return value.get(name)
        return None if isinstance(value, _ATOMS) or _uses_up(value, name) else getattr(value, name, None)
    except Exception:
        return None


def _uses_up(value: Any, name: str) -> bool:
    """Whether a field is a property of what can be iterated: to read it could take from its reader what it holds."""
    kind = type(value)
    if not any(hasattr(kind, way) for way in ("__iter__", "__next__", "__aiter__")) or model_fields(value) is not None:
        return False
    return isinstance(next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None), _PROPERTIES)


def first(value: Any, *names: str) -> str | None:
    """The first of these fields that is text, cleaned and short: an id, a model's name, a reason."""
    for name in names:
        found = short(field(value, name))
        if found:
            return found
    return None


def short(value: Any) -> str | None:
    """Text that is an identifier, cleaned and at most 512 characters long; None for anything else."""
    return clean(value, _SHORT_CHARS) if isinstance(value, str) else None


def real_id(id: str | None) -> str | None:
    """A response's id; None for one that the client made up."""
    return None if id is not None and id.startswith(_MADE_UP) else id


def kind_of(value: Any, name: str = "type") -> str:
    """The word by which an object tells its kind; empty where it does not."""
    found = field(value, name)
    return str.__str__(found) if isinstance(found, str) else ""


def items(value: Any) -> list[Any]:
    """The first items of a list or tuple, as a list of its own; empty for anything else."""
    try:
        if isinstance(value, list):
            return list.__getitem__(value, slice(MAX_ITEMS))
        return list(tuple.__getitem__(value, slice(MAX_ITEMS))) if isinstance(value, tuple) else []
    except Exception:
        return []


def last_items(value: Any) -> list[Any]:
    """The last items of a list or tuple, as `items` gives the first."""
    try:
        if isinstance(value, list):
            return list.__getitem__(value, slice(-MAX_ITEMS, None))
        return list(tuple.__getitem__(value, slice(-MAX_ITEMS, None))) if isinstance(value, tuple) else []
    except Exception:
        return []


def number(value: Any) -> int | None:
    """A whole number that is none below zero."""
    return value if type(value) is int and value >= 0 else None


def json_object(text: Any) -> Any:
    """The object or array that a text is the JSON of; None for every other text, and for one above the cap."""
    if not isinstance(text, str) or len(text) > CAP_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def own_fields(value: Any) -> dict[str, Any] | None:
    """The public fields that an object holds itself; None where it holds none. No method of its class is called."""
    try:
        held = object.__getattribute__(value, "__dict__")
        if type(held) is not dict:
            return None
        pairs = islice(list(held.items()), MAX_ITEMS)
        return {name: item for name, item in pairs if type(name) is str and name[:1] != "_"} or None
    except Exception:
        return None


def says_nothing(value: Any) -> bool:
    """Whether `str` would tell no more of an object than its class and address."""
    kind: Any = type(value)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__


def is_connection(value: Any) -> bool:
    """Whether it is a web framework's request, or what one is made of: its headers hold cookies and keys."""
    scope = value if isinstance(value, Mapping) else field(value, "scope")
    if field(scope, "type") in ("http", "websocket") and field(scope, "headers") is not None:
        return True
    return any(isinstance(field(value, name), Mapping) for name in ("META", "environ"))


def is_stream(value: Any) -> bool:
    """Whether it is something that its reader uses up: an iterator, or a response that is made of one."""
    kind = type(value)
    if any(hasattr(kind, name) for name in ("__next__", "__anext__")) or field(value, "body_iterator") is not None:
        return True
    return field(value, "_content") is False  # the response of a web client whose body was not read yet
