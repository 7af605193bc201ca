"""Files and folders that only their owner can read, and the lock by which processes take turns at a file."""

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

_OPEN_LOCKS: set[int] = set()


def make_folders(folder: Path) -> None:
    """Create a folder and those above it; only the owner may enter created ones.

    Raises:
        OSError: One cannot be created, or a file has its name.
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
    """Device and inode of a descriptor or path; None if there is no file."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class FileLock:
    """A lock between all processes and threads, first come, first served.

    `flock` on the file ``<name>.lock``: the end of a process releases it. It is opened for each batch, because a
    descriptor that stayed open would be shared with forked children. Without `flock` (Windows) it locks nothing: one
    process a file, there.

    Args:
        path: The file to lock; the lock is the file beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.lock")

    @contextmanager
    def acquired(self, *, wait: bool = True) -> Iterator[None]:
        """Hold the lock in the block.

        Raises:
            StorageError: It is locked, and `wait` is off.
            OSError: The lock file cannot be created.
        """
        if sys.platform == "win32":
            yield
            return
        descriptor = self._acquire(wait)
        try:
            yield
        finally:
            self._close(descriptor)

    if sys.platform != "win32":

        def _acquire(self, wait: bool) -> int:
            while True:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                _OPEN_LOCKS.add(descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if identity(descriptor) == identity(self.path):
                        return descriptor
                except BlockingIOError:
                    self._close(descriptor)
                    raise StorageError(f"{self.path}: held by another process") from None
                except BaseException:
                    self._close(descriptor)
                    raise
                self._close(descriptor)  # the lock file was removed meanwhile: others lock a new one

        @staticmethod
        def _close(descriptor: int) -> None:
            _OPEN_LOCKS.discard(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile and shares it
            os.close(descriptor)


@reset_in_child
def _close_in_child() -> None:
    # The child shares the locks of its parent's threads, and would keep them if the parent is killed.
    while _OPEN_LOCKS:
        os.close(_OPEN_LOCKS.pop())
