"""The queue of what is sent again: its order, bounds and ages, whoever sends."""

from __future__ import annotations

import math
import threading
import time

import pytest

from agenteval_otel.components.retry import RetryQueue
from agenteval_otel.runtime.memory import MemoryBudget

MANY = 1_000


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(max_bytes=100)


def queue_of(
    budget: MemoryBudget, *values: str, max_bytes: float = math.inf, max_age_s: float = math.inf
) -> RetryQueue[str]:
    """A queue with these values of ten bytes each."""
    queue: RetryQueue[str] = RetryQueue(budget.results, max_bytes=max_bytes, max_age_s=max_age_s)
    for value in values:
        assert queue.add(value, 10) is not None
    return queue


def taken(queue: RetryQueue[str]) -> list[str]:
    return [entry.value for entry in queue.take(MANY, MANY)]


def test_what_failed_is_sent_first_and_in_order(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a", "b", "c", "d")
    batch = queue.take(3, MANY)
    queue.put_back(queue.take_back(batch))
    assert taken(queue) == ["a", "b", "c", "d"]


def test_a_batch_is_bounded_by_number_and_bytes(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a", "b", "c", "d", "e", "f")
    assert [entry.value for entry in queue.take(2, MANY)] == ["a", "b"]
    assert [entry.value for entry in queue.take(MANY, 20)] == ["c", "d"]
    assert [entry.value for entry in queue.take(MANY, 1)] == ["e"]


def test_memory_is_kept_until_an_entry_is_released(budget: MemoryBudget) -> None:
    """While it waits, is sent, is postponed or waits again. What found no room holds none."""
    queue = queue_of(budget, *"abcdefghij")
    assert queue.add("too much", 10) is None
    assert budget.used_bytes == queue.size_bytes == 100
    entries = queue.take_back(queue.take(MANY, MANY))
    queue.postpone(entries[0], 60.0)
    queue.put_back(entries[1:])
    assert budget.used_bytes == queue.size_bytes == 100
    queue.release(queue.remove_all(also_sending=True))
    assert budget.used_bytes == queue.size_bytes == 0
    assert all(entry.is_over for entry in entries)


def test_its_own_bound_leaves_room_for_others(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a", "b", max_bytes=25)
    assert queue.add("c", 10) is None
    assert queue.add("c", 10, always=True) is not None
    assert (budget.used_bytes, queue.size_bytes) == (20, 30)
    queue.release(queue.remove_all(also_sending=False))
    assert budget.used_bytes == 0


def test_a_postponed_entry_holds_up_no_other(budget: MemoryBudget) -> None:
    """It comes when it is due, or after the time for which the sender postpones at most."""
    queue = queue_of(budget, "a", "b")
    (first, _) = queue.take_back(queue.take(MANY, MANY))
    queue.postpone(first, 60.0)
    assert taken(queue) == []
    assert queue.postponed_until_s() > time.monotonic() + 30.0
    assert [entry.value for entry in queue.take(MANY, MANY, at_most_s=0.0)] == ["a"]
    assert queue.postponed_until_s() == math.inf


def test_what_is_dropped_while_it_is_sent_does_not_come_back(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a", "b")
    batch = queue.take(1)
    queue.release(queue.remove_all(also_sending=True))
    assert queue.take_back(batch) == []
    assert queue.take(1) == []


def test_a_receiver_that_answers_is_not_waited_for(budget: MemoryBudget) -> None:
    """Each failure doubles the wait, up to 8 s. The receiver's own word stays."""
    queue = queue_of(budget)
    for _ in range(50):
        queue.back_off()
    assert 3.0 < queue.retry_at_s() - time.monotonic() <= 8.0
    queue.back_off(30.0)
    assert 29.0 < queue.not_before_s - time.monotonic() <= 31.0
    queue.reached()
    assert queue.retry_at_s() == queue.not_before_s


def test_what_will_be_too_old_at_the_next_try_expires(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a", "b", max_age_s=20.0)
    first, _ = queue.take_back(queue.take(MANY, MANY))
    queue.postpone(first, 1.0)
    assert queue.add("c", 10) is not None
    assert queue.remove_expired() == []
    queue.back_off(30.0)
    assert [entry.value for entry in queue.remove_expired()] == ["c", "a"]


def test_a_part_of_an_entry_has_its_age_and_its_place(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "ab", "c")
    (whole,) = queue.take_back(queue.take(1))
    queue.release([whole])
    for part in ("b", "a"):
        queue.add(part, 5, instead_of=whole)
    parts = queue.take(2, MANY)
    assert [entry.value for entry in parts] == ["a", "b"]
    assert {entry.added_s for entry in parts} == {whole.added_s}


def test_a_release_wakes_who_waits(budget: MemoryBudget) -> None:
    queue = queue_of(budget, "a")
    entries = queue.entries()
    release = threading.Timer(0.05, lambda: queue.release(queue.remove_oldest()))
    release.start()
    with queue.changed:
        assert queue.changed.wait_for(lambda: entries[0].is_over, 10.0)
    release.join()
