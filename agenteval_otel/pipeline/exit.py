"""The process's exit: what is pending gets its last moment, and no more than that."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Protocol

__all__ = ["EXIT_TIMEOUT_S", "LIVE", "watch_exit"]

EXIT_TIMEOUT_S = 2.0


class Ending(Protocol):
    """What has to end with the process."""

    def shutdown(self, timeout_s: float) -> bool:
        """Deliver what can be delivered in time."""

    def broken(self, part: str, error: BaseException | None = None) -> None:
        """Count what broke."""


LIVE: weakref.WeakSet[Ending] = weakref.WeakSet()
_watched: set[int] = set()


def watch_exit() -> None:
    """Register for the process's exit, with its first answer: exit handlers run last in, first out, and ours has to run
    before those of the application's providers, which are set up by then. Not later: it may be the only answer."""
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        # A child of multiprocessing ends without exit handlers, but runs its finalizers.
        sys.modules["multiprocessing.util"].Finalize(None, _at_exit, exitpriority=100)


def _at_exit() -> None:
    """Give what is pending its last moment: together at most `EXIT_TIMEOUT_S`, whatever hangs."""
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for pipeline in list(LIVE):
        try:
            pipeline.shutdown(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            pipeline.broken("exit", error)
