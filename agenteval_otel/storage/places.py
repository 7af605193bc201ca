"""Places on disk that are their owner's alone, and the lock by which processes take turns at one.

The lock is a file beside the place (``<name>.lock``), locked by `flock` for the length of one batch, so whoever is
killed lets go of it. It is opened anew each time: one that stayed open would be shared with every forked child.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["FileLock", "identity", "make_folders"]

_HELD: set[int] = set()


def make_folders(folder: Path) -> None:
    """Make a folder and those above it; each that is made may be entered by its owner only.

    Raises:
        OSError: One cannot be made, or a file stands in its place.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():  # else another process was faster
            raise


def identity(place: int | Path) -> tuple[int, int] | None:
    """Which file a descriptor or a path leads to; None for nothing."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileLock:
    """Lets one batch of all processes and threads at a place at a time, in the order in which they came.

    Where the system has no `flock` (Windows) it holds off nobody: one process a file, there.

    Args:
        path: The place; the lock is the file beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.lock")

    @contextmanager
    def held(self, *, wait: bool = True) -> Iterator[None]:
        """Hold it for the block.

        Raises:
            StorageError: Somebody else holds it, and `wait` is off.
            OSError: The lock file cannot be made.
        """
        if sys.platform == "win32":
            yield
            return
        descriptor = self._taken(wait)
        try:
            yield
        finally:
            self._close(descriptor)

    if sys.platform != "win32":

        def _taken(self, wait: bool) -> int:
            while True:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                _HELD.add(descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._close(descriptor)
                    raise StorageError(f"{self.path}: held by another process") from None
                except BaseException:
                    self._close(descriptor)
                    raise
                if identity(descriptor) == identity(self.path):
                    return descriptor
                self._close(descriptor)  # it was removed meanwhile: whoever comes now locks another file

        @staticmethod
        def _close(descriptor: int) -> None:
            _HELD.discard(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # for a child that was forked meanwhile and shares it, too
            os.close(descriptor)


@reset_in_child
def _let_go_in_child() -> None:
    # The child shares the lock that a thread of its parent held, and would keep it from everybody if that is killed.
    while _HELD:
        os.close(_HELD.pop())
