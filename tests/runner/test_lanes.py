"""Lanes: where evaluators run, and their time limits."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from agenteval_otel.engine import Lanes
from tests.runner.support import alone, forever, run
from tests.testing.doubles import Fixed, Free, Thinking, enter_and_wait


def test_each_lane_has_its_place() -> None:
    """``free`` and ``model`` run on the loop's thread, ``cpu`` on a thread of its own, which ends with the lanes."""
    places: dict[str, threading.Thread] = {}

    def here(name: str) -> Score:
        places[name] = threading.current_thread()
        return Score(value=1.0)

    async def there(_: EvaluationInput) -> Score:
        return here("model")

    for evaluator in (Free(action=lambda _: here("free")), Fixed(action=lambda _: here("cpu")), Thinking(action=there)):
        assert alone(evaluator)[0].score == 1.0
    assert places["free"] is places["model"] is threading.current_thread()
    assert places["cpu"].name == "agenteval-cpu"
    places["cpu"].join(10)
    assert not places["cpu"].is_alive()


@pytest.mark.parametrize("kind", [Fixed, Free])
@pytest.mark.parametrize("error", [ValueError("x"), EvaluationSkipped("nothing"), EvaluationError("y", error_type="z")])
def test_errors_of_a_sync_evaluator_come_back(kind: type[Fixed], error: Exception) -> None:
    """What an evaluator raises comes back as it is, from whatever thread."""

    def fail(_: EvaluationInput) -> Score:
        raise error

    with pytest.raises(type(error)) as caught:
        alone(kind(action=fail))
    assert caught.value is error


def test_exits_in_the_cpu_lane_are_errors() -> None:
    """SystemExit on the lane's thread is this evaluator's failure; the thread serves the next one."""

    def leave(_: EvaluationInput) -> Score:
        raise SystemExit(2)

    async def both() -> float | None:
        with pytest.raises(EvaluationError) as caught:
            await run(lanes, Fixed(action=leave))
        assert caught.value.error_type == "SystemExit"
        (result,) = await run(lanes, Fixed(value=0.25))
        return result.normalized

    lanes = Lanes()
    assert asyncio.run(both()) == 0.25
    lanes.close()


def test_an_async_evaluator_has_a_time_limit() -> None:
    """An evaluator that waits for longer than its limit is cancelled and has failed with ``timeout``."""
    cancelled: list[bool] = []

    async def waits(_: EvaluationInput) -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(EvaluationError, match=r"no result within 0\.02 s") as caught:
        alone(Thinking(action=waits, timeout_s=0.02))
    assert caught.value.error_type == "timeout"
    assert cancelled == [True]


def test_a_blocking_evaluator_has_a_time_limit() -> None:
    """An evaluator that blocks its thread has failed with ``timeout``, and the next one gets a fresh thread."""
    entered, leave = threading.Event(), threading.Event()
    stuck = Fixed(action=lambda _: enter_and_wait(entered, leave), timeout_s=0.05)

    async def both() -> list[EvaluationResult]:
        with pytest.raises(EvaluationError) as caught:
            await run(lanes, stuck)
        assert caught.value.error_type == "timeout"
        return await run(lanes, Fixed())

    lanes = Lanes()
    assert asyncio.run(both())[0].score == 0.5
    assert repr(lanes) == "<Lanes stuck=1 left_behind=0>"
    leave.set()
    lanes.close()


def test_the_time_limit_begins_with_the_evaluation() -> None:
    """An evaluation that waits behind a slow one is not charged for the wait."""
    entered, leave = threading.Event(), threading.Event()
    slow = Fixed(action=lambda _: enter_and_wait(entered, leave) or Score(value=1.0), timeout_s=10)

    async def both() -> float | None:
        first = asyncio.ensure_future(run(lanes, slow))
        assert await asyncio.to_thread(entered.wait, 10)
        second = asyncio.ensure_future(run(lanes, Fixed(timeout_s=0.05)))
        await asyncio.wait({second}, timeout=0.2)
        assert not second.done()
        leave.set()
        assert (await first)[0].score == 1.0
        return (await second)[0].normalized

    lanes = Lanes()
    assert asyncio.run(both()) == 0.5
    lanes.close()


@pytest.mark.parametrize("late", ["answer", "error"])
def test_what_comes_too_late_makes_no_noise(late: str, caplog: pytest.LogCaptureFixture) -> None:
    """An evaluation that comes back after its limit, with an answer or an error, is dropped in silence."""
    entered, leave = threading.Event(), threading.Event()

    def act(_: EvaluationInput) -> Score:
        enter_and_wait(entered, leave)
        if late == "error":
            raise ValueError("late")
        return Score(value=1.0)

    async def both() -> None:
        with pytest.raises(EvaluationError):
            await run(lanes, Fixed(action=act, timeout_s=0.02))
        leave.set()
        await run(lanes, Fixed())
        gc.collect()
        await run(lanes, Fixed())

    lanes = Lanes()
    asyncio.run(both())
    lanes.close()
    gc.collect()
    assert [entry.message for entry in caplog.records] == []


class Turn:
    def __await__(self) -> Iterator[None]:
        yield


class Misplaced(Thinking):
    """Async, but says that it computes."""

    @property
    def lane(self) -> Any:
        return "cpu"


def test_awaiting_in_the_cpu_lane_is_told() -> None:
    """An evaluator that awaits in the ``cpu`` lane fails with ``wrong_lane`` instead of hanging."""

    async def wait(_: EvaluationInput) -> None:
        await Turn()

    with pytest.raises(EvaluationError, match="must not await") as caught:
        alone(Misplaced(action=wait))
    assert caught.value.error_type == "wrong_lane"
    assert alone(Misplaced())[0].score == 0.75


def test_not_more_models_at_once_than_allowed() -> None:
    """The ``model`` lane asks at most so many at once; the wait for a place is outside of the time limit."""
    now = [0, 0]

    async def think(_: EvaluationInput) -> None:
        now[0] += 1
        now[1] = max(now)
        for _ in range(5):
            turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            await turn
        now[0] -= 1

    async def many() -> int:
        evaluator = Thinking(action=think)
        return len(await asyncio.gather(*(run(lanes, evaluator) for _ in range(20))))

    lanes = Lanes(model_concurrency=3)
    assert asyncio.run(many()) == 20
    assert now == [0, 3]
    assert asyncio.run(many()) == 20  # on another loop, too


def test_a_cancelled_run_cancels_its_evaluator() -> None:
    """When the run itself is cancelled, the evaluator's task goes with it."""
    cancelled: list[bool] = []

    async def begin() -> None:
        started = asyncio.Event()

        async def waits(_: EvaluationInput) -> None:
            started.set()
            try:
                await forever()
            finally:
                cancelled.append(True)

        task = asyncio.ensure_future(run(Lanes(), Thinking(action=waits)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(begin())
    assert cancelled == [True]
