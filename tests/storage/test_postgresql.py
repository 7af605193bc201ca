"""A real PostgreSQL: restarts, hang-ups, servers that hang or are not there, several writers,
secrets.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from agenteval_otel.errors import StorageError
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.storage.sql_database import connect_reader
from tests.backends.faults import free_ports
from tests.backends.postgresql import PASSWORD, PostgreSQL
from tests.storage.samples import aggregated, run_saving, save

pytestmark = pytest.mark.backend

SECRETS = (PASSWORD, "pass%2Fw%40rd-canary")


@pytest.fixture
def server(postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    """A server that the test may stop."""
    yield postgresql
    if not postgresql.running:
        postgresql.start()


def test_a_connection_that_was_lost_is_made_anew(server: PostgreSQL) -> None:
    """After a hang-up or a restart the next result is stored, once; without a server a save names
    the place alone.
    """
    storage = SqlStorageProvider(url=server.url)

    async def work() -> None:
        await storage.save_result(aggregated(agent="first"))
        server.hang_up()
        await storage.save_result(aggregated(agent="hang-up"))
        server.stop()
        with pytest.raises(
            StorageError, match=r"postgresql\+psycopg://\*\*\*@127\.0\.0\.1"
        ) as caught:
            await storage.save_result(aggregated())
        assert not any(
            secret in f"{caught.value!r}{caught.value.__cause__!r}" for secret in SECRETS
        )
        server.start()
        await storage.save_result(aggregated(agent="restart"))
        await storage.close()

    asyncio.run(work())
    assert [item.agent for item in storage.query(criterion="tone")][::-1] == [
        "first",
        "hang-up",
        "restart",
    ]


def test_nobody_shows_the_password(server: PostgreSQL) -> None:
    """Neither `repr`, dumps nor errors show the password; only a dump with secrets does."""
    storage = SqlStorageProvider(url=server.url)
    wrong = SqlStorageProvider(url=server.url.replace("canary", "wrong-canary"))
    with pytest.raises(StorageError, match="authentication") as refused:
        wrong.query()
    (port,) = free_ports(1)
    with pytest.raises(StorageError) as nobody:
        SqlStorageProvider(url=f"postgresql://u:{SECRETS[1]}@127.0.0.1:{port}/x").query()
    shown = [
        repr(storage),
        str(storage.model_dump()),
        storage.model_dump_json(),
        storage.fingerprint,
        repr(storage.batcher),
        str(refused.value),
        str(nobody.value),
    ]
    assert not [text for text in shown if "canary" in text]
    assert "canary" in str(storage.model_dump(context={"secrets": True}))


def test_several_make_the_tables_at_once(server: PostgreSQL) -> None:
    """Writers that all come first make one set of tables, and each stores its own."""
    barrier = threading.Barrier(6)
    failed: list[BaseException] = []

    def work() -> None:
        storage = SqlStorageProvider(url=server.url)
        barrier.wait(30)
        try:
            save(storage, *[aggregated()] * 5)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert server.query("SELECT count(*) FROM agenteval_evaluations") == [(30,)]
    assert server.query("SELECT version FROM agenteval_schema") == [(1,)]


def test_its_lock_is_taken_only_where_a_table_is_missing(server: PostgreSQL) -> None:
    """The first writer, and one after a table was dropped, takes the advisory lock; all others do
    without.
    """
    statements: list[str] = []

    def keep(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", keep)
    try:
        for locks in (1, 0, 1):
            statements.clear()
            save(SqlStorageProvider(url=server.url), aggregated())
            assert sum("pg_advisory_xact_lock" in statement for statement in statements) == locks
            if not locks:
                server.query("DROP TABLE agenteval_results")
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", keep)


def test_times_are_times(server: PostgreSQL) -> None:
    """A dashboard filters by a column of moments; indices stand on what is asked for; a query
    cannot write.
    """
    storage = SqlStorageProvider(url=server.url)
    save(storage, aggregated(ended_ns=1_700_000_000 * 10**9))
    requests = (
        "SELECT count(*) FROM agenteval_results WHERE evaluated_at = to_timestamp(1700000000)"
    )
    assert server.query(requests) == [(3,)]
    indices = {
        name
        for (name,) in server.query("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")
    }
    assert {
        f"agenteval_results_{name}" for name in ("time", "criterion", "agent", "score", "trace")
    } <= indices
    with (
        pytest.raises(StorageError, match="ReadOnly"),
        connect_reader(storage.target) as connection,
    ):
        connection.execute(sa.text("CREATE TABLE x (y int)"))


def test_a_fork_leaves_the_connection_alone(server: PostgreSQL) -> None:
    """A forked child connects by itself and closes nothing of its parent's, whose connection goes
    on.
    """
    finished = run_saving(
        """
        save()
        database = storage.batcher._sink
        server_side = lambda: database._connection.connection.dbapi_connection.info.backend_pid
        before = server_side()
        if os.fork() == 0:
            save()
            asyncio.run(storage.close())
            sys.exit(0)  # and not past the destructors
        print("code", os.wait()[1])
        save()
        print("same", server_side() == before)
        asyncio.run(storage.close())
        """,
        server.url,
    )
    assert finished.lines("code") == ["0"], finished.stderr
    assert finished.lines("same") == ["True"], finished.stderr
    assert server.query("SELECT count(*) FROM agenteval_evaluations") == [(3,)]
