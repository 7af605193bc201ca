"""`run_evaluations`: many inputs, results in their order, bounded, isolated, cancelled cleanly."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationRunConfig,
    run_evaluations,
    run_evaluations_sync,
)
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import Score
from tests.testing.doubles import Fixed, Free, Keeping, Thinking, config_of


def inputs(count: int) -> Iterator[EvaluationInput]:
    return (EvaluationInput(response=str(position)) for position in range(count))


def value(evaluation_input: EvaluationInput) -> Score:
    return Score(value=int(evaluation_input.response_text) / 1000)


async def think(evaluation_input: EvaluationInput) -> Score:
    for _ in range(int(evaluation_input.response_text) % 7):
        await asyncio.sleep(0)  # lets the others overtake it
    return value(evaluation_input)


ALL_LANES = config_of(Free(criterion_name="a", action=value), Fixed(criterion_name="b", action=value),
                      Thinking(criterion_name="c", action=think))  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_results_stand_in_the_order_of_the_inputs(concurrency: int) -> None:
    """Whoever is done first, each result stands where its input stood; every execution is met."""
    results = run_evaluations_sync(inputs(40), ALL_LANES, concurrency=concurrency)
    assert [result.input_snapshot and result.input_snapshot.response for result in results] == [
        str(at) for at in range(40)
    ]
    assert [result.overall_score for result in results] == [pytest.approx(at / 1000) for at in range(40)]


def test_nothing_gives_nothing() -> None:
    """No inputs, as a list or as a generator, give no results."""
    assert run_evaluations_sync([], ALL_LANES) == []
    assert run_evaluations_sync(inputs(0), ALL_LANES) == []


def test_concurrency_is_bounded_and_inputs_are_taken_lazily() -> None:
    """Never more inputs are taken than may run at once, and as many as may run do."""
    running, most, taken = 0, 0, 0

    def counted() -> Iterator[EvaluationInput]:
        nonlocal taken
        for evaluation_input in inputs(20):
            assert taken - done <= 3
            taken += 1
            yield evaluation_input

    async def work(_: EvaluationInput) -> Score:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _step in range(5):
            await asyncio.sleep(0)
        running -= 1
        return Score(value=1)

    done = 0

    def finished(_: int, __: AggregatedEvaluationResult) -> None:
        nonlocal done
        done += 1

    run_evaluations_sync(counted(), config_of(Thinking(action=work)), concurrency=4, on_result=finished)
    assert (most, taken, done) == (4, 20, 20)


def test_each_result_is_told_with_its_position() -> None:
    """`on_result` hears of every result once, with the place of its input."""
    reported: dict[int, float | None] = {}
    results = run_evaluations_sync(
        inputs(15), ALL_LANES, on_result=lambda at, result: reported.update({at: result.overall_score})
    )
    assert [reported[position] for position in range(15)] == [result.overall_score for result in results]


def test_an_input_costs_its_own_result_only() -> None:
    """Evaluators that raise, inputs that are none and criteria that cannot be scored by leave the others alone."""

    def fail(evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.response == "1":
            raise ValueError("broke")
        return value(evaluation_input)

    twice = (EvaluationCriteria(name="fixed"), EvaluationCriteria(name="fixed"))
    raw: list[Any] = [*inputs(3), EvaluationInput(response="3", criteria=twice, session_id="s"), {"response": "4"}]
    results = run_evaluations_sync(raw, config_of(Free(action=fail)))
    assert [result.overall_score for result in results] == [0.0, None, 0.002, None, None]
    labels = [[error.evaluator_type for error in result.run_errors or ()] for result in results]
    assert labels == [[], ["Free:fixed"], [], ["EvaluationInput"], ["EvaluationInput"]]
    assert "appears twice" in (results[3].run_errors or ())[0].message
    assert results[3].input_snapshot == raw[3]


@pytest.mark.parametrize("concurrency", [0, -1, 10**9, True, 1.5, "8", None])
def test_the_concurrency_is_a_number(concurrency: Any) -> None:
    """What is no whole number of at least 1, or starts tasks without end, is refused before an input is taken."""
    raw = inputs(3)
    with pytest.raises(ConfigurationError, match="concurrency"):
        run_evaluations_sync(raw, ALL_LANES, concurrency=concurrency)
    assert next(raw).response == "0"


@pytest.mark.parametrize("raw", [None, "text", b"text", {"response": "r"}, EvaluationInput(response="r"), 3])
def test_what_holds_no_inputs_is_refused(raw: Any) -> None:
    """One input alone, or text, is no list of inputs: each of its fields would be one, and fail."""
    with pytest.raises(ConfigurationError, match="inputs: expected EvaluationInputs, found"):
        run_evaluations_sync(raw, ALL_LANES)


def test_inputs_that_raise_end_the_batch() -> None:
    """What the iterable raises reaches the caller as it is; what was done was told before."""

    def broken() -> Iterator[EvaluationInput]:
        yield from inputs(2)
        raise OSError("unreadable")

    reported: list[int] = []
    with pytest.raises(OSError, match="unreadable"):
        run_evaluations_sync(broken(), ALL_LANES, concurrency=1, on_result=lambda at, _: reported.append(at))
    assert reported == [0, 1]


def test_whoever_listens_may_end_the_batch() -> None:
    """What `on_result` raises ends the batch and reaches the caller; an endless iterable is then left alone."""

    class Enough(Exception):
        pass

    def stop(position: int, _: AggregatedEvaluationResult) -> None:
        if position == 5:
            raise Enough

    endless = (EvaluationInput(response="1") for _ in itertools.count())
    with pytest.raises(Enough):
        run_evaluations_sync(endless, ALL_LANES, on_result=stop)


def test_cancelled_it_leaves_nothing_behind() -> None:
    """A cancelled batch cancels what runs, and no task and no thread of it is left."""
    started, cancelled, threads = 0, 0, list[threading.Thread]()
    all_wait = asyncio.Event()

    def note(_: EvaluationInput) -> Score:
        threads.append(threading.current_thread())
        return Score(value=1)

    async def wait(_: EvaluationInput) -> None:
        nonlocal started, cancelled
        started += 1
        if started == 4:
            all_wait.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def main() -> None:
        batch = asyncio.create_task(
            run_evaluations(inputs(100), config_of(Fixed(action=note), Thinking(action=wait)), concurrency=4)
        )
        await all_wait.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        for _ in range(20):  # a task that takes its cancellation ends within a few turns
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (started, cancelled) == (4, 4)
    for thread in threads:  # none, where the cancellation came first
        thread.join(10)
        assert not thread.is_alive()


def test_cheap_inputs_leave_room_for_cancellation() -> None:
    """Inputs that need no waiting do not hold the loop: an endless batch of them can be cancelled."""

    async def main() -> None:
        endless = (EvaluationInput(response="1") for _ in itertools.count())
        batch = asyncio.create_task(run_evaluations(endless, config_of(Free(action=value)), concurrency=2))
        for _ in range(10):
            await asyncio.sleep(0)
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch

    asyncio.run(main())


def test_it_runs_inside_of_a_running_loop() -> None:
    """The sync form works where a loop runs already."""

    async def inside() -> int:
        return len(run_evaluations_sync(inputs(5), ALL_LANES))

    assert asyncio.run(inside()) == 5


def test_all_of_them_are_saved() -> None:
    """The storage provider gets every result."""
    storage = Keeping()
    results = run_evaluations_sync(inputs(9), config_of(Free(action=value), storage=storage))
    assert sorted(result.timestamp for result in storage.saved) == sorted(result.timestamp for result in results)
    assert len(storage.saved) == 9


def test_one_set_of_lanes_serves_all() -> None:
    """Evaluators that block share one thread over all inputs, which ends with the batch."""
    threads: list[threading.Thread] = []

    def note(_: EvaluationInput) -> Score:
        threads.append(threading.current_thread())
        return Score(value=1)

    run_evaluations_sync(inputs(20), config_of(Fixed(action=note)))
    assert len(threads) == 20
    assert len(set(threads)) == 1
    threads[0].join(10)
    assert not threads[0].is_alive()


@pytest.mark.parametrize("sized", [True, False])
def test_progress_is_shown_on_stderr(
    sized: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar with the count, of how many where that is known, on stderr; without it nothing is written."""
    run_evaluations_sync(inputs(4), ALL_LANES)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as the bar can tell
    run_evaluations_sync(list(inputs(4)) if sized else inputs(4), ALL_LANES, progress=True)
    written = capsys.readouterr()
    assert written.out == ""
    assert ("4/4" if sized else "4/?") in written.err


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluations_sync
from agenteval_otel.evaluators import Func

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has it ignored
seen = []

