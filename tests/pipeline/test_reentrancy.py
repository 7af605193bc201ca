"""Submits that meet each other: from threads, from signal handlers, and in the middle of a shutdown."""

from __future__ import annotations

from typing import Any

from agenteval_otel.pipeline import PoolDispatcher, process_each
from tests.pipeline.support import Record, pool_of


class Meanwhile(int):
    """A size in whose addition something else happens: an interruption at the worst moment, every time."""

    then: Any = None

    def __radd__(self, other: int) -> int:
        then, Meanwhile.then = Meanwhile.then, None
        if then is not None:
            then()
        return int(other) + int(self)


def test_a_submit_in_the_middle_of_a_submit() -> None:
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
