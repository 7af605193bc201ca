"""Evaluators that get stuck: quarantined, left behind, and silent when they come back."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from agenteval_otel.execution import MAX_STRIKES, Executor
from agenteval_otel.models import EvaluationInput
from tests.execution.support import forever, outcome, outcomes, with_executor
from tests.testing.doubles import Fixed, Free, Thinking

TIMEOUTS = ["timeout"] * MAX_STRIKES


def test_an_evaluator_that_blocks_too_often_is_quarantined() -> None:
    leave = threading.Event()
    calls: list[int] = []

    def block(_: EvaluationInput) -> None:
        calls.append(1)
        leave.wait(20)

    async def work(executor: Executor) -> None:
        stuck = Fixed(action=block, timeout_s=0.02)
        assert await outcomes(executor, stuck, MAX_STRIKES + 2) == [*TIMEOUTS, "quarantined", "quarantined"]
        assert await outcome(executor, Fixed()) == "scored"

    with_executor(work)
    assert len(calls) == MAX_STRIKES
    leave.set()


def test_an_evaluator_that_ignores_cancellation_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """An async evaluator that goes on after its cancellation times out, is counted, quarantined, and then silent."""

    async def work(executor: Executor) -> None:
        release = asyncio.get_running_loop().create_future()

        async def stubborn(_: EvaluationInput) -> None:
            while not release.done():
                try:
                    await asyncio.shield(release)
                except asyncio.CancelledError:
                    continue
            raise ValueError("late")

        evaluator = Thinking(action=stubborn, timeout_s=0.02)
        assert await outcomes(executor, evaluator, MAX_STRIKES + 1) == [*TIMEOUTS, "quarantined"]
        assert (executor.state(evaluator).strikes, len(executor.started_async())) == (MAX_STRIKES, MAX_STRIKES)
        release.set_result(None)
        await asyncio.wait(executor.started_async())

    with_executor(work)
    gc.collect()
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_quarantined" in line


class Slow(asyncio.Future[None]):
    def cancel(self, msg: Any = None) -> bool:
        time.sleep(0.3)
        return super().cancel(msg)


async def held_up(_: EvaluationInput) -> None:
    await Slow()


@pytest.mark.parametrize("action", [forever, held_up])
def test_an_overrun_that_ends_when_cancelled_is_no_strike(action: Any) -> None:
    """A slow model is no defect, however late the loop is: its timeouts never lead to quarantine."""

    async def work(executor: Executor) -> int:
        evaluator = Thinking(action=action, timeout_s=0.01)
        assert await outcomes(executor, evaluator, MAX_STRIKES + 2) == [*TIMEOUTS, "timeout", "timeout"]
        return executor.state(evaluator).strikes

    assert with_executor(work) == 0


def test_an_evaluator_that_blocks_the_background_thread_is_moved_and_then_quarantined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Named in the log once, it runs in a thread from now on, whatever its settings say; the third time ends it."""

    async def work(executor: Executor) -> None:
        for evaluator in (Free(), Fixed(execution="inline"), Thinking()):
            before = executor.mode(evaluator)
            assert before in ("inline", "async")
            executor.state(evaluator).blocked(2.0)
            assert (executor.mode(evaluator), await outcome(executor, evaluator)) == ("thread", "scored")
        blocking = Free(criterion_name="blocking")
        for _ in range(MAX_STRIKES):
            executor.state(blocking).blocked(2.0)
        assert await outcome(executor, blocking) == "quarantined"

    with_executor(work, live=True)
    lines = [entry.message for entry in caplog.records if "Free:blocking" in entry.message]
    assert [line.split("'")[1] for line in lines] == ["evaluator_blocked", "evaluator_quarantined"]
