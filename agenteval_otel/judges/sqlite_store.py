"""SqliteStore: a SQLite file that several processes use, from a thread of its own.

No event loop waits for the disk: each piece of work is one transaction on the store's thread, and its result is a
future. SQLite forbids that a connection crosses a fork: it is closed before a fork; where a transaction takes too long
for that, the child leaves the file alone.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import AfterValidator

from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.worker import Worker, settle

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_IDLE_S: Final = 1.0
_FORK_WAIT_S: Final = 0.05
_SHORTLY_S: Final = 0.01
_EXIT_S: Final = 1.0
_MAX_WAITING: Final = 10_000
_AGAIN_S: Final = 10.0


class SqliteStore:
    """The file; opened with the first work, closed after a second without any. Any thread may call.

    Work fails with `sqlite3.Error` or OSError where the file cannot be used, and with RuntimeError where the process is
    ending or too much work waits. `is_usable` is then False for ten seconds.

    Args:
        path: The file; it and new folders above it are readable by their owner alone.
        schema: Statements that create what is missing.
        event: The log event of a file that cannot be used.
        patience_s: How long a transaction waits for those of other processes.
        clock: Monotonic seconds.

    Attributes:
        failures: How much work has failed.
    """

    def __init__(
        self, path: Path, schema: Sequence[str], *, event: str, patience_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.path, self.failures = path.absolute(), 0
        self._schema, self._event, self._patience_s, self._clock = tuple(schema), event, patience_s, clock
        self._worker = Worker("agenteval-judges", max_waiting=_MAX_WAITING, idle_s=_IDLE_S, on_idle=self._disconnect)
        self._working, self._forking_thread = threading.Lock(), 0
        self._connection: sqlite3.Connection | None = None
        self._is_lost, self._usable_at = False, float("-inf")
        _STORES.add(self)
        before_fork(self._before_fork)
        after_fork_in_parent(self._after_fork)
        reset_in_child(self._in_child)

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}, {self.failures} failures>"

    @property
    def is_usable(self) -> bool:
        return self._clock() >= self._usable_at

    def submit(
        self, work: Callable[[sqlite3.Connection], T], *, on_commit: Callable[[], None] | None = None
    ) -> Future[T]:
        """Do the work in a transaction of its own, after the work that waits already. Never waits.

        Args:
            work: Gets the connection, on the store's thread.
            on_commit: Called on that thread after the commit, before other work.
        """
        future: Future[T] = Future()
        future.add_done_callback(self._note)
        if not self._worker.submit(lambda: settle(future, lambda: self._transaction(work, on_commit))):
            future.set_exception(RuntimeError(f"{self.path}: too much work waits, or the process is ending"))
        return future

    async def result(self, future: Future[T], *, on_late: Callable[[T], Any] | None = None) -> T:
        """The result of submitted work, awaited for three times `patience_s` at most.

        Args:
            future: From `submit`.
            on_late: Called with a result that comes although the caller gave up or was cancelled.

        Raises:
            Exception: The file cannot be used; TimeoutError where that took too long.
        """
        try:
            async with asyncio.timeout(3 * self._patience_s):  # not `wait_for`, which may swallow a cancellation
                return await asyncio.wrap_future(future)
        except BaseException as error:
            if isinstance(error, TimeoutError):
                self._unusable(error)
            if on_late is not None:
                future.add_done_callback(lambda done: _error_of(done) is None and on_late(done.result()))
            raise

    def close(self, timeout_s: float = _EXIT_S) -> bool:
        """Finish the waiting work and close the file, which new work opens again. True if that was done in time."""
        return self._worker.close(timeout_s)

    def _note(self, done: Future[Any]) -> None:
        error = _error_of(done)
        if isinstance(error, Exception):
            self._unusable(error)

    def _unusable(self, error: Exception) -> None:
        self.failures += 1
        self._usable_at = self._clock() + _AGAIN_S
        log.warning(self._event, part=str(self.path), error=type(error).__name__)

    def _transaction(self, work: Callable[[sqlite3.Connection], T], on_commit: Callable[[], None] | None) -> T:
        with self._working:
            if self._is_lost:
                raise OSError(f"{self.path}: was being written while this process was forked")
            connection = self._connection
            try:
                if connection is None:
                    connection = self._connection = self._connect()
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                # The next work connects anew: the file may have been removed.
                self._connection = None
                if connection is not None:
                    connection.close()  # and rolls back
                raise
            if on_commit is not None:
                on_commit()
            return result

    def _connect(self) -> sqlite3.Connection:
        import sqlite3  # only where settings name a file

        _make_folders(self.path.parent)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=self._patience_s, isolation_level=None, check_same_thread=False
        )  # fmt: skip
        try:
            self._write_ahead(connection)
            # Survives the end of a process; of the machine, but for the last moments.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in self._schema:
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        # SQLite refuses this at once where another process opens a new file too, whatever the timeout is.
        import sqlite3

        until = time.monotonic() + self._patience_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_SHORTLY_S)

    def _disconnect(self) -> None:
        with self._working:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
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
        if self._forking_thread != threading.get_ident():
            # SQLite's own memory of its locks came along: a new connection to this file would trust it.
            self._is_lost = True
            _ABANDONED.append(self._connection)
            self._connection = None
        self._working, self._forking_thread = threading.Lock(), 0


def _not_a_folder(path: Path | None) -> Path | None:
    if path is not None and path.is_dir():
        raise ValueError("expected a file, found a folder")
    return path


IS_FILE: Final = AfterValidator(_not_a_folder)
"""Validates the path of a store in settings."""


def _error_of(done: Future[Any]) -> BaseException | None:
    """A cancellation is no Exception."""
    return asyncio.CancelledError() if done.cancelled() else done.exception()


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
