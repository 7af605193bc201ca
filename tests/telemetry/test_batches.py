"""What waits for export: bounded, split where it is too large, kept where it is told to wait, and lost by count."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agenteval_otel.telemetry import batches as room
from agenteval_otel.telemetry.batches import Batches, Verdict


class Collector:
    """Takes batches as it is told to."""

    def __init__(self) -> None:
        self.taken: list[list[Any]] = []
        self.asked: list[int] = []
        self.lost = 0
        self.largest = 10_000
        self.verdict = Verdict(sent=True)
        self.begun = threading.Event()

    def export(self, items: Sequence[Any]) -> Verdict:
        """One batch."""
        self.begun.set()
        self.asked.append(len(items))
        if len(items) > self.largest:
            return Verdict(sent=False, too_large=True)
        if self.verdict.sent:
            self.taken.append(list(items))
        return self.verdict

    def lose(self, count: int) -> None:
        """Told what is lost."""
        self.lost += count

    @property
    def items(self) -> list[Any]:
        """All that was taken, in order."""
        return [item for batch in self.taken for item in batch]


@pytest.fixture
def collector() -> Collector:
    """One that takes everything."""
    return Collector()


@pytest.fixture
def queue(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A queue without a thread, that is exported by flushing it."""
    made = Batches("LOGS", collector.export, collector.lose)
    monkeypatch.setattr(made, "_start", lambda: None)
    yield made
    made.close()


def test_in_order_and_in_small_batches(queue: Batches, collector: Collector) -> None:
    """Everything is exported in its order, a bounded number at once."""
    for number in range(300):
        queue.put(number, 1_000)
    assert queue.flush()
    assert collector.items == list(range(300))
    assert max(collector.asked) <= 128


def test_large_items_go_by_few(queue: Batches, collector: Collector) -> None:
    """A batch is bounded by bytes too; an item that is larger than that goes alone."""
    for number in range(5):
        queue.put(number, 500_000)
    queue.put("large", 5_000_000)
    assert queue.flush()
    assert collector.asked == [2, 2, 1, 1]


@pytest.mark.parametrize(("limit", "size"), [("MAX_ITEMS", 1), ("MAX_BYTES", 1_000)])
def test_a_full_queue_leaves_the_newest_out(
    queue: Batches, collector: Collector, monkeypatch: pytest.MonkeyPatch, limit: str, size: int
) -> None:
    """Beyond its bounds nothing is taken, and each that is left out is told as lost."""
    monkeypatch.setattr(room, limit, 10 * size)
    for number in range(15):
        queue.put(number, size)
    assert collector.lost == 5
    assert queue.flush()
    assert collector.items == list(range(10))


def test_too_large_is_halved(queue: Batches, collector: Collector) -> None:
    """A batch that is too large for the other side is sent in halves; one item that is too large is lost."""
    collector.largest = 3
    for number in range(10):
        queue.put(number, 1_000)
    assert queue.flush()
    assert collector.items == list(range(10))
    collector.largest = 0
    queue.put("too large", 1_000)
    assert queue.flush()
    assert collector.lost == 1


def test_what_is_told_to_wait_waits(queue: Batches, collector: Collector) -> None:
    """Told to come later, the batch stays in front of the queue and nobody is asked before that; a flush says no."""
    queue.put("early", 1_000)
    collector.verdict = Verdict(sent=False, wait_s=60.0)
    assert not queue.flush()
    queue.put("late", 1_000)
    assert not queue.flush()
    assert collector.asked == [1]
    collector.verdict = Verdict(sent=True)
    queue._not_before = 0.0
    assert queue.flush()
    assert collector.items == ["early", "late"]
    assert collector.lost == 0


def test_what_is_refused_is_lost_once(queue: Batches, collector: Collector) -> None:
    """A refused batch is not tried again, and counted."""
    queue.put("refused", 1_000)
    collector.verdict = Verdict(sent=False)
    assert queue.flush()
    assert (collector.asked, collector.lost) == ([1], 1)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_exporter_that_raises_loses_its_batch_only(
    queue: Batches, collector: Collector, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Whatever the exporter raises costs its batch and nothing else."""

    def broken(items: Sequence[Any]) -> Verdict:
        raise error

    monkeypatch.setattr(queue, "_export", broken)
    queue.put("first", 1_000)
    assert queue.flush()
    monkeypatch.setattr(queue, "_export", collector.export)
    queue.put("second", 1_000)
    assert queue.flush()
    assert (collector.items, collector.lost) == (["second"], 1)


def test_its_thread_exports_and_ends(collector: Collector, no_thread_left: None) -> None:
    """The first item starts a thread, a well filled queue wakes it, and closing ends it."""
    queue = Batches("LOGS", collector.export, collector.lose)
    for number in range(600):
        queue.put(number, 1_000)
    assert collector.begun.wait(10)
    queue.close()
    assert collector.items == list(range(600))
    queue.put("late", 1_000)
    assert collector.lost == 1
