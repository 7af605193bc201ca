"""Erasing from a database: rows are replaced by those of a result without content.

Loads SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from agenteval_otel.components.database.engines import error_of
from agenteval_otel.components.database.sqlite_store import open_sqlite
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import StorageError
from agenteval_otel.models.value import copy_with
from agenteval_otel.storage.erasure import ErasedPlace, Erasure, without_person
from agenteval_otel.storage.files import lock_of, open_locked
from agenteval_otel.storage.rows import UnreadableRows
from agenteval_otel.storage.sql_database import (
    EVALUATIONS,
    connect_reader,
    connect_writer,
    insert_rows,
)
from agenteval_otel.storage.sql_read import evaluations_in, replaced_labels
from agenteval_otel.storage.sql_rows import Rows, name_of, rows_of
from agenteval_otel.storage.sql_texts import DROP_DELETED_WORDS, HAS_WORDS

_BATCH = 200
_BUSY_S = 30.0
_CHECKPOINT_S = 5.0


def erase_rows(
    target: Target, erasure: Erasure, *, dry_run: bool, wait_s: float = _BUSY_S
) -> ErasedPlace:
    """Erase from the tables. Raises `StorageError` if the database cannot be read or written.

    Args:
        wait_s: How long to wait for other programs that read an SQLite file before it is compacted.
    """
    if target.path is not None and not target.path.is_file():
        return ErasedPlace(target.place)
    try:
        if dry_run:
            with connect_reader(target) as connection:
                return _erased(target, connection, erasure, dry_run=True)
        with _file_turn(target):  # else processes that save all the time may leave it no moment
            connection = connect_writer(target, durable=True)
        with contextlib.closing(connection):
            place = _erased(target, connection, erasure, dry_run=False)
    except sa.exc.SQLAlchemyError as error:
        raise error_of(error, target) from None
    return place if target.path is None else place._replace(problem=_compacted(target, wait_s))


def _erased(
    target: Target, connection: sa.Connection, erasure: Erasure, *, dry_run: bool
) -> ErasedPlace:
    removed = 0
    unreadable = 0
    last = ""
    with _turn(target, connection, dry_run=dry_run):
        replaced = replaced_labels(connection)
    while True:
        with _turn(target, connection, dry_run=dry_run):
            candidates = connection.execute(_candidates(erasure, last)).mappings().all()
            gone, rows, lost = _changed(connection, candidates, erasure, replaced)
            if gone and not dry_run:
                # Results go with their evaluation; deleted text is overwritten (`secure_delete`),
                # an updated one not.
                connection.execute(sa.delete(EVALUATIONS).where(EVALUATIONS.c.id.in_(gone)))
                insert_rows(connection, rows)
        removed += len(gone) - lost
        unreadable += lost
        if len(candidates) < _BATCH:
            return ErasedPlace(target.place, removed, unreadable)
        last = candidates[-1]["id"]


@contextlib.contextmanager
def _turn(target: Target, connection: sa.Connection, *, dry_run: bool) -> Iterator[None]:
    """Hold a transaction, on an SQLite file in turn with the processes that save.

    A dry run takes no turn and begins no transaction.
    """
    with contextlib.ExitStack() as stack:
        if not dry_run:
            stack.enter_context(_file_turn(target))
            stack.enter_context(connection.begin())
        if target.path is None:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # ids have no index
        yield


def _file_turn(target: Target) -> contextlib.AbstractContextManager[object]:
    """Return what holds the turn among the processes that write to an SQLite file."""
    return contextlib.nullcontext() if target.path is None else open_locked(lock_of(target.path))


def _candidates(erasure: Erasure, last: str) -> sa.Select[Any]:
    """Return the query for the evaluations that may be concerned.

    It is in the order of their ids, behind the last one.
    """
    columns = EVALUATIONS.c
    if erasure.before is not None:
        condition: sa.ColumnElement[bool] = columns.evaluated_at < erasure.before
    else:
        conversations = [name_of(id) for id in erasure.conversations]
        users = [name_of(id) for id in erasure.users]
        # A whole conversation has its users in its turns.
        has_user_in_turns = [
            columns.details.contains(needle.decode(), autoescape=True)
            for needle in erasure.user_needles()
        ]
        condition = sa.or_(
            columns.conversation_id.in_(conversations),
            columns.session_id.in_(conversations),
            columns.user_id.in_(users),
            *has_user_in_turns,
        )
    return (
        sa.select(EVALUATIONS)
        .where(columns.id > last, condition)
        .order_by(columns.id)
        .limit(_BATCH)
    )


def _changed(
    connection: sa.Connection,
    candidates: Sequence[Any],
    erasure: Erasure,
    replaced: Collection[tuple[str, str]],
) -> tuple[list[str], list[Rows], int]:
    """Return the ids of the evaluations that are concerned or cannot be read.

    Return too the rows that replace the concerned ones, and how many cannot be read. Labels that do
    not count have no such rows: without ids nothing would tell that others replaced them.
    """
    readable = dict(evaluations_in(connection, candidates, UnreadableRows()))
    gone = []
    rows = []
    unreadable = 0
    for row in candidates:
        id = row["id"]
        aggregated = readable.get(id)
        if aggregated is None:  # changed by hand
            gone.append(id)
            unreadable += 1
        elif erasure.concerns(aggregated):
            gone.append(id)
            results = aggregated.results
            left = tuple(
                result
                for result in results
                if result.evaluator_kind != "human" or (id, result.criterion_name) not in replaced
            )
            if left or not results:
                aggregated = copy_with(aggregated, {"results": left})
                rows.append(rows_of(without_person(aggregated), id))
    return gone, rows, unreadable


def _compacted(target: Target, wait_s: float) -> str:
    """Rewrite an SQLite file and empty its log, which may hold old content.

    Return what is left to do.
    """
    assert target.path is not None
    try:
        with (
            open_locked(lock_of(target.path)),
            contextlib.closing(
                open_sqlite(target.path, timeout_s=wait_s, read_only=False)
            ) as connection,
        ):
            if connection.execute(HAS_WORDS).fetchone():
                connection.execute(DROP_DELETED_WORDS)
            connection.execute("VACUUM")
            deadline = time.monotonic() + min(wait_s, _CHECKPOINT_S)
            while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > deadline:
                    return "another program reads it, so old content is still in its -wal file: run this again"
                time.sleep(0.05)
    except Exception as error:
        again = (
            "free pages may still hold old content: make room or end what uses it, then run VACUUM"
        )
        raise StorageError(f"{target.place}: {type(error).__name__}: {again}") from None
    return ""
