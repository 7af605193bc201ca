"""The one connection by which a process writes results to a database, and the one that reads.

Loads SQLAlchemy.

A batch is one transaction. After a lost connection to a server it is tried once more. Rows have
their own ids, so none is stored twice. Processes that write an SQLite file take turns by the lock
beside it, for its check-points too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from agenteval_otel.components.database.engines import (
    error_of,
    is_database_failure,
    server_engine,
    sqlite_engine,
)
from agenteval_otel.components.database.sqlite_store import open_sqlite
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.files import identity, lock_of, open_locked
from agenteval_otel.storage.sql_rows import Rows, answer_of, result_of
from agenteval_otel.storage.sql_texts import add_texts, needs_index, purge

if TYPE_CHECKING:
    import sqlite3

VERSION = 1
_CREATE_LOCK = 0x6167656E74  # an advisory lock: any number of our own
_SWEEP_EVERY_S = 3600.0
_SWEEP_ROWS = 500
_ADDING_S = 0.2
_LOOKED_AT = 2_000  # answers by which a search tells whether texts are stored
_FORK_WAIT_S = 0.05
# kept alive: closing them would touch what the parent process uses
_INHERITED: list[sa.Connection | None] = []
_FORKED_DURING_WRITE: set[tuple[int, int] | None] = set()


def _columns(
    kind: sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]], names: str
) -> list[sa.Column[Any]]:
    """Build columns, not null if their name ends with ``!``."""
    return [
        sa.Column(name.rstrip("!"), kind, nullable=not name.endswith("!")) for name in names.split()
    ]


def _indices(table: str, columns: dict[str, str]) -> list[sa.Index]:
    return [sa.Index(f"{table}_{name}", *names.split()) for name, names in columns.items()]


_MOMENT = sa.DateTime(timezone=True)  # SQLite has no time zones: there its text is in UTC
_METADATA = sa.MetaData()
_SCHEMA = sa.Table(
    "agenteval_schema",
    _METADATA,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)
_ANNOTATIONS = (
    "prompt_name prompt_version user_id environment experiment arm service service_version"
)
_JSON = sa.JSON(none_as_null=True)
_HAS_USER = sa.text("user_id IS NOT NULL")  # answers without a user cost nothing
EVALUATIONS = sa.Table(
    "agenteval_evaluations",
    _METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    *_columns(_MOMENT, "evaluated_at!"),
    *_columns(
        sa.Text,
        "agent agent_id session_id conversation_id response_id model trace_id span_id call_id",
    ),
    *_columns(sa.Double, "overall_score sampling_probability"),
    *_columns(sa.Text, "sampling_reason stream_end"),
    *_columns(sa.Boolean, "has_ground_truth!"),
    *_columns(sa.BigInteger, "started_ns ended_ns response_ended_ns"),
    *_columns(sa.Text, "details!"),
    *_columns(sa.Text, _ANNOTATIONS),
    *_columns(_JSON, "tags"),
    *_indices(
        "agenteval_evaluations",
        {
            "time": "evaluated_at",
            "trace": "trace_id",
            "conversation": "conversation_id",
            "response": "response_id",
        },
    ),
    sa.Index(
        "agenteval_evaluations_user", "user_id", sqlite_where=_HAS_USER, postgresql_where=_HAS_USER
    ),
)
RESULTS = sa.Table(
    "agenteval_results",
    _METADATA,
    sa.Column(
        "evaluation_id",
        sa.String(32),
        sa.ForeignKey(EVALUATIONS.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    *_columns(_MOMENT, "evaluated_at!"),
    *_columns(
        sa.Text, "agent trace_id span_id criterion! evaluator! evaluator_type! evaluator_version"
    ),
    *_columns(sa.Text, "evaluator_kind! status!"),
    *_columns(sa.Double, "score normalized"),
    *_columns(sa.Text, "label"),
    *_columns(sa.Boolean, "passed"),
    *_columns(sa.Double, "threshold"),
    *_columns(sa.Text, "reason_code reasoning error_type error skip_reason"),
    *_columns(sa.Double, "probability weight!"),
    *_columns(sa.BigInteger, "started_ns ended_ns"),
    *_columns(sa.Text, "details!"),
    *_columns(sa.Text, _ANNOTATIONS),
    *_columns(_JSON, "tags"),
    *_indices(
        "agenteval_results",
        {
            "time": "evaluated_at",
            "criterion": "criterion evaluated_at",
            "agent": "agent evaluated_at",
            "score": "criterion score",
            "trace": "trace_id",
        },
    ),
)

# An answer that is evaluated again has its notes before it has its new evaluation.
_OF_EVALUATION = sa.ForeignKey(
    EVALUATIONS.c.id, ondelete="CASCADE", deferrable=True, initially="DEFERRED"
)
NOTES = sa.Table(
    "agenteval_notes",
    sa.MetaData(),  # of its own: the table is created with the first note
    sa.Column("evaluation_id", sa.String(32), _OF_EVALUATION, primary_key=True),
    *_columns(sa.Text, "comment"),
    *_columns(_MOMENT, "commented_at looked_at"),
)


def connect_writer(target: Target, *, durable: bool) -> sa.Connection:
    """Connect for writing, and create missing tables.

    On SQLite each transaction begins by taking the write lock.
    """
    engine = server_engine(target) if target.path is None else _sqlite_writer(target.path, durable)
    connection = engine.connect()
    try:
        with connection.begin():
            if _missing_columns(connection):
                if target.path is None:  # several processes may create them at once
                    connection.execute(
                        sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CREATE_LOCK}
                    )
                _METADATA.create_all(connection)
                # tables of a package that did not have them yet
                for column in _missing_columns(connection):
                    kind = column.type.compile(connection.dialect)
                    connection.execute(
                        sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}")
                    )
            if not _has_version(connection):
                connection.execute(_SCHEMA.insert().values(version=VERSION))
    except BaseException:
        connection.close()
        raise
    return connection


def _missing_columns(connection: sa.Connection) -> list[sa.Column[Any]]:
    inspector = sa.inspect(connection)
    missing = []
    for table in _METADATA.sorted_tables:
        present: set[str] = set()
        if inspector.has_table(table.name):
            present = {column["name"] for column in inspector.get_columns(table.name)}
        missing += [column for column in table.columns if column.name not in present]
    return missing


def add_missing_indices(target: Target) -> list[str]:
    """Make the indices that tables of an older package lack, and return their names.

    Blocks, and keeps writers waiting meanwhile.

    The first result does not make them: in a large database that takes longer than a save may.
    """
    with contextlib.ExitStack() as stack:
        if target.path is not None:
            stack.enter_context(open_locked(lock_of(target.path)))
        try:
            connection = stack.enter_context(
                contextlib.closing(connect_writer(target, durable=False))
            )
            present: set[str | None] = set()
            for table in _METADATA.sorted_tables:
                indices = sa.inspect(connection).get_indexes(table.name)
                present.update(index["name"] for index in indices)
            missing: list[sa.Index] = []
            for table in (EVALUATIONS, RESULTS):
                missing += [index for index in table.indexes if index.name not in present]
            connection.rollback()
            with connection.begin():
                if missing and target.path is None:
                    connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
                for index in missing:
                    index.create(connection)
        except SQLAlchemyError as error:
            raise error_of(error, target) from None
    return [str(index.name) for index in missing]


def add_answer_texts(target: Target, *, wait: bool = True, now_ms: int | None = None) -> bool:
    """Add answers to the index of their words, for a fifth of a second. Return whether more are left.

    Then writers have their turn. A database without texts stays as it is. Raises `StorageError` for
    one that cannot be written.

    Args:
        wait: For a writer that has its turn, and for reading a large database that has no index and
            perhaps no texts. Else the answers are left for another time.
    """
    try:
        with connect_reader(target) as reader:  # keeps no writer waiting
            if not needs_index(reader, newest=None if wait else _LOOKED_AT):
                return False
        with contextlib.ExitStack() as stack:
            if target.path is not None:
                stack.enter_context(open_locked(lock_of(target.path), wait=wait))
            end_s = time.monotonic() + _ADDING_S
            connection = stack.enter_context(
                contextlib.closing(connect_writer(target, durable=False))
            )
            while True:
                with connection.begin():
                    is_done = add_texts(connection, end_s=end_s, wait=wait, now_ms=now_ms)
                if is_done or time.monotonic() >= end_s:
                    return not is_done
    except (SQLAlchemyError, OSError, ValueError) as error:
        raise StorageError(str(error_of(error, target))) from None


def _is_complete(connection: sa.Connection) -> bool:
    """Tell whether the tables have the newest column. An older package made tables without it."""
    try:
        connection.execute(sa.select(EVALUATIONS.c.call_id).limit(0))
    except SQLAlchemyError:
        return False
    return True


def _add_missing_columns(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        if target.path is not None:
            stack.enter_context(open_locked(lock_of(target.path)))
        connect_writer(target, durable=False).close()


def _has_version(connection: sa.Connection) -> bool:
    versions = connection.execute(sa.select(_SCHEMA.c.version)).scalars().all()
    newest = max(versions, default=VERSION)
    if newest > VERSION:
        wanted = "install a newer agenteval-otel, or use another database"
        raise StorageError(
            f"the tables have version {newest}, this package knows {VERSION}: {wanted}"
        )
    return bool(versions)


def _sqlite_writer(path: Path, durable: bool) -> sa.Engine:
    # SQLite would create it readable for everybody; what it creates beside it gets the same rights.
    # An existing file must not be opened here: closing it would end all locks that this process has
    # on it.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    engine = sqlite_engine(path)

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        sync = f"synchronous={'FULL' if durable else 'NORMAL'}"
        for pragma in ("journal_mode=WAL", sync, "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    sa.event.listen(
        engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE")
    )
    return engine


class Database:
    """Inserts results, as the sink of a `ResultBatcher`.

    On SQLite `durable` commits wait for the disk.
    """

    def __init__(
        self, target: Target, *, durable: bool = False, keep_days: float | None = None
    ) -> None:
        self._target = target
        self._durable = durable
        self._keep_days = keep_days
        self._connection: sa.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._sweep_at = 0.0
        self._has_deleted_words = True  # perhaps, of what was deleted before a restart
        self._is_purging = False
        self._working = threading.Lock()
        self._is_forking = False
        before_fork(self._before_fork)
        after_fork_in_parent(self._after_fork_in_parent)
        reset_in_child(self._after_fork_in_child)

    def write(self, items: Sequence[Rows], *, may_wait: bool) -> list[Exception | None]:
        """Insert the rows of results. Return None for each that is committed, else the error."""
        path = self._target.path
        with contextlib.ExitStack() as stack:
            if path is not None:
                if identity(path) in _FORKED_DURING_WRITE:
                    raise StorageError(
                        f"{path}: this process was forked during a write, and cannot use it"
                    )
                stack.enter_context(open_locked(lock_of(path), wait=may_wait))
            stack.enter_context(self._working)
            errors = self._saved(items)
            self._sweep_if_due()
        return errors

    def close(self) -> None:
        with self._working:
            self._drop()

    def _drop(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _saved(self, items: Sequence[Rows]) -> list[Exception | None]:
        had_connection = self._connection is not None
        error = self._tried(items)
        if (
            error is not None
            and had_connection
            and self._target.path is None
            and is_database_failure(error)
        ):
            error = self._tried(items)  # the server restarted or disconnected
        is_of_one = error is not None and len(items) > 1 and not is_database_failure(error)
        errors = [self._tried([item]) for item in items] if is_of_one else [error] * len(items)
        return [error and error_of(error, self._target) for error in errors]

    def _tried(self, items: Sequence[Rows]) -> Exception | None:
        try:
            connection = self._ready()
            with connection.begin():
                insert_rows(connection, _without_replaced(connection, items))
        except Exception as error:
            if is_database_failure(error):
                self._drop()
            return error
        return None

    def _ready(self) -> sa.Connection:
        path = self._target.path
        if self._connection is None or (path is not None and identity(path) != self._identity):
            self._drop()
            self._connection = connect_writer(self._target, durable=self._durable)
            self._identity = identity(path) if path is not None else None
        return self._connection

    def _sweep_if_due(self) -> None:
        """Delete a few of the evaluations that are too old, with their results.

        The next batch continues.
        """
        if self._keep_days is None or self._connection is None or time.monotonic() < self._sweep_at:
            return
        is_done = True
        try:
            with self._connection.begin():
                is_done = self._swept(self._connection, self._keep_days)
        except Exception as error:  # the results are saved all the same
            self._drop()
            log.warning("storage_sweep_failed", part="sql", error_type=type(error).__name__)
        self._sweep_at = time.monotonic() + (_SWEEP_EVERY_S if is_done else 0.0)

    def _swept(self, connection: sa.Connection, keep_days: float) -> bool:
        """Delete a few evaluations, or a part of the words that they had. Return whether all is done."""
        before = datetime.now(UTC) - timedelta(days=keep_days)
        old = (
            sa.select(EVALUATIONS.c.id)
            .where(EVALUATIONS.c.evaluated_at < before)
            .limit(_SWEEP_ROWS)
        )
        deleted = connection.execute(
            sa.delete(EVALUATIONS).where(EVALUATIONS.c.id.in_(old))
        ).rowcount
        if deleted:
            self._has_deleted_words = True
            self._is_purging = False
        if deleted == _SWEEP_ROWS:
            return False
        if self._has_deleted_words:
            self._has_deleted_words = not purge(connection, is_first=not self._is_purging)
            self._is_purging = True
        return not self._has_deleted_words

    # SQLite keeps its locks by file for the whole process: a child that inherits an open database
    # and opens it again would take its parent's locks for its own. So the connection is closed
    # before a fork, unless a write takes too long. A server's connection is left alone: the child
    # connects by itself, and must not close the inherited one.

    def _before_fork(self) -> None:
        """Close SQLite's connection, without a check-point, for which the host would wait."""
        path = self._target.path
        is_used = self._connection is not None or self._working.locked()
        if path is None or not is_used or not self._working.acquire(timeout=_FORK_WAIT_S):
            return
        self._is_forking = True
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Exception):
                stack.enter_context(_holding_log(path))
            self._drop()

    def _after_fork_in_parent(self) -> None:
        if self._is_forking:
            self._is_forking = False
            self._working.release()

    def _after_fork_in_child(self) -> None:
        """Leave the connection to the parent. A file that it was writing cannot be used here."""
        if not self._is_forking:
            _INHERITED.append(self._connection)
            if self._target.path is not None and self._working.locked():
                _FORKED_DURING_WRITE.add(self._identity or identity(self._target.path))
        self._connection = None
        self._working = threading.Lock()
        self._is_forking = False


