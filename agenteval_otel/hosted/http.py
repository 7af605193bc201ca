"""HTTP: the client that models are asked through. It goes where it was told to, and reads no more than it was told to.

It follows no redirects, since the key would go along; asks for no compression, since a small body may get huge; and
bounds what it reads. It has no time limit of its own: the deadline of the question ends it. httpx2 is met here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agenteval_otel.hosted.addresses import guard_of
from agenteval_otel.hosted.quiet import watch
from agenteval_otel.hosted.replies import unreadable

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["client_for", "trusted"]

_ERROR_BYTES: Final = 65_536
_KEPT_OPEN, _IDLE_S = 64, 30.0


@cache
def trusted() -> ssl.SSLContext:
    """The certificates that clients trust, read once a process: it takes long, so not on an event loop."""
    import httpx2

    return httpx2.create_ssl_context()


def client_for(url: str, *, max_bytes: int, allow_private: bool) -> httpx2.AsyncClient:
    """A client for one address, to be used and closed on the running event loop.

    Args:
        url: What the paths of requests are added to.
        max_bytes: Longest body of an answer.
        allow_private: Whether a name may lead to an address that is not public.
    """
    import httpx2

    watch()
    guard = guard_of(url, allow_private=allow_private)

    class Bounded(_Bounded, httpx2.AsyncByteStream):
        """A stream as the client wants one."""

    # Building a request, sending it, and reading what came are turns of the loop of their own: each is a short one.
    async def before(request: httpx2.Request) -> None:
        await asyncio.sleep(0)
        request.headers["accept-encoding"] = "identity"
        if guard is not None:
            request.extensions["trace"] = guard

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


def _check(response: Any, limit: int) -> None:
    """Refuse what need not be read: a compressed body says nothing about how long it gets, and none was asked for."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise unreadable("is compressed")
    length = response.headers.get("content-length", "")
    if response.status_code < 400 and length.isdecimal() and int(length[:18]) > limit:
        raise unreadable(f"is longer than {limit} bytes")


class _Bounded:
    """A body that ends with an error beyond the limit. An error's own is cut off there: its status says enough."""

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
