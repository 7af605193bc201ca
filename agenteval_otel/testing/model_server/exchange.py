"""Exchange: one request and the reply to it, as the wire formats need them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from agenteval_otel.testing.model_server.reply import ModelReply

__all__ = ["Event", "Exchange", "Wire"]

Event = tuple[str | None, Any]
"""Name and data of one server-sent event; without a name where the format has none."""


class Exchange(NamedTuple):
    """The request's body, the reply, and the number of the request, from which ids are made."""

    request: dict[str, Any]
    reply: ModelReply
    number: int

    @property
    def model(self) -> str:
        """The model's name in the reply."""
        return self.reply.model or str(self.request.get("model", "model"))

    def id(self, prefix: str) -> str:
        """The reply's id."""
        return self.reply.id or f"{prefix}{self.number:08d}"

    def call_id(self, prefix: str, index: int) -> str:
        """The id of one of the reply's tool calls."""
        return self.reply.tool_calls[index].id or f"{prefix}{self.number:06d}{index:02d}"


class Wire(Protocol):
    """A wire format: a module with these functions."""

    def plain(self, exchange: Exchange) -> dict[str, Any]:
        """The body of a plain reply."""
        ...

    def events(self, exchange: Exchange) -> list[Event]:
        """The events of a streamed reply."""
        ...

    def failure(self, exchange: Exchange) -> dict[str, Any]:
        """The body of an error."""
        ...
