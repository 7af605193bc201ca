"""The tables, as docs/storage.md describes them. Imported with the first use of a database: it loads SQLAlchemy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)
from sqlalchemy.types import TypeDecorator

from agenteval_otel.errors import StorageError

__all__ = ["EVALUATIONS", "RESULTS", "VERSION", "check", "prepare"]

VERSION = 1
_TURN = 0x6167656E74  # any number that nobody else locks by


class _Moment(TypeDecorator[datetime]):
    """A moment in UTC: ``timestamptz`` on PostgreSQL; text on SQLite, which knows no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        found: datetime = value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


_METADATA = MetaData()

_SCHEMA = Table("agenteval_schema", _METADATA, Column("version", Integer, primary_key=True, autoincrement=False))

EVALUATIONS = Table(
    "agenteval_evaluations", _METADATA,
    Column("id", String(32), primary_key=True),
    Column("evaluated_at", _Moment, nullable=False),
    Column("agent", Text), Column("agent_id", Text), Column("session_id", Text), Column("conversation_id", Text),
    Column("response_id", Text), Column("model", Text), Column("trace_id", Text), Column("span_id", Text),
    Column("overall_score", Double),
    Column("sampling_probability", Double), Column("sampling_reason", Text), Column("stream_end", Text),
    Column("has_ground_truth", Boolean, nullable=False),
    Column("started_ns", BigInteger), Column("ended_ns", BigInteger), Column("response_ended_ns", BigInteger),
    Column("details", Text, nullable=False),
    Index("agenteval_evaluations_time", "evaluated_at"),
    Index("agenteval_evaluations_trace", "trace_id"),
)  # fmt: skip

RESULTS = Table(
    "agenteval_results", _METADATA,
    Column("evaluation_id", String(32), ForeignKey(EVALUATIONS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("evaluated_at", _Moment, nullable=False),
    Column("agent", Text), Column("trace_id", Text), Column("span_id", Text),
    Column("criterion", Text, nullable=False),
    Column("evaluator", Text, nullable=False), Column("evaluator_type", Text, nullable=False),
    Column("evaluator_version", Text), Column("evaluator_kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("score", Double), Column("normalized", Double), Column("label", Text), Column("passed", Boolean),
    Column("threshold", Double), Column("reason_code", Text), Column("reasoning", Text),
    Column("error_type", Text), Column("error", Text), Column("skip_reason", Text),
    Column("probability", Double), Column("weight", Double, nullable=False),
    Column("started_ns", BigInteger), Column("ended_ns", BigInteger),
    Column("details", Text, nullable=False),
    Index("agenteval_results_time", "evaluated_at"),
    Index("agenteval_results_criterion", "criterion", "evaluated_at"),
    Index("agenteval_results_agent", "agent", "evaluated_at"),
    Index("agenteval_results_score", "criterion", "score"),
    Index("agenteval_results_trace", "trace_id"),
)  # fmt: skip


def prepare(connection: Connection) -> None:
    """Make the tables where there are none, within the transaction; several processes may do so at once.

    Raises:
        StorageError: They are of a newer version of this package.
    """
    tables = inspect(connection)
    if not all(tables.has_table(table.name) for table in _METADATA.sorted_tables):
        if connection.dialect.name == "postgresql":  # on SQLite the transaction is alone
            connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _TURN})
        _METADATA.create_all(connection)
    if not check(connection):
        connection.execute(_SCHEMA.insert().values(version=VERSION))


def check(connection: Connection) -> bool:
    """Whether the tables say their version.

    Raises:
        StorageError: They are of a newer version of this package.
    """
    found = connection.execute(select(_SCHEMA.c.version)).scalars().all()
    newest = max(found, default=VERSION)
    if newest > VERSION:
        raise StorageError(
            f"the tables have version {newest}, this package knows {VERSION}: install a newer agenteval-otel, or use "
            "another database"
        )
    return bool(found)
