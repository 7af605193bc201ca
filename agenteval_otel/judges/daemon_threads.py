"""Runs plain functions on daemon threads of their own, so that one that never returns blocks nobody else.

The event loop's own threads are few and resolve names too: six functions that hang would silence every judge of the
process and delay its exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from agenteval_otel.errors import JudgeError

__all__ = ["DaemonThreads"]

T = TypeVar("T")
_MOST_LEFT: Final = 16


class DaemonThreads:
    """Calls plain functions of one judge, each on a daemon thread; of those that are given up 16 are left behind."""

    def __init__(self) -> None:
        self._left: set[threading.Thread] = set()

    def __repr__(self) -> str:
        return f"<DaemonThreads left={len(self._left)}>"

    async def run(self, function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        """What the function gives, in the caller's context; whoever is cancelled leaves the thread behind.

        Raises:
            JudgeError: ``timeout``: too many calls never came back. ``server_error``: it wanted to end its thread.
            Exception: Whatever the function raised.
        """
        if len(self._left) >= _MOST_LEFT and len(self._alive()) >= _MOST_LEFT:
            raise JudgeError(f"{_MOST_LEFT} calls of the model never came back", error_type="timeout")
        context, loop = contextvars.copy_context(), asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def call() -> None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = context.run(function, *positional, **named), None
            except BaseException as error:
                outcome = None, error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_put, done, outcome)

        thread = threading.Thread(target=call, name="agenteval-judge")
        if not thread.daemon:  # else what it has inherited says more than True
            thread.daemon = True
        thread.start()
        try:
            value, error = await done
        except asyncio.CancelledError:
            self._left.add(thread)
            raise
        if error is not None:
            raise error if isinstance(error, Exception) and not isinstance(error, StopIteration) else _ended(error)
        return value

    def _alive(self) -> set[threading.Thread]:
        self._left = {thread for thread in self._left.copy() if thread.is_alive()}
        return self._left


def _put(done: asyncio.Future[T], outcome: T) -> None:
    if not done.done():
        done.set_result(outcome)


def _ended(error: BaseException) -> JudgeError:
    return JudgeError(f"the model raised {type(error).__name__}", error_type="server_error")
