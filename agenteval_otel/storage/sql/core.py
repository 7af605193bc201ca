"""Everything that needs SQLAlchemy: tables, engines, statements. Imported with the first use of a database.

SQLite: write-ahead log, one writer at a time, a file that only its owner can read. PostgreSQL: a lost server is noticed
within seconds, and nothing is prepared on it, so a pooler may stand between.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from pydantic import ConfigDict, Field, field_validator
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, InterfaceError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeDecorator

from agenteval_otel.components import Explained
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.value import Value
from agenteval_otel.storage.places import make_folders
from agenteval_otel.storage.sql.rows import Rows, StoredResult, evaluation_of, name_of, stored_of
from agenteval_otel.storage.sql.target import Target

__all__ = [
    "ResultQuery", "connect_reader", "connect_writer", "delete_old", "error_of", "hold_log", "insert",
    "is_database_failure", "read_evaluation",
]  # fmt: skip

T = TypeVar("T")
VERSION = 1
_CREATE_LOCK = 0x6167656E74  # an advisory lock: any number that nobody else uses
_BUSY_S = 0.25
_STATEMENT_LIMIT_MS = 10_000
_CONNECT_S = 5


class _Moment(TypeDecorator[datetime]):
    """A moment in UTC: ``timestamptz`` on PostgreSQL, text on SQLite, which has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        moment = value and value.astimezone(UTC)
        return moment.replace(tzinfo=None) if moment and dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:
        moment: datetime | None = value
        return moment and (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))


def _columns(kind: Any, names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names.split()]


_METADATA = sa.MetaData()
_SCHEMA = sa.Table(
    "agenteval_schema", _METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False)
)
EVALUATIONS = sa.Table(
    "agenteval_evaluations", _METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("evaluated_at", _Moment, nullable=False),
    *_columns(sa.Text, "agent agent_id session_id conversation_id response_id model trace_id span_id"),
    *_columns(sa.Double, "overall_score sampling_probability"),
    *_columns(sa.Text, "sampling_reason stream_end"),
    sa.Column("has_ground_truth", sa.Boolean, nullable=False),
    *_columns(sa.BigInteger, "started_ns ended_ns response_ended_ns"),
    sa.Column("details", sa.Text, nullable=False),
    sa.Index("agenteval_evaluations_time", "evaluated_at"),
    sa.Index("agenteval_evaluations_trace", "trace_id"),
)  # fmt: skip
RESULTS = sa.Table(
    "agenteval_results", _METADATA,
    sa.Column("evaluation_id", sa.String(32), sa.ForeignKey(EVALUATIONS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("evaluated_at", _Moment, nullable=False),
    *_columns(sa.Text, "agent trace_id span_id"),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("criterion", "evaluator", "evaluator_type")),
    sa.Column("evaluator_version", sa.Text),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("evaluator_kind", "status")),
    *_columns(sa.Double, "score normalized"), sa.Column("label", sa.Text), sa.Column("passed", sa.Boolean),
    sa.Column("threshold", sa.Double), *_columns(sa.Text, "reason_code reasoning error_type error skip_reason"),
    sa.Column("probability", sa.Double), sa.Column("weight", sa.Double, nullable=False),
    *_columns(sa.BigInteger, "started_ns ended_ns"),
    sa.Column("details", sa.Text, nullable=False),
    sa.Index("agenteval_results_time", "evaluated_at"),
    sa.Index("agenteval_results_criterion", "criterion", "evaluated_at"),
    sa.Index("agenteval_results_agent", "agent", "evaluated_at"),
    sa.Index("agenteval_results_score", "criterion", "score"),
    sa.Index("agenteval_results_trace", "trace_id"),
)  # fmt: skip


def connect_writer(target: Target, *, durable: bool) -> sa.Connection:
    """Connect for writing, and create missing tables; on SQLite each transaction begins by taking the write lock.

    Raises:
        StorageError: The tables are of a newer version of this package.
    """
    engine = _server(target) if target.path is None else _sqlite_writer(target.path, durable)
    connection = engine.connect()
    try:
        with connection.begin():
            tables = sa.inspect(connection)
            if not all(tables.has_table(table.name) for table in _METADATA.sorted_tables):
                if connection.dialect.name == "postgresql":  # several processes may create them at once
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CREATE_LOCK})
                _METADATA.create_all(connection)
            if not _has_version(connection):
                connection.execute(_SCHEMA.insert().values(version=VERSION))
    except BaseException:
        connection.close()
        raise
    return connection


def _has_version(connection: sa.Connection) -> bool:
    versions = connection.execute(sa.select(_SCHEMA.c.version)).scalars().all()
    newest = max(versions, default=VERSION)
    if newest > VERSION:
        raise StorageError(
            f"the tables have version {newest}, this package knows {VERSION}: install a newer agenteval-otel, or use "
            "another database"
        )
    return bool(versions)


def _sqlite_writer(path: Path, durable: bool) -> sa.Engine:
    make_folders(path.parent)
    # SQLite would create it readable for everybody; what it creates beside it gets the same rights. An existing file
    # must not be opened here: closing it would end all locks that this process has on it.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    engine = _sqlite(str(path.absolute()))

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if durable else 'NORMAL'}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _sqlite(address: str, *, uri: bool = False) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=uri, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)

    return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)


