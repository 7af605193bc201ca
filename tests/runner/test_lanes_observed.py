"""Lanes in somebody's process: evaluators that hold the interpreter are moved or held to a share, said once."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Func
from agenteval_otel.models import EvaluationInput
from agenteval_otel.engine import Lanes
from agenteval_otel.engine.lanes.share import CPU_SHARE, Share
from agenteval_otel.engine.lanes.steps import Steps
from agenteval_otel.engine.lanes.turns import Turns
from tests.runner.support import run
from tests.testing import computing
from tests.testing.doubles import Free, Thinking


def in_turn(lanes: Lanes, *evaluators: Any) -> list[Any]:
    """Each evaluator's result, one evaluation after the other."""

    async def work() -> list[Any]:
        try:
            return [(await run(lanes, evaluator))[0] for evaluator in evaluators]
        finally:
            lanes.close()

    return asyncio.run(work())


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.message.split("'")[1] for entry in caplog.records]


def test_a_free_evaluator_that_computes_is_moved(caplog: pytest.LogCaptureFixture) -> None:
    """Seen to take long three times, it runs in the child process from then on; the log says so once."""
    evaluator = computing.Free(cpu_s=0.01)
    found = in_turn(Lanes(live=True), *[evaluator] * 6)
    here = [(result.metadata or {})["pid"] == os.getpid() for result in found]
    assert here == [True] * 3 + [False] * 3
    assert words(caplog) == ["lane_changed"]
    assert "ComputingFree:computing_free" in caplog.text


def test_one_that_cannot_move_is_moved_to_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Far too long once is enough; without a child process for it, it runs on the lane's own thread."""
    places: list[str] = []

    def act(_: EvaluationInput) -> None:
        places.append(threading.current_thread().name)
        computing.compute(0.6 if len(places) == 1 else 0.0)

    evaluator = Free(action=lambda given: act(given) or computing.Score(value=1.0))
    in_turn(Lanes(live=True), *[evaluator] * 3)
    assert places[1:] == ["agenteval-cpu"] * 2
    assert words(caplog) == ["lane_changed"]


def test_a_quick_one_stays_and_nothing_is_started(caplog: pytest.LogCaptureFixture) -> None:
    """An evaluator that takes microseconds stays inline, and no process is there."""
    lanes = Lanes(live=True)
    in_turn(lanes, *[Free()] * 50)
    assert "not started" in repr(lanes._child)
    assert caplog.records == []


def test_a_free_evaluator_may_wait_for_others() -> None:
    """One that awaits although it is free gets its result, or its error, as before."""

    class Waiting(Thinking):
        @property
        def lane(self) -> Any:
            return "free"

    async def waits(given: EvaluationInput) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if given.response_text == "raise":
            raise ValueError("after a while")

    async def raises() -> None:
        lanes, evaluator = Lanes(live=True), Waiting(action=waits)
        with pytest.raises(ValueError, match="after a while"):
            await lanes.run(evaluator, "free", EvaluationInput(response="raise"), evaluator.criteria())

    assert in_turn(Lanes(live=True), Waiting(action=waits))[0].score == 0.75
    asyncio.run(raises())