@contextlib.contextmanager
def _holding_log(path: Path) -> Iterator[None]:
    """Hold a connection open that cannot write.

    While it is open, closing another one does not check-point SQLite's log.
    """
    with contextlib.closing(open_sqlite(path, timeout_s=0.0, read_only=True)) as connection:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # reading takes its lock
        yield


def _without_replaced(connection: sa.Connection, items: Sequence[Rows]) -> list[Rows]:
    """Delete the stored results that those of `items` replace.

    Return `items` without what later ones of them replace.

    An answer is given again after a kill, with its truth, or by a request that was repeated. The
    id of a row cannot tell: ids sort by time, which readers of what is new rely on.
    """
    new: set[tuple[Any, ...]] = set()
    left: list[Rows] = []
    for item in reversed(items):
        if not item.replaces:
            left.append(item)
            continue
        kept = item.without(new)
        new.update(kept.keys())
        if kept.results or not item.results:
            left.append(kept)
    _delete_replaced(connection, [item for item in left if item.replaces], new)
    return left[::-1]


def _delete_replaced(
    connection: sa.Connection, items: Sequence[Rows], keys: Collection[tuple[Any, ...]]
) -> None:
    by_answer = {answer_of(item.evaluation): item for item in items}
    if not by_answer:
        return
    of = EVALUATIONS.c
    columns = RESULTS.c
    trace_ids = {answer[0] for answer in by_answer}
    call_ids = {answer[2] for answer in by_answer}
    own_ids = [item.evaluation["id"] for item in items]  # saved, and the reply was lost
    # By the index of traces: one of ids, in a large database, takes longer to make than a save may.
    same_traces = sa.select(of.id, of.trace_id, of.span_id, of.call_id, of.details)
    same_traces = same_traces.where(
        of.trace_id.in_(trace_ids), of.call_id.in_(call_ids), of.id.not_in(own_ids)
    )
    answers: dict[str, tuple[Any, ...]] = {}
    for row in connection.execute(same_traces).mappings():
        answer = answer_of(row)
        if answer in by_answer:
            answers[row["id"]] = answer
    if not answers:
        return
    is_of_these = columns.evaluation_id.in_(list(answers))
    stored = sa.select(
        columns.evaluation_id,
        columns.position,
        columns.evaluator,
        columns.evaluator_version,
        columns.criterion,
    )
    stored = stored.where(is_of_these, columns.evaluator_kind != "human")
    for row in connection.execute(stored).mappings().all():
        if (*answers[row["evaluation_id"]], *result_of(row)) in keys:
            is_it = columns.evaluation_id == row["evaluation_id"]
            is_it &= columns.position == row["position"]
            connection.execute(sa.delete(RESULTS).where(is_it))
    with_results = sa.select(columns.evaluation_id).where(is_of_these)
    empty = answers.keys() - set(connection.execute(with_results).scalars())
    if empty:
        _move_notes(connection, {id: by_answer[answers[id]].evaluation["id"] for id in empty})
        connection.execute(sa.delete(EVALUATIONS).where(of.id.in_(empty)))


