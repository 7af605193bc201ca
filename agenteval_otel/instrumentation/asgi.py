"""Middleware for ASGI applications: FastAPI, Starlette, Django, Quart and others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from agenteval_otel.instrumentation.exchange import (
    Exchange,
    Middleware,
    SocketMessages,
    note_unreadable,
)

__all__ = ["AgentEvalMiddleware"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AgentEvalMiddleware(Middleware):
    """Evaluates a sample of the responses of some routes in the background.

    See `Middleware` for the arguments.

    ``app.add_middleware(AgentEvalMiddleware, routes=["/chat"])``, or around any ASGI application.
    Every message passes at once and unchanged. A response counts when its last message was sent. A
    client that goes away abandons it. Routes such as ``WS /chat`` take WebSockets.
    """

    has_sockets = True

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        exchange: Exchange | None = None
        reference: str | None = None
        if scope["type"] == "websocket":
            await self._follow_socket(scope, receive, send)
            return
        if scope["type"] == "http":
            query = scope.get("query_string", b"").decode("latin-1")
            exchange, reference = self.begin(scope["method"], scope["path"], query, _headers(scope))
        if reference is not None:
            send = self._with_header(send, reference)
        if exchange is None:
            await self.app(scope, receive, send)
            return
        connection = _Connection(exchange, receive, send)
        exchange.open()
        try:
            await self.app(scope, connection.receive, connection.send)
        except asyncio.CancelledError:
            exchange.end("abandoned")  # a server cancels the task of a client that has gone
            raise
        except BaseException as error:
            if connection.is_gone:
                exchange.end("abandoned")
            else:
                exchange.end("error", error)
            raise
        finally:
            exchange.end("abandoned")  # does nothing if the response has ended
            exchange.close()

    async def _follow_socket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        messages: SocketMessages | None = None
        try:
            query = scope.get("query_string", b"").decode("latin-1")
            messages = self.socket(scope["path"], query, _headers(scope))
        except Exception as error:  # a scope that is none of the specification's
            note_unreadable(error)
        if messages is None:
            await self.app(scope, receive, send)
            return

        async def received() -> Message:
            message = await receive()
            messages.received(message)
            return message

        async def sent(message: Message) -> None:
            try:
                await send(message)
            except OSError:
                messages.failed()
                raise
            messages.sent(message)

        try:
            await self.app(scope, received, sent)
        except asyncio.CancelledError:
            messages.end("abandoned")
            raise
        except BaseException as error:
            messages.end("error", error)
            raise
        finally:
            messages.end()

    def _with_header(self, send: Send, reference: str) -> Send:
        header = (str(self.reference_header).lower().encode(), reference.encode())

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        return sent


class _Connection:
    """Wraps both sides of a connection, and tells the exchange about their messages."""

    def __init__(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        self._exchange = exchange
        self._receive = receive
        self._send = send
        self.is_gone = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._exchange.request.add(message.get("body", b""))
        elif message["type"] == "http.disconnect":
            self.is_gone = True
        return message

    async def send(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            self.is_gone = True
            raise
        kind = message["type"]
        exchange = self._exchange
        if kind == "http.response.start":
            exchange.begin_response(message.get("status", 0), _headers(message))
        elif kind == "http.response.body":
            exchange.add(message.get("body", b""))
            if not message.get("more_body", False):
                exchange.end()
        elif kind in ("http.response.pathsend", "http.response.zerocopysend"):
            exchange.end(unread="the server sends it from a file")


def _headers(message: MutableMapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in message.get("headers", ()):
        yield bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1")
