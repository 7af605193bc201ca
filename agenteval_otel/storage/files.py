"""Files that only their owner can read, and that processes write in turn."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import reset_in_child

_OPEN: set[int] = set()  # descriptors that `open_locked` has opened and not closed


def identity(place: int | Path) -> tuple[int, int] | None:
    """Return device and inode of a descriptor or path. None if there is no file."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def lock_of(path: Path) -> Path:
    """Return the lock file of a file that must not be opened.

    Closing any descriptor of that file releases its locks.
    """
    return path.with_name(f"{path.name}.lock")


@contextmanager
def open_locked(path: Path, flags: int = os.O_RDWR, *, wait: bool = True) -> Iterator[int]:
    """Open the file at the path, alone among all processes and threads that open it so.

    Missing files and folders are created, for their owner alone. The end of a process releases the
    lock (`flock`). Where there are no locks (Windows), one process writes a file. Without `wait` a
    locked file raises `StorageError`.
    """
    if not path.parent.is_dir():
        # One by one, as `parents=True` would create all but the last with the default rights.
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        # Without blocking: a pipe without a reader is refused instead of waited for.
        descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        _OPEN.add(descriptor)
        try:
            _lock(descriptor, path, wait)
            if identity(descriptor) == identity(path):  # else it was renamed or removed meanwhile
                os.set_blocking(descriptor, True)
                yield descriptor
                return
        finally:
            _OPEN.discard(descriptor)
            if sys.platform != "win32":
                with contextlib.suppress(OSError):
                    # also for a child that was forked meanwhile and shares it
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            with contextlib.suppress(OSError):  # it is closed all the same
                os.close(descriptor)


def _lock(descriptor: int, path: Path, wait: bool) -> None:
    if sys.platform != "win32":
        try:
            operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            raise StorageError(f"{path}: held by another process") from None
        except OSError:  # the file system has no locks
            pass


@reset_in_child
def _close_in_child() -> None:
    # The child shares the locks of its parent's threads, and would keep them if the parent is
    # killed.
    while _OPEN:
        os.close(_OPEN.pop())
