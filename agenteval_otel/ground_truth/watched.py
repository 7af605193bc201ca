"""A table that follows its file: read again when the file has changed, on a thread of its own."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agenteval_otel.ground_truth.table import Table
from agenteval_otel.runtime.worker import Worker

__all__ = ["Watched"]

T = TypeVar("T")
_LOOK_EVERY_S = 1.0
_PAUSE_AFTER, _PAUSE_S = 100, 0.002

Read = Callable[[Callable[[Iterable[Any]], Iterable[Any]]], Table]


class Watched:
    """The table of a file, as the file is now, at most a second and the time of reading it late.

    A new file that cannot be used leaves the table as it was, and is told once by `troubles`. Any thread may ask.

    Args:
        path: The file.
        read: Reads it, going through what takes long with what it is given.
        clock: Seconds, monotonic.
        begin: Starts the reading, or gives False; a background worker when left out.

    Raises:
        ConfigurationError: The first reading found something wrong.
    """

    def __init__(
        self,
        path: Path,
        read: Read,
        *,
        clock: Callable[[], float] = time.monotonic,
        begin: Callable[[Callable[[], None]], bool] | None = None,
    ) -> None:
        self._worker = Worker("agenteval-ground-truth", max_waiting=1, idle_s=0.0)
        self._path, self._read, self._clock, self._begin = path, read, clock, begin or self._worker.submit
        self._troubles: deque[Exception] = deque(maxlen=16)
        self._told = ""
        # Looked at before it is read: what is written in between is read again. One value, so that of two readings at
        # a time each leaves rows that go with what it saw.
        seen = _signature(path)
        self._held = read(iter), seen
        self._due = clock() + _LOOK_EVERY_S

    def __repr__(self) -> str:
        return f"<Watched {self._path} {self._held[0]!r}>"

    def table(self) -> Table:
        """The table. Looks at the file's times and size once a second; never waits for it to be read."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _LOOK_EVERY_S
            changed = not self._worker.has_thread and _signature(self._path) != self._held[1]
            # With a thread there, others have asked for the same reading in this very moment.
            if changed and not self._begin(self._read_again) and not self._worker.has_thread:
                self._tell(RuntimeError("no thread can be started to read it again"))
        return self._held[0]

    def troubles(self) -> tuple[Exception, ...]:
        """What was wrong with new files since it was last asked."""
        if not self._troubles:
            return ()
        found = []
        while self._troubles:
            found.append(self._troubles.popleft())
        return tuple(found)

    def _read_again(self) -> None:
        seen = _signature(self._path)
        try:
            table = self._read(_steadily)
        except Exception as error:
            self._tell(error)
            if isinstance(error, MemoryError) or isinstance(error.__cause__, OSError):
                return  # which has nothing to do with what the file holds: it is tried again
            table = self._held[0]
        else:
            self._told = ""
        # Not before: a process that is forked meanwhile, without this thread, has to begin anew.
        self._held = table, seen

    def _tell(self, error: Exception) -> None:
        if str(error) != self._told:
            self._told = str(error)
            self._troubles.append(error)


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The time of the last change counts too: of the rights, or of a file that came with the time of another.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_dev, found.st_ino


def _steadily(items: Iterable[T]) -> Iterator[T]:
    """The items, with pauses: the process has other things to do than to read our file."""
    for count, item in enumerate(items, 1):
        yield item
        if count % _PAUSE_AFTER == 0:
            time.sleep(_PAUSE_S)
