"""Executor: where evaluators run, and their time limits."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel.engine.execution import MAX_STRIKES, Executor
from agenteval_otel.engine.execution.threads import MAX_THREADS
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.models import EvaluationInput, Score
from tests.execution.support import alone, forever, outcome, outcomes, run, with_executor
from tests.testing.computing import Computing
from tests.testing.doubles import Fixed, Free, Thinking, enter_and_wait


def test_each_execution_has_its_place() -> None:
    places: dict[str, threading.Thread] = {}

    def here(name: str) -> Score:
        places[name] = threading.current_thread()
        return Score(value=1.0)

    async def there(_: EvaluationInput) -> Score:
        return here("async")

    inline, threaded = Free(action=lambda _: here("inline")), Fixed(action=lambda _: here("thread"))
    for evaluator in (inline, threaded, Thinking(action=there)):
        assert alone(evaluator)[0].score == 1.0
    assert places["inline"] is places["async"] is threading.current_thread()
    assert places["thread"].name == "agenteval-evaluator"
    places["thread"].join(10)
    assert not places["thread"].is_alive()


def test_an_evaluator_that_exits_or_cancels_itself_has_failed() -> None:
    def leave(_: EvaluationInput) -> Score:
        raise SystemExit(2)

    async def gives_up(_: EvaluationInput) -> None:
        raise asyncio.CancelledError

    async def work(executor: Executor) -> list[str]:
        evaluators = Fixed(action=leave), Thinking(action=gives_up), Fixed()
        return [await outcome(executor, evaluator) for evaluator in evaluators]

    assert with_executor(work) == ["SystemExit", "cancelled", "scored"]


def test_the_time_limit_begins_with_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    # no other thread takes it
    monkeypatch.setattr("agenteval_otel.engine.execution.threads.LOOK_AHEAD_S", 60.0)
    entered, leave = threading.Event(), threading.Event()
    slow = Fixed(action=lambda _: enter_and_wait(entered, leave) or Score(value=1.0), timeout_s=10)

    async def work(executor: Executor) -> None:
        first = asyncio.ensure_future(outcome(executor, slow))
        assert await asyncio.to_thread(entered.wait, 10)
        # Its limit passes while it waits, and is long enough for a busy machine to evaluate it
        # afterwards.
        second = asyncio.ensure_future(outcome(executor, Fixed(timeout_s=1.0)))
        await asyncio.wait({second}, timeout=1.2)
        assert not second.done()
        leave.set()
        assert [await first, await second] == ["scored", "scored"]

    with_executor(work)


@pytest.mark.parametrize("late", ["answer", "error"])
def test_what_comes_too_late_makes_no_noise(late: str, caplog: pytest.LogCaptureFixture) -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(_: EvaluationInput) -> Score:
        enter_and_wait(entered, leave)
        if late == "error":
            raise ValueError("late")
        return Score(value=1.0)

    async def work(executor: Executor) -> None:
        assert await outcome(executor, Fixed(action=act, timeout_s=0.02)) == "timeout"
        leave.set()
        await run(executor, Fixed())
        gc.collect()
        await run(executor, Fixed())

    with_executor(work)
    gc.collect()
    assert [entry.message for entry in caplog.records] == []


class Turn:
    def __await__(self) -> Iterator[None]:
        yield


class Hidden(CriterionEvaluator):
    criterion_name: str = "hidden"

    def score(self, evaluation_input: EvaluationInput) -> Any:
        async def wait() -> Score:
            await Turn()
            await asyncio.sleep(0.001)
            return Score(value=threading.current_thread() is threading.main_thread())

        return wait()


@pytest.mark.parametrize(
    ("execution", "on_the_loop"), [(None, True), ("thread", False), ("async", True)]
)
def test_a_plain_function_may_give_an_awaitable(execution: Any, on_the_loop: bool) -> None:
    """One that turns out to await becomes a task; told to run in a thread, it has an event loop
    there.
    """
    assert alone(Hidden(execution=execution))[0].score is on_the_loop


def test_an_async_evaluator_can_run_in_a_thread() -> None:
    async def act(_: EvaluationInput) -> Score:
        await asyncio.sleep(0)
        return Score(value=threading.current_thread() is not threading.main_thread())

    (result,) = alone(Thinking(action=act, execution="thread"))
    assert (result.score, result.calls_model) == (True, True)
    with pytest.raises(EvaluationError, match="no result within") as caught:
        alone(Thinking(action=forever, execution="thread", timeout_s=0.02))
    assert caught.value.error_type == "timeout"


def evaluator_threads() -> int:
    return sum(thread.name == "agenteval-evaluator" for thread in threading.enumerate())


def test_an_answer_does_not_wait_behind_a_long_one() -> None:
    entered, leave = threading.Event(), threading.Event()
    long = Fixed(action=lambda _: enter_and_wait(entered, leave) or Score(value=1.0), timeout_s=10)

    async def work(executor: Executor) -> None:
        first = asyncio.ensure_future(outcome(executor, long))
        assert await outcome(executor, Fixed()) == "scored"
        assert not first.done()
        more = [asyncio.ensure_future(outcome(executor, long)) for _ in range(MAX_THREADS + 1)]
        while evaluator_threads() < MAX_THREADS:
            await asyncio.wait({first}, timeout=0.02)
        assert evaluator_threads() == MAX_THREADS
        leave.set()
        assert await asyncio.gather(first, *more) == ["scored"] * (MAX_THREADS + 2)

    with_executor(work, live=True)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenteval_otel.engine.execution.executor.MAX_WAITING", 15)

    async def work(executor: Executor) -> list[str]:
        evaluator = Fixed()
        outcomes = await asyncio.gather(*(outcome(executor, evaluator) for _ in range(20)))
        assert all(load.waiting == 0 for load in executor.loads.values())
        return sorted(outcomes)

    assert with_executor(work) == ["queue_full"] * 5 + ["scored"] * 15


def test_not_more_models_at_once_than_allowed() -> None:
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
        return len(await asyncio.gather(*(run(executor, evaluator) for _ in range(20))))

    executor = Executor(live=False, async_concurrency=3)
    assert asyncio.run(many()) == 20
    assert now == [0, 3]
    assert asyncio.run(many()) == 20  # on another loop, too


def test_closed_loops_are_forgotten() -> None:
    executor, loops = Executor(live=True), []

    async def work(evaluator: Evaluator) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await run(executor, evaluator)

    for evaluator in (Thinking(), Computing(), Fixed(), Thinking(), Computing()):
        asyncio.run(work(evaluator))
    executor.close()
    gc.collect()
    assert executor.state(evaluator).mode == "process"
    assert [loop() for loop in loops[:2]] == [None, None]


TIMEOUTS = ["timeout"] * MAX_STRIKES


def test_an_evaluator_that_blocks_too_often_is_quarantined() -> None:
    leave = threading.Event()
    calls: list[int] = []

    def block(_: EvaluationInput) -> None:
        calls.append(1)
        leave.wait(20)

    async def work(executor: Executor) -> None:
        stuck = Fixed(action=block, timeout_s=0.02)
        assert await outcomes(executor, stuck, MAX_STRIKES + 2) == [
            *TIMEOUTS,
            "quarantined",
            "quarantined",
        ]
        assert await outcome(executor, Fixed()) == "scored"

    with_executor(work)
    assert len(calls) == MAX_STRIKES
    leave.set()


def test_an_evaluator_that_ignores_cancellation_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
        assert (executor.state(evaluator).strikes, len(executor.started_async())) == (
            MAX_STRIKES,
            MAX_STRIKES,
        )
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
        assert await outcomes(executor, evaluator, MAX_STRIKES + 2) == [
            *TIMEOUTS,
            "timeout",
            "timeout",
        ]
        return executor.state(evaluator).strikes

    assert with_executor(work) == 0


def test_an_evaluator_that_blocks_the_background_thread_is_moved_and_then_quarantined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Named in the log once, it runs in a thread from now on, whatever its settings say; the third
    time ends it.
    """

    async def work(executor: Executor) -> None:
        for evaluator in (Free(), Fixed(execution="inline"), Thinking()):
            before = executor.state(evaluator).mode
            assert before in ("inline", "async")
            executor.state(evaluator).blocked(2.0)
            assert (executor.state(evaluator).mode, await outcome(executor, evaluator)) == (
                "thread",
                "scored",
            )
        blocking = Free(criterion_name="blocking")
        for _ in range(MAX_STRIKES):
            executor.state(blocking).blocked(2.0)
        assert await outcome(executor, blocking) == "quarantined"

    with_executor(work, live=True)
    lines = [entry.message for entry in caplog.records if "Free:blocking" in entry.message]
    assert [line.split("'")[1] for line in lines] == ["evaluator_blocked", "evaluator_quarantined"]
