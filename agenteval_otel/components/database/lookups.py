"""Runs one statement repeatedly, over a few connections. Loads SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError, TimeoutError
from sqlalchemy.pool import QueuePool

from agenteval_otel.components.database.engines import error_of, server_engine, sqlite_engine
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import GroundTruthError
from agenteval_otel.runtime.fork import reset_in_child

_RECYCLE_S = 300
_SQLITE_ERROR = 1  # wrong SQL, or a table that is not there
_CANCELED = "57014"  # by the statement's time limit


class Lookups:
    """Returns the first row of a statement, on the calling thread.

    At most `connections` statements run at once.

    Args:
        statement: SQL with parameters such as ``:prompt``, which are always bound.
        timeout_s: After which a server ends the statement.
    """

    def __init__(
        self, target: Target, statement: str, *, timeout_s: float, connections: int
    ) -> None:
        self._target = target
        self._statement = sa.text(statement)
        pool = {
            "poolclass": QueuePool,
            "pool_size": connections,
            "max_overflow": 0,
            "pool_timeout": timeout_s,
            "pool_recycle": _RECYCLE_S,
        }
        if target.path is not None:
            self._engine = sqlite_engine(target.path, read_only=True, **pool)
        else:
            self._engine = server_engine(
                target, read_only=True, statement_s=timeout_s, pool_pre_ping=True, **pool
            )
        # What is open belongs to the parent process.
        reset_in_child(self._leave)

    def first(self, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the first row by its columns' names, in their order, or None without a row.

        Raises `GroundTruthError`.
        """
        try:
            with self._engine.connect() as connection:
                row = connection.execute(self._statement, dict(parameters)).mappings().first()
                return None if row is None else dict(row)
        except SQLAlchemyError as error:
            raise GroundTruthError(
                str(error_of(error, self._target)), reason=_reason_of(error)
            ) from None

    def close(self) -> None:
        """Close the connections that are not in use. A later lookup opens others."""
        self._engine.dispose()

    def _leave(self) -> None:
        self._engine.dispose(close=False)


def _reason_of(error: SQLAlchemyError) -> str:
    """Return the reason of a `GroundTruthError`: the database itself, or the query."""
    if isinstance(error, TimeoutError):
        return "busy"
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        # The lowest byte of an extended code is the primary one.
        code = getattr(cause, "sqlite_errorcode", _SQLITE_ERROR) & 0xFF
        return "query" if code == _SQLITE_ERROR else "unreachable"
    state = getattr(cause, "sqlstate", None)
    if state == _CANCELED:
        return "timeout"
    return "unreachable" if isinstance(error, OperationalError | InterfaceError) else "query"
