"""Fields of detached values: plain dictionaries and `Detached` objects.

No code of the host runs here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from agenteval_otel.capture.detached import Detached
from agenteval_otel.capture.text import CAP_CHARS, clean

MAX_ITEMS: Final = 1_000  # messages, parts, tool calls or choices of one object that are looked at
_SHORT_CHARS: Final = 512
_NO_FIELDS: Final[Mapping[Any, Any]] = {}

Tokens = tuple[int | None, int | None]
"""Numbers of input tokens and of output tokens. None: not known."""
_INPUT: Final = (
    "input_tokens",
    "prompt_tokens",
    "inputTokens",
    "promptTokens",
    "request_tokens",
    "input_token_count",
    "inputTokenCount",
    "prompt_token_count",
    "promptTokenCount",
    "prompt_eval_count",
    "tokens_evaluated",
    "input",
)
_OUTPUT: Final = (
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "completionTokens",
    "response_tokens",
    "output_token_count",
    "outputTokenCount",
    "candidates_token_count",
    "candidatesTokenCount",
    "generated_token_count",
    "generated_tokens",
    "eval_count",
    "tokens_predicted",
    "output",
)
USAGE_NAMES: Final = (
    "usage",
    "token_usage",
    "tokenUsage",
    "usage_metadata",
    "usageMetadata",
    "tokens",
)
"""Names of the usage beside an answer."""
_CACHED: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")


def field(value: object, name: str) -> Any:
    """Return a field of a dictionary or of a detached object. Return None if there is none."""
    if type(value) is Detached:
        return value.fields.get(name)
    return value.get(name) if type(value) is dict else None


def first_value(value: object, *names: str) -> Any:
    """Return the first of these fields that is there, whatever it is. Return None if none is."""
    fields = _fields_by_name(value)
    for name in names:
        content = fields.get(name)
        if content is not None:
            return content
    return None


def first(value: object, *names: str) -> str | None:
    """Return the first of these fields that is text, cleaned and short.

    Examples are an id, a model's name, a reason.
    """
    fields = _fields_by_name(value)
    for name in names:
        text = short(fields.get(name))
        if text:
            return text
    return None


def _fields_by_name(value: object) -> Mapping[Any, Any]:
    """Return the fields of a dictionary or of a detached object. Any other value has none."""
    if type(value) is Detached:
        return value.fields
    return value if type(value) is dict else _NO_FIELDS


def short(value: object) -> str | None:
    """Return text that is an identifier, cleaned and at most 512 characters long.

    Return None for anything else.
    """
    if not isinstance(value, str):
        return None
    is_clean = len(value) <= _SHORT_CHARS and value.isascii() and "\0" not in value
    return value if is_clean else clean(value, _SHORT_CHARS)


def kind_of(value: object, name: str = "type") -> str:
    """Return the name of an object's kind. It is empty if the object has none."""
    kind = field(value, name)
    return kind if isinstance(kind, str) else ""


def items(value: object) -> list[Any]:
    """Return the first items of a list or tuple. Anything else has none."""
    return list(value[:MAX_ITEMS]) if isinstance(value, list | tuple) else []


def last_items(value: object) -> list[Any]:
    """Return the last items of a list or tuple. Anything else has none."""
    return list(value[-MAX_ITEMS:]) if isinstance(value, list | tuple) else []


def is_data(value: object) -> bool:
    """Tell whether a value is a dictionary or was an object of plain data.

    Examples are a model, a data class, a row.
    """
    return type(value) is dict or (type(value) is Detached and value.is_data)


def json_object(text: object) -> Any:
    """Return the object or array that a text is the JSON of.

    Return None for every other text, and for one above the cap.
    """
    if not isinstance(text, str) or len(text) > CAP_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def usage_of(value: object) -> Tokens | None:
    """Return input and output tokens of a usage object.

    Return None if it has neither. Tokens of a cache that are counted beside the input are added
    to it, as the GenAI conventions ask.
    """
    tokens_in = _count(value, _INPUT)
    tokens_out = _count(value, _OUTPUT)
    if tokens_in is not None and _count(value, ("input_tokens",)) is not None:
        tokens_in += sum(_count(value, (name,)) or 0 for name in _CACHED)
    if tokens_in is None and tokens_out is None:
        return None
    return tokens_in, tokens_out


def _count(value: object, names: tuple[str, ...]) -> int | None:
    """Return the first of these fields that is a whole number from 0 on, or None."""
    counts = (field(value, name) for name in names)
    return next((count for count in counts if type(count) is int and count >= 0), None)


def total_usage(usage: object) -> Tokens | None:
    """Return the usage of a run. Return None for zeros, which mean that nothing was reported."""
    tokens = usage_of(usage)
    return None if tokens == (0, 0) else tokens


def add_tokens(tokens: Tokens | None, other: Tokens | None) -> Tokens | None:
    """Return the sum. A count that only one side knows is that side's."""
    if tokens is None or other is None:
        return tokens or other
    tokens_in, tokens_out = tokens
    other_in, other_out = other
    return _sum_of_known(tokens_in, other_in), _sum_of_known(tokens_out, other_out)


def _sum_of_known(count: int | None, other: int | None) -> int | None:
    if count is None:
        return other
    return count if other is None else count + other