@pytest.mark.parametrize(("waits_from", "lane"), [(1, "model"), (3, "cpu")])
def test_a_free_evaluator_that_computes_and_waits_is_moved(
    waits_from: int, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The child process cannot await: one that does runs as a task, be it seen only later that it does."""
    calls: list[int] = []

    class Waiting(Thinking):
        @property
        def lane(self) -> Any:
            return "free"

    async def act(given: EvaluationInput) -> None:
        calls.append(1)
        computing.compute(0.6 if len(calls) == 1 else 0.0)
        if waits_from <= len(calls):
            await asyncio.sleep(0)

    found = in_turn(Lanes(live=True), *[Waiting(action=act)] * 4)
    assert [result.score for result in found] == [0.75] * 4
    assert words(caplog) == ["lane_changed"]
    assert f"in the lane {lane}" in caplog.text


def test_a_job_that_missed_its_thread_has_another(caplog: pytest.LogCaptureFixture) -> None:
    """When the lanes are closed between the choice of a thread and its queue, the evaluation is done all the same."""

    class Closing(Lanes):
        def _present_thread(self) -> Any:
            thread = super()._present_thread()
            if not self._closed:
                self.close()
                thread._thread.join(10)
            return thread

    evaluator = Func.of(lambda _: 1.0, criterion_name="c", timeout_s=0.1)
    (result,) = in_turn(Closing(live=True), evaluator)
    assert result.score == 1.0
    assert caplog.records == []


def test_the_thread_rests_until_there_is_no_debt(caplog: pytest.LogCaptureFixture) -> None:
    """A long debt is looked at again after each rest; what is said is that there is no child, not that it is async."""

    class InSteps(Share):
        def rest_s(self) -> float:
            return rests.pop() if rests else 0.0

    rests = [0.03, 0.03, 0.03]
    lanes = Lanes(live=True)
    lanes._share, lanes._child = InSteps(), None
    in_turn(lanes, computing.Computing())
    assert rests == []
    assert words(caplog) == ["lane_held"]
    assert "there is no child process" in caplog.text


def test_waiting_async_evaluations_begin_one_after_the_other() -> None:
    """Each books what they usually use, so that they do not all begin at the moment in which the debt is paid."""

    async def work() -> float:
        share, began = Share(), time.monotonic()
        turns = Turns(share)
        turns.end(0.0, 0.05)
        share.used(0.2)
        booked = await asyncio.gather(*(turns.begin(10.0, lambda: held.append(1)) for _ in range(3)))
        assert booked == [0.05] * 3
        return time.monotonic() - began

    held: list[int] = []
    assert asyncio.run(work()) >= 2 * 0.05 / CPU_SHARE * 0.9
    assert held


def test_who_waited_for_a_place_looks_at_the_debt_again(caplog: pytest.LogCaptureFixture) -> None:
    """Before it is known what an evaluator uses, those behind the first one wait for credit after its first result."""

    async def act(_: EvaluationInput) -> None:
        began.append(time.monotonic())
        await asyncio.sleep(0)
        computing.compute(0.25)  # a debt that a slow machine has not worked off when it ends

    async def work() -> None:
        lanes._records.of(evaluator).share.used(0.25 - 0.03)
        await asyncio.gather(*(run(lanes, evaluator) for _ in range(2)))

    began: list[float] = []
    evaluator, lanes = Thinking(action=act), Lanes(live=True, model_concurrency=1)
    asyncio.run(work())
    lanes.close()
    assert began[1] - began[0] >= 0.25 + 0.5 * (0.25 - 0.03) / CPU_SHARE
    assert words(caplog) == ["lane_held"]


def test_nobody_waits_for_ever_for_a_turn() -> None:
    """One that gets no turn in time has failed with ``timeout``."""
    share = Share()
    share.used(60.0)
    with pytest.raises(EvaluationError, match="held to its share") as caught:
        asyncio.run(Turns(share).begin(0.02, lambda: None))
    assert caught.value.error_type == "timeout"


def test_what_must_stay_is_held_to_its_share(caplog: pytest.LogCaptureFixture) -> None:
    """A lambda whose credit is used up waits until there is some again; the log says so once, and why."""
    evaluator = Func.of(lambda _: computing.compute(0.02), criterion_name="c", scale="any")
    lanes = Lanes(live=True)
    assert lanes._share is not None
    lanes._share.used(0.25 + 0.1)
    began = time.monotonic()
    in_turn(lanes, *[evaluator] * 3)
    assert time.monotonic() - began >= 0.1 / CPU_SHARE * 0.9
    assert words(caplog) == ["lane_held"]
    assert "<lambda> is not what" in caplog.text
    assert lanes.cpu_s >= 0.06 * 0.9


def test_an_async_evaluator_that_computes_is_spaced(caplog: pytest.LogCaptureFixture) -> None:
    """An async evaluator that holds the loop waits for its share before its next evaluations."""

    async def act(_: EvaluationInput) -> None:
        await asyncio.sleep(0)
        computing.compute(0.01)

    evaluator, lanes = Thinking(action=act), Lanes(live=True)
    share = lanes._records.of(evaluator).share
    share.used(0.25 + 0.1)
    began = time.monotonic()
    in_turn(lanes, evaluator, evaluator)
    assert time.monotonic() - began >= 0.1 / CPU_SHARE * 0.9
    assert words(caplog) == ["lane_held"]


def test_only_long_steps_are_booked() -> None:
    """Between two awaits an evaluator may be quick as often as it likes; what is long adds up, errors included."""

    async def work(cpu_s: float) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            computing.compute(cpu_s)
        raise ValueError("at its end")

    async def held(cpu_s: float) -> float:
        steps = Steps()
        with pytest.raises(ValueError, match="at its end"):
            await steps.run(work(cpu_s))
        return steps.held_s

    assert asyncio.run(held(0.0)) < 0.03
    assert asyncio.run(held(0.01)) >= 0.03 * 0.9


def test_offline_nothing_is_held_or_moved(caplog: pytest.LogCaptureFixture) -> None:
    """Who evaluates by hand has the processor: no child process, no rest, no line."""
    lanes = Lanes()
    evaluator = Func.of(lambda _: computing.compute(0.05), criterion_name="c", scale="any")
    found = in_turn(lanes, *[computing.Free(cpu_s=0.01)] * 4, *[evaluator] * 8)
    assert len(found) == 12
    assert lanes._child is None
    assert caplog.records == []


def test_a_share_is_credit_that_grows_with_time() -> None:
    """Credit comes first, then a rest that is as long as the share says, and never longer than two seconds."""
    share = Share()
    share.used(0.2)
    assert share.rest_s() == 0.0
    share.used(0.15)
    assert share.rest_s() == pytest.approx(0.1 / CPU_SHARE, rel=0.2)
    share.used(60.0)
    assert share.rest_s() == 2.0
