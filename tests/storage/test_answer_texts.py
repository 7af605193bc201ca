"""Searching the texts of stored answers: what is found, by which words, and that nothing of an erased
text is left in the index.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agenteval_otel import EvaluationInput
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.storage.places import ID_BYTES, FoundAnswers, Place
from agenteval_otel.storage.read import database_of, place_of
from agenteval_otel.storage.sql_database import add_answer_texts, connect_reader, connect_writer
from agenteval_otel.storage.sql_texts import add_texts, has_index, needs_index
from agenteval_otel.storage.words import line_of, places_of, tag_word, wanted_words, words_of
from tests.storage.samples import aggregated, change, save

CANARY = "xylofonist grumbleq"
DAY_NS = 86_400 * 10**9
ODD = [
    '"',
    "AND",
    "order AND",
    "NOT order",
    "NEAR(order thirty)",
    "words: order",
    "order*",
    "*",
    "^order",
    "(",
    "order'; DROP TABLE agenteval_texts; --",
    "a\0b",
    "\ud800",
    "'order':* & !x",
    "x" * 10_000,
    "order " * 10_000,
    "-- ;; !!",
    "",
    "😀",
    "§deadbeef",
    "%",
    "_",
    "\\",
]


def answer(prompt: str, response: Any = "Within thirty days.", **fields: Any) -> Any:
    snapshot = EvaluationInput(prompt=prompt, response=response)
    return aggregated(**{"input_snapshot": snapshot, **fields})


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.backend)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SqlStorageProvider:
    if request.param == "sqlite":
        return SqlStorageProvider(path=tmp_path / "results.db")
    return SqlStorageProvider(url=request.getfixturevalue("postgresql").url)


@pytest.fixture(params=["index", "without", "lines"])
def place(request: pytest.FixtureRequest, storage: Any, tmp_path: Path) -> Any:
    """Fill a database that has an index, one that has none yet, or a file, and give it as a place."""

    def filled(*answers: AggregatedEvaluationResult) -> Place:
        if request.param == "lines":
            path = tmp_path / "results.jsonl"
            path.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in answers))
            return place_of(str(path))
        save(storage, *answers)
        if request.param == "index":
            add_all(storage)
        return database_of(storage.target)

    return filled


def add_all(storage: SqlStorageProvider) -> None:
    """Add what is stored to the index, as pages do that open a minute later."""
    while add_answer_texts(storage.target, now_ms=in_two_minutes()):
        pass


def in_two_minutes() -> int:
    return time.time_ns() // 10**6 + 120_000


def found(place: Place, text: str, **options: Any) -> list[str]:
    """The agents of the answers whose texts have the words."""
    return agents(place, place.find_texts(wanted_words(text), **options).ids)


def agents(place: Place, ids: bytes) -> list[str]:
    keys = [ids[at : at + ID_BYTES].hex() for at in range(0, len(ids), ID_BYTES)]
    stored = place.find_evaluations(keys)
    return sorted(stored[key].agent or "" for key in keys)


FINDS = {
    "refund": ["a"],
    "REFUND café": ["a"],
    "refund thirty": ["a"],
    "refund nothing": [],
    "cafe": ["a"],
    "efund": [],
    "12": ["b"],
    "1": [],
    "退款": ["c"],
    "退": ["c"],
    "款退": [],
    "환불": ["c"],
    "😀": ["b"],
    "thirty": ["a", "b", "c", "d"],
    "number": ["d"],
    "deep": ["d"],
    "role": [],
    "prompt": [],
}


def test_answers_are_found_by_words_of_prompt_and_answer(place: Any) -> None:
    """All of them, at any place, in any form of capitals and accents. Names of fields are no words."""
    stored = place(
        answer("Two refunds for the Café?", agent="a"),
        answer("order_12 😀", agent="b"),
        answer("我想退款吗 환불을", agent="c"),
        answer(
            "x",
            {"role": "assistant", "content": "Thirty is the number", "more": [{"k": "deep"}]},
            agent="d",
        ),
        aggregated(agent="without texts"),
    )
    assert {text: found(stored, text) for text in FINDS} == FINDS


def test_what_a_reader_types_is_no_query_language(place: Any) -> None:
    """Nothing of it raises, and nothing but its words counts."""
    stored = place(answer("Return order 7?", agent="a"), answer("other", agent="b"))
    own = {"return", "order", "7", "within", "thirty", "days"}
    for text in ODD:
        wanted = wanted_words(text)
        assert len(wanted) <= 20
        if wanted:
            expected = ["a"] * all(word.is_in(own) for word in wanted)
            assert found(stored, text) == expected, text[:40]


def test_lines_that_are_nested_deep_cost_their_own_words(tmp_path: Path) -> None:
    """At any depth: some are read, and are too deep for what looks for their texts."""
    path = tmp_path / "results.jsonl"
    line = answer("order", "deep").model_dump_json(by_alias=True)
    lines = [line]
    for depth in range(900, 1_000):
        lines.append(line.replace('"deep"', "[" * depth + '"deep"' + "]" * depth))
    path.write_text("".join(f"{line}\n" for line in lines))
    ids = place_of(str(path)).find_texts(wanted_words("order")).ids
    assert ids[:ID_BYTES] == bytes(ID_BYTES)


def test_answers_are_found_by_tag_user_and_conversation(place: Any) -> None:
    stored = place(
        answer("order", agent="a", tags={"tenant": "acme", "it's": 'a "b" \\'}, user_id="u1"),
        answer("order", agent="b", tags={"tenant": "acme2"}, conversation_id="c'1"),
        aggregated(agent="c", tags={"tenant": "acme"}, user_id="u1"),
    )
    assert found(stored, "", tag=("tenant", "acme")) == ["a", "c"]
    assert found(stored, "order", tag=("tenant", "acme")) == ["a"]
    assert found(stored, "", tag=("it's", 'a "b" \\')) == ["a"]
    assert found(stored, "", tag=("acme", "tenant")) == []
    assert agents(stored, stored.find_annotated("user_id", "u1").ids) == ["a", "c"]
    assert agents(stored, stored.find_annotated("conversation_id", "c'1").ids) == ["b"]
    assert stored.find_annotated("user_id", "c'1") == FoundAnswers()


def test_there_is_no_index_where_no_texts_are_stored(storage: SqlStorageProvider) -> None:
    save(storage, aggregated(tags={"tenant": "acme"}, agent="a"))
    add_all(storage)
    place = database_of(storage.target)
    assert found(place, "thirty") == []
    assert found(place, "", tag=("tenant", "acme")) == ["a"]
    with connect_reader(storage.target) as connection:
        assert not has_index(connection)


def test_new_answers_are_found_at_once_and_added_later(storage: SqlStorageProvider) -> None:
    place = database_of(storage.target)
    save(storage, answer("order 1", agent="a"))
    add_all(storage)
    save(storage, answer("order 2", agent="b"), aggregated(agent="c"))
    assert found(place, "order") == ["a", "b"]
    add_all(storage)
    assert found(place, "order") == ["a", "b"]
    assert place.find_texts(wanted_words("order"))[1:] == (0, False)


def test_many_answers_are_added_in_several_transactions(storage: SqlStorageProvider) -> None:
    save(storage, *(answer(f"order {number}", agent=str(number)) for number in range(1_100)))
    add_all(storage)
    place = database_of(storage.target)
    assert found(place, "order 777") == ["777"]
    assert len(place.find_texts(wanted_words("order")).ids) == 1_100 * ID_BYTES


def test_a_database_that_may_only_be_read_is_searched_without_an_index(tmp_path: Path) -> None:
    """Of 2,001 answers the newest 2,000 are read, and how many were left out is said."""
    path = tmp_path / "results.db"
    storage = SqlStorageProvider(path=path)
    save(storage, *(answer(f"order {number}", agent=str(number)) for number in range(2_001)))
    change(path, "CREATE TABLE agenteval_texts (mine TEXT)")  # so that none can be made
    place = database_of(storage.target)
    assert len(place.find_texts(wanted_words("order")).ids) == 2_000 * ID_BYTES
    assert place.find_texts(wanted_words("nothing")) == FoundAnswers(b"", 1, False)


def test_adding_ends_with_its_time(storage: SqlStorageProvider) -> None:
    """With the first answer that is read after it, and the next turn goes on behind that one."""
    save(storage, *(answer(f"order {number}", agent=str(number)) for number in range(3)))
    late: dict[str, Any] = {"end_s": 0.0, "now_ms": in_two_minutes()}
    with closing(connect_writer(storage.target, durable=False)) as connection:
        for count in (1, 2):
            with connection.begin():
                assert not add_texts(connection, **late)
                assert len(indexed(connection)) == count
        add_all(storage)
        with connection.begin():
            assert len(set(indexed(connection))) == 3


def indexed(connection: sa.Connection) -> list[str]:
    """The ids of the answers in the index."""
    return list(connection.execute(sa.text("SELECT evaluation_id FROM agenteval_texts")).scalars())


def test_texts_are_read_a_few_at_a_time(storage: SqlStorageProvider) -> None:
    """Of 20 MB of texts a fraction is in memory, also while they are added."""
    save(storage, *(answer("x" * 100_000, agent=str(number)) for number in range(200)))
    place = database_of(storage.target)
    assert peak_of(lambda: place.find_texts(wanted_words("order"))) < 12_000_000
    assert peak_of(lambda: add_all(storage)) < 12_000_000
    assert len(found(place, "x" * 64)) == 200


def peak_of(call: Callable[[], object]) -> int:
    """How many bytes of Python's memory a call takes at most."""
    tracemalloc.start()
    try:
        call()
        _, peak = tracemalloc.get_traced_memory()
        return peak
    finally:
        tracemalloc.stop()


