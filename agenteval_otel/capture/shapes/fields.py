"""Fields of what was taken from the host: of plain dictionaries and of detached objects. Nothing of the host's runs."""

from __future__ import annotations

import json
from typing import Any, Final

from agenteval_otel.capture.text import CAP_CHARS, clean
from agenteval_otel.capture.values import Detached

__all__ = [
    "MAX_ITEMS",
    "field",
    "first",
    "is_connection",
    "items",
    "json_object",
    "kind_of",
    "last_items",
    "number",
    "real_id",
    "short",
]

MAX_ITEMS: Final = 1_000
"""How many messages, parts, tool calls or choices of one object are looked at."""
_SHORT_CHARS: Final = 512
_MADE_UP: Final = ("lc_", "run-", "__")
"""How ids begin that a client makes up where it does not know the provider's."""


def field(value: Any, name: str) -> Any:
    """A field of a dictionary or of a detached object; None where there is none."""
    if type(value) is Detached:
        return value.fields.get(name)
    return value.get(name) if type(value) is dict else None


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


def is_connection(value: Any) -> bool:
    """Whether it is what a web framework's request is made of: its headers hold cookies and keys."""
    return field(value, "type") in ("http", "websocket") and field(value, "headers") is not None
