"""Moves: evaluators that prove cheap run inline, those that stop being cheap go back; said once."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.execution.threads import CPU_SHARE
from agenteval_otel.evaluators import Evaluator, Func
from agenteval_otel.models import EvaluationInput
from tests.execution.support import run
from tests.testing import computing
from tests.testing.doubles import Fixed, Free


def in_turn(executor: Executor, *evaluators: Any) -> list[Any]:
    async def work() -> list[Any]:
        return [(await run(executor, evaluator))[0] for evaluator in evaluators]

    try:
        return asyncio.run(work())
    finally:
        executor.close()


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.message.split("'")[1] for entry in caplog.records]


def test_a_plain_function_that_proves_cheap_runs_inline(caplog: pytest.LogCaptureFixture) -> None:
    places: list[bool] = []
    here = threading.current_thread()
    evaluator = Func.of(
        lambda _: not places.append(threading.current_thread() is here), criterion_name="c"
    )
    executor = Executor(live=True)
    assert executor.state(evaluator).mode == "thread"
    in_turn(executor, *[evaluator] * 450)
    assert executor.state(evaluator).mode == "inline"
    assert not any(places[:100])
    assert places[-1]
    assert caplog.records == []


def test_one_that_computes_stays_in_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def act(_: EvaluationInput) -> bool:
        calls.append(1)
        computing.compute(0.002 if len(calls) % 25 == 0 else 0.0)
        return True

    evaluator, executor = Func.of(act), Executor(live=True)
    in_turn(executor, *[evaluator] * 220)
    assert executor.state(evaluator).mode == "thread"
    assert caplog.records == []


@pytest.mark.parametrize(("cpu_s", "calls"), [(0.002, 12), (0.01, 7)])
def test_an_inline_evaluator_that_computes_goes_to_a_thread(
    cpu_s: float, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    evaluator, executor = computing.Free(cpu_s=cpu_s), Executor(live=True)
    in_turn(executor, *[evaluator] * calls)
    assert executor.state(evaluator).mode == "thread"
    assert words(caplog) == ["evaluator_moved"]
    assert "ComputingFree:computing_free" in caplog.text
    assert 'execution="process"' in caplog.text


def test_a_long_call_now_and_then_moves_nobody() -> None:
    """A collection of the host's garbage may happen in anybody's turn: cheap calls in between make
    up for it.
    """
    evaluator, executor = Free(), Executor(live=True)
    for _ in range(200):
        executor.state(evaluator).ran_inline(0.004)
        for _ in range(3):
            executor.state(evaluator).ran_inline(0.0001)
    assert executor.state(evaluator).mode == "inline"


def test_a_moved_evaluator_stays_in_its_thread() -> None:
    evaluator, executor = Fixed(), Executor(live=True)
    state = executor.state(evaluator)
    for _ in range(100):
        state.ran_in_thread(0.0)
    assert executor.state(evaluator).mode == "inline"
    for _ in range(2):
        executor.state(evaluator).ran_inline(0.6)
    for _ in range(1000):
        state.ran_in_thread(0.0)
    assert executor.state(evaluator).mode == "thread"


@pytest.mark.parametrize(
    "evaluator", [Fixed(execution="inline"), Fixed(execution="thread"), Fixed(execution="async")]
)
def test_an_explicit_execution_is_obeyed(
    evaluator: Evaluator, caplog: pytest.LogCaptureFixture
) -> None:
    executor, mode = Executor(live=True), evaluator.execution
    for _ in range(300):
        executor.state(evaluator).ran_in_thread(0.0)
        executor.state(evaluator).ran_inline(0.6)
    assert executor.state(evaluator).mode == mode
    assert caplog.records == []


def test_offline_nothing_rests_or_moves(caplog: pytest.LogCaptureFixture) -> None:
    executor = Executor(live=False)
    evaluator = Func.of(lambda _: computing.compute(0.05), criterion_name="c", scale="any")
    result = in_turn(
        executor, *[computing.Free(cpu_s=0.01)] * 4, *[evaluator] * 8, computing.Computing()
    )
    assert len(result) == 13
    assert executor.supervisor is None
    assert caplog.records == []


def test_threads_rest_between_evaluations_that_compute(caplog: pytest.LogCaptureFixture) -> None:
    evaluator = Func.of(lambda _: computing.compute(0.005), criterion_name="c", scale="any")
    executor = Executor(live=True)

    async def work(count: int) -> float:
        began = time.monotonic()
        await asyncio.gather(*(run(executor, evaluator) for _ in range(count)))
        return time.monotonic() - began

    assert asyncio.run(work(4)) >= 3 * 0.005 / CPU_SHARE
    assert words(caplog) == []
    asyncio.run(work(40))
    executor.close()
    assert words(caplog) == ["evaluator_throttled"]
