"""Notes on answers, in a table of their own. Loads SQLAlchemy.

They are deleted with the evaluation that they are of, so erasure and `keep_days` reach them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agenteval_otel.capture.text import clean
from agenteval_otel.components.database.engines import error_of
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import StorageError
from agenteval_otel.storage.files import lock_of, open_locked
from agenteval_otel.storage.notes import Note, Notes
from agenteval_otel.storage.sql_database import (
    EVALUATIONS,
    NOTES,
    connect_reader,
    connect_writer,
)
from agenteval_otel.storage.sql_rows import in_utc

MAX_COMMENT = 4_096


class SqlNotes(Notes):
    """Keeps the notes in a database."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"<SqlNotes {self._target.place}>"

    def of(self, evaluation_id: str) -> Note:
        row = None
        of_id = sa.select(NOTES).where(NOTES.c.evaluation_id == evaluation_id)
        with connect_reader(self._target) as connection:
            if sa.inspect(connection).has_table(NOTES.name):
                row = connection.execute(of_id).mappings().first()
        return Note() if row is None else _note_of(row)

    def looked_at(self, among: Collection[str] | None = None) -> list[str]:
        is_looked_at: sa.ColumnElement[bool] = NOTES.c.looked_at.is_not(None)
        if among is not None:
            is_looked_at &= NOTES.c.evaluation_id.in_(among)
        ids = sa.select(NOTES.c.evaluation_id).where(is_looked_at)
        with connect_reader(self._target) as connection:
            if not sa.inspect(connection).has_table(NOTES.name):
                return []
            return list(connection.execute(ids).scalars())

    def comment(self, evaluation_id: str, text: str) -> None:
        text = clean(text, MAX_COMMENT).strip()
        moment = datetime.now(UTC) if text else None
        self._change(evaluation_id, {"comment": text or None, "commented_at": moment})

    def mark(self, evaluation_id: str, *, looked: bool) -> None:
        self._change(evaluation_id, {"looked_at": datetime.now(UTC) if looked else None})

    def _change(self, evaluation_id: str, values: Mapping[str, Any]) -> None:
        target = self._target
        with contextlib.ExitStack() as stack:
            if target.path is not None:
                stack.enter_context(open_locked(lock_of(target.path)))
            try:
                connection = stack.enter_context(
                    contextlib.closing(connect_writer(target, durable=False))
                )
                with connection.begin():
                    _replace(connection, evaluation_id, values)
            except SQLAlchemyError as error:
                raise error_of(error, target) from None


def _replace(connection: sa.Connection, evaluation_id: str, values: Mapping[str, Any]) -> None:
    # A server keeps an erasure waiting: else it could end before the old comment is stored again.
    is_stored = sa.select(EVALUATIONS.c.id).where(EVALUATIONS.c.id == evaluation_id)
    is_stored = is_stored.with_for_update(read=True, key_share=True)
    if connection.execute(is_stored).first() is None:
        raise StorageError("the answer is no longer stored")
    NOTES.create(connection, checkfirst=True)
    of_id = NOTES.c.evaluation_id == evaluation_id
    stored = connection.execute(sa.select(NOTES).where(of_id)).mappings().first()
    changed = {**dict(stored or {}), "evaluation_id": evaluation_id, **values}
    # SQLite overwrites what is deleted (`secure_delete`), and not what is updated.
    connection.execute(sa.delete(NOTES).where(of_id))
    if any(changed.get(name) for name in ("comment", "looked_at")):
        connection.execute(sa.insert(NOTES).values(**changed))


def _note_of(row: Mapping[Any, Any]) -> Note:
    return Note(row["comment"] or "", in_utc(row["commented_at"]), in_utc(row["looked_at"]))
