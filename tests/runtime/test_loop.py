"""A call that waits for the loop's thread ends with its coroutine, whenever it is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from agenteval_otel.runtime.loop import LoopThread


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread("agenteval-test")
    yield thread
    thread.close()


async def endless() -> None:
    """Wait until it is cancelled."""
    await asyncio.Event().wait()


def test_a_call_that_is_unwanted_before_the_first_step_returns(loop_thread: LoopThread) -> None:
    with pytest.raises((CancelledError, asyncio.CancelledError)):
        loop_thread.run(endless, is_unwanted=lambda: True)


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_while_it_is_begun_cancels_it(begun: bool) -> None:
    """The coroutine may be at work before the caller comes as far as to wait for it."""
    events: list[str] = []

    async def work() -> None:
        events.append("started")
        try:
            await endless()
        finally:
            await asyncio.sleep(0)
            events.append("ended")

    def interrupt_first_call(loop: Any) -> None:
        call = loop.call_soon_threadsafe

        def interrupted(callback: Callable[[], None]) -> None:
            loop.call_soon_threadsafe = call
            if begun:
                call(callback)
                while not events:
                    pass
            raise KeyboardInterrupt

        loop.call_soon_threadsafe = interrupted

    loop_thread = LoopThread("agenteval-test", prepare=interrupt_first_call)
    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(work)
    loop_thread.close()
    assert events == (["started", "ended"] if begun else [])
