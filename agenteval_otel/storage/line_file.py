"""Appends whole lines to a file that several processes may write.

A batch is one write to a descriptor opened for appending. Writers take no lock, so lines that were cut off (by a full
disk, or by a process killed during its write) are looked for twice: when the file is opened, and after each write,
before the written text. A line that was appended to a cut-off one is written again, on its own line, before it counts
as saved. Only where the file rotates do processes take turns, so that none writes to a renamed file.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from agenteval_otel.errors import StorageError
from agenteval_otel.storage.places import FileLock, identity, make_folders

__all__ = ["LineFile"]

_LOOK_AGAIN_S = 0.05
_TRIES = 5


class LineFile:
    """The open file, as the sink of a `ResultBatcher`. Any failure closes it; the next write opens it again, also
    after it was removed or moved away.

    Args:
        path: The file; folders above it are created when it is opened.
        max_bytes: Size above which it is renamed to ``<name>.1``, and that to ``<name>.2``; None: never.
        keep: How many renamed files are kept.
        sync_every_s: How often at most lines are synced to the disk; 0 before they count as saved, None leaves it to
            the system.
    """

    def __init__(
        self, path: Path, *, max_bytes: int | None = None, keep: int = 5, sync_every_s: float | None = None
    ) -> None:
        self.path, self._max_bytes, self._sync_every_s = path, max_bytes, sync_every_s
        self._lock = FileLock(path) if max_bytes else None
        self._keep = keep
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._has_tail = self._unsynced = False
        self._synced_at = float("-inf")
        self._sync_error: Exception | None = None

    def write(self, items: Sequence[bytes], *, may_wait: bool = True) -> list[Exception | None]:
        """Append the lines, line ends included; for each None once it is in the file, else the error."""
        if not items:
            return []
        outcomes: list[Exception | None] = []
        try:
            if self._lock is not None:
                make_folders(self.path.parent)  # the lock comes first
            with self._lock.acquired(wait=may_wait) if self._lock is not None else nullcontext():
                while len(outcomes) < len(items):
                    outcomes += self._append(items[len(outcomes) :])
                self._sync_if_due()
        except Exception as error:
            self._drop()
            if self._sync_every_s is not None:
                outcomes = [outcome or error for outcome in outcomes]  # in the file, and perhaps not on the disk
            outcomes += [error] * (len(items) - len(outcomes))
        return outcomes

    def rest(self) -> None:
        """Sync the last lines to the disk; an error fails the next ones."""
        try:
            self._sync()
        except OSError as error:
            self._sync_error = error
            self._drop()

    def close(self) -> None:
        """Close it; opened again by the next write.

        Raises:
            OSError: The last lines could not be synced.
        """
        try:
            self._sync()
        finally:
            self._drop()

    def _append(self, lines: Sequence[bytes]) -> list[Exception | None]:
        """Append as many of the lines as the file has room for, at least one; their outcomes."""
        descriptor, torn = self._ready()
        if self._max_bytes is not None:
            size = os.fstat(descriptor).st_size
            fitting = _fitting(lines, self._max_bytes - size)
            if size and not fitting:
                self._rotate()
                descriptor, torn = self._ready()
                fitting = _fitting(lines, self._max_bytes)
            lines = lines[: max(1, fitting)]
        text = b"".join([b"\n", *lines] if torn else lines)
        written = os.write(descriptor, text)
        self._unsynced = True
        apart = torn or self._is_apart(descriptor, written, lines[0], whole=written == len(text))
        if apart and written == len(text):
            return [None] * len(lines)
        self._drop()
        problem = f"only {written} of {len(text)} bytes written" if apart else "lines are cut off again and again"
        return _outcomes(lines, written - torn if apart else 0, StorageError(f"{self.path}: {problem}"))

    def _is_apart(self, descriptor: int, written: int, first: bytes, *, whole: bool) -> bool:
        """Whether the written text begins a line; if not, its first line is written again."""
        for _ in range(_TRIES if self._has_tail else 0):
            start = os.lseek(descriptor, 0, os.SEEK_CUR) - written
            if start <= 0 or os.pread(descriptor, 1, start - 1) == b"\n":
                return True
            if not whole or (written := os.write(descriptor, first)) < len(first):
                return False
        return not self._has_tail

    def _ready(self) -> tuple[int, bool]:
        """The open file that is at the path now, and whether it ends within a line."""
        if self._descriptor is not None:
            if self._identity == identity(self._descriptor) == identity(self.path):
                return self._descriptor, False
            self._drop()
        make_folders(self.path.parent)
        descriptor = self._descriptor = self._open()
        self._identity = identity(descriptor)
        os.set_blocking(descriptor, True)
        return descriptor, self._is_torn(descriptor)

    def _open(self) -> int:
        # Opened without blocking: a pipe that nobody reads is refused instead of waited for.
        flags = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            if not self.path.exists() or self.path.is_file():
                descriptor = os.open(self.path, os.O_RDWR | flags, 0o600)
                self._has_tail = stat.S_ISREG(os.fstat(descriptor).st_mode)
                return descriptor
        except PermissionError:
            pass  # perhaps writable all the same
        self._has_tail = False
        return os.open(self.path, os.O_WRONLY | flags, 0o600)

    def _is_torn(self, descriptor: int) -> bool:
        """Whether a line was cut off. Waits while another process is writing one."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        if not self._has_tail:
            return True  # not readable: an empty line does no harm
        before = -1
        while True:
            size = os.fstat(descriptor).st_size
            if not size or os.pread(descriptor, 1, size - 1) == b"\n":
                return False
            if size == before:
                return True
            before = size
            time.sleep(_LOOK_AGAIN_S)

    def _rotate(self) -> None:
        """Rename the file; older ones move up to the first gap, or the oldest is deleted."""
        self._sync()
        self._drop()
        file = Path(os.path.realpath(self.path))  # a link stays
        places = [file, *(file.with_name(f"{file.name}.{number}") for number in range(1, self._keep + 1))]
        gap = next((at for at, place in enumerate(places) if not place.exists()), self._keep)
        for at in range(gap, 0, -1):
            os.replace(places[at - 1], places[at])

    def _sync_if_due(self) -> None:
        error, self._sync_error = self._sync_error, None
        if error is not None:
            raise error
        if self._sync_every_s is not None and time.monotonic() - self._synced_at >= self._sync_every_s:
            self._sync()

    def _sync(self) -> None:
        if self._sync_every_s is None or not self._unsynced or self._descriptor is None:
            return
        self._synced_at, self._unsynced = time.monotonic(), False
        os.fsync(self._descriptor)

    def _drop(self) -> None:
        descriptor, self._descriptor, self._unsynced = self._descriptor, None, False
        if descriptor is not None and identity(descriptor) == self._identity:  # else the host closed it
            with contextlib.suppress(OSError):  # it is closed all the same
                os.close(descriptor)


def _fitting(lines: Sequence[bytes], room: int) -> int:
    """How many of the lines there is room for."""
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return count
    return len(lines)


def _outcomes(lines: Sequence[bytes], written: int, error: Exception) -> list[Exception | None]:
    """For each line whether it is among the first bytes."""
    outcomes: list[Exception | None] = []
    for line in lines:
        written -= len(line)
        outcomes.append(None if written >= 0 else error)
    return outcomes
