"""The memory bound: shared by its parts, exact under threads, new in a forked child."""

from __future__ import annotations

import os
import sys

import pytest

from agenteval_otel.runtime.memory import MEMORY, MemoryBudget
from tests.promises.programs import together


def test_parts_have_ceilings_and_share_one_bound() -> None:
    budget = MemoryBudget(1_000)
    budget.results.max_bytes = 100
    assert budget.results.reserve(100)
    assert not budget.results.reserve(1)
    assert budget.captured_calls.reserve(600)
    assert not budget.encoded_batches.reserve(600)
    assert (budget.used_bytes, budget.encoded_batches.used_bytes) == (700, 0)
    budget.captured_calls.release(600)
    assert budget.encoded_batches.reserve(600)


def test_threads_that_meet_lose_no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, too_many, granted = MemoryBudget(64), list[int](), list[int]()

    def work() -> None:
        for _ in range(5_000):
            if budget.results.reserve(16):
                granted.append(16)
                if sum(granted) > 64:
                    too_many.append(1)
                granted.pop()
                budget.results.release(16)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together([work] * 8)
    finally:
        sys.setswitchinterval(before)
    assert (budget.used_bytes, budget.results.used_bytes, too_many) == (0, 0, [])


def test_a_forked_child_begins_with_nothing() -> None:
    assert MEMORY.results.reserve(1_000)
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if (MEMORY.used_bytes, MEMORY.results.used_bytes) == (0, 0) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert MEMORY.results.used_bytes >= 1_000
    finally:
        MEMORY.results.release(1_000)
