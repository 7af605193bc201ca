"""Database: a SQLite file that several processes use, met from a thread of its own.

Nobody waits for the disk on an event loop: work is handed over and its outcome is a future. Each piece of work is one
transaction; how long it waits for other processes is bounded. SQLite forbids that a connection crosses a fork: it is
closed before one, and where it is just at work the child leaves the file alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.worker import Worker, settle

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Database"]

T = TypeVar("T")
_IDLE_S: Final = 1.0
_AT_FORK_S: Final = 0.05
_SHORTLY_S: Final = 0.01
_AT_EXIT_S: Final = 1.0
_MOST_WAITING: Final = 10_000

Work = Callable[["sqlite3.Connection"], T]


class Database:
    """The file; opened by the first work, closed when there was none for a second.

    Args:
        path: Where it is; folders above are made, for their owner alone, as is the file.
        schema: Statements that make what is not there yet.
        patience_s: How long a transaction waits for those of others.
    """

    def __init__(self, path: Path, schema: Sequence[str], *, patience_s: float = 1.0) -> None:
        self.path, self._schema, self._patience_s = path, tuple(schema), patience_s
        self._held_at_fork: dict[int, bool] = {}
        self._worker = Worker("agenteval-judges", max_waiting=_MOST_WAITING, idle_s=_IDLE_S, on_idle=self._let_go)
        self._connection: sqlite3.Connection | None
        self._lost = False
        self._begin()
        _ALL.add(self)
        _close_at_exit()
        before_fork(self._before_fork)
        after_fork_in_parent(self._after_fork)
        reset_in_child(self._in_child)

    def __repr__(self) -> str:
        return f"<Database {self.path}>"

    def submit(self, work: Work[T], *, first: bool = False) -> Future[T]:
        """Have work done in a transaction of its own, after all that was handed over before; never waits.

        With `first` before all that waits, but for what was handed over so too.

        The future holds `sqlite3.Error` or OSError where the file cannot be used, and RuntimeError where the process is
        ending or too much waits already.
        """
        future: Future[T] = Future()
        if not self._worker.submit(lambda: settle(future, lambda: self._do(work)), first=first):
            future.set_exception(RuntimeError(f"{self.path}: too much waits to be written, or the process is ending"))
        return future

    def close(self, timeout_s: float = _AT_EXIT_S) -> bool:
        """Do what waits and close the file; the next work opens it again. True when that was done in time."""
        return self._worker.close(timeout_s)

    def _begin(self) -> None:
        self._at_work = threading.Lock()
        self._connection = None

    def _do(self, work: Work[T]) -> T:
        if self._lost:
            raise OSError(f"{self.path}: was being written while this process was forked")
        with self._at_work:
            return self._transaction(work)

    def _transaction(self, work: Work[T]) -> T:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            # Opened anew: what went wrong may be the file that is no longer there.
            self._connection = None
            if connection is not None:
                connection.close()  # and rolls back
            raise
        return result

    def _open(self) -> sqlite3.Connection:
        import sqlite3  # not where nobody names a file

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
        # Where several open a new file at once SQLite refuses some without waiting, whatever their timeout is.
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

    def _let_go(self) -> None:
        with self._at_work:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _before_fork(self) -> None:
        acquired = self._at_work.acquire(timeout=_AT_FORK_S)
        self._held_at_fork[threading.get_ident()] = acquired
        if acquired and self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _after_fork(self) -> None:
        if self._held_at_fork.pop(threading.get_ident(), False):
            self._at_work.release()

    def _in_child(self) -> None:
        if not self._held_at_fork.get(threading.get_ident(), False):
            # SQLite's own memory of its locks came along: a new connection to this file would trust it.
            self._lost = True
            _ABANDONED.append(self._connection)
        self._held_at_fork = {}
        self._begin()


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


_ALL: weakref.WeakSet[Database] = weakref.WeakSet()
_ABANDONED: list[sqlite3.Connection | None] = []
"""Connections of a parent, never closed here: that would touch what the parent is doing."""


@cache
def _close_at_exit() -> None:
    """With the first database, not at import: most processes have none."""

    def close() -> None:
        for database in list(_ALL):
            database.close()

    atexit.register(close)
