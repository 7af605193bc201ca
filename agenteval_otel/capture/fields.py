"""Fields of detached values: plain dictionaries and `Detached` objects. No code of the host runs here."""

from __future__ import annotations

import json
from typing import Any, Final

from agenteval_otel.capture.text import CAP_CHARS, clean
from agenteval_otel.capture.values import Detached

__all__ = [
    "MAX_ITEMS", "Tokens", "add_tokens", "field", "first", "is_connection", "items", "json_object", "kind_of",
    "last_items", "real_id", "short", "usage_of",
]  # fmt: skip

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
        text = short(field(value, name))
        if text:
            return text
    return None


def short(value: Any) -> str | None:
    """Text that is an identifier, cleaned and at most 512 characters long; None for anything else."""
    return clean(value, _SHORT_CHARS) if isinstance(value, str) else None


def real_id(id: str | None) -> str | None:
    """A response's id; None for one that the client made up."""
    return None if id is not None and id.startswith(_MADE_UP) else id


def kind_of(value: Any, name: str = "type") -> str:
    """The word by which an object tells its kind; empty where it does not."""
    kind = field(value, name)
    return str.__str__(kind) if isinstance(kind, str) else ""


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
    """A whole number, not below zero."""
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


Tokens = tuple[int | None, int | None]
"""Input and output tokens."""

_INPUT: Final = ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens", "request_tokens")
_OUTPUT: Final = ("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "response_tokens")
_CACHED: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")


def usage_of(value: Any) -> Tokens | None:
    """Input and output tokens of a usage object; None where it has neither.

    Where tokens of a cache are counted beside the input (``cache_read_input_tokens`` next to ``input_tokens``) they are
    added to it, as the GenAI conventions ask.
    """
    tokens_in = next((count for name in _INPUT if (count := number(field(value, name))) is not None), None)
    tokens_out = next((count for name in _OUTPUT if (count := number(field(value, name))) is not None), None)
    if tokens_in is not None and number(field(value, "input_tokens")) is not None:
        tokens_in += sum(number(field(value, name)) or 0 for name in _CACHED)
    return None if tokens_in is None and tokens_out is None else (tokens_in, tokens_out)


def add_tokens(first_tokens: Tokens | None, other: Tokens | None) -> Tokens | None:
    """The sum; what is not known on one side is what the other side knows."""
    if first_tokens is None or other is None:
        return first_tokens or other
    return _sum(first_tokens[0], other[0]), _sum(first_tokens[1], other[1])


def _sum(count: int | None, other: int | None) -> int | None:
    return count + other if count is not None and other is not None else count if other is None else other
