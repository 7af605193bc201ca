"""Ground truth from a database: a real SQLite, a real PostgreSQL, and what is wrong with either."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, configure, flush, monitor
from agenteval_otel.config import SettingsError, default_pipeline
from agenteval_otel.errors import ConfigurationError, GroundTruthError
from agenteval_otel.evaluators import ExactMatch
from agenteval_otel.evaluators.ground_truth import GroundTruth, SqlGroundTruthStore
from agenteval_otel.testing import check_ground_truth
from tests.backends.faults import black_hole, free_ports
from tests.backends.postgresql import PostgreSQL
from tests.ground_truth.support import pass_time
from tests.testing.doubles import Keeping

DUE = "When is it due?"
NOON = GroundTruth(answer="At noon.")
ROWS = [
    (DUE, "On Monday.", "Loans", "library"),
    (DUE, "At noon.", None, None),
    ('It\'s 5 % "off"; DROP TABLE faq --', "Yes.", None, None),
    ("Blank?", "", None, None),
]
QUERY = "SELECT answer, category FROM faq WHERE lower(question) = lower(:prompt) AND module IS NULL"
COLUMNS = {"prompt": "question", "module": "module", "category": "category"}
CREATE = "CREATE TABLE faq (question text, answer text, category text, module text)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "faq.db"
    with sqlite3.connect(path) as connection:
        connection.execute(CREATE)
        connection.executemany("INSERT INTO faq VALUES (?, ?, ?, ?)", ROWS)
    connection.close()
    return path


@pytest.fixture
def server(postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    """A server with the table, which the test may stop."""
    postgresql.query(CREATE)
    for row in ROWS:
        values = ", ".join(
            "NULL" if cell is None else "'" + cell.replace("'", "''") + "'" for cell in row
        )
        postgresql.query(f"INSERT INTO faq VALUES ({values})")
    yield postgresql
    if not postgresql.running:
        postgresql.start()


class Database:
    """The table in a file or on a server: makes stores of it, and changes it."""

    def __init__(self, place: dict[str, Any], change: Callable[[str], object]) -> None:
        self.change = change
        self._place = place

    def store(self, **fields: Any) -> SqlGroundTruthStore:
        return SqlGroundTruthStore(**self._place, timeout_s=10, **fields)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.backend)])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    if request.param == "sqlite":
        path = request.getfixturevalue("file")
        connection = sqlite3.connect(path, isolation_level=None)
        yield Database({"path": path}, connection.execute)
        connection.close()
    else:
        server = request.getfixturevalue("server")
        yield Database({"url": server.url}, server.query)


def found(store: SqlGroundTruthStore, prompt: str | None, **fields: Any) -> GroundTruth | None:
    return asyncio.run(store.find(EvaluationInput(prompt=prompt, response="x", **fields)))


def reason(store: SqlGroundTruthStore, prompt: str = DUE) -> str:
    with pytest.raises(GroundTruthError) as raised:
        found(store, prompt)
    assert prompt not in str(raised.value)
    return raised.value.reason


def test_a_query_finds_the_answer(database: Database) -> None:
    """Parameters are bound, whatever is in them; a row without an answer is none."""
    store = database.store(query=QUERY)
    assert found(store, "WHEN is it due?") == NOON
    assert found(store, ROWS[2][0]) == GroundTruth(answer="Yes.")
    assert [found(store, prompt) for prompt in ("Never?", "Blank?", "", None, " ")] == [None] * 5
    check_ground_truth(store)


def test_a_table_finds_the_row_of_the_module(database: Database) -> None:
    """Its own row comes first, then one without a module; other modules' rows are not looked at."""
    store = database.store(table="faq", columns=COLUMNS)
    of_module = GroundTruth(answer="On Monday.", prompt=DUE, category="Loans", module="library")
    assert found(store, DUE, agent="library") == of_module
    answer = found(store, DUE, agent="shop")
    assert answer is not None
    assert (answer.answer, answer.module) == ("At noon.", None)
    assert found(store, "when is it due?", agent="library") is None


def test_answers_may_be_data(database: Database) -> None:
    """Numbers, and whatever else has a form in JSON."""
    assert found(database.store(query="SELECT 4.5 WHERE :prompt <> ''"), "abc") in (
        GroundTruth(answer=4.5),
        GroundTruth(answer="4.5"),
    )
    assert found(
        database.store(query="SELECT 7 AS answer, :prompt AS prompt"), "abc"
    ) == GroundTruth(answer=7, prompt="abc")


