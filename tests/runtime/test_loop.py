"""A call that waits for the loop's thread ends with its coroutine, whenever it is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from agenteval_otel.runtime import loop as loop_module
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
def test_an_interrupt_while_it_is_begun_cancels_it(
    loop_thread: LoopThread, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coroutine may be at work before the caller comes as far as to wait for it."""
    events: list[str] = []

    async def work() -> None:
        events.append("started")
        try:
            await endless()
        finally:
            await asyncio.sleep(0)
            events.append("ended")

    begin = loop_module._Run.begin

    def interrupted(run: Any, *arguments: Any) -> None:
        if begun:
            begin(run, *arguments)
            while not events:
                pass
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_module._Run, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(work)
    assert events == (["started", "ended"] if begun else [])
