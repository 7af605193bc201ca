"""Blocking: a coroutine's result for code without an event loop, and for code that stands inside of a running one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["blocking"]

T = TypeVar("T")
_LOOK_AGAIN_S = 0.1


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run what `work` gives on a loop of its own and give its result; inside of a running loop on a thread of its own.

    An interrupt of the user ends the work, wherever it runs, and is raised when it has ended.
    """
    if not _is_in_a_loop():  # not below its except: what `work` raises would be told as following from it
        return asyncio.run(work())
    caller = asyncio.current_task()
    finished: Future[T] = Future()
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work()

    def run() -> None:
        try:
            finished.set_result(asyncio.run(watched()))
        except BaseException as error:
            finished.set_exception(error)

    thread = threading.Thread(target=run, name="agenteval-offline")
    thread.start()
    try:
        while thread.is_alive() and not (caller is not None and caller.cancelling()):
            thread.join(_LOOK_AGAIN_S)  # the loop takes the interrupt as a cancellation, which cannot reach us here
    finally:
        if thread.is_alive():
            loop, task = begun.result()
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
    return finished.result()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