async def wait(evaluation_input):
    seen.append(evaluation_input)
    if len(seen) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

config = EvaluationRunConfig(evaluators=[Func(criterion_name="w", function=wait)])
endless = (EvaluationInput(response="x") for _ in iter(int, 1))

async def inside():
    run_evaluations_sync(endless, config, concurrency=4)

try:
    run_evaluations_sync(endless, config, concurrency=4) if sys.argv[1] == "outside" else asyncio.run(inside())
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_an_interrupt_ends_it_cleanly(where: str) -> None:
    """Ctrl-C cancels what runs, is raised as KeyboardInterrupt, and leaves no thread and no complaint."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, where], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.stdout.split("\n") == ["cancelled"] * 4 + ["interrupted 1", ""]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_configurations_are_shared() -> None:
    """One configuration may serve several batches at once."""

    async def both() -> list[list[AggregatedEvaluationResult]]:
        return await asyncio.gather(*(run_evaluations(inputs(10), ALL_LANES) for _ in range(3)))

    assert [len(actual) for actual in asyncio.run(both())] == [10, 10, 10]
    assert isinstance(ALL_LANES, EvaluationRunConfig)


def test_results_need_not_be_kept() -> None:
    """Without keeping them the list is empty; `on_result` hears of each all the same."""
    reported: list[int] = []
    results = run_evaluations_sync(
        inputs(30), ALL_LANES, keep_results=False, on_result=lambda position, _: reported.append(position)
    )
    assert results == []
    assert sorted(reported) == list(range(30))


def test_an_input_that_takes_long_holds_the_others_within_reach() -> None:
    """While the first input still runs, those after it are taken up to a bound, and after it all the rest."""
    taken = 0
    released = asyncio.Event()

    async def work(evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.response == "0":
            await released.wait()
        return value(evaluation_input)

    def counted() -> Iterator[EvaluationInput]:
        nonlocal taken
        for item in inputs(900):
            taken += 1
            yield item

    async def main() -> list[AggregatedEvaluationResult]:
        config = config_of(Thinking(action=work))
        batch = asyncio.create_task(run_evaluations(counted(), config, concurrency=2))
        before = -1
        while taken != before:  # until nothing moves any more
            before = taken
            for _ in range(200):
                await asyncio.sleep(0)
        assert 100 < taken <= 2 * 64 + 2
        released.set()
        return await batch

    assert len(asyncio.run(main())) == taken == 900