def test_what_was_asked_is_remembered(database: Database) -> None:
    """Rows and their absence, so many and for so long; an answer that is long is asked for again."""
    store = database.store(query=QUERY, cache_size=2)
    others = [database.store(query=QUERY, **none) for none in ({"cache_s": 0}, {"cache_size": 0})]
    one = GroundTruth(answer="At one.")
    for asked in (store, *others):
        assert found(asked, DUE) == NOON
    assert found(store, "Never?") is None
    database.change("UPDATE faq SET answer = 'At one.' WHERE answer = 'At noon.'")
    database.change("INSERT INTO faq VALUES ('Never?', 'Now.', NULL, NULL)")
    for forgets in others:
        assert found(forgets, DUE) == one
    assert found(store, DUE) == NOON
    assert found(store, "Never?") is None
    found(store, "Other?")  # a third one: the oldest is forgotten
    assert found(store, DUE) == one
    long = database.store(query="SELECT max(answer) || :prompt AS answer FROM faq")
    prompt = "x" * 20_000
    before = found(long, prompt)
    database.change("INSERT INTO faq VALUES ('Last?', 'Zzz.', NULL, NULL)")
    assert found(long, prompt) != before


def test_it_only_reads(database: Database) -> None:
    """A statement that writes is refused by the database."""
    store = database.store(
        query="INSERT INTO faq VALUES (:prompt, 'x', NULL, NULL) RETURNING answer"
    )
    assert reason(store) in ("query", "unreachable")
    assert found(database.store(query="SELECT count(*) FROM faq"), "x") == GroundTruth(answer=4)


def test_a_wrong_statement_is_named(database: Database) -> None:
    """The table is not there: counted as such, and asked again at once."""
    store = database.store(table="no_such_table")
    assert [reason(store), reason(store)] == ["query", "query"]


def test_a_file_that_is_away_comes_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for a while, then found."""
    store = SqlGroundTruthStore(path=file, query=QUERY)
    moved = file.rename(file.with_suffix(".moved"))
    assert [reason(store), reason(store)] == ["unreachable", "unreachable"]
    moved.rename(file)
    assert reason(store) == "unreachable"
    pass_time(monkeypatch, 6.0)
    assert found(store, DUE) == NOON


@pytest.mark.backend
def test_a_server_that_is_away_comes_back(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart, a hang-up, a server that hangs, and nothing that shows the password."""
    store = SqlGroundTruthStore(url=server.url, query=QUERY, timeout_s=2, cache_size=0)
    assert found(store, DUE) == NOON
    server.hang_up()
    assert found(store, DUE) == NOON
    server.pause()
    try:
        assert reason(store) == "timeout"
    finally:
        server.resume()
    pass_time(monkeypatch, 6.0)
    server.stop()
    with pytest.raises(GroundTruthError) as raised:
        found(store, DUE)
    assert raised.value.reason == "unreachable"
    for secret in ("canary", "pass/w@rd"):
        assert secret not in f"{raised.value} {store!r} {store.model_dump_json()}"
    server.start()
    pass_time(monkeypatch, 6.0)
    assert found(store, DUE) == NOON


@pytest.mark.backend
def test_a_slow_statement_ends_on_the_server(server: PostgreSQL) -> None:
    """Its time limit is the server's too: nothing goes on behind the back of a store that no longer
    waits.
    """
    store = SqlGroundTruthStore(
        url=server.url, query="SELECT pg_sleep(30)::text || :prompt", timeout_s=0.5
    )
    assert reason(store) == "timeout"
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid() "
    deadline = time.monotonic() + 10
    while server.query(running + "AND state = 'active'") != [(0,)] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.query(running + "AND state = 'active'") == [(0,)]


def test_the_host_waits_for_no_database() -> None:
    """A server that takes connections and says nothing costs each answer its ground truth alone,
    with the reason.
    """
    kept = Keeping()
    with black_hole() as hole:
        configure(
            evaluators=[ExactMatch()],
            storage=[kept],
            sample_rate=1.0,
            dispatcher={"type": "pool", "linger_s": 0.0},
            ground_truth={
                "type": "sql",
                "url": f"postgresql://a:b@127.0.0.1:{hole.port}/x",
                "table": "faq",
                "timeout_s": 0.3,
            },
        )
        handler = monitor(agent="shop")(lambda question: "At noon.")
        for _ in range(50):
            handler("When?")
        assert flush(20.0)
    assert [result.skip_reason for result in kept.results] == ["no ground truth"] * 50
    counted = default_pipeline().accounting.failures
    assert sum(counted.values()) == 50
    assert set(counted) <= {"ground_truth:timeout", "ground_truth:unreachable", "ground_truth:busy"}
    assert counted["ground_truth:timeout"] >= 1


