"""Ground truth from a database: a real SQLite, a real PostgreSQL, and what is wrong with either."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, configure, flush, monitor
from agenteval_otel.config import SettingsError, default_pipeline
from agenteval_otel.errors import ConfigurationError, GroundTruthError
from agenteval_otel.evaluators import ExactMatch
from agenteval_otel.evaluators.ground_truth import GroundTruth, SqlGroundTruthStore, sql_store
from agenteval_otel.testing import check_ground_truth
from tests.backends.faults import black_hole, free_ports
from tests.backends.postgresql import PostgreSQL
from tests.testing.doubles import Keeping

ROWS = [
    ("When is it due?", "On Monday.", "Loans", "library"),
    ("When is it due?", "At noon.", None, None),
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


Open = Callable[..., SqlGroundTruthStore]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.backend)])
def open_store(request: pytest.FixtureRequest) -> Open:
    """Makes stores of the table, in a file or on the server."""
    if request.param == "sqlite":
        place: dict[str, Any] = {"path": request.getfixturevalue("file")}
    else:
        place = {"url": request.getfixturevalue("server").url}
    return lambda **fields: SqlGroundTruthStore(**place, timeout_s=10, **fields)


def found(store: SqlGroundTruthStore, prompt: str | None, **fields: Any) -> GroundTruth | None:
    return asyncio.run(store.find(EvaluationInput(prompt=prompt, response="x", **fields)))


def reason(store: SqlGroundTruthStore, prompt: str = "When is it due?") -> str:
    with pytest.raises(GroundTruthError) as raised:
        found(store, prompt)
    assert prompt not in str(raised.value)
    return raised.value.reason


def test_a_query_finds_the_answer(open_store: Open) -> None:
    """Parameters are bound, whatever is in them; a row without an answer is none."""
    store = open_store(query=QUERY)
    assert found(store, "WHEN is it due?") == GroundTruth(answer="At noon.")
    assert found(store, ROWS[2][0]) == GroundTruth(answer="Yes.")
    assert [found(store, prompt) for prompt in ("Never?", "Blank?", "", None, " ")] == [None] * 5
    check_ground_truth(store)


def test_a_table_finds_the_row_of_the_module(open_store: Open) -> None:
    """Its own row comes first, then one without a module; other modules' rows are not looked at."""
    store = open_store(table="faq", columns=COLUMNS)
    of_module = GroundTruth(
        answer="On Monday.", prompt="When is it due?", category="Loans", module="library"
    )
    assert found(store, "When is it due?", agent="library") == of_module
    answer = found(store, "When is it due?", agent="shop")
    assert answer is not None
    assert (answer.answer, answer.module) == ("At noon.", None)
    assert found(store, "when is it due?", agent="library") is None


def test_answers_may_be_data(open_store: Open) -> None:
    """Numbers, and whatever else has a form in JSON."""
    assert found(open_store(query="SELECT 4.5 WHERE :prompt <> ''"), "abc") in (
        GroundTruth(answer=4.5),
        GroundTruth(answer="4.5"),
    )
    assert found(open_store(query="SELECT 7 AS answer, :prompt AS prompt"), "abc") == GroundTruth(
        answer=7, prompt="abc"
    )


def test_what_was_asked_is_remembered(open_store: Open, request: pytest.FixtureRequest) -> None:
    """Rows and their absence, so many and for so long; an answer that is long is asked for again."""
    store = open_store(query=QUERY, cache_size=2)
    asked: list[str] = []
    lookups = store._lookups
    ask = lookups._ask

    def counted(parameters: Any) -> GroundTruth | None:
        asked.append(parameters["prompt"])
        return ask(parameters)

    lookups._ask = counted  # type: ignore[method-assign]
    for prompt in (
        "When is it due?",
        "Never?",
        "When is it due?",
        "Never?",
        "Other?",
        "When is it due?",
    ):
        found(store, prompt)
    assert asked == ["When is it due?", "Never?", "Other?", "When is it due?"]
    assert len(lookups._known) == 2
    for fields in ({"cache_s": 0}, {"cache_size": 0}):
        forgets = open_store(query=QUERY, **fields)
        assert found(forgets, "When is it due?") == found(forgets, "When is it due?")
        assert len(forgets._lookups._known) <= 1


