"""Engines: connections as results need them, and what drivers raise in our words. Loads SQLAlchemy.

SQLite: write-ahead log, one writer at a time, the file its owner's alone. PostgreSQL: a server that is gone is noticed
in seconds, and nothing is prepared on it, so poolers may stand between.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, InterfaceError
from sqlalchemy.pool import NullPool

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.places import make_folders
from agenteval_otel.storage.sql.target import Target

__all__ = ["error_of", "hold_log", "is_of_place", "reader", "writer"]

_BUSY_MS = 250
_SERVER_LIMIT_MS = 10_000
_CONNECT_S = 5
# Of each line of releases the one from which on a writer and another process's checkpoint do not meet badly.
_MENDED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))


def writer(target: Target, *, durable: bool) -> Engine:
    """An engine for the one thread that writes; its transactions on SQLite begin by taking the write lock."""
    if target.path is None:
        return _server(target)
    path = target.path
    make_folders(path.parent)
    # SQLite would make it for everybody to read; what it makes beside it gets the same rights.
    # One that is there must not be opened past SQLite: closing that would end all locks this process has at the file,
    # and another process would take the log away under a connection of ours.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _tell_of_old_sqlite()
    engine = create_engine(
        "sqlite://", creator=lambda: _sqlite(str(path.absolute())), poolclass=NullPool, hide_parameters=True
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", f"synchronous={'FULL' if durable else 'NORMAL'}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reader(target: Target) -> Engine:
    """An engine that cannot write.

    Raises:
        StorageError: There is no such file.
    """
    if target.path is None:
        return _server(target, read_only=True)
    path = target.path.absolute()
    if not path.is_file():
        raise StorageError(f"{target.place}: there is no such database")
    address = f"{path.as_uri()}?mode=ro"
    return create_engine(
        "sqlite://", creator=lambda: _sqlite(address, uri=True), poolclass=NullPool, hide_parameters=True
    )


def hold_log(path: Path) -> sqlite3.Connection:
    """A connection that cannot write: while it is open, no other that closes moves the log into the database."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # its lock is taken by reading
    except BaseException:
        connection.close()
        raise
    return connection


def _sqlite(address: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=uri, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)


def _server(target: Target, *, read_only: bool = False) -> Engine:
    options = f"-c statement_timeout={_SERVER_LIMIT_MS}" + (" -c default_transaction_read_only=on" if read_only else "")
    arguments = {
        "connect_timeout": _CONNECT_S, "application_name": "agenteval-otel", "options": options,
        "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
        "prepare_threshold": None,
    }  # fmt: skip
    engine = create_engine(target.url, poolclass=NullPool, hide_parameters=True)
    said = {name: fact for name, fact in arguments.items() if name not in engine.url.query}
    return create_engine(engine.url, poolclass=NullPool, hide_parameters=True, connect_args=said)


def is_of_place(error: Exception) -> bool:
    """Whether the database itself failed (gone, locked, full, without our tables), and not what was to be saved."""
    if isinstance(error, DataError | IntegrityError):
        return False
    return isinstance(error, DatabaseError | InterfaceError | OSError | StorageError)


def error_of(error: Exception, target: Target) -> Exception:
    """What a driver raised, in one line, without the values that were to be saved and without secrets."""
    if isinstance(error, OSError | StorageError):
        return error
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(cause) if is_of_place(error) else ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return StorageError(target.masked(f"{target.place}: {': '.join([type(cause).__name__, *lines[:1]])}"))


def _tell_of_old_sqlite() -> None:
    found = sqlite3.sqlite_version_info
    if found >= _MENDED[0] or any(found[:2] == mended[:2] and found >= mended for mended in _MENDED):
        return
    if not _TOLD:
        _TOLD.append(True)
        log.warning(
            "sqlite_is_old", part="sql", version=sqlite3.sqlite_version, mended="3.51.3",
            hint="processes of agenteval-otel take turns by a lock file; let no other program write this database",
        )  # fmt: skip


_TOLD: list[bool] = []
