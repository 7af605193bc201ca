"""Queries: what is stored, found by criterion, agent, time, score and trace. Blocking; loads SQLAlchemy.

Values are always bound, never part of the statement's text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, field_validator
from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import SQLAlchemyError

from agenteval_otel.components import Explained
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.value import Value
from agenteval_otel.storage.sql.engines import error_of, reader
from agenteval_otel.storage.sql.rows import StoredResult, evaluation_of, name_of, stored_of
from agenteval_otel.storage.sql.schema import EVALUATIONS, RESULTS, check
from agenteval_otel.storage.sql.target import Target

__all__ = ["ResultQuery", "read_evaluation", "run_query"]

T = TypeVar("T")


class ResultQuery(Value, metaclass=Explained):
    """Which results are wanted; what is None does not matter. Times without a zone are in UTC."""

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
    def _as_it_is_stored(cls, name: str | None) -> str | None:
        return name_of(name)

    @field_validator("since", "until")
    @classmethod
    def _zoned(cls, moment: datetime | None) -> datetime | None:
        return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment

    def statement(self) -> Select[Any]:
        """The query, newest first."""
        columns = RESULTS.c
        wanted: list[tuple[Any, Callable[[Any], Any]]] = [
            (self.criterion, columns.criterion.__eq__), (self.agent, columns.agent.__eq__),
            (self.since, columns.evaluated_at.__ge__), (self.until, columns.evaluated_at.__lt__),
            (self.min_score, columns.score.__ge__), (self.max_score, columns.score.__le__),
            (self.status, columns.status.__eq__), (self.passed, columns.passed.__eq__),
            (self.trace_id, columns.trace_id.__eq__),
        ]  # fmt: skip
        found = select(RESULTS).where(*(compare(value) for value, compare in wanted if value is not None))
        newest = (columns.evaluated_at.desc(), columns.evaluation_id.desc(), columns.position)
        return found.order_by(*newest).limit(self.limit).offset(self.offset)


def run_query(target: Target, query: ResultQuery) -> list[StoredResult]:
    """The results that the query finds."""
    return _asked(target, lambda connection: [
        stored_of(dict(row)) for row in connection.execute(query.statement()).mappings()
    ])  # fmt: skip


def read_evaluation(target: Target, evaluation_id: str) -> AggregatedEvaluationResult | None:
    """All of one evaluation, as it was saved; None when there is none of this id."""
    wanted = name_of(evaluation_id)

    def read(connection: Connection) -> AggregatedEvaluationResult | None:
        row = connection.execute(select(EVALUATIONS).where(EVALUATIONS.c.id == wanted)).mappings().first()
        if row is None:
            return None
        own = select(RESULTS).where(RESULTS.c.evaluation_id == wanted).order_by(RESULTS.c.position)
        return evaluation_of(dict(row), [dict(one) for one in connection.execute(own).mappings()])

    return _asked(target, read)


def _asked(target: Target, ask: Callable[[Connection], T]) -> T:
    """What is read over a connection of its own, closed afterwards.

    Raises:
        StorageError: There is no such database, it cannot be reached, it has no tables of ours or rows that are none.
    """
    try:
        with reader(target).connect() as connection:
            check(connection)
            return ask(connection)
    except SQLAlchemyError as error:
        raise error_of(error, target) from None
    except ValueError as error:  # the text of which may hold content
        raise StorageError(f"{target.place}: a row cannot be read ({type(error).__name__}): changed by hand?") from None
