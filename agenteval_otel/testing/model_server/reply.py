"""ModelReply: what the model says next, in no wire format yet."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from agenteval_otel.models.value import Value

__all__ = ["ModelReply", "RepliedCall", "pieces"]


class RepliedCall(Value):
    """A tool call that the model asks for.

    Attributes:
        arguments: JSON data; a string is sent as it is, so that it may be no JSON at all.
        id: Made from the reply's number where it is left out.
    """

    name: str
    arguments: Any = Field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_json(self) -> str:
        """The arguments as they travel."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ModelReply(Value):
    """One reply of the model, or one of its failures.

    Attributes:
        finish_reason: In the words of chat completions (``stop``, ``length``, ``tool_calls``, ``content_filter``),
            which the other formats get in their own; another word is sent as it is. By default ``tool_calls`` where
            there are calls, else ``stop``.
        reasoning: Text of the model's reasoning, sent as the format's own kind of part before the answer.
        model: The model's name in the reply; by default the one that was asked for.
        id: Id of the reply; by default one made from the reply's number.
        status: HTTP status; from 400 on the reply is an error in the format's own shape.
        headers: Added to the response, such as ``{"Retry-After": "2"}``.
        body: Sent instead of the format's shape: JSON data, or text as it is.
        delay_s: Wait before the first byte; ends early when the server is closed.
        chunk_delay_s: Wait before each event of a stream.
        cut_after: Break a stream off, without an end, after so many events; a plain reply breaks off in its middle.
        refusal: The model's words of refusal, where the format has a field of its own for them (chat completions).
        cache_read_tokens: Input tokens that the provider says it had kept, beside the `input_tokens`.
        cache_write_tokens: Input tokens that it says it keeps from now on.
        trickle_s: Wait before each byte of a plain reply's body.
        hangs: The connection stays open, and nothing more comes: ``before`` the response, after its ``headers``, or in
            the middle of the ``body``. Ends when the server is closed.
        resets: The connection is reset instead of answered.
        padding: So many spaces stand before the body of a plain reply, which JSON allows.
        chunked: The length of a plain reply is not said before.
    """

    text: str = ""
    tool_calls: tuple[RepliedCall, ...] = ()
    finish_reason: str | None = None
    input_tokens: int = 10
    output_tokens: int = 5
    reasoning: str = ""
    model: str | None = None
    id: str | None = None
    status: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    cut_after: int | None = None
    refusal: str | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    trickle_s: float = 0.0
    hangs: Literal["before", "headers", "body"] | None = None
    resets: bool = False
    padding: int = 0
    chunked: bool = False

    @property
    def reason(self) -> str:
        """The finish reason in the words of chat completions."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


def pieces(text: str, size: int = 7) -> list[str]:
    """Text cut into what a model would send at a time: pieces that do not end where words do."""
    return [text[start : start + size] for start in range(0, len(text), size)]
