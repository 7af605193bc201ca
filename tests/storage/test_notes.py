"""Notes on stored answers: they replace each other, and are deleted with what they are of."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agenteval_otel import EvaluationInput
from agenteval_otel.components.database.target import Target, target_of
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult, SpanReference
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.storage.notes import Note
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_database import NOTES, Database, connect_reader
from agenteval_otel.storage.sql_erasure import erase_rows
from agenteval_otel.storage.sql_notes import MAX_COMMENT, SqlNotes
from agenteval_otel.storage.sql_rows import rows_of
from tests.storage.samples import aggregated, scored

CANARY = "canary-51c2"
SPAN = SpanReference(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")
NOW_NS = int(datetime.now(UTC).timestamp() * 1e9)


def answer(**fields: Any) -> AggregatedEvaluationResult:
    return aggregated(
        scored("tone", evaluator_id="tone-1", evaluator_version="v"),
        **{
            "conversation_id": "c-1",
            "ended_ns": NOW_NS,
            "input_snapshot": EvaluationInput(prompt="q", response="a"),
            **fields,
        },
    )


def store(target: Target, key: str, keep_days: float | None = None, **fields: Any) -> str:
    """Store an answer under this id, as a provider does."""
    database = Database(target, keep_days=keep_days)
    assert database.write([rows_of(answer(**fields), key)], may_wait=True) == [None]
    database.close()
    return key


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.backend)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "sqlite":
        return Target(tmp_path / "results.db", "")
    return target_of(None, request.getfixturevalue("postgresql").url)


@pytest.fixture
def key(target: Target) -> str:
    return store(target, "0" * 31 + "1", span=SPAN, call_id="ab" * 8)


def test_a_comment_is_replaced_and_removed(target: Target, key: str) -> None:
    """A mark stays when the comment is changed, and nothing is left of an empty note."""
    notes = database_of(target).notes
    assert notes is not None
    assert notes.of(key) == Note()
    notes.comment(key, "too early")
    notes.mark(key, looked=True)
    notes.comment(key, "  too late\x00\n")
    note = notes.of(key)
    assert note.comment == "too late"
    assert note.commented_at is not None
    assert note.looked_at is not None
    assert note.looked_at.tzinfo is UTC
    assert notes.looked_at() == [key]
    notes.comment(key, " ")
    notes.mark(key, looked=False)
    assert notes.of(key) == Note()
    assert notes.looked_at() == []
    with connect_reader(target) as connection:
        assert connection.execute(sa.select(NOTES)).all() == []


def test_a_comment_is_cut(target: Target, key: str) -> None:
    notes = SqlNotes(target)
    notes.comment(key, "x" * 10 * MAX_COMMENT)
    assert len(notes.of(key).comment) < 2 * MAX_COMMENT


def test_only_stored_answers_have_notes(target: Target, key: str) -> None:
    notes = SqlNotes(target)
    with pytest.raises(StorageError, match="no longer stored"):
        notes.mark("f" * 32, looked=True)
    assert notes.looked_at() == []


def test_erasure_leaves_no_byte_of_a_comment(target: Target, key: str, tmp_path: Path) -> None:
    """Neither of a comment, nor of one that it replaced, in the database and what stands beside it."""
    notes = SqlNotes(target)
    notes.comment(key, f"first {CANARY}")
    notes.comment(key, f"second {CANARY}")
    place = erase_rows(target, Erasure(conversations=["c-1"]), dry_run=False)
    assert (place.removed, place.problem) == (1, "")
    assert notes.of(key) == Note()
    for file in tmp_path.iterdir():
        assert CANARY.encode() not in file.read_bytes(), file


def test_old_notes_go_with_their_answers(target: Target, key: str) -> None:
    """`keep_days` deletes the evaluation, and the note with it."""
    before = datetime.now(UTC) - timedelta(days=9)
    old = store(target, "0" * 31 + "2", ended_ns=int(before.timestamp() * 1e9))
    notes = SqlNotes(target)
    notes.comment(old, "old")
    notes.comment(key, "new")
    store(target, "0" * 31 + "3", keep_days=3.0)
    assert notes.of(old) == Note()
    assert notes.of(key).comment == "new"


def test_an_answer_that_is_evaluated_again_keeps_its_note(target: Target, key: str) -> None:
    """Its new evaluation replaces the old one, and has the note."""
    notes = SqlNotes(target)
    notes.comment(key, "ask Kim")
    notes.mark(key, looked=True)
    again = store(target, "0" * 31 + "4", span=SPAN, call_id="ab" * 8)
    assert database_of(target).find_evaluations([key, again]).keys() == {again}
    assert notes.of(again).comment == "ask Kim"
    assert notes.looked_at() == [again]


@pytest.mark.backend
def test_an_erased_comment_is_not_stored_again(postgresql: Any) -> None:
    """Erased between reading the note and replacing it: the erasure waits, or there is no comment."""
    target = target_of(None, postgresql.url)
    impatient = target_of(None, f"{postgresql.url}?options=-c%20lock_timeout%3D200")
    key = store(target, "0" * 31 + "1")
    notes = SqlNotes(target)
    notes.comment(key, CANARY)
    erasure = Erasure(conversations=["c-1"])
    tries: list[str] = []

    def erase(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("DELETE FROM agenteval_notes") and not tries:
            tries.append(statement)
            with contextlib.suppress(StorageError):  # it waited
                erase_rows(impatient, erasure, dry_run=False)

    sa.event.listen(sa.Engine, "before_cursor_execute", erase)
    try:
        notes.mark(key, looked=True)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", erase)
    assert tries
    erase_rows(target, erasure, dry_run=False)
    assert postgresql.query("SELECT count(*) FROM agenteval_notes WHERE comment <> ''") == [(0,)]
