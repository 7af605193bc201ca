"""The one connection by which a process writes to a database, as the sink of a `ResultBatcher`. Loads SQLAlchemy.

A batch is one transaction. After a lost connection to a server the batch is tried once more; rows have their own ids,
so none is stored twice. A row that the database refuses costs only its own result. Processes that write one SQLite file
take turns by the lock beside it, so there is one writer and one check-point at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.places import FileLock, identity, make_folders
from agenteval_otel.storage.sql import core
from agenteval_otel.storage.sql.rows import Rows
from agenteval_otel.storage.sql.target import Target

__all__ = ["Database"]

_SWEEP_EVERY_S = 3600.0
_SWEEP_ROWS = 500
_FORK_WAIT_S = 0.05


class Database:
    """Inserts results. Loads SQLAlchemy with the first write.

    Args:
        target: Which database.
        durable: Whether a commit waits for the disk (SQLite).
        keep_days: Older results are deleted, a few with each batch; None: never.
    """

    def __init__(self, target: Target, *, durable: bool = False, keep_days: float | None = None) -> None:
        self._target, self._durable, self._keep_days = target, durable, keep_days
        self._lock = FileLock(target.path) if target.path is not None else None
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._sweep_at = 0.0
        self.working = threading.Lock()
        _DATABASES.add(self)

    def write(self, items: Sequence[Rows], *, may_wait: bool) -> list[Exception | None]:
        """Insert the rows of results; for each None once they are committed, else the error."""
        if not items:
            return []
        path = self._target.path
        try:
            if path is not None and identity(path) in _FORKED_DURING_WRITE:
                raise StorageError(f"{self._target.place}: this process was forked during a write, and cannot use it")
            with contextlib.ExitStack() as stack:
                if self._lock is not None:
                    make_folders(self._lock.path.parent)
                    stack.enter_context(self._lock.acquired(wait=may_wait))
                stack.enter_context(self.working)
                outcomes = self._saved(items)
                self._sweep_if_due()
        except Exception as error:
            return [error] * len(items)
        return outcomes

    def rest(self) -> None:
        """The connection stays."""

    def close(self) -> None:
        """Close the connection; the next write opens it again."""
        with self.working:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def drop_before_fork(self) -> None:
        """Close the connection without a check-point, for which the host would wait. `working` is held."""
        if self._connection is None or self._target.path is None:
            return
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Exception):
                stack.enter_context(contextlib.closing(core.hold_log(self._target.path)))
            self._drop()

    def _saved(self, items: Sequence[Rows]) -> list[Exception | None]:
        reused = self._connection is not None
        error = self._tried(items)
        if error is not None and reused and core.is_database_failure(error) and self._target.path is None:
            error = self._tried(items)  # the server was restarted, or hung up on us
        if error is None:
            return [None] * len(items)
        if len(items) == 1 or core.is_database_failure(error):
            return [core.error_of(error, self._target)] * len(items)
        errors = [self._tried([item]) for item in items]
        return [error and core.error_of(error, self._target) for error in errors]

    def _tried(self, items: Sequence[Rows]) -> Exception | None:
        try:
            connection = self._ready()
            with connection.begin():
                core.insert(connection, items)
        except Exception as error:
            if core.is_database_failure(error):
                self._drop()
            return error
        return None

    def _ready(self) -> Connection:
        path = self._target.path
        if self._connection is not None and (path is None or identity(path) == self._identity):
            return self._connection
        self._drop()
        connection = core.connect_writer(self._target, durable=self._durable)
        self._identity = identity(path) if path is not None else None
        self._connection = connection
        return connection

    def _sweep_if_due(self) -> None:
        """Delete a few of the evaluations that are too old; the next batch continues if there are more."""
        if self._keep_days is None or self._connection is None or time.monotonic() < self._sweep_at:
            return
        deleted = 0
        try:
            before = datetime.now(UTC) - timedelta(days=self._keep_days)
            deleted = core.delete_old(self._connection, before, _SWEEP_ROWS)
        except Exception as error:  # the results are saved all the same
            self._drop()
            log.warning("storage_sweep_failed", part="sql", error_type=type(error).__name__)
        self._sweep_at = time.monotonic() + (0.0 if deleted == _SWEEP_ROWS else _SWEEP_EVERY_S)


# SQLite keeps its locks by file for the whole process: a child that inherits an open database and opens it again would
# take its parent's locks for its own. So the connection is closed before a fork, unless a write takes too long. A
# server's connection is left alone: the child connects by itself, and only must not close the one that it inherits.
_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_INHERITED: list[Any] = []
_FORKED_DURING_WRITE: set[tuple[int, int] | None] = set()
_LOCKED_FOR_FORK: list[Database] = []


@before_fork
def _before_fork() -> None:
    until = time.monotonic() + _FORK_WAIT_S
    for database in list(_DATABASES):
        is_used = database._connection is not None or database.working.locked()
        if database._target.path is None or not is_used:
            continue
        if database.working.acquire(timeout=max(0.0, until - time.monotonic())):
            database.drop_before_fork()
            _LOCKED_FOR_FORK.append(database)


@after_fork_in_parent
def _after_in_parent() -> None:
    while _LOCKED_FOR_FORK:
        _LOCKED_FOR_FORK.pop().working.release()


@reset_in_child
def _after_in_child() -> None:
    for database in set(_DATABASES).difference(_LOCKED_FOR_FORK):
        _INHERITED.append(database)  # kept alive: closing it would touch what the parent uses
        if database._target.path is not None and database.working.locked():
            _FORKED_DURING_WRITE.add(database._identity or identity(database._target.path))
    _LOCKED_FOR_FORK.clear()
    _DATABASES.clear()
