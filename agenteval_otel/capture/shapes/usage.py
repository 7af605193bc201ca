"""Usage: tokens, in whatever words they are counted."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.shapes.fields import field, number

__all__ = ["Tokens", "add", "usage_of"]

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
    tokens_in = next((found for name in _INPUT if (found := number(field(value, name))) is not None), None)
    tokens_out = next((found for name in _OUTPUT if (found := number(field(value, name))) is not None), None)
    if tokens_in is not None and number(field(value, "input_tokens")) is not None:
        tokens_in += sum(number(field(value, name)) or 0 for name in _CACHED)
    return None if tokens_in is None and tokens_out is None else (tokens_in, tokens_out)


def add(one: Tokens | None, other: Tokens | None) -> Tokens | None:
    """The sum; what is not known on one side is what the other side knows."""
    if one is None or other is None:
        return one or other
    return _sum(one[0], other[0]), _sum(one[1], other[1])


def _sum(one: int | None, other: int | None) -> int | None:
    return one + other if one is not None and other is not None else one if other is None else other
