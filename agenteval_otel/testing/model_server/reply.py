"""ModelReply: what the model answers, independent of the wire format; Exchange: a request with its reply."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agenteval_otel.models.value import Value


class RepliedCall(Value):
    """A tool call of the model.

    Attributes:
        arguments: JSON data; a string is sent as it is, so that it may be no JSON at all.
        id: By default made from the reply's number.
    """

    name: str
    arguments: Any = Field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ModelReply(Value):
    """One reply of the model, or one of its failures.

    Attributes:
        finish_reason: In the words of chat completions (``stop``, ``length``, ``tool_calls``, ``content_filter``),
            translated for the other formats; another word is sent as it is. By default ``tool_calls`` with calls, else
            ``stop``.
        reasoning: The model's reasoning, sent as the format's own kind of part before the answer.
        model: The model's name in the reply; by default that of the request.
        id: Id of the reply; by default made from the reply's number.
        status: HTTP status; from 400 the reply is an error in the format's own form.
        headers: Added to the response, such as ``{"Retry-After": "2"}``.
        body: Sent instead of the format's form: JSON data, or text as it is.
        delay_s: Wait before the first byte; ends early when the server is closed.
        chunk_delay_s: Wait before each event of a stream.
        cut_after: Break a stream off after this many events; a plain reply breaks off in its middle.
        refusal: The model's refusal, where the format has a field for it (chat completions).
        cache_read_tokens: Input tokens read from the provider's cache, beside the `input_tokens`.
        cache_write_tokens: Input tokens written to it.
        trickle_s: Wait before each byte of a plain reply's body.
        hangs: The connection stays open, and nothing more comes: ``before`` the response, after its ``headers``, or in
            the middle of the ``body``. Ends when the server is closed.
        resets: The connection is reset instead of answered.
        padding: Number of spaces before the body of a plain reply, which JSON allows.
        chunked: A plain reply is sent in chunks, without its length.
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


class Exchange(NamedTuple):
    """The request's body, the reply, and the number of the request, from which ids are made."""

    request: dict[str, Any]
    reply: ModelReply
    number: int

    @property
    def model(self) -> str:
        return self.reply.model or str(self.request.get("model", "model"))

    def id(self, prefix: str) -> str:
        return self.reply.id or f"{prefix}{self.number:08d}"

    def call_id(self, prefix: str, index: int) -> str:
        return self.reply.tool_calls[index].id or f"{prefix}{self.number:06d}{index:02d}"


def pieces(text: str, size: int = 7) -> list[str]:
    """The text as a model would stream it: in pieces that do not end where words do."""
    return [text[start : start + size] for start in range(0, len(text), size)]
