"""C3: an evaluator that hangs, exits or crashes silences neither others nor itself."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution import MAX_STRIKES, Executor
from agenteval_otel.models import EvaluationInput
from tests.promises.figures import Recorder
from tests.testing.computing import Computing, Troubled
from tests.testing.evaluations import evaluate

HEALTHY, TROUBLED, LIMIT_S = 1000, 10, 0.3
EXPECTED = {"hang": "timeout", "exit": "SystemExit", "segfault": "crashed"}
PATIENCE = 3


async def word_of(executor: Executor, evaluator: Troubled | Computing, text: str) -> str:
    try:
        results = await evaluate(executor, evaluator, EvaluationInput(response=text))
    except EvaluationError as error:
        return error.error_type
    return results[0].status


async def side_by_side() -> tuple[list[str], dict[str, list[str]]]:
    """What a thousand healthy evaluations gave while others hung, left and crashed among them."""
    executor, healthy = Executor(live=True), Computing()
    troubled = [Troubled(criterion_name=f"t{number}", timeout_s=LIMIT_S) for number in range(TROUBLED)]
    work = []
    for number in range(HEALTHY):
        work.append(word_of(executor, healthy, "fine"))
        if number % (HEALTHY // TROUBLED) == 50:
            evaluator = troubled[number // (HEALTHY // TROUBLED)]
            work += [word_of(executor, evaluator, text) for text in EXPECTED]
    try:
        words = await asyncio.gather(*work)
    finally:
        executor.close()
    step = HEALTHY // TROUBLED + len(EXPECTED)
    bad = {text: [words[51 + offset + turn * step] for turn in range(TROUBLED)] for offset, text in enumerate(EXPECTED)}
    good = [word for number, word in enumerate(words) if number % step not in (51, 52, 53)]
    return good, bad


async def time_to_come_back() -> list[float]:
    """Seconds from the failure of a crash or an overrun to the next healthy result."""
    executor, healthy, found = Executor(live=True), Computing(), []
    try:
        await word_of(executor, healthy, "fine")
        for number, text in enumerate(["segfault", "hang", "_exit", "segfault"]):
            trouble = Troubled(criterion_name=f"t{number}", timeout_s=LIMIT_S)
            await word_of(executor, trouble, "fine")
            await word_of(executor, trouble, text)
            began = time.monotonic()
            assert await word_of(executor, healthy, "fine") == "scored"
            found.append(time.monotonic() - began)
    finally:
        executor.close()
    return found


async def again_and_again() -> tuple[list[str], float]:
    """What an evaluator gives that crashes every time, and how long it takes to say no at last."""
    executor, bad = Executor(live=True), Troubled()
    try:
        words = [await word_of(executor, bad, "segfault") for _ in range(MAX_STRIKES)]
        began = time.monotonic()
        words += [await word_of(executor, bad, "segfault") for _ in range(TROUBLED - MAX_STRIKES)]
        return words, time.monotonic() - began
    finally:
        executor.close()


def test_hangs_exits_and_crashes_silence_nobody(promise: Recorder) -> None:
    """Ten hangs, ten exits and ten segmentation faults among a thousand healthy evaluations: all of these arrive."""
    good, bad = asyncio.run(side_by_side())
    promise("C3", figure=f"{good.count('scored')} of {HEALTHY} healthy delivered beside 30 hangs, exits and crashes")
    assert good.count("scored") == len(good) == HEALTHY
    assert bad == {text: [word] * TROUBLED for text, word in EXPECTED.items()}


def test_the_worker_is_back_within_a_second(promise: Recorder) -> None:
    """After a crash or a kill at the time limit the next evaluation is done within a second."""
    for attempt in range(PATIENCE):
        found = asyncio.run(time_to_come_back())
        if max(found) <= 1.0 or attempt == PATIENCE - 1:
            break
    promise("C3", figure=f"worker back within {max(found):.3f} s")
    assert max(found) <= 1.0


def test_who_crashes_again_and_again_is_quarantined(promise: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    """After three crashes an evaluator fails at once, and the log says so once."""
    words, took_s = asyncio.run(again_and_again())
    assert words == ["crashed"] * MAX_STRIKES + ["quarantined"] * (TROUBLED - MAX_STRIKES)
    assert took_s < 1.0
    lines = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert len(lines) == 1
    promise("C3", figure=f"quarantined after {MAX_STRIKES} crashes")
