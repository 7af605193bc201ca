"""Evaluators that get stuck: quarantined, left behind, and silent when they come back."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution import MAX_STRIKES, Executor
from agenteval_otel.models import EvaluationInput
from tests.execution.support import alone, forever, run
from tests.testing.doubles import Fixed, Free, Thinking


def test_who_blocks_too_often_is_quarantined() -> None:
    """After a few overruns a blocking evaluator fails at once, without another thread; others are not touched."""
    leave = threading.Event()
    calls: list[int] = []

    def block(_: EvaluationInput) -> None:
        calls.append(1)
        leave.wait(20)

    stuck = Fixed(action=block, timeout_s=0.02)

    async def many() -> list[str]:
        words = []
        for _ in range(MAX_STRIKES + 2):
            with pytest.raises(EvaluationError) as caught:
                await run(executor, stuck)
            words.append(caught.value.error_type)
        assert (await run(executor, Fixed()))[0].score == 0.5
        return words

    executor = Executor(live=False)
    assert asyncio.run(many()) == ["timeout"] * MAX_STRIKES + ["quarantined"] * 2
    assert len(calls) == MAX_STRIKES
    leave.set()
    executor.close()


def test_who_ignores_cancellation_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """An async evaluator that goes on after its cancellation times out, is counted, quarantined, and then silent."""

    async def many() -> list[str]:
        release = asyncio.get_running_loop().create_future()

        async def stubborn(_: EvaluationInput) -> None:
            while not release.done():
                try:
                    await asyncio.shield(release)
                except asyncio.CancelledError:
                    continue
            raise ValueError("late")

        evaluator = Thinking(action=stubborn, timeout_s=0.02)
        words = []
        for _ in range(MAX_STRIKES + 1):
            with pytest.raises(EvaluationError) as caught:
                await run(executor, evaluator)
            words.append(caught.value.error_type)
        tasks = executor._loops[asyncio.get_running_loop()].tasks
        assert (executor.state(evaluator).strikes, len(tasks.started)) == (MAX_STRIKES, MAX_STRIKES)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        release.set_result(None)
        await asyncio.wait(left)
        assert not tasks.started
        return words

    executor = Executor(live=False)
    assert asyncio.run(many()) == ["timeout"] * MAX_STRIKES + ["quarantined"]
    gc.collect()
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_quarantined" in line


def test_an_overrun_that_takes_its_cancellation_is_not_held_against_it() -> None:
    """A slow model is no defect: timeouts that end cleanly never lead to quarantine."""

    async def many() -> set[str]:
        evaluator, words = Thinking(action=forever, timeout_s=0.01), set()
        for _ in range(MAX_STRIKES + 2):
            with pytest.raises(EvaluationError) as caught:
                await run(executor, evaluator)
            words.add(caught.value.error_type)
        return words

    executor = Executor(live=False)
    assert asyncio.run(many()) == {"timeout"}


def test_a_loop_that_is_late_is_not_held_against_who_took_its_cancellation() -> None:
    """When the loop stands still in that moment, the evaluation has ended before anybody looks whether it did."""

    class Slow(asyncio.Future[None]):
        def cancel(self, msg: Any = None) -> bool:
            time.sleep(0.3)  # the machine is busy, for longer than an evaluation has to end in
            return super().cancel(msg)

    async def held_up(_: EvaluationInput) -> None:
        await Slow()

    async def many() -> list[str]:
        words = []
        for _ in range(MAX_STRIKES + 2):
            with pytest.raises(EvaluationError) as caught:
                await run(executor, evaluator)
            words.append(caught.value.error_type)
        return words

    evaluator, executor = Thinking(action=held_up, timeout_s=0.01), Executor(live=False)
    assert asyncio.run(many()) == ["timeout"] * (MAX_STRIKES + 2)
    assert executor.state(evaluator).strikes == 0


def test_an_evaluator_that_cancels_itself_has_failed() -> None:
    """A CancelledError that nobody asked for is this evaluator's failure, not the run's end."""

    async def gives_up(_: EvaluationInput) -> None:
        raise asyncio.CancelledError

    with pytest.raises(EvaluationError) as caught:
        alone(Thinking(action=gives_up))
    assert caught.value.error_type == "cancelled"


def test_who_blocks_the_background_thread_is_moved_and_then_quarantined(caplog: pytest.LogCaptureFixture) -> None:
    """Named in the log once, it runs in a thread from now on, whatever its settings say; the third time ends it."""

    async def work() -> list[str]:
        words = []
        for evaluator in (Free(), Fixed(execution="inline"), Thinking()):
            before = executor.mode(evaluator)
            executor.blame(evaluator, 2.0)
            (result,) = await run(executor, evaluator)
            words += [before, executor.mode(evaluator), result.status]
        blocking = Free(criterion_name="blocking")
        for _ in range(MAX_STRIKES):
            executor.blame(blocking, 2.0)
        with pytest.raises(EvaluationError) as caught:
            await run(executor, blocking)
        return [*words, caught.value.error_type]

    executor = Executor(live=True)
    words = asyncio.run(work())
    executor.close()
    moved = ["inline", "thread", "scored"]
    assert words == [*moved, *moved, "async", "thread", "scored", "quarantined"]
    lines = [entry.message for entry in caplog.records if "Free:blocking" in entry.message]
    assert [line.split("'")[1] for line in lines] == ["evaluator_blocked", "evaluator_quarantined"]


def test_the_tasks_that_run_are_known() -> None:
    """A watchdog finds the evaluator by the task of the loop that stands still."""

    async def work() -> None:
        async def look(_: EvaluationInput) -> None:
            task = asyncio.current_task()
            assert task is not None
            seen.append(executor.started_async()[task])

        evaluator = Thinking(action=look)
        await run(executor, evaluator)
        assert seen == [evaluator]
        assert executor.started_async() == {}

    seen: list[object] = []
    executor = Executor(live=True)
    asyncio.run(work())
