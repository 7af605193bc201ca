"""FreeLock: a lock for a few instructions, which a forked child never finds taken."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

__all__ = ["FreeLock"]


class FreeLock:
    """Lets one thread at a time into a block that waits for nothing; free in a child, whoever held it at the fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALL.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_ALL: weakref.WeakSet[FreeLock] = weakref.WeakSet()


def _free_in_child() -> None:
    for lock in list(_ALL):
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
