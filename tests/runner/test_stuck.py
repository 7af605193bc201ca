"""Evaluators that get stuck: quarantined, left behind, and silent when they come back."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from agenteval_otel.errors import EvaluationError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.engine import Lanes
from agenteval_otel.engine.lanes import MAX_STUCK
from tests.runner.support import alone, forever, run
from tests.testing.doubles import Fixed, Thinking


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
        for _ in range(MAX_STUCK + 2):
            with pytest.raises(EvaluationError) as caught:
                await run(lanes, stuck)
            words.append(caught.value.error_type)
        assert (await run(lanes, Fixed()))[0].score == 0.5
        return words

    lanes = Lanes()
    assert asyncio.run(many()) == ["timeout"] * MAX_STUCK + ["quarantined"] * 2
    assert len(calls) == MAX_STUCK
    leave.set()
    lanes.close()


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
        for _ in range(MAX_STUCK + 1):
            with pytest.raises(EvaluationError) as caught:
                await run(lanes, evaluator)
            words.append(caught.value.error_type)
        assert repr(lanes) == f"<Lanes stuck={MAX_STUCK} left_behind={MAX_STUCK}>"
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        release.set_result(None)
        await asyncio.wait(left)
        return words

    lanes = Lanes()
    assert asyncio.run(many()) == ["timeout"] * MAX_STUCK + ["quarantined"]
    assert repr(lanes) == f"<Lanes stuck={MAX_STUCK} left_behind=0>"
    gc.collect()
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_quarantined" in line


def test_an_overrun_that_takes_its_cancellation_is_not_held_against_it() -> None:
    """A slow model is no defect: timeouts that end cleanly never lead to quarantine."""

    async def many() -> set[str]:
        evaluator, words = Thinking(action=forever, timeout_s=0.01), set()
        for _ in range(MAX_STUCK + 2):
            with pytest.raises(EvaluationError) as caught:
                await run(lanes, evaluator)
            words.add(caught.value.error_type)
        return words

    lanes = Lanes()
    assert asyncio.run(many()) == {"timeout"}


def test_an_evaluator_that_cancels_itself_has_failed() -> None:
    """A CancelledError that nobody asked for is this evaluator's failure, not the run's end."""

    async def gives_up(_: EvaluationInput) -> None:
        raise asyncio.CancelledError

    with pytest.raises(EvaluationError) as caught:
        alone(Thinking(action=gives_up))
    assert caught.value.error_type == "cancelled"
