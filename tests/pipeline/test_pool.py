"""PoolDispatcher: bounded, truthful, and gone after its shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.live import Taken
from agenteval_otel.engine.pipeline import PoolDispatcher, process_each
from agenteval_otel.engine.pipeline.background_thread import BackgroundThread
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.models import EvaluationInput
from tests.pipeline.support import Record, eventually, pool_of
from tests.promises.bench import pipeline_of
from tests.testing.doubles import enter_and_wait


def test_the_thread_starts_with_the_first_call_and_ends_with_the_shutdown() -> None:
    before = set(threading.enumerate())
    record = Record()
    pool = pool_of(record)
    assert set(threading.enumerate()) == before
    assert pool.flush(1)
    for call in range(50):
        pool.submit(call, 1)
    assert pool.flush(10)
    for thread in threading.enumerate():
        if thread.name == "agenteval-watchdog":
            thread.join(10)
    (thread,) = set(threading.enumerate()) - before
    assert thread.name == "agenteval-background"
    assert pool.shutdown(10)
    assert not thread.is_alive()
    assert repr(pool).startswith("<PoolDispatcher closed items=0 bytes=0/")
    assert sorted(record.settled) == [(call, "evaluated") for call in range(50)]


@pytest.mark.parametrize("bound", [{"max_items": 3}, {"max_bytes": 1_200}])
def test_the_newest_is_dropped_when_items_or_bytes_run_out(bound: dict[str, int]) -> None:
    record = Record()
    pool = pool_of(record, **bound)
    assert [pool.submit(call, 400) for call in ("blocking", "a", "b", "c", "d")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert record.settled == [("c", "dropped_queue_full"), ("d", "dropped_queue_full")]
    state = pool.state()
    assert (state["size"], state["bytes"], state["max_bytes"]) == (3, 1_200, pool.max_bytes)
    record.leave.set()
    assert pool.flush(10)
    assert pool.submit("e", 1)
    assert pool.shutdown(10)
    assert {call for call, outcome in record.settled if outcome == "evaluated"} == {
        "blocking",
        "a",
        "b",
        "e",
    }


def test_a_flush_waits_for_what_came_before_it_only() -> None:
    record = Record()
    pool = pool_of(record, max_items=2_000)
    stop = threading.Event()

    def keep_coming() -> None:
        while not stop.is_set():
            pool.submit(object(), 1)

    caller = threading.Thread(target=keep_coming)
    caller.start()
    try:
        assert pool.flush(10)
    finally:
        stop.set()
        caller.join(10)
    assert pool.shutdown(10)


@pytest.mark.parametrize("kind", ["hung", "blocking"])
def test_shutdown_settles_the_rest_as_dropped(kind: str) -> None:
    record = Record()
    pool = pool_of(record, concurrency=1)
    for call in (kind, "a", "b"):
        pool.submit(call, 1)
    assert record.entered.wait(10)
    assert pool.shutdown(0.1) is False
    assert sorted(record.settled) == sorted((call, "dropped_shutdown") for call in (kind, "a", "b"))
    assert pool.state()["size"] == 0
    record.leave.set()
    record.join_threads()
    assert len(record.settled) == 3


@pytest.mark.parametrize("kind", ["exit", "interrupt", "broken"])
def test_an_evaluation_never_ends_the_worker(kind: str) -> None:
    record = Record()
    pool = pool_of(record)
    for call in ("a", kind, "b"):
        pool.submit(call, 1)
    assert pool.flush(10)
    pool.submit("c", 1)
    assert pool.shutdown(10)
    assert record.outcome_of(kind) == "pipeline_failed"
    assert {record.outcome_of(call) for call in "abc"} == {"evaluated"}
    assert len(record.threads) == 1


def test_what_a_worker_takes_in_the_moment_of_its_replacement_goes_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the worker's look whether it was replaced and its look into the queue it may be: no
    call stays open.
    """
    pools: list[Any] = []

    def started(of: Any) -> BackgroundThread:
        pools.append(of)
        return BackgroundThread(of)

    monkeypatch.setattr("agenteval_otel.engine.pipeline.pool.BackgroundThread", started)
    record = Record()
    pool = pool_of(record)
    pool.submit(0, 1)
    assert pool.flush(10)  # its worker is there
    (running,) = pools
    first = running.thread
    monkeypatch.setattr(running, "watch", lambda: running.replace(first, 1.0))
    for call in range(1, 6):
        pool.submit(call, 1)
    assert pool.flush(10)
    assert pool.shutdown(10)
    assert running.thread is not first
    assert sorted(record.settled) == [(call, "evaluated") for call in range(6)]
    first.join(10)
    assert not first.is_alive()


