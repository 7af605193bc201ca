"""SqliteStore: a SQLite file that several processes use, from a thread of its own.

SQLite forbids that a connection crosses a fork, so it is closed before a fork. If a transaction
takes too long for that, the child leaves the file alone.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.worker import Worker, settle

if TYPE_CHECKING:
    import sqlite3

    Work = Callable[[sqlite3.Connection], Any]

T = TypeVar("T")
_IDLE_S: Final = 1.0
_FORK_WAIT_S: Final = 0.05
_SHORTLY_S: Final = 0.01
_EXIT_S: Final = 1.0
_MAX_WAITING: Final = 10_000
_AGAIN_S: Final = 10.0
_ERASE_S: Final = 30.0


def open_sqlite(path: Path, *, timeout_s: float, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time, without the driver's transactions."""
    import sqlite3

    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    return sqlite3.connect(
        address, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )


@contextlib.contextmanager
def erasing(path: Path, *, dry_run: bool) -> Iterator[sqlite3.Connection]:
    """Open a store's file to delete from it, and then free its pages, which may quote people.

    Blocks. With `dry_run` nothing is freed. Raises `OSError`, or what `sqlite3` raises.
    """
    with contextlib.closing(open_sqlite(path, timeout_s=_ERASE_S)) as connection:
        yield connection
        if not dry_run:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class SqliteStore:
    """Holds the file, opened with the first work and closed after a second without any.

    Any thread may call. The file and new folders above it are readable by their owner alone. Work
    fails where the file cannot be used, the process is ending or too much work waits: then `event`
    is logged, and `is_usable` is False for ten seconds. A transaction waits `patience_s` for those
    of other processes.
    """

    def __init__(
        self,
        path: Path,
        schema: Sequence[str],
        *,
        event: str,
        patience_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path.absolute()
        self.failures = 0
        self._schema = tuple(schema)
        self._event = event
        self._patience_s = patience_s
        self._clock = clock
        self._worker = Worker(
            "agenteval-sqlite", max_waiting=_MAX_WAITING, idle_s=_IDLE_S, on_idle=self._disconnect
        )
        self._working = threading.Lock()
        self._forking_thread = 0  # that holds the lock over a fork, else 0
        self._unwritten: list[Work] = []
        self._connection: sqlite3.Connection | None = None
        self._is_lost = False  # a child whose parent was writing at the fork
        self._usable_at = float("-inf")
        _STORES.add(self)
        before_fork(self._before_fork)
        after_fork_in_parent(self._after_fork)
        reset_in_child(self._in_child)

    @property
    def is_usable(self) -> bool:
        return self._clock() >= self._usable_at

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Do the work in a transaction of its own, on the store's thread. Never waits."""
        future: Future[T] = Future()
        if not self._worker.submit(lambda: settle(future, lambda: self._transaction(work))):
            refused = RuntimeError(f"{self.path}: too much work waits, or the process is ending")
            self._unusable(refused)
            future.set_exception(refused)
        return future

    async def run(self, work: Callable[[sqlite3.Connection], T], *, undo: Work | None = None) -> T:
        """Await the result of the work for at most three times `patience_s`.

        Raises its errors, and `TimeoutError`.

        `undo` is written if the caller timed out or was cancelled after the work had started.
        """
        future = self.submit(work)
        try:
            # not `wait_for`, which may swallow a cancellation
            async with asyncio.timeout(3 * self._patience_s):
                return await asyncio.wrap_future(future)
        except (TimeoutError, asyncio.CancelledError, GeneratorExit) as error:
            if isinstance(error, TimeoutError):
                self._unusable(error)
            if not future.cancel() and undo is not None:
                future.add_done_callback(lambda _: self.write(undo))  # not before the work itself
            raise

    def write(self, work: Work) -> None:
        """Do the work within the next transaction, again until it is committed.

        Up to 10,000 may wait. Never waits itself.
        """
        if len(self._unwritten) < _MAX_WAITING:
            self._unwritten.append(work)
        if self.is_usable:
            self.submit(_nothing)

    def close(self, timeout_s: float = _EXIT_S) -> bool:
        """Finish the waiting work and close the file, which new work opens again.

        Return True if all is written in time.
        """
        if self._unwritten:
            self.submit(_nothing)
        return self._worker.close(timeout_s) and not self._unwritten

    def _unusable(self, error: Exception) -> None:
        self.failures += 1
        self._usable_at = self._clock() + _AGAIN_S
        log.warning(self._event, part=str(self.path), error=type(error).__name__)

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._working:
                return self._committed(work)
        except Exception as error:
            # without the lock, for which a fork waits: a handler of the log line may take long
            self._unusable(error)
            raise

    def _committed(self, work: Callable[[sqlite3.Connection], T]) -> T:
        unwritten = self._unwritten[:]
        try:
            if self._is_lost:
                raise OSError(f"{self.path}: was being written while this process was forked")
            if self._connection is None:
                self._connection = self._connect()
            self._connection.execute("BEGIN IMMEDIATE")
            for write in unwritten:
                write(self._connection)
            result = work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            # This rolls back. The next work connects anew, since the file may have been removed.
            self._drop()
            raise
        del self._unwritten[: len(unwritten)]
        return result

    def _connect(self) -> sqlite3.Connection:
        import sqlite3  # only where settings name a file

        _make_folders(self.path.parent)
        # SQLite would create the file with the default rights.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = open_sqlite(self.path, timeout_s=self._patience_s)
        try:
            until = time.monotonic() + self._patience_s
            # SQLite refuses this at once where another process opens a new file too, whatever the
            # timeout
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    break
                except sqlite3.OperationalError:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_SHORTLY_S)
            # What is written survives the end of the process. A failure of the machine loses the
            # last moments.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")  # what is deleted may quote people
            connection.execute("BEGIN IMMEDIATE")
            for statement in self._schema:
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        with self._working:
            self._drop()

    def _drop(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()

    def _before_fork(self) -> None:
        if self._working.acquire(timeout=_FORK_WAIT_S):
            self._forking_thread = threading.get_ident()
            self._drop()

    def _after_fork(self) -> None:
        if self._forking_thread == threading.get_ident():
            self._forking_thread = 0
            self._working.release()

    def _in_child(self) -> None:
        self._unwritten = []  # the parent writes them
        if self._forking_thread != threading.get_ident():
            # The inherited lock state of SQLite would mislead a new connection to this file.
            self._is_lost = True
            _ABANDONED.append(self._connection)
            self._connection = None
        self._working = threading.Lock()
        self._forking_thread = 0


def _nothing(_: sqlite3.Connection) -> None: ...


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


_STORES: Final[weakref.WeakSet[SqliteStore]] = weakref.WeakSet()
_ABANDONED: Final[list[sqlite3.Connection | None]] = []
"""Connections of a parent, never closed here: that would touch what the parent is doing."""


@atexit.register
def _close_all() -> None:
    for store in list(_STORES):
        store.close()
