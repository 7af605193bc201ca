"""C1: whatever goes wrong at once, each call has one outcome and each evaluated response all of its results."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.sampling import RatioSampler, SamplingDecision
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.figures import Recorder, sized

SECONDS = sized(10, 300)
TIMEOUT_S = 0.05
_turn = itertools.count()


class FaultySampler(RatioSampler, type="faulty"):
    def decide(self, context: Any) -> SamplingDecision:
        turn = next(_turn)
        if turn % 7 == 0:
            raise RuntimeError("sampler")
        return SamplingDecision(turn % 5 != 0, 0.8, "ratio")


class OtherError(BaseException):
    """No `Exception`."""


def _raise(error: BaseException) -> Any:
    raise error


# What an evaluator may do, by turns.
FAULTS: tuple[Any, ...] = (
    lambda: True, lambda: 0.5, lambda: _raise(ValueError("x")), lambda: _raise(SystemExit(3)), lambda: float("nan"),
    lambda: object(), lambda: _raise(EvaluationSkipped("nothing to say")), lambda: None, lambda: 10**400,
    lambda: _raise(EvaluationError("\ud800", error_type="\ud800")), lambda: _raise(MemoryError()), lambda: "label",
    lambda: _raise(OtherError()), lambda: _raise(asyncio.CancelledError()), lambda: _raise(GeneratorExit()),
)  # fmt: skip


def faulty(given: Any) -> Any:
    return FAULTS[next(_turn) % len(FAULTS)]()


async def one_turn() -> None:
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


async def faulty_model(given: Any) -> Any:
    """An awaiting evaluator that does all of these, and hangs at times."""
    turn = next(_turn)
    if turn % 50 == 0:
        await asyncio.Event().wait()
    await one_turn()
    return FAULTS[turn % len(FAULTS)]()


class FaultyStorage:
    type = "faulty"

    async def save_result(self, aggregated: Any) -> None:
        turn = next(_turn)
        if turn % 5 == 1:
            raise OSError("disk full")
        if turn % 25 == 2:
            raise SystemExit("storage")


class Load:
    """Callers of every kind until the time is over; counts its calls."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.calls = 0
        self._lock, self._over = threading.Lock(), time.monotonic() + SECONDS
        watch = monitor(pipeline=pipeline)
        self._function, self._coroutine = watch(_function), watch(_coroutine)
        self._stream, self._async_stream = watch(_stream), watch(_async_stream)

    def _counted(self) -> bool:
        """Whether there is time for one more call, which is then counted."""
        if time.monotonic() >= self._over:
            return False
        with self._lock:
            self.calls += 1
        return True

    def threads(self) -> list[threading.Thread]:
        """Two threads that call, one that streams, one with an event loop."""
        works = (self._call, self._call, self._read, lambda: asyncio.run(self._tasks()))
        return [threading.Thread(target=work) for work in works]

    def _call(self) -> None:
        dice, pause = random.Random(1), threading.Event()
        while self._counted():
            try:
                self._function(dice.random() < 0.2)
            except ValueError:
                pause.wait(0.001)

    def _read(self) -> None:
        dice, pause = random.Random(2), threading.Event()
        while self._counted():
            chunks = self._stream()
            for _ in range(dice.randint(1, 4)):
                next(chunks, None)
            del chunks  # at times before its end
            pause.wait(0.0005)

    async def _tasks(self) -> None:
        dice = random.Random(3)
        while self._counted():
            kind = dice.randint(0, 2)
            if kind == 0:
                stream = self._async_stream()
                await anext(stream)
                await stream.aclose()
                continue
            task = asyncio.ensure_future(self._coroutine())
            await asyncio.wait({task}, timeout=0)
            if kind == 1:
                task.cancel()
            await asyncio.wait({task})


def _function(fails: bool) -> str:
    if fails:
        raise ValueError("the host's own")
    return "an answer"


async def _coroutine() -> str:
    await one_turn()
    return "an answer"


def _stream() -> Iterator[str]:
    yield from ("an ", "answer", ".")


async def _async_stream() -> AsyncIterator[str]:
    yield "an "
    yield "answer"


@pytest.fixture
def faulty_pipeline(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    made = Pipeline(
        sampler=FaultySampler(),
        evaluators=(
            ResponseHealth(),
            Func.of(faulty, criterion_name="blocking"),
            Func.of(faulty_model, criterion_name="model", timeout_s=TIMEOUT_S),
        ),
        storage=(FaultyStorage(), telemetry.storage()),
        dispatcher=PoolDispatcher(max_items=64, max_bytes=200_000),
    )  # fmt: skip
    yield made
    made.shutdown(5.0)


@pytest.mark.sized
def test_outcomes_and_results_add_up(faulty_pipeline: Pipeline, promise: Recorder) -> None:
    """With every fault at once the outcomes are the calls, and the results are those of the evaluated responses."""
    due = DueResults(faulty_pipeline)
    load = Load(faulty_pipeline)
    threads = load.threads()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faulty_pipeline.flush(30.0)  # False where a save failed
    assert faulty_pipeline.dispatcher.flush(1.0)
    outcomes, results = faulty_pipeline.accounting.outcomes(), faulty_pipeline.accounting.results
    told = f"{sum(outcomes.values())} outcomes, {due.count} results due, {sum(results.values())} counted"
    promise("C1", figure=f"{load.calls} calls in {SECONDS} s: {told}")
    assert sum(outcomes.values()) == load.calls
    assert min(outcomes[name] for name in ("evaluated", "not_sampled", "dropped_queue_full", "pipeline_failed")) > 0
    assert sum(results.values()) == due.count
    assert min(results.values()) > 0


class DueResults:
    """Counts, for each response that was settled as evaluated, the criteria that were due."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.count = 0
        pool = pipeline.dispatcher._pool
        settle = pool.settle

        def counted(call: Any, outcome: str) -> None:
            if outcome == "evaluated":
                self.count += sum(len(evaluator.criteria()) for evaluator in call.settings.runner.evaluators)
            settle(call, outcome)

        pool.settle = counted