def _move_notes(connection: sa.Connection, ids: Mapping[str, str]) -> None:
    """Give the notes of evaluations to those that replace them, unless these have their own."""
    if not sa.inspect(connection).has_table(NOTES.name):
        return
    columns = NOTES.c
    for old, new in ids.items():
        has_own = sa.select(columns.evaluation_id).where(columns.evaluation_id == new)
        if connection.execute(has_own).first() is None:
            changed = sa.update(NOTES).where(columns.evaluation_id == old)
            connection.execute(changed.values(evaluation_id=new))


def insert_rows(connection: sa.Connection, items: Sequence[Rows]) -> None:
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    evaluations = [item.evaluation for item in items]
    results: list[dict[str, Any]] = []
    for item in items:
        results += item.results
    for table, rows in ((EVALUATIONS, evaluations), (RESULTS, results)):
        if rows:
            connection.execute(build(table).on_conflict_do_nothing(), rows)


def reader_engine(target: Target) -> sa.Engine:
    """Return the engine of connections without the right to write."""
    if target.path is None:
        return server_engine(target, read_only=True)
    return sqlite_engine(target.path, read_only=True)


@contextlib.contextmanager
def connect_reader(target: Target, engine: sa.Engine | None = None) -> Iterator[sa.Connection]:
    """Connect without the right to write, to tables of a version that this package knows.

    For many pages give one `engine`: it keeps the compiled statements.
    """
    if target.path is not None and not target.path.is_file():
        raise StorageError(f"{target.place}: there is no such database")
    engine = engine or reader_engine(target)
    try:
        with engine.connect() as connection:
            _has_version(connection)
            if not _is_complete(connection):
                connection.rollback()
                _add_missing_columns(target)
            yield connection
    except SQLAlchemyError as error:
        raise error_of(error, target) from None
    except ValueError as error:  # its text may contain content
        raise StorageError(
            f"{target.place}: a row cannot be read ({type(error).__name__}): changed by hand?"
        ) from None
