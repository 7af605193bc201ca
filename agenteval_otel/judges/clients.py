"""Clients: one of a kind an event loop, made where it is first needed, closed when the loop ends.

A connection belongs to the loop that opened it, and to the process: a forked worker that went on with its parent's
would read the other's answers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from agenteval_otel.judges.quiet import quietly

__all__ = ["Clients"]

_MOST: Final = 4


class Clients:
    """The clients of a judge, by event loop and by the key they send. They are made and used on their loop only."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, _Held]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Clients loops={len(self._held)}>"

    async def get(self, key: str | None, make: Callable[[], Any]) -> Any:
        """The running loop's client with the key."""
        if self._pid != os.getpid():
            self._held, self._pid = WeakKeyDictionary(), os.getpid()
        held = self._held.setdefault(asyncio.get_running_loop(), {})
        found = held.get(key)
        if found is None:
            # A key that is changed every hour leaves a client behind each time.
            oldest = [held.pop(next(iter(held))) for _ in range(len(held) - _MOST + 1)]
            found = held[key] = _Held(make())
            await found.begin()
            for one in oldest:
                await one.generator.aclose()
        return found.client

    async def close(self) -> None:
        """Close the running loop's clients."""
        held = self._held.pop(asyncio.get_running_loop(), {})
        if self._pid == os.getpid():
            for one in held.values():
                await one.generator.aclose()


class _Held:
    """A client with the generator that closes it: an ending loop finishes the generators that were begun on it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.generator = _until_closed(client)

    async def begin(self) -> None:
        await anext(self.generator)


async def _until_closed(client: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        with quietly():
            await (client.aclose() if hasattr(client, "aclose") else client.close())
