"""`run_evaluations`: many inputs, results in their order, bounded, isolated, cancelled cleanly."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    run_evaluation,
    run_evaluation_sync,
    run_evaluations,
    run_evaluations_sync,
)
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import Score
from tests.testing.doubles import Fixed, Free, Keeping, Thinking, config_of


def inputs(count: int | None) -> Iterator[EvaluationInput]:
    positions = itertools.count() if count is None else range(count)
    return (EvaluationInput(response=str(position)) for position in positions)


def value(evaluation_input: EvaluationInput) -> Score:
    return Score(value=int(evaluation_input.response_text) / 1000)


async def think(evaluation_input: EvaluationInput) -> Score:
    for _ in range(int(evaluation_input.response_text) % 7):
        await asyncio.sleep(0)  # lets the others overtake it
    return value(evaluation_input)


STORAGE = Keeping()
EVERY_EXECUTION = config_of(
    Free(criterion_name="a", action=value),
    Fixed(criterion_name="b", action=value),
    Thinking(criterion_name="c", action=think),
    storage=STORAGE,
)


@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize("count", [0, 40])
def test_results_stand_in_the_order_of_the_inputs(concurrency: int, count: int) -> None:
    """Whichever is done first; `on_result` and the storage have each once, and no results need be
    kept.
    """
    reported: dict[int, AggregatedEvaluationResult] = {}
    STORAGE.saved.clear()
    results = run_evaluations_sync(
        inputs(count), EVERY_EXECUTION, concurrency=concurrency, on_result=reported.__setitem__
    )
    assert [result.overall_score for result in results] == [
        pytest.approx(at / 1000) for at in range(count)
    ]
    assert [reported[position] for position in range(count)] == results
    assert sorted(saved.timestamp for saved in STORAGE.saved) == sorted(
        result.timestamp for result in results
    )
    assert run_evaluations_sync(inputs(count), EVERY_EXECUTION, keep_results=False) == []


def test_concurrency_is_bounded_and_inputs_are_taken_lazily() -> None:
    """Never more inputs are taken than may run at once, and as many as may run do."""
    running, most, taken, done = 0, 0, 0, 0

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

    def finished(_: int, __: AggregatedEvaluationResult) -> None:
        nonlocal done
        done += 1

    run_evaluations_sync(
        counted(), config_of(Thinking(action=work)), concurrency=4, on_result=finished
    )
    assert (most, taken, done) == (4, 20, 20)


def test_an_input_costs_its_own_result_only() -> None:
    """Evaluators that raise, inputs that are none and criteria that cannot be scored leave the
    others alone.
    """

    def fail(evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.response == "1":
            raise ValueError("broke")
        return value(evaluation_input)

    twice = (EvaluationCriteria(name="fixed"), EvaluationCriteria(name="fixed"))
    raw: list[Any] = [
        *inputs(3),
        EvaluationInput(response="3", criteria=twice, session_id="s"),
        {"promt": "4"},
    ]
    results = run_evaluations_sync(iter(raw), config_of(Free(action=fail)))
    assert [result.overall_score for result in results] == [0.0, None, 0.002, None, None]
    labels = [[error.evaluator_type for error in result.run_errors or ()] for result in results]
    assert labels == [[], ["Free:fixed"], [], ["EvaluationInput"], ["EvaluationInput"]]
    assert "appears twice" in (results[3].run_errors or ())[0].message
    assert results[3].input_snapshot == raw[3]
    assert (
        "inputs[4]: unknown field 'promt' (did you mean 'prompt'?)"
        in (results[4].run_errors or ())[0].message
    )


def test_a_list_is_checked_before_anything_runs() -> None:
    """Every wrong row and field is named at once, and no evaluator has seen any of them."""
    seen: list[EvaluationInput] = []
    raw: list[Any] = [{"response": "a"}, {"response": "b", "promt": "q"}, {"prompt": 7}, "text"]
    with pytest.raises(ConfigurationError) as caught:
        run_evaluations_sync(raw, config_of(Free(action=seen.append)))
    assert [path for path, _ in caught.value.problems] == [
        "inputs[1]",
        "inputs[2].prompt",
        "inputs[3]",
    ]
    assert "did you mean 'prompt'?" in str(caught.value)
    assert seen == []


def test_a_mapping_is_an_input_everywhere() -> None:
    """All four functions take a mapping of an input's fields, in either spelling, and give what the
    input gives.
    """
    fields = {"response": "7", "sessionId": "s"}
    config = config_of(Free(action=value))
    made = [
        run_evaluation_sync(fields, config),
        asyncio.run(run_evaluation(fields, config)),
        *run_evaluations_sync([fields], config),
        *asyncio.run(run_evaluations([fields], config)),
    ]
    assert {(result.overall_score, result.session_id) for result in made} == {(0.007, "s")}


@pytest.mark.parametrize("concurrency", [0, 10**9, True, 1.5, "8", None])
def test_the_concurrency_is_a_number(concurrency: Any) -> None:
    """What is no whole number of at least 1, or starts tasks without end, is refused before an
    input is taken.
    """
    raw = inputs(3)
    with pytest.raises(ConfigurationError, match="concurrency"):
        run_evaluations_sync(raw, EVERY_EXECUTION, concurrency=concurrency)
    assert next(raw).response == "0"


@pytest.mark.parametrize("raw", [None, "text", {"response": "r"}, EvaluationInput(response="r")])
def test_what_holds_no_inputs_is_refused(raw: Any) -> None:
    """One input alone, or text, is no list of inputs: each of its fields would be one, and fail."""
    with pytest.raises(ConfigurationError, match="inputs: expected EvaluationInputs, found"):
        run_evaluations_sync(raw, EVERY_EXECUTION)


def test_what_the_inputs_or_on_result_raise_ends_the_batch() -> None:
    """It reaches the caller as it is; what was done was reported before, and an endless iterable is
    left alone.
    """

    def broken() -> Iterator[EvaluationInput]:
        yield from inputs(2)
        raise OSError("unreadable")

    reported: list[int] = []
    with pytest.raises(OSError, match="unreadable"):
        run_evaluations_sync(
            broken(), EVERY_EXECUTION, concurrency=1, on_result=lambda at, _: reported.append(at)
        )
    assert reported == [0, 1]

    def stop(position: int, _: AggregatedEvaluationResult) -> None:
        if position == 5:
            raise LookupError

    with pytest.raises(LookupError):
        run_evaluations_sync(inputs(None), config_of(Free(value=1)), on_result=stop)


def test_cancelled_it_leaves_nothing_behind() -> None:
    """A cancelled batch cancels what runs; no task is left, and inputs that need no waiting do not
    hold the loop.
    """
    started, cancelled = 0, 0
    all_wait = asyncio.Event()

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
        waiting = run_evaluations(
            inputs(100), config_of(Fixed(), Thinking(action=wait)), concurrency=4
        )
        cheap = run_evaluations(inputs(None), config_of(Free(value=1)), concurrency=2)
        batches = [asyncio.create_task(batch) for batch in (waiting, cheap)]
        await all_wait.wait()
        for batch in batches:
            batch.cancel()
        ended = await asyncio.gather(*batches, return_exceptions=True)
        assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
        for _ in range(20):  # a task that takes its cancellation ends within a few turns
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (started, cancelled) == (4, 4)


def test_progress_is_written_to_a_terminal_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr; without it nothing is written."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    run_evaluations_sync(inputs(4), EVERY_EXECUTION)
    assert terminal.getvalue() == ""
    run_evaluations_sync(inputs(4), EVERY_EXECUTION, progress=True)
    assert terminal.getvalue().endswith("\r")


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync, run_evaluations_sync
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
    print("interrupted", [thread.name for thread in threading.enumerate()], flush=True)
again = run_evaluation_sync({"response": "x"}, evaluators=["ResponseHealth"])
print("again", again.overall_score)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_an_interrupt_ends_it_cleanly(where: str) -> None:
    """Ctrl-C cancels what runs, is raised as KeyboardInterrupt, and leaves no thread but the loop's,
    which takes the next call, and no complaint.
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    threads = ["MainThread", "agenteval-sync"]
    assert ended.stdout.split("\n") == ["cancelled"] * 4 + [
        f"interrupted {threads}",
        "again 1.0",
        "",
    ]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_inputs_behind_one_that_takes_long_are_taken_up_to_a_bound() -> None:
    """While the first input still runs; after it all the rest."""
    taken, released = 0, asyncio.Event()

    async def work(evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.response == "0":
            await released.wait()
        return Score(value=1)

    def counted() -> Iterator[EvaluationInput]:
        nonlocal taken
        for item in inputs(900):
            taken += 1
            yield item

    async def main() -> list[AggregatedEvaluationResult]:
        batch = asyncio.create_task(
            run_evaluations(counted(), config_of(Thinking(action=work)), concurrency=2)
        )
        before = -1
        while taken != before:  # until nothing moves any more
            before = taken
            for _ in range(200):
                await asyncio.sleep(0)
        assert 100 < taken <= 2 * 64 + 2
        released.set()
        return await batch

    assert len(asyncio.run(main())) == taken == 900
