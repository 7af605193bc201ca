"""A processing function that tests steer, and a record of what was settled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from agenteval_otel.engine.pipeline import PoolDispatcher, process_each
from agenteval_otel.engine.pipeline.dispatcher import Stall
from agenteval_otel.semconv import EVALUATED

__all__ = ["Record", "eventually", "pool_of"]


class Record:
    """Settled calls, and gates at which named calls wait: on the loop (``hung``) or with the loop
    (``blocking``).
    """

    def __init__(self) -> None:
        self.settled: list[tuple[Any, str]] = []
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    async def process(self, call: Any) -> str:
        self.threads.add(threading.current_thread())
        if call == "hung":
            self.entered.set()
            await asyncio.get_running_loop().create_future()
        if call == "blocking":
            self.entered.set()
            self.leave.wait(20.0)
        if call == "exit":
            raise SystemExit(3)
        if call == "interrupt":
            raise KeyboardInterrupt
        if call == "broken":
            raise ValueError("broken")
        return EVALUATED

    def settle(self, call: Any, outcome: str) -> None:
        with self._lock:
            self.settled.append((call, outcome))

    def join_threads(self) -> None:
        """Wait until every thread that processed a call has ended."""
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    def outcome_of(self, call: Any) -> str | None:
        actual = [outcome for settled, outcome in self.settled if settled == call]
        assert len(actual) <= 1, f"{call} was settled {len(actual)} times"
        return actual[0] if actual else None


def pool_of(record: Record, stall: Stall | None = None, **settings: Any) -> PoolDispatcher:
    """A pool on the record's processing, without waiting for more calls."""
    pool = PoolDispatcher(linger_s=0, **settings)
    pool.start(process_each(record.process), record.settle, on_stall=stall)
    return pool


def eventually(attempt: Callable[[], bool], patience_s: float = 10.0) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if attempt():
            return True
        time.sleep(0.005)
    return False