def test_a_call_that_comes_while_a_worker_is_started_is_not_left_lying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker may be asleep again before who started it goes on: a call of that moment is
    evaluated too.
    """
    record = Record()
    pool = pool_of(record)

    def started_slowly(of: Any) -> BackgroundThread:
        thread = BackgroundThread(of)
        start = thread.start

        def start_and_be_held_up() -> None:
            start()
            assert eventually(lambda: thread.sleeping)
            other = threading.Thread(target=pool.submit, args=("b", 1))
            other.start()
            other.join(10)

        monkeypatch.setattr(thread, "start", start_and_be_held_up)
        return thread

    monkeypatch.setattr("agenteval_otel.engine.pipeline.pool.BackgroundThread", started_slowly)
    assert pool.submit("a", 1)
    assert eventually(lambda: record.outcome_of("b") == "evaluated")
    assert pool.shutdown(10)


def test_a_worker_that_sleeps_is_not_taken_for_blocked() -> None:
    record = Record()
    pool = pool_of(record, stall_s=0.3)
    pool.submit("first", 1)
    assert pool.flush(10)
    assert not threading.Event().wait(0.9)  # three times as long as a blocked thread may be still
    pool.submit("second", 1)
    assert pool.flush(10)
    assert pool.shutdown(10)
    assert len(record.threads) == 1


def test_not_more_at_once_than_allowed() -> None:
    at_once: list[int] = [0, 0]
    all_there = asyncio.Event()

    async def process(call: Any) -> str:
        at_once[0] += 1
        at_once[1] = max(at_once)
        if at_once[1] == 3:
            all_there.set()
        await asyncio.sleep(0)
        await all_there.wait()  # the first ones stay until as many are there as may be
        at_once[0] -= 1
        return "evaluated"

    settled: list[str] = []
    pool = PoolDispatcher(concurrency=3, linger_s=0)
    pool.start(process_each(process), lambda call, outcome: settled.append(outcome))
    for call in range(40):
        pool.submit(call, 1)
    assert pool.shutdown(10)
    assert settled == ["evaluated"] * 40
    assert at_once == [0, 3]


class KeepsAllButBlocking:
    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []

    def blame(self, task: Any, held_s: float, thread_id: int) -> Any:
        self.tasks.append(task)

    def take_over(self, call: Any, blamed: Any, held_s: float) -> Taken:
        return "failed" if call == "blocking" else "next"


def test_calls_that_wait_behind_a_held_thread_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The next thread evaluates them, in their order; the held one ends when it can, and asyncio
    does not complain.
    """
    record, stall = Record(), KeepsAllButBlocking()
    pool = pool_of(record, stall, stall_s=0.05)
    waiting = [f"waiting-{number}" for number in range(20)]
    for call in ("first", "blocking", *waiting):
        pool.submit(call, 1)
    assert record.entered.wait(10)
    assert eventually(lambda: pool.flush(0.05))
    assert record.outcome_of("blocking") == "pipeline_failed"
    evaluated = [call for call, outcome in record.settled if outcome == "evaluated"]
    assert evaluated == ["first", *waiting]
    assert [task.get_coro().__qualname__ for task in stall.tasks] == ["Record.process"]  # type: ignore[union-attr]
    record.leave.set()
    assert pool.shutdown(10)
    record.join_threads()
    assert (len(record.threads), len(record.settled)) == (2, 22)
    assert [entry.message for entry in caplog.records if entry.name == "asyncio"] == []