def _server(target: Target, *, read_only: bool = False) -> sa.Engine:
    options = f"-c statement_timeout={_STATEMENT_LIMIT_MS}"
    arguments = {
        "connect_timeout": _CONNECT_S, "application_name": "agenteval-otel",
        "options": f"{options} -c default_transaction_read_only=on" if read_only else options,
        "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
        "prepare_threshold": None,
    }  # fmt: skip
    engine = sa.create_engine(target.url, poolclass=NullPool, hide_parameters=True)
    defaults = {name: value for name, value in arguments.items() if name not in engine.url.query}
    return sa.create_engine(engine.url, poolclass=NullPool, hide_parameters=True, connect_args=defaults)


def hold_log(path: Path) -> sqlite3.Connection:
    """A connection that cannot write: while it is open, closing another one does not check-point SQLite's log."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # reading takes its lock
    except BaseException:
        connection.close()
        raise
    return connection


def insert(connection: sa.Connection, items: Sequence[Rows]) -> None:
    """Insert results within the transaction; rows that are there already are left alone."""
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(build(EVALUATIONS).on_conflict_do_nothing(), [item.evaluation for item in items])
    results = [row for item in items for row in item.results]
    if results:
        connection.execute(build(RESULTS).on_conflict_do_nothing(), results)


def delete_old(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most so many evaluations that are older, whole; returns how many."""
    old = sa.select(EVALUATIONS.c.id).where(EVALUATIONS.c.evaluated_at < before).limit(limit)
    with connection.begin():
        ids = connection.execute(old).scalars().all()
        connection.execute(sa.delete(RESULTS).where(RESULTS.c.evaluation_id.in_(ids)))
        connection.execute(sa.delete(EVALUATIONS).where(EVALUATIONS.c.id.in_(ids)))
    return len(ids)


class ResultQuery(Value, metaclass=Explained):
    """A query for results; None does not filter. Times without a zone are in UTC."""

    model_config = ConfigDict(extra="forbid")

    criterion: str | None = None
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_score: float | None = None
    max_score: float | None = None
    status: Literal["scored", "skipped", "failed"] | None = None
    passed: bool | None = None
    trace_id: str | None = None
    limit: int = Field(default=100, ge=1, lt=2**63)
    offset: int = Field(default=0, ge=0, lt=2**63)

    @field_validator("criterion", "agent", "trace_id")
    @classmethod
    def _as_stored(cls, name: str | None) -> str | None:
        return name_of(name)

    @field_validator("since", "until")
    @classmethod
    def _with_zone(cls, moment: datetime | None) -> datetime | None:
        return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment

    def run(self, target: Target) -> list[StoredResult]:
        """The results, newest first. Values are always bound, never part of the statement's text."""
        columns = RESULTS.c
        ranges = {
            "since": columns.evaluated_at.__ge__, "until": columns.evaluated_at.__lt__,
            "min_score": columns.score.__ge__, "max_score": columns.score.__le__,
        }  # fmt: skip
        filters = [
            ranges[name](value) if name in ranges else columns[name] == value
            for name, value in self if value is not None and name not in ("limit", "offset")
        ]  # fmt: skip
        newest = (columns.evaluated_at.desc(), columns.evaluation_id.desc(), columns.position)
        statement = sa.select(RESULTS).where(*filters).order_by(*newest).limit(self.limit).offset(self.offset)
        return _read(
            target, lambda connection: [stored_of(dict(row)) for row in connection.execute(statement).mappings()]
        )


def read_evaluation(target: Target, evaluation_id: str) -> AggregatedEvaluationResult | None:
    """All of one evaluation, as it was saved; None if there is none with this id."""
    key = name_of(evaluation_id)

    def read(connection: sa.Connection) -> AggregatedEvaluationResult | None:
        row = connection.execute(sa.select(EVALUATIONS).where(EVALUATIONS.c.id == key)).mappings().first()
        if row is None:
            return None
        results = sa.select(RESULTS).where(RESULTS.c.evaluation_id == key).order_by(RESULTS.c.position)
        return evaluation_of(dict(row), [dict(result) for result in connection.execute(results).mappings()])

    return _read(target, read)


def connect_reader(target: Target) -> sa.Connection:
    """Connect without the right to write.

    Raises:
        StorageError: There is no such file.
    """
    if target.path is None:
        return _server(target, read_only=True).connect()
    path = target.path.absolute()
    if not path.is_file():
        raise StorageError(f"{target.place}: there is no such database")
    return _sqlite(f"{path.as_uri()}?mode=ro", uri=True).connect()


def _read(target: Target, read: Callable[[sa.Connection], T]) -> T:
    """Read over a connection that is closed afterwards.

    Raises:
        StorageError: There is no such database, it cannot be reached, or its tables or rows are not ours.
    """
    try:
        with connect_reader(target) as connection:
            _has_version(connection)
            return read(connection)
    except SQLAlchemyError as error:
        raise error_of(error, target) from None
    except ValueError as error:  # its text may contain content
        raise StorageError(f"{target.place}: a row cannot be read ({type(error).__name__}): changed by hand?") from None


def is_database_failure(error: Exception) -> bool:
    """Whether the database itself failed (gone, locked, full, without our tables), and not what was to be saved."""
    if isinstance(error, DataError | IntegrityError):
        return False
    return isinstance(error, DatabaseError | InterfaceError | OSError | StorageError)


def error_of(error: Exception, target: Target) -> Exception:
    """A driver's error in one line, without the values that were to be saved and without secrets."""
    if isinstance(error, OSError | StorageError):
        return error
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    message = str(cause) if is_database_failure(error) else ""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return StorageError(target.masked(f"{target.place}: {': '.join([type(cause).__name__, *lines[:1]])}"))
