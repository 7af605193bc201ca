"""Clients: one of a kind an event loop, made where it is first needed, closed when the loop ends.

A connection belongs to the loop that opened it, and to the process: a forked worker that went on with its parent's
would read the other's answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import weakref
from collections.abc import AsyncGenerator, Callable, MutableMapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from agenteval_otel.http_client.client import quietly

__all__ = ["Clients"]

_MOST: Final = 4


class Clients:
    """The clients of a model, by event loop and by the key they send. They are made and used on their loop only."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, _Held]] = WeakKeyDictionary()
        # Of a model that nobody has any more, on a loop that goes on.
        weakref.finalize(self, _let_go, self._clients).atexit = False

    def __repr__(self) -> str:
        return f"<Clients loops={len(self._clients)}>"

    async def get(self, key: str | None, make: Callable[[], Any]) -> Any:
        """The running loop's client with the key."""
        if self._pid != os.getpid():
            self._clients.clear()
            self._pid = os.getpid()
        clients_of_loop = self._clients.setdefault(asyncio.get_running_loop(), {})
        client = clients_of_loop.get(key)
        if client is None:
            # A key that is changed every hour leaves a client behind each time.
            oldest = [clients_of_loop.pop(next(iter(clients_of_loop))) for _ in range(len(clients_of_loop) - _MOST + 1)]
            client = clients_of_loop[key] = _Held(make())
            await client.begin()
            for key_of_oldest in oldest:
                await key_of_oldest.generator.aclose()
        return client.client

    async def close(self) -> None:
        """Close the running loop's clients."""
        clients_of_loop = self._clients.pop(asyncio.get_running_loop(), {})
        if self._pid == os.getpid():
            for client in clients_of_loop.values():
                await client.generator.aclose()


class _Held:
    """A client with the generator that closes it: an ending loop finishes the generators that were begun on it.

    It finds those alone that are still there, so they are kept until then: a model often goes away just before.
    """

    def __init__(self, client: Any) -> None:
        self.client, self.loop = client, asyncio.get_running_loop()
        self.generator = self._until_closed()

    async def begin(self) -> None:
        for entry in [entry for entry in _open if entry.loop.is_closed()]:  # without finishing its generators
            _open.discard(entry)
        _open.add(self)
        await anext(self.generator)

    async def close(self) -> None:
        """Close the client, again where it is closed already."""
        with quietly():
            await (self.client.aclose() if hasattr(self.client, "aclose") else self.client.close())
        _open.discard(self)

    async def _until_closed(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.close()


_open: set[_Held] = set()
_closing: set[asyncio.Task[None]] = set()


def _let_go(clients_by_loop: MutableMapping[asyncio.AbstractEventLoop, dict[str | None, _Held]]) -> None:
    for loop, clients in list(clients_by_loop.items()):
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_close_soon, list(clients.values()), context=contextvars.Context())


def _close_soon(clients: list[_Held]) -> None:
    for client in clients:
        task = client.loop.create_task(client.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)
