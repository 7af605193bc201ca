"""The HTTP client for judges and embedders. It follows no redirects, bounds what it reads and leaves no trace in the
host's logs.

A redirect would carry the key along; compression is not asked for, since a small body may grow huge. The client has no
time limit of its own: the deadline of the request ends it. httpx2 is imported here only, with the first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agenteval_otel.http_client.replies import unreadable

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["client_for", "quietly", "trusted"]

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

    Args:
        url: The paths of requests are appended to it.
        max_bytes: Longest response body, in bytes.
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
        _check(response, max_bytes)
        failed = response.status_code >= 400
        response.stream = Bounded(response.stream, _ERROR_BYTES if failed else max_bytes, failed)

    return httpx2.AsyncClient(
        base_url=url, timeout=None, follow_redirects=False, verify=trusted(),
        event_hooks={"request": [before], "response": [after]},
        limits=httpx2.Limits(max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=_IDLE_S),
    )  # fmt: skip


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


def _check(response: Any, limit: int) -> None:
    """Refuse a compressed body, whose size is unknown, and a body that announces more than the limit."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise unreadable("is compressed")
    length = response.headers.get("content-length", "")
    if response.status_code < 400 and length.isdecimal() and int(length[:18]) > limit:
        raise unreadable(f"is longer than {limit} bytes")


class _Bounded:
    """A body that fails beyond the limit. The body of an error is cut there instead: its status is enough."""

    def __init__(self, stream: Any, limit: int, cut: bool) -> None:
        self._stream, self._limit, self._cut = stream, limit, cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for part in self._stream:
            left -= len(part)
            if left < 0:
                if self._cut:
                    return
                raise unreadable(f"is longer than {self._limit} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
        await asyncio.sleep(0)