def test_only_the_newest_answers_tell_a_search_whether_there_are_texts(
    storage: SqlStorageProvider,
) -> None:
    """It does not read a whole table without texts. The pages do, beside themselves."""
    save(storage, answer("order"), *(aggregated() for _ in range(2_000)))
    with connect_reader(storage.target) as connection:
        assert not needs_index(connection, newest=2_000)
        assert needs_index(connection, newest=2_001)
        assert needs_index(connection)
    assert not add_answer_texts(storage.target, wait=False, now_ms=in_two_minutes())
    with connect_reader(storage.target) as connection:
        assert not has_index(connection)


@pytest.mark.backend
def test_a_search_waits_for_no_other_that_adds(postgresql: Any) -> None:
    storage = SqlStorageProvider(url=postgresql.url)
    impatient = SqlStorageProvider(url=f"{postgresql.url}?options=-c%20lock_timeout%3D200")
    save(storage, answer("order"))
    add_all(storage)
    save(storage, answer("order 2"))
    with closing(connect_writer(storage.target, durable=False)) as other, other.begin():
        assert add_texts(other, now_ms=in_two_minutes())
        assert not add_answer_texts(impatient.target, wait=False, now_ms=in_two_minutes())
        with pytest.raises(StorageError, match="lock timeout"):
            add_answer_texts(impatient.target, now_ms=in_two_minutes())