def test_a_thread_that_ended_with_its_pool_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine the watchdog may look between the end of the thread and the end of
    `shutdown`.
    """
    join = BackgroundThread.join

    def slow_join(thread: BackgroundThread, timeout: float | None = None) -> None:
        join(thread, timeout)
        time.sleep(0.6)  # three looks

    monkeypatch.setattr(BackgroundThread, "join", slow_join)
    pipeline = pipeline_of(ResponseHealth())
    monitor(pipeline=pipeline)(str.upper)("text")
    assert pipeline.shutdown(10.0)
    assert "background_thread_replaced" not in caplog.text


def background_threads() -> list[BackgroundThread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, BackgroundThread)]


def test_what_a_replaced_thread_had_started_is_not_waited_for() -> None:
    """Else load shedding would see work for ever that is not there; and each evaluator ran once for
    each answer.
    """
    calls = 8
    entered, leave = threading.Event(), threading.Event()
    blocks, comes_back = threading.Event(), threading.Event()

    def capture(arguments: Mapping[str, Any], answer: Any) -> dict[str, Any]:
        if blocks.is_set():
            blocks.clear()
            comes_back.wait(20)
        return {}

    def slow(evaluation_input: EvaluationInput) -> bool:
        enter_and_wait(entered, leave)
        return True

    pipeline = pipeline_of(
        Func.of(slow, execution="thread"), dispatcher=PoolDispatcher(linger_s=0, stall_s=0.3)
    )
    handler = monitor(pipeline=pipeline, capture=capture)(str.upper)
    for _ in range(calls):
        handler("text")
    assert entered.wait(10)  # they are under way
    blocks.set()
    handler("text")
    assert eventually(lambda: len(background_threads()) == 2)
    leave.set()
    comes_back.set()
    assert pipeline.flush(30.0)
    assert eventually(lambda: pipeline.executor.loads["thread"].waiting == 0)
    assert pipeline.accounting.outcomes()["evaluated"] >= calls
    assert pipeline.shutdown(10.0)


def test_a_run_that_was_taken_over_starts_nothing_more() -> None:
    """An inline evaluator blocks the thread; the evaluator after it runs once, for the run that
    took over.
    """
    threads: list[threading.Thread] = []
    counted: list[str] = []
    leave = threading.Event()

    def blocks(evaluation_input: EvaluationInput) -> bool:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            leave.wait(20)
        return True

    def counts(evaluation_input: EvaluationInput) -> bool:
        counted.append("counts")
        return True

    pipeline = pipeline_of(
        Func.of(blocks, execution="inline"),
        Func.of(counts, execution="thread"),
        dispatcher=PoolDispatcher(linger_s=0, stall_s=0.3),
    )
    monitor(pipeline=pipeline)(str.upper)("text")
    assert pipeline.flush(10.0)
    leave.set()
    threads[0].join(10.0)  # the blocked thread has come back
    assert not threads[0].is_alive()
    assert counted == ["counts"]
    assert pipeline.shutdown(10.0)


@pytest.mark.parametrize("ending", ["raises", "hangs"])
def test_a_generator_that_an_evaluator_left_open_ends_in_silence(
    ending: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises may quote the conversation; and it holds up neither `shutdown` nor the end of
    the thread.
    """
    kept = []

    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[None]:
        try:
            yield
        finally:
            if ending == "raises":
                raise RuntimeError("my card is 4111 1111")
            for _ in range(5):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.5)

    async def evaluate(evaluation_input: EvaluationInput) -> bool:
        kept.append(session())
        await kept[-1].__aenter__()
        return True

    pipeline = pipeline_of(Func.of(evaluate))
    monitor(pipeline=pipeline)(str.upper)("text")
    assert pipeline.flush(10.0)
    (thread,) = background_threads()
    pipeline.shutdown(0.2)
    thread.join(10.0)
    assert not thread.is_alive()
    assert "4111 1111" not in capfd.readouterr().err + caplog.text


class Meanwhile(int):
    then: Any = None

    def __radd__(self, other: int) -> int:
        then, Meanwhile.then = Meanwhile.then, None
        if then is not None:
            then()
        return int(other) + int(self)


def test_a_shutdown_in_the_middle_of_a_submit() -> None:
    for used_before in (False, True):
        record = Record()
        pool = pool_of(record)
        if used_before:
            pool.submit("first", 1)
            assert pool.flush(10)
        Meanwhile.then = lambda pool=pool: pool.shutdown(10)
        pool.submit("late", Meanwhile(1))
        pool.shutdown(1)
        assert record.outcome_of("late") in ("dropped_shutdown", "evaluated")
        assert pool.state()["size"] == 0
