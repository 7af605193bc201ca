"""FreeLock: a lock for a few instructions, which a forked child never finds taken."""

from __future__ import annotations

import threading
from types import TracebackType

from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["FreeLock"]


class FreeLock:
    """Lets one thread at a time into a block that waits for nothing; free in a child, whoever held it at the fork."""

    def __init__(self) -> None:
        self._free()
        reset_in_child(self._free)

    def _free(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