def test_a_tag_with_a_quotation_mark_is_searched(place: Any) -> None:
    stored = place(aggregated(agent="a", tags={'the "name"': "v"}), aggregated(agent="b"))
    assert found(stored, "", tag=('the "name"', "v")) == ["a"]
    assert found(stored, "", tag=('"', "v")) == []


def test_an_answer_with_endless_words_keeps_its_tags() -> None:
    words = {f"{number:064}" for number in range(3_000)} | {tag_word("tenant", "acme").text, "z"}
    line = line_of(words)
    assert len(line) <= 100_000
    assert line.startswith(f"{tag_word('tenant', 'acme').text} ")
    assert "z" not in line.split()


def test_words_that_were_deleted_before_a_restart_go(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    now_ns = time.time_ns()
    storage = SqlStorageProvider(path=path)
    old = [answer(f"{CANARY} {number}", agent="old", ended_ns=now_ns) for number in range(300)]
    save(storage, *old, answer("order", agent="new", ended_ns=now_ns))
    add_all(storage)
    assert len(found(database_of(storage.target), "grumbleq")) == 300
    change(
        path,
        # With every so many pages that are written FTS5 merges by itself, and would drop the words.
        "INSERT INTO agenteval_words (agenteval_words, rank) VALUES ('automerge', 0)",
        "INSERT INTO agenteval_words (agenteval_words, rank) VALUES ('crisismerge', 1000)",
        "PRAGMA secure_delete = ON",
        "DELETE FROM agenteval_evaluations WHERE agent = 'old'",
    )
    assert bytes_left(path)
    storage = SqlStorageProvider(path=path, keep_days=10)
    save(storage, *(answer("new", agent="new", ended_ns=now_ns) for _ in range(20)))
    assert bytes_left(path) == []


def test_changed_tags_leave_the_index(tmp_path: Path) -> None:
    """The changed answer is read anew: it is not older than a few minutes."""
    path = tmp_path / "results.db"
    storage = SqlStorageProvider(path=path)
    save(storage, answer("order", agent="a", tags={"tenant": "acme"}))
    add_all(storage)
    change(path, """UPDATE agenteval_evaluations SET tags = '{"tenant":"other"}'""")
    add_all(storage)
    place = database_of(storage.target)
    assert found(place, "", tag=("tenant", "acme")) == []
    assert found(place, "order", tag=("tenant", "other")) == ["a"]


def bytes_left(path: Path, text: str = CANARY) -> list[str]:
    """The files that have one of the words, or the end of one: FTS5 writes beginnings once."""
    parts = [word[3:].encode() for word in text.split()]
    return [
        file.name
        for file in path.parent.iterdir()
        if any(part in file.read_bytes() for part in parts)
    ]


def test_no_word_of_an_erased_text_is_left(tmp_path: Path) -> None:
    """Neither in the index nor in the log, also with a writer connected; others are found as before."""
    path = tmp_path / "results.db"
    storage = SqlStorageProvider(path=path)
    save(
        storage,
        *(answer(f"{CANARY} {number}", conversation_id="c") for number in range(300)),
        *(answer(f"xylo grumble {number}", agent=f"kept {number}") for number in range(300)),
    )
    add_all(storage)
    assert bytes_left(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM agenteval_texts").fetchone()
        assert storage.erase(Erasure(conversations=["c"])).problem == ""
        assert bytes_left(path) == []
    place = database_of(storage.target)
    assert found(place, "xylofonist") == []
    assert found(place, "grumble 7") == ["kept 7"]
    add_all(storage)
    assert bytes_left(path) == []


@pytest.mark.backend
def test_no_word_of_an_answer_is_added_after_its_erasure(postgresql: Any) -> None:
    """Erased between reading and adding: the erasure waits for it, or nothing is added."""
    storage = SqlStorageProvider(url=postgresql.url)
    impatient = SqlStorageProvider(url=f"{postgresql.url}?options=-c%20lock_timeout%3D200")
    save(storage, answer(CANARY, agent="kept"))
    add_all(storage)
    save(storage, answer(CANARY, conversation_id="c"))
    erasure = Erasure(conversations=["c"])
    tries: list[str] = []

    def erase(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("INSERT INTO agenteval_texts") and not tries:
            tries.append(statement)
            with contextlib.suppress(StorageError):  # it waited
                impatient.erase(erasure)

    with closing(connect_writer(storage.target, durable=False)) as connection:
        sa.event.listen(connection, "before_cursor_execute", erase)
        with connection.begin():
            add_texts(connection, now_ms=in_two_minutes())
    assert tries
    storage.erase(erasure)
    add_all(storage)
    assert found(database_of(storage.target), CANARY) == ["kept"]
    assert postgresql.query("SELECT count(*) FROM agenteval_texts WHERE words @@ 'xylofonist'") == [
        (1,)
    ]


@pytest.mark.backend
def test_an_answer_that_is_being_erased_keeps_no_page_waiting(postgresql: Any) -> None:
    storage = SqlStorageProvider(url=postgresql.url)
    save(storage, answer("order 0"))
    add_all(storage)
    save(storage, answer("order 1", agent="a"), answer("order 2", agent="b"))
    with (
        closing(connect_writer(storage.target, durable=False)) as other,
        closing(connect_writer(storage.target, durable=False)) as connection,
        other.begin(),
        connection.begin(),
    ):
        other.exec_driver_sql("DELETE FROM agenteval_evaluations WHERE agent = 'a'")
        connection.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
        assert add_texts(connection, now_ms=in_two_minutes())
    assert postgresql.query("SELECT count(*) FROM agenteval_texts") == [(2,)]


def test_keep_days_reaches_the_index(tmp_path: Path) -> None:
    """Deleted words go with the batches that follow, a few at a time."""
    path = tmp_path / "results.db"
    old_ns = int(datetime.now(UTC).timestamp() * 1e9) - 20 * DAY_NS
    save(
        SqlStorageProvider(path=path),
        *(answer(f"{CANARY} {number}", ended_ns=old_ns) for number in range(700)),
        *(answer(f"order {number}", ended_ns=old_ns + 20 * DAY_NS) for number in range(50)),
    )
    storage = SqlStorageProvider(path=path, keep_days=10)
    add_all(storage)
    assert bytes_left(path)
    save(storage, *(answer("new", agent="new") for _ in range(20)))
    assert bytes_left(path) == []
    assert found(database_of(storage.target), "xylofonist") == []
    assert len(found(database_of(storage.target), "order")) == 50


def test_rows_that_others_delete_or_change_leave_the_index(storage: SqlStorageProvider) -> None:
    """By SQL, or by a package that knows no index."""
    save(storage, answer("order 1", agent="a"), answer("order 2", agent="b"))
    add_all(storage)
    with connect_reader(storage.target) as connection:
        kept = connection.execute(sa.text("SELECT count(*) FROM agenteval_texts")).scalar_one()
        assert kept == 2
    storage.erase(Erasure(before=datetime(2100, 1, 1, tzinfo=UTC)))
    assert found(database_of(storage.target), "order") == []
    with connect_reader(storage.target) as connection:
        left = connection.execute(sa.text("SELECT count(*) FROM agenteval_texts")).scalar_one()
        assert left == 0


def test_words_stand_where_they_are_marked() -> None:
    text = "Ein Café, CAFÉS 我想退款吗 refund Refunded."
    places = places_of(text, wanted_words("cafe 退款吗 refund"))
    assert [text[begin:end] for begin, end in places] == [
        "Café",
        "CAFÉS",
        "退款",
        "吗",
        "refund",
        "Refunded",
    ]


def test_a_word_is_the_same_in_every_form() -> None:
    assert words_of("ÄRGER ärger A\u0308rger ﬁne") == {"arger", "fine"}
    assert words_of("हिन्दी") == words_of("हिन्दी!")
