"""The index of the words of stored answers, in the database of the answers. Loads SQLAlchemy.

The pages fill it. Saving an answer does not. The database removes what is deleted, by a trigger or a
foreign key, so that erasure, `keep_days` and older packages reach it. Words stand in it without the
order of the text. Without stored texts there is no index.

SQLite's FTS5 marks words as deleted and drops them when it merges its segments. `purge` does that
in steps. Its own option for it (`secure-delete`) is left off: a database that used it cannot be
written with SQLite before 3.42.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from agenteval_otel.storage.places import ID_BYTES, FoundAnswers
from agenteval_otel.storage.words import WantedWord, line_of, words_of_input, words_of_tags

_INDEXED_UNTIL: Final = "agenteval_texts_until"
_LEAVES: Final = (
    "CREATE TRIGGER agenteval_texts_{} AFTER {} ON agenteval_evaluations BEGIN"
    " INSERT INTO agenteval_words (agenteval_words, rowid, words)"
    " SELECT 'delete', number, words FROM agenteval_texts WHERE evaluation_id = OLD.id;"
    " DELETE FROM agenteval_texts WHERE evaluation_id = OLD.id; END"
)
_SQLITE: Final = (
    "CREATE TABLE agenteval_texts"
    " (number INTEGER PRIMARY KEY, evaluation_id TEXT NOT NULL UNIQUE, words TEXT NOT NULL)",
    "CREATE VIRTUAL TABLE agenteval_words USING fts5(words, content='agenteval_texts',"
    " content_rowid='number', tokenize='ascii', detail=none, columnsize=0)",
    _LEAVES.format("deleted", "DELETE"),
    _LEAVES.format("changed", "UPDATE OF details, tags"),
    f"CREATE TABLE {_INDEXED_UNTIL} (id TEXT NOT NULL)",
)
_POSTGRESQL: Final = (
    "CREATE TABLE agenteval_texts (evaluation_id varchar(32) PRIMARY KEY"
    " REFERENCES agenteval_evaluations (id) ON DELETE CASCADE, words tsvector NOT NULL)",
    "CREATE INDEX agenteval_texts_words ON agenteval_texts USING gin (words)",
    f"CREATE TABLE {_INDEXED_UNTIL} (id varchar(32) NOT NULL)",
)
_ADD_SQLITE: Final = (
    "INSERT INTO agenteval_texts VALUES (:number, :id, :words)",
    "INSERT INTO agenteval_words (rowid, words) VALUES (:number, :words)",
)
_ADD_POSTGRESQL: Final = (  # one that SQL by hand deletes meanwhile is not added
    "INSERT INTO agenteval_texts SELECT id, array_to_tsvector(CAST(:words AS text[]))"
    " FROM agenteval_evaluations WHERE id = :id ON CONFLICT DO NOTHING",
)
HAS_WORDS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'agenteval_words'"
DROP_DELETED_WORDS: Final = "INSERT INTO agenteval_words (agenteval_words) VALUES ('optimize')"
_LOCK: Final = 0x616765777264  # an advisory lock: any number of our own
_READ_AT_ONCE: Final = 50
_PARTS: Final = 10  # in one transaction: FTS5 merges as many
MOST_FOUND: Final = 1_000_000
"""How many answers a search gives at most: the newest."""
_LATE_MS: Final = 900_000
"""How much later than others an answer may be committed, by its id, and still be added."""
_UNSETTLED_MS: Final = 60_000
_PURGED_AT_ONCE: Final = 100  # pages of the index: some milliseconds
_NO_CHANGE: Final = 2  # a merge that had nothing to do counts as one changed row


def has_index(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(_INDEXED_UNTIL)


def needs_index(connection: sa.Connection, *, newest: int | None = None) -> bool:
    """Tell whether there is an index, or any stored answer has its texts. May read all of them.

    Args:
        newest: How many answers to look at. Without it all.
    """
    if has_index(connection):
        return True
    looked_at = "agenteval_evaluations"
    if newest is not None:
        looked_at = f"(SELECT details FROM {looked_at} ORDER BY id DESC LIMIT {newest}) newest"
    query = f"SELECT 1 FROM {looked_at} WHERE details LIKE '%\"input_snapshot\"%' LIMIT 1"
    return connection.execute(sa.text(query)).first() is not None


def add_texts(
    connection: sa.Connection,
    *,
    end_s: float = math.inf,
    wait: bool = True,
    now_ms: int | None = None,
) -> bool:
    """Add up to 500 answers to the index, in the transaction that has begun.

    Answers without words are added too, so that they are read once. Answers of the last minute wait,
    because processes commit in any order. Make the index if there is none. Return whether nothing is
    left to add, or it is another's turn.

    Args:
        end_s: On the monotonic clock. The first answer that is read after it is the last one.
        wait: For another's turn on a server.
    """
    if not _has_turn(connection, wait=wait):
        return True
    if not has_index(connection):
        _create(connection)
    now_ms = now_ms or time.time_ns() // 1_000_000
    settled = f"{now_ms - _UNSETTLED_MS:012x}"
    until = _until(connection)
    query = (
        "SELECT id, details, tags FROM agenteval_evaluations e WHERE id > :after AND id < :settled AND"
        " (id > :until OR NOT EXISTS (SELECT 1 FROM agenteval_texts t WHERE t.evaluation_id = e.id))"
        " ORDER BY id LIMIT :limit"
    )
    if connection.dialect.name != "sqlite":
        # An erasure waits for the words, which go with their answer. One under way goes first.
        query += " FOR SHARE OF e SKIP LOCKED"
    after = f"{max(0, int(until[:12], 16) - _LATE_MS):012x}" if until else ""
    for _ in range(_PARTS):
        values = {"after": after, "settled": settled, "until": until, "limit": _READ_AT_ONCE}
        rows = connection.execute(sa.text(query), values).all()
        if not rows:  # else every search would write
            return True
        after = _insert(connection, rows, end_s)
        reached = sa.text(f"UPDATE {_INDEXED_UNTIL} SET id = :id")
        connection.execute(reached, {"id": max(until, after)})
        is_last = after == rows[-1][0] and len(rows) < _READ_AT_ONCE
        if is_last or time.monotonic() >= end_s:
            return is_last
    return False


def find_texts(
    connection: sa.Connection, wanted: Sequence[WantedWord], *, most_read: int
) -> FoundAnswers:
    """Return the answers that have all the words, which may stand for tags.

    Of answers that are not in the index, the newest `most_read` are read.
    """
    ids = b""
    until = ""
    if has_index(connection):
        until = _until(connection)
        ids = _indexed(connection, wanted)
    is_cut = len(ids) >= ID_BYTES * MOST_FOUND
    newest = sa.text(
        "SELECT id, details, tags FROM agenteval_evaluations WHERE id > :until"
        " ORDER BY id DESC LIMIT :limit"
    )
    values = {"until": until, "limit": most_read}
    # A few at a time: each may be a long conversation.
    rows = connection.execute(newest, values, execution_options={"yield_per": _READ_AT_ONCE})
    count = 0
    for id, words in _words_of(rows):
        count += 1
        if all(word.is_in(words) for word in wanted):
            ids += bytes.fromhex(id)
    unsearched = 0
    if count == most_read:
        behind = sa.text("SELECT count(*) FROM agenteval_evaluations WHERE id > :until")
        unsearched = connection.execute(behind, {"until": until}).scalar_one() - count
    return FoundAnswers(ids, unsearched, is_cut)


def purge(connection: sa.Connection, *, is_first: bool) -> bool:
    """Remove some of the words of deleted answers from an SQLite index. Return whether all are gone.

    Args:
        is_first: Begin, and do not go on with what an earlier call began.
    """
    if connection.dialect.name != "sqlite" or not has_index(connection):
        return True
    before = _changes(connection)
    pages = -_PURGED_AT_ONCE if is_first else _PURGED_AT_ONCE
    merge = "INSERT INTO agenteval_words (agenteval_words, rank) VALUES ('merge', :pages)"
    connection.execute(sa.text(merge), {"pages": pages})
    return _changes(connection) - before < _NO_CHANGE


def _changes(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("SELECT total_changes()").scalar_one())


def _create(connection: sa.Connection) -> None:
    is_sqlite = connection.dialect.name == "sqlite"
    for statement in _SQLITE if is_sqlite else _POSTGRESQL:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"INSERT INTO {_INDEXED_UNTIL} VALUES ('')")


def _has_turn(connection: sa.Connection, *, wait: bool) -> bool:
    """Take the turn of the pages that add to the index of a server. A file is locked already."""
    if connection.dialect.name == "sqlite":
        return True
    if wait:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        return True
    taking = sa.text("SELECT pg_try_advisory_xact_lock(:lock)")
    return bool(connection.execute(taking, {"lock": _LOCK}).scalar_one())


def _until(connection: sa.Connection) -> str:
    id = connection.exec_driver_sql(f"SELECT id FROM {_INDEXED_UNTIL}").scalar()
    return str(id or "")


def _insert(connection: sa.Connection, rows: Sequence[Any], end_s: float) -> str:
    """Add answers until the time is over, at least one. Return the id of the last one."""
    is_sqlite = connection.dialect.name == "sqlite"
    number = 0
    if is_sqlite:
        number = connection.exec_driver_sql("SELECT max(number) FROM agenteval_texts").scalar() or 0
    items: list[dict[str, Any]] = []
    for id, words in _words_of(rows):
        line = line_of(words)
        if is_sqlite:
            number += 1
            items.append({"number": number, "id": id, "words": line})
        else:
            items.append({"id": id, "words": line.split()})
        if time.monotonic() >= end_s:
            break
    for statement in _ADD_SQLITE if is_sqlite else _ADD_POSTGRESQL:
        connection.execute(sa.text(statement), items)
    return str(items[-1]["id"])


def _words_of(rows: Iterable[Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield the evaluations' ids and words. Those without texts and tags have none."""
    for id, details, tags in rows:
        words: set[str] = set()
        try:
            if '"input_snapshot"' in details:
                words |= words_of_input(json.loads(details)["input_snapshot"])
            if tags:  # text in SQLite, read by the driver of PostgreSQL
                words |= words_of_tags(json.loads(tags) if isinstance(tags, str) else tags)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            words.clear()  # changed by hand
        yield id, words


def _indexed(connection: sa.Connection, wanted: Sequence[WantedWord]) -> bytes:
    """Return the ids of the newest answers in the index that have the words.

    One long text of them is read in a fifth of the time of as many rows.
    """
    if connection.dialect.name == "sqlite":
        query = " ".join(f'"{word.text}"{"*" * word.is_beginning}' for word in wanted)
        statement = (
            "SELECT group_concat(evaluation_id, '') FROM"
            " (SELECT rowid AS chosen FROM agenteval_words WHERE agenteval_words MATCH :query"
            " ORDER BY rowid DESC LIMIT :most) CROSS JOIN agenteval_texts ON number = chosen"
        )
    else:
        query = " & ".join(f"'{word.text}'{':*' * word.is_beginning}" for word in wanted)
        statement = (
            "SELECT string_agg(evaluation_id, '') FROM (SELECT evaluation_id FROM agenteval_texts"
            " WHERE words @@ CAST(:query AS tsquery) ORDER BY evaluation_id DESC LIMIT :most) newest"
        )
    values = {"query": query, "most": MOST_FOUND}
    return bytes.fromhex(connection.execute(sa.text(statement), values).scalar() or "")
