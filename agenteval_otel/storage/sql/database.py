"""Database: the one connection by which a process writes, as the sink of `Batches`. Loads SQLAlchemy when it is opened.

A batch is one transaction. A connection that was lost while nobody used it is made anew and the batch tried once more;
its rows have ids of their own, so none is stored twice. A row that the database refuses costs its own result only.
Processes that write one SQLite file take turns by the lock beside it: so there is one writer and one that moves the
write-ahead log into the database at a time, and whoever comes first is served first.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.batches import WAIT_S
from agenteval_otel.storage.places import FileLock, identity, make_folders
from agenteval_otel.storage.sql.rows import Rows
from agenteval_otel.storage.sql.target import Target

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Database"]

# Loading SQLAlchemy, connecting and making tables: only the first results wait for that.
_OPENING_S = 9.0
_SWEEP_EVERY_S = 3600.0
_SWEEP_ROWS = 500
_FORK_WAIT_S = 0.05


class Database:
    """Where results are inserted.

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
        self._opened = False
        self._sweep_at = 0.0
        self.working = threading.Lock()
        _ALL.add(self)

    @property
    def place(self) -> str:
        return self._target.place

    @property
    def patience_s(self) -> float:
        return WAIT_S if self._opened else _OPENING_S

    def write(self, items: Sequence[Rows], *, may_wait: bool) -> list[Exception | None]:
        """Insert the rows of results; for each None once they are committed, else why not."""
        if not items:
            return []
        try:
            self._refuse_after_fork()
            if self._lock is not None:
                make_folders(self._lock.path.parent)
            with self._lock.held(wait=may_wait) if self._lock is not None else nullcontext(), self.working:
                outcomes = self._saved(items)
                self._sweep_if_due()
        except Exception as error:
            return [error] * len(items)
        return outcomes

    def rest(self) -> None:
        """The connection stays."""

    def close(self) -> None:
        """Close the connection; made anew by the next write."""
        with self.working:
            self.drop()

    def drop(self) -> None:
        """Close the connection. For who holds `working`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def leave(self) -> None:
        """`drop`, before a fork: without moving SQLite's log into the database, for which the host would wait."""
        path = self._target.path
        if self._connection is None or path is None:
            return
        with contextlib.ExitStack() as held:
            with contextlib.suppress(Exception):
                from agenteval_otel.storage.sql.engines import hold_log

                held.enter_context(contextlib.closing(hold_log(path)))
            self.drop()

    def _saved(self, items: Sequence[Rows]) -> list[Exception | None]:
        from agenteval_otel.storage.sql.engines import error_of, is_of_place

        reused = self._connection is not None
        error = self._tried(items)
        if error is not None and reused and is_of_place(error) and self._target.path is None:
            error = self._tried(items)  # the server was restarted, or hung up on us
        if error is None:
            return [None] * len(items)
        if len(items) == 1 or is_of_place(error):
            return [error_of(error, self._target)] * len(items)
        found = [self._tried([item]) for item in items]
        return [None if one is None else error_of(one, self._target) for one in found]

    def _tried(self, items: Sequence[Rows]) -> Exception | None:
        from agenteval_otel.storage.sql.engines import is_of_place

        try:
            connection = self._ready()
            with connection.begin():
                self._insert(connection, items)
        except Exception as error:
            if is_of_place(error):
                self.drop()
            return error
        return None

    def _refuse_after_fork(self) -> None:
        path = self._target.path
        if _FORKED_WITHIN and path is not None and identity(path) in _FORKED_WITHIN:
            raise StorageError(f"{self.place}: this process was forked in the middle of a write, and cannot use it")

    def _ready(self) -> Connection:
        path = self._target.path
        if self._connection is not None and (path is None or identity(path) == self._identity):
            return self._connection
        self.drop()
        from agenteval_otel.storage.sql import engines, schema

        connection = engines.writer(self._target, durable=self._durable).connect()
        try:
            with connection.begin():
                schema.prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._identity = identity(path) if path is not None else None
        self._connection, self._opened = connection, True
        return connection

    @staticmethod
    def _insert(connection: Connection, items: Sequence[Rows]) -> None:
        from agenteval_otel.storage.sql import schema

        if connection.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        evaluations = [item.evaluation for item in items]
        connection.execute(insert(schema.EVALUATIONS).on_conflict_do_nothing(), evaluations)
        results = [row for item in items for row in item.results]
        if results:
            connection.execute(insert(schema.RESULTS).on_conflict_do_nothing(), results)

    def _sweep_if_due(self) -> None:
        """Delete a few of the evaluations that are too old, and go on with the next batch while there are more."""
        if self._keep_days is None or self._connection is None or time.monotonic() < self._sweep_at:
            return
        from sqlalchemy import delete, select

        from agenteval_otel.storage.sql.schema import EVALUATIONS, RESULTS

        try:
            before = datetime.now(UTC) - timedelta(days=self._keep_days)
            old = select(EVALUATIONS.c.id).where(EVALUATIONS.c.evaluated_at < before).limit(_SWEEP_ROWS)
            with self._connection.begin():
                found: Any = self._connection.execute(old).scalars().all()
                self._connection.execute(delete(RESULTS).where(RESULTS.c.evaluation_id.in_(found)))
                self._connection.execute(delete(EVALUATIONS).where(EVALUATIONS.c.id.in_(found)))
        except Exception as error:  # what was saved is saved
            self.drop()
            found = ()
            log.warning("storage_sweep_failed", part="sql", error_type=type(error).__name__)
        self._sweep_at = time.monotonic() + (0.0 if len(found) == _SWEEP_ROWS else _SWEEP_EVERY_S)


# SQLite keeps its locks by file for all of a process: a child that inherits an open database and opens it again takes
# its parent's locks for its own. So the connection is closed before a fork, unless a write takes too long. A server's
# connection is left alone: the child connects by itself, and only must not close what it inherits.
_ALL: weakref.WeakSet[Database] = weakref.WeakSet()
_KEPT: list[Any] = []
_FORKED_WITHIN: set[tuple[int, int] | None] = set()
_AT_FORK: list[Database] = []


@before_fork
def _before_fork() -> None:
    until = time.monotonic() + _FORK_WAIT_S
    for database in list(_ALL):
        if database._target.path is None or (database._connection is None and not database.working.locked()):
            continue
        if database.working.acquire(timeout=max(0.0, until - time.monotonic())):
            database.leave()
            _AT_FORK.append(database)


@after_fork_in_parent
def _after_in_parent() -> None:
    while _AT_FORK:
        _AT_FORK.pop().working.release()


@reset_in_child
def _after_in_child() -> None:
    for database in list(_ALL):
        if database in _AT_FORK:
            continue
        _KEPT.append(database)  # closing it would touch what the parent uses
        if database._target.path is not None and database.working.locked():
            _FORKED_WITHIN.add(database._identity or identity(database._target.path))
    _AT_FORK.clear()
    _ALL.clear()