def test_lookups_that_wait_are_bounded() -> None:
    """While the database says nothing, as many run as it has connections, and 256 wait."""

    async def ask_all(store: SqlGroundTruthStore) -> list[Any]:
        inputs = [EvaluationInput(prompt=f"{number}?", response="x") for number in range(300)]
        lookups = [store.find(each) for each in inputs]
        return await asyncio.gather(*lookups, return_exceptions=True)

    with black_hole() as hole:
        url = f"postgresql://a:b@127.0.0.1:{hole.port}/x"
        store = SqlGroundTruthStore(url=url, table="faq", connections=2, timeout_s=1.0)
        outcomes = asyncio.run(ask_all(store))
    counts = Counter(error.reason for error in outcomes)
    assert counts.keys() == {"busy", "timeout"}
    assert counts["busy"] in (42, 43, 44)  # the two threads may take theirs a little later


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"query": QUERY}, "'path', an SQLite file, or 'url'"),
        ({"path": "x.db"}, "'query', a SELECT, or 'table'"),
        ({"path": "x.db", "query": QUERY, "table": "faq"}, "'query', a SELECT, or 'table'"),
        (
            {"path": "x.db", "query": "SELECT :question"},
            "unknown parameter :question in query. Known: :prompt",
        ),
        ({"path": "x.db", "table": "faq; DROP TABLE faq"}, "the name of a table"),
        (
            {"path": "x.db", "table": "faq", "columns": {"question": "q"}},
            "'question'. Known: prompt, answer",
        ),
        ({"path": "x.db", "table": "faq", "columns": {"prompt": "q-1"}}, "'q-1'"),
        ({"path": "x.db", "query": QUERY, "columns": {"prompt": "q"}}, "A query names its own"),
        ({"url": "mysql://a/b", "query": QUERY}, "expected sqlite:///"),
        ({"path": "x.db", "query": QUERY, "connections": 0}, "connections"),
    ],
)
def test_wrong_settings_say_what_is_expected(fields: dict[str, Any], wrong: str) -> None:
    """At load, with the field and the choices."""
    with pytest.raises(ConfigurationError) as raised:
        SqlGroundTruthStore(**fields)
    assert wrong in str(raised.value)
    with pytest.raises(SettingsError, match="ground_truth"):
        configure(ground_truth={"type": "sql", **fields})


def test_colons_that_are_no_parameters_are_left_alone(file: Path) -> None:
    """Casts, and times in text."""
    store = SqlGroundTruthStore(path=file, query="SELECT '12\\:30' || :prompt AS answer")
    assert found(store, "x") == GroundTruth(answer="12:30x")


def test_sqlalchemy_comes_with_the_first_store(file: Path) -> None:
    """The package loads no library of it; a store loads it, so that no lookup has to, and finds
    within its time.
    """
    program = (
        "import sys, asyncio; from agenteval_otel import EvaluationInput\n"
        "from agenteval_otel.ground_truth import SqlGroundTruthStore\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        f"store = SqlGroundTruthStore(path={str(file)!r}, table='faq', columns={{'prompt': 'question'}}, timeout_s=5)\n"
        "before = set(sys.modules)\n"
        "print(asyncio.run(store.find(EvaluationInput(prompt='Blank?', response='x'))), 'sqlalchemy' in before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "None True\n"


def test_a_forked_child_asks_by_itself(database: Database) -> None:
    """The connection stays the parent's."""
    store = database.store(query=QUERY, cache_size=0)
    assert found(store, DUE) == NOON
    if (child := os.fork()) == 0:
        os._exit(0 if found(store, DUE) == NOON else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert found(store, DUE) == NOON


def test_no_server_at_all() -> None:
    """A refused connection is known at once."""
    (port,) = free_ports(1)
    assert (
        reason(SqlGroundTruthStore(url=f"postgresql://a:b@127.0.0.1:{port}/x", table="faq"))
        == "unreachable"
    )
