"""The HTTP client of judges and embedders: one per event loop, no redirects, bounded responses, no log lines.

A redirect would carry the key along; compression is not asked for, since a small body may grow huge. The client has no
time limit of its own: the deadline of the request ends it. httpx2 is imported here only, with the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agenteval_otel.http_client.replies import unreadable

if TYPE_CHECKING:
    import ssl

    import httpx2

_ERROR_BYTES: Final = 65_536
_KEPT_OPEN, _IDLE_S = 64, 30.0
_LOGGERS: Final = ("anthropic", "httpx2", "httpcore2")
_requesting: ContextVar[bool] = ContextVar("agenteval_requesting", default=False)


@cache
def trusted() -> ssl.SSLContext:
    """The certificates that clients trust, read once a process. Slow: do not call it on an event loop."""
    import httpx2

    return httpx2.create_ssl_context()


def client_for(url: str, *, max_bytes: int) -> httpx2.AsyncClient:
    """A client for one address, to be used and closed on the running event loop.

    A response body of more than `max_bytes` fails; that of an error is cut at 64 KiB, since its status is enough.
    """
    import httpx2

    _filter_logs()

    class Bounded(_Bounded, httpx2.AsyncByteStream):
        """A stream of the type that the client expects."""

    # Building a request, sending it and reading the response are separate turns of the loop: each is short.
    async def before(request: httpx2.Request) -> None:
        await asyncio.sleep(0)
        request.headers["accept-encoding"] = "identity"

    async def after(response: httpx2.Response) -> None:
        await asyncio.sleep(0)
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise unreadable("is compressed")  # so its size is unknown
        is_error = response.status_code >= 400
        response.stream = Bounded(response.stream, _ERROR_BYTES if is_error else max_bytes, cuts=is_error)

    return httpx2.AsyncClient(
        base_url=url, timeout=None, follow_redirects=False, verify=trusted(),
        event_hooks={"request": [before], "response": [after]},
        limits=httpx2.Limits(max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=_IDLE_S),
    )  # fmt: skip


class _Bounded:
    """A body that fails beyond the limit, or is cut there."""

    def __init__(self, stream: Any, limit: int, *, cuts: bool) -> None:
        self._stream, self._limit, self._cuts = stream, limit, cuts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for part in self._stream:
            left -= len(part)
            if left < 0 and self._cuts:
                return
            if left < 0:
                raise unreadable(f"is longer than {self._limit} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
        await asyncio.sleep(0)


@contextmanager
def quietly() -> Iterator[None]:
    """Inside this block the context's requests are neither logged by the clients nor traced by instrumentation.

    At debug level a client logs all that it sends: the answers under evaluation.
    """
    from opentelemetry import context
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

    # Older instrumentation reads the plain key.
    suppressed = context.set_value("suppress_instrumentation", True)
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, suppressed))
    flag = _requesting.set(True)
    try:
        yield
    finally:
        _requesting.reset(flag)
        context.detach(token)


def _filter_logs() -> None:
    """Add the filter to the clients' loggers, which exist once the clients are imported; repeatable."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] in _LOGGERS and isinstance(logger, logging.Logger):
            logger.addFilter(_is_of_the_host)


def _is_of_the_host(record: logging.LogRecord) -> bool:
    return not _requesting.get()


class LoopClients:
    """The clients of a model, one per process and event loop, closed when the loop ends or the model is gone.

    A connection belongs to the loop that opened it, and to the process: a forked worker that went on with its parent's
    would read the other's responses.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[int, asyncio.AbstractEventLoop], _OpenClient] = {}
        weakref.finalize(self, _close_soon, self._clients).atexit = False

    async def get(self, connect: Callable[[], Any]) -> Any:
        """The running loop's client, made by `connect` where there is none."""
        place = os.getpid(), asyncio.get_running_loop()
        if place not in self._clients:
            for pid, loop in list(self._clients):
                if pid != place[0] or loop.is_closed():
                    self._clients.pop((pid, loop), None)
            for client in [client for client in _OPEN if client.loop.is_closed()]:  # without finishing its generators
                _OPEN.discard(client)
            self._clients[place] = _OpenClient(connect())
            await anext(self._clients[place].closing)
        return self._clients[place].client

    async def close(self) -> None:
        """Close the running loop's client."""
        client = self._clients.pop((os.getpid(), asyncio.get_running_loop()), None)
        if client is not None:
            await client.closing.aclose()


class _OpenClient:
    """A client with the generator that closes it: a loop that ends finishes the generators that were begun on it."""

    def __init__(self, client: Any) -> None:
        self.client, self.loop = client, asyncio.get_running_loop()
        self.closing = self._until_closed()
        _OPEN.add(self)

    async def _until_closed(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    def close_soon(self) -> None:
        self.closing_task = self.loop.create_task(self._close())  # a loop keeps no task alive

    async def _close(self) -> None:
        with quietly():
            await (self.client.aclose() if hasattr(self.client, "aclose") else self.client.close())
        _OPEN.discard(self)


_OPEN: Final[set[_OpenClient]] = set()
"""A loop finishes only generators that are still there, and a model often goes away just before its loop ends."""


def _close_soon(clients: dict[tuple[int, asyncio.AbstractEventLoop], _OpenClient]) -> None:
    """Close the clients of a model that is gone, each on its loop."""
    for (_, loop), client in clients.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(client.close_soon, context=contextvars.Context())
