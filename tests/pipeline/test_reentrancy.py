"""Submits that meet each other: from threads, from signal handlers, and in the middle of a shutdown."""

from __future__ import annotations

import signal
import threading
from typing import Any

from agenteval_otel.pipeline import PoolDispatcher, process_each
from tests.pipeline.support import Record, pool_of


def test_threads_submit_at_once() -> None:
    """Calls of many threads, the first ones too, are each settled once and come from one worker."""
    record = Record()
    pool = pool_of(record, max_items=100_000)
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait(10)
        for index in range(200):
            pool.submit((number, index), 10)

    callers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert pool.shutdown(20)
    assert sorted(record.settled) == [((n, i), "evaluated") for n in range(8) for i in range(200)]
    assert len(record.threads) == 1
    assert pool.state() == {"size": 0, "waiting": 0, "bytes": 0, "max_bytes": pool.max_bytes}


def test_a_signal_handler_may_submit() -> None:
    """A signal handler that interrupts a submit and submits itself neither deadlocks nor loses a call."""
    record = Record()
    pool = pool_of(record, max_items=100_000)
    main = threading.main_thread().ident
    assert main is not None
    received: list[int] = []
    stop = threading.Event()

    def handler(number: int, frame: Any) -> None:
        received.append(len(received))
        pool.submit(("signal", len(received)), 1)

    def shoot() -> None:
        while not stop.wait(0.0005):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    shooter = threading.Thread(target=shoot)
    try:
        shooter.start()
        for call in range(20_000):
            pool.submit(("main", call), 1)
    finally:
        stop.set()
        shooter.join(10)
        signal.signal(signal.SIGUSR1, before)
    assert received
    assert pool.shutdown(20)
    assert len(record.settled) == 20_000 + len(received)
    assert len(set(record.settled)) == len(record.settled)
    assert pool.state()["size"] == 0


class Meanwhile(int):
    """A size in whose addition something else happens: an interruption at the worst moment, every time."""

    then: Any = None

    def __radd__(self, other: int) -> int:
        then, Meanwhile.then = Meanwhile.then, None
        if then is not None:
            then()
        return int(other) + int(self)


def test_a_submit_in_the_middle_of_a_submit() -> None:
    """A submit that interrupts another one, the very first, is taken like any other."""
    record = Record()
    pool = pool_of(record)
    Meanwhile.then = lambda: pool.submit("inner", 1)
    assert pool.submit("outer", Meanwhile(1))
    assert pool.shutdown(10)
    assert sorted(record.settled) == [("inner", "evaluated"), ("outer", "evaluated")]


def test_a_shutdown_in_the_middle_of_a_submit() -> None:
    """A call that slips past a shutdown which began and ended meanwhile is settled all the same."""
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


def test_settling_may_submit() -> None:
    """A settle function that submits, as telemetry of telemetry would, does not deadlock."""
    pool = PoolDispatcher(linger_s=0, max_items=1)
    record = Record()

    def settle(call: Any, outcome: str) -> None:
        record.settle(call, outcome)
        if call == "second":
            pool.submit("from settle", 1)

    pool.start(process_each(record.process), settle)
    pool.submit("blocking", 1)
    pool.submit("second", 1)
    assert record.settled == [("second", "dropped_queue_full"), ("from settle", "dropped_queue_full")]
    record.leave.set()
    assert pool.shutdown(10)
