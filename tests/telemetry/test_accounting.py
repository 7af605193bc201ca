"""Accounting: what became of every call."""

from __future__ import annotations

import threading

from agenteval_otel.semconv import EVALUATED, NOT_SAMPLED, OUTCOMES
from agenteval_otel.telemetry import Accounting


def test_outcomes_are_counted_by_agent_and_added_up() -> None:
    """Before the first call every outcome is there with 0; counts are kept by agent and added up
    over all.
    """
    accounting = Accounting()
    assert accounting.outcomes() == dict.fromkeys(OUTCOMES, 0)
    assert repr(accounting) == "<Accounting no calls>"
    accounting.outcome_counts("a")[EVALUATED] += 2
    accounting.outcome_counts("b")[EVALUATED] += 1
    accounting.outcome_counts("b")[NOT_SAMPLED] += 4
    assert accounting.outcomes()[EVALUATED] == 3
    assert accounting.by_agent()["b"][NOT_SAMPLED] == 4
    assert repr(accounting) == "<Accounting evaluated=3, not_sampled=4>"


def test_threads_lose_no_count() -> None:
    """Additions of several threads at once all count, without a lock."""
    accounting = Accounting()
    barrier = threading.Barrier(8)

    def work() -> None:
        counts = accounting.outcome_counts("a")
        barrier.wait(10)
        for _ in range(20_000):
            counts[EVALUATED] += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert accounting.outcomes()[EVALUATED] == 160_000


def test_failures_are_counted_by_part() -> None:
    """What broke is counted by its name; a reset brings everything back to 0 in place."""
    accounting = Accounting()
    counts = accounting.outcome_counts("a")
    counts[EVALUATED] += 1
    assert (accounting.fail("sampler"), accounting.fail("sampler")) == (1, 2)
    accounting.reset()
    assert accounting.failures == {}
    assert counts is accounting.outcome_counts("a")
    assert sum(accounting.outcomes().values()) == 0