def test_it_only_reads(open_store: Open) -> None:
    """A statement that writes is refused by the database."""
    store = open_store(query="INSERT INTO faq VALUES (:prompt, 'x', NULL, NULL) RETURNING answer")
    assert reason(store) in ("query", "unreachable")
    assert found(open_store(query="SELECT count(*) FROM faq"), "x") == GroundTruth(answer=4)


def test_a_wrong_statement_is_named(open_store: Open) -> None:
    """The table is not there: counted as such, and asked again at once."""
    store = open_store(table="no_such_table")
    assert [reason(store), reason(store)] == ["query", "query"]


def test_a_file_that_is_away_comes_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for a while, then found."""
    store = SqlGroundTruthStore(path=file, query=QUERY)
    moved = file.rename(file.with_suffix(".moved"))
    assert [reason(store), reason(store)] == ["unreachable", "unreachable"]
    moved.rename(file)
    assert reason(store) == "unreachable"
    store._lookups._away_until_s = 0.0
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")


@pytest.mark.backend
def test_a_server_that_is_away_comes_back(server: PostgreSQL) -> None:
    """A restart, a hang-up, a server that hangs, and nothing that shows the password."""
    store = SqlGroundTruthStore(url=server.url, query=QUERY, timeout_s=2, cache_size=0)
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")
    server.hang_up()
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")
    server.pause()
    try:
        assert reason(store) == "timeout"
    finally:
        server.resume()
    store._lookups._away_until_s = 0.0
    server.stop()
    with pytest.raises(GroundTruthError) as raised:
        found(store, "When is it due?")
    assert raised.value.reason == "unreachable"
    for secret in ("canary", "pass/w@rd"):
        assert secret not in f"{raised.value} {store!r} {store.model_dump_json()}"
    server.start()
    store._lookups._away_until_s = 0.0
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")


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


def test_lookups_are_side_by_side_and_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than its connections, and no more wait than there is room for."""
    monkeypatch.setattr(sql_store, "_MAX_WAITING", 3)
    store = SqlGroundTruthStore(path=file, query=QUERY, connections=2, cache_size=0, timeout_s=10)
    lookups, leave, entered = store._lookups, threading.Event(), threading.Event()

    def ask(parameters: Any) -> None:
        entered.set()
        leave.wait(10)

    lookups._ask = ask  # type: ignore[method-assign, assignment]

    async def work() -> list[Any]:
        inputs = [EvaluationInput(prompt=f"{number}?", response="x") for number in range(10)]
        tasks = [asyncio.create_task(store.find(each)) for each in inputs]  # type: ignore[arg-type]
        await asyncio.to_thread(entered.wait, 10)
        leave.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(work())
    refused = [error.reason for error in outcomes if isinstance(error, GroundTruthError)]
    assert set(refused) == {"busy"}
    assert len(refused) in (5, 6, 7)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"query": QUERY}, "'path', an SQLite file, or 'url'"),
        ({"path": "x.db"}, "'query', a SELECT, or 'table'"),
        ({"path": "x.db", "query": QUERY, "table": "faq"}, "'query', a SELECT, or 'table'"),
        (
            {"path": "x.db", "query": "SELECT :question"},
            "unknown parameter :question in query; known: :prompt",
        ),
        ({"path": "x.db", "table": "faq; DROP TABLE faq"}, "the name of a table"),
        (
            {"path": "x.db", "table": "faq", "columns": {"question": "q"}},
            "'question'; known: prompt, answer",
        ),
        ({"path": "x.db", "table": "faq", "columns": {"prompt": "q-1"}}, "'q-1'"),
        ({"path": "x.db", "query": QUERY, "columns": {"prompt": "q"}}, "a query names its own"),
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


def test_a_forked_child_asks_by_itself(open_store: Open) -> None:
    """The connection stays the parent's."""
    store = open_store(query=QUERY, cache_size=0)
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")
    if (child := os.fork()) == 0:
        os._exit(0 if found(store, "When is it due?") == GroundTruth(answer="At noon.") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert found(store, "When is it due?") == GroundTruth(answer="At noon.")


def test_no_server_at_all() -> None:
    """A refused connection is known at once."""
    (port,) = free_ports(1)
    assert (
        reason(SqlGroundTruthStore(url=f"postgresql://a:b@127.0.0.1:{port}/x", table="faq"))
        == "unreachable"
    )
