"""A lock for a few instructions that a forked child never inherits locked."""

from __future__ import annotations

import threading
from types import TracebackType

from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """Admits one thread at a time to a block that never waits; always unlocked in a freshly forked child."""

    def __init__(self) -> None:
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
