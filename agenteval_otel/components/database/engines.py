"""Engines of SQLAlchemy for SQLite and PostgreSQL, and what their errors mean. Loads SQLAlchemy."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, InterfaceError
from sqlalchemy.pool import NullPool

from agenteval_otel.components.database.sqlite_store import open_sqlite
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import StorageError

_BUSY_S = 0.25
_FIRST_TABLE: Final = "agenteval_schema"
_NEVER_USED: Final = "nothing of agenteval-otel was ever stored there"


def sqlite_engine(path: Path, *, read_only: bool = False, **pool: Any) -> sa.Engine:
    """Return an engine for a file, which waits for its locks a quarter of a second.

    It has no pool, unless `pool` is one.
    """
    connect = functools.partial(open_sqlite, path, timeout_s=_BUSY_S, read_only=read_only)
    return sa.create_engine(
        "sqlite://", creator=connect, hide_parameters=True, **(pool or {"poolclass": NullPool})
    )


def server_engine(
    target: Target, *, read_only: bool = False, statement_s: float = 10.0, **pool: Any
) -> sa.Engine:
    """Return an engine for a server, whose statements end in time.

    It has no pool, unless `pool` is one.
    """
    options = f"-c statement_timeout={statement_s * 1000:.0f}"
    if read_only:
        options += " -c default_transaction_read_only=on"
    arguments = {
        "connect_timeout": 5,
        "application_name": "agenteval-otel",
        "options": options,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "prepare_threshold": None,  # a pooler may stand between
    }
    url = sa.make_url(target.url)
    defaults = {name: value for name, value in arguments.items() if name not in url.query}
    return sa.create_engine(
        url, hide_parameters=True, connect_args=defaults, **(pool or {"poolclass": NullPool})
    )


def is_database_failure(error: Exception) -> bool:
    """Tell whether the database itself failed, and not what was to be saved.

    Such a database is gone, locked, full, or without our tables.
    """
    if isinstance(error, DataError | IntegrityError):
        return False
    return isinstance(error, DatabaseError | InterfaceError | OSError | StorageError)


def error_of(error: Exception, target: Target) -> Exception:
    """Return a driver's error in one line.

    The values that were to be saved and secrets are left out.
    """
    if isinstance(error, OSError | StorageError):
        return error
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    message = str(cause) if is_database_failure(error) else ""
    words = [type(cause).__name__]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines:
        first_line = lines[0]
        if _FIRST_TABLE in first_line:  # which is missing
            first_line += f" ({_NEVER_USED})"
        words.append(first_line)
    return StorageError(target.masked(f"{target.place}: {': '.join(words)}"))
