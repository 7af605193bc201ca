"""SQLite files: rights, several processes, forks, locks, files that go away; and what is refused at
load.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.storage.sql_database import connect_writer
from tests.promises.programs import run_program
from tests.storage.samples import aggregated, change, run_saving, save, scored


def count(path: Path) -> int:
    """How many evaluations are stored; the file is whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        actual: int = connection.execute("SELECT count(*) FROM agenteval_evaluations").fetchone()[0]
        return actual


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """The database, what SQLite makes beside it, the lock and the folders are their owner's alone."""
    path = tmp_path / "deep" / "er" / "results.db"
    storage = SqlStorageProvider(path=path)

    async def work() -> set[str]:
        await storage.save_result(aggregated())
        files = list(path.parent.iterdir())
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        await storage.close()
        return {file.name for file in files}

    assert asyncio.run(work()) == {
        "results.db",
        "results.db-wal",
        "results.db-shm",
        "results.db.lock",
    }
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path.parent, path.parent.parent)} == {
        0o700
    }


def test_nothing_is_loaded_before_the_first_result(tmp_path: Path) -> None:
    """Neither the package, the room nor a provider loads SQLAlchemy or a driver; the first result
    does.
    """
    finished = run_program(
        """
        import asyncio, sys
        import agenteval_otel, agenteval_otel.storage
        from agenteval_otel.models import AggregatedEvaluationResult
        from agenteval_otel.storage import SqlStorageProvider
        loaded = lambda: [name for name in ("sqlalchemy", "psycopg", "sqlite3") if name in sys.modules]
        storage = SqlStorageProvider(path=sys.argv[1])
        SqlStorageProvider(url="postgresql://u:p@127.0.0.1/x")
        print("before", loaded())
        asyncio.run(storage.save_result(AggregatedEvaluationResult()))
        print("after", loaded())
        """,
        str(tmp_path / "x.db"),
    )
    assert finished.lines("before") == ["[]"], finished.stderr
    assert finished.lines("after") == ["['sqlalchemy', 'sqlite3']"]


@pytest.mark.parametrize(("missing", "extra"), [("sqlalchemy", "sql"), ("psycopg", "postgresql")])
def test_a_missing_extra_is_named_at_load(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without SQLAlchemy, or without PostgreSQL's driver, the error names the extra to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(ConfigurationError, match=rf'pip install "agenteval-otel\[{extra}\]"'):
        SqlStorageProvider.load({"url": "postgresql://u@127.0.0.1/x"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "either 'path'"),
        ({"path": "x.db", "url": "sqlite:///x.db"}, "either 'path'"),
        ({"url": "mysql://u@h/x"}, "postgresql://"),
        ({"url": "results.db"}, "sqlite:///<file>"),
        ({"url": "sqlite://"}, "in memory"),
        ({"url": "sqlite:///:memory:"}, "in memory"),
        ({"url": "postgresql://u:secret-word@h:x/d"}, "port"),
        ({"path": "x.db", "keep_days": 0}, "keep_days"),
        ({"url": "postgresql://u:secret-word/@h/d"}, "%2F"),
        ({"path": "x.db", "fsync": "always"}, "fsync"),
        ({"path": "x.db", "table": "t"}, "unknown field"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    """Each is an error at load that names what is expected, without a secret."""
    with pytest.raises(ConfigurationError) as caught:
        SqlStorageProvider.load(wrong)
    assert message in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_an_address_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``sqlite:///`` names a file below the present folder, with one more slash one from the root."""
    monkeypatch.chdir(tmp_path)
    save(SqlStorageProvider(url="sqlite:///here.db"), aggregated())
    save(SqlStorageProvider(url=f"sqlite:///{tmp_path}/there.db"), aggregated())
    assert (count(tmp_path / "here.db"), count(tmp_path / "there.db")) == (1, 1)


def test_a_missing_database_is_an_error(tmp_path: Path) -> None:
    """Querying a missing file is an error and does not create it; another program's database has no
    tables.
    """
    path = tmp_path / "x.db"
    with pytest.raises(StorageError, match="no such database"):
        SqlStorageProvider(path=path).query()
    assert not path.exists()
    change(path, "CREATE TABLE theirs (x)")
    with pytest.raises(StorageError, match="no such table"):
        SqlStorageProvider(path=path).query()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="not a database"):
        save(SqlStorageProvider(path=path), aggregated())


def test_tables_without_the_newest_columns_get_them(tmp_path: Path) -> None:
    """A database of a package that knew fewer columns is written and read, with what it held."""
    storage = SqlStorageProvider(path=tmp_path / "x.db")
    save(storage, aggregated(scored()))
    for table in ("agenteval_evaluations", "agenteval_results"):
        for column in ("tags", "prompt_version"):
            change(tmp_path / "x.db", f"ALTER TABLE {table} DROP COLUMN {column}")
    again = SqlStorageProvider(path=tmp_path / "x.db")
    save(again, aggregated(scored(), prompt_version="3", tags={"tenant": "acme"}))
    assert [item.prompt_version for item in again.query()] == ["3", None]
    assert len(again.query(tags={"tenant": "acme"})) == 1


@pytest.mark.parametrize("gone", ["file", "table"])
def test_what_goes_away_is_made_anew(tmp_path: Path, gone: str) -> None:
    """No result goes into a file that nobody sees any more; a table that is missing costs the saves
    that meet it.
    """
    path = tmp_path / "x.db"
    storage = SqlStorageProvider(path=path)

    async def work() -> None:
        await storage.save_result(aggregated())
        if gone == "file":
            for beside in ("", "-wal", "-shm"):
                path.with_name(f"x.db{beside}").unlink()
        else:
            change(path, "DROP TABLE agenteval_results")
            with pytest.raises(StorageError, match="no such table"):
                await storage.save_result(aggregated())
        await storage.save_result(aggregated())
        await storage.save_result(aggregated())
        await storage.close()

    asyncio.run(work())
    assert len(storage.query()) == 6


def test_a_fork_within_a_write_leaves_the_child_without_it(tmp_path: Path) -> None:
    """A child that was forked while a write hung does not touch the file: its saves fail and say
    why.
    """
    finished = run_saving(
        """
        entered, goes_on, insert = threading.Event(), threading.Event(), sql_database.insert_rows

        def slow(connection, items):
            insert(connection, items)
            if not entered.is_set():
                entered.set()
                goes_on.wait(20)

        sql_database.insert_rows = slow
        thread = threading.Thread(target=save)
        thread.start()
        entered.wait(20)
        if os.fork() == 0:
            try:
                save()
            except StorageError as error:
                print("child", error, flush=True)
            os._exit(0)
        os.wait()
        goes_on.set()
        thread.join()
        save()
        """,
        tmp_path / "x.db",
    )
    assert "forked during a write" in finished.lines("child")[0], finished.stderr
    assert count(tmp_path / "x.db") == 2


def test_a_durable_one_waits_for_the_disk(tmp_path: Path) -> None:
    """With ``fsync: batch`` every commit is on the disk before its results count as saved."""
    for fsync, wanted in (("never", 1), ("batch", 2)):
        storage = SqlStorageProvider.load({"path": str(tmp_path / fsync), "fsync": fsync})
        with connect_writer(storage.target, durable=fsync == "batch") as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == wanted
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_fork_moves_no_log_into_the_database(tmp_path: Path) -> None:
    """Closing the connection before a fork leaves the log for our own thread: the host's thread
    waits for no disk.
    """
    finished = run_saving(
        """
        files = lambda: (os.stat(path + "-wal").st_size, os.stat(path).st_mtime_ns)
        for _ in range(5):
            save()
        before = files()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        print("same", before == files(), before[0] > 0)
        save()
        asyncio.run(storage.close())
        print("after", os.path.exists(path + "-wal"))
        """,
        tmp_path / "x.db",
    )
    assert finished.lines("same") == ["True True"], finished.stderr
    assert finished.lines("after") == ["False"]
    assert count(tmp_path / "x.db") == 6


def test_an_unreadable_row_is_an_error(tmp_path: Path) -> None:
    """Endless names and lone surrogates are found under what was made of them; a row that somebody
    spoilt is named.
    """
    path, name = tmp_path / "x.db", "long \ud800" * 100
    storage = SqlStorageProvider(path=path)
    save(storage, aggregated(scored(name, probability=1e-320), agent=name))
    (stored,) = storage.query(criterion=name, agent=name, limit=2**63 - 1)
    assert stored.weight == 1.0
    assert storage.read("\ud800") is None
    change(path, "UPDATE agenteval_results SET details = 'no JSON'")
    with pytest.raises(StorageError, match="cannot be read"):
        storage.query()


def test_two_that_write_one_file_in_a_process_lose_nothing(tmp_path: Path) -> None:
    """A second provider of the file, in the same process, does not cost the first one its locks at
    the file.
    """
    finished = run_saving(
        """
        if len(sys.argv) > 2:  # another process, which closes the database
            save()
            asyncio.run(storage.close())
            sys.exit()
        second = SqlStorageProvider(url=address)
        save()
        save(provider=second)
        subprocess.run([*sys.orig_argv, "other"], check=True)
        save()
        save(provider=second)
        print("log", os.path.exists(path + "-wal"), flush=True)
        os._exit(0)
        """,
        tmp_path / "x.db",
    )
    assert finished.lines("log") == ["True"], finished.stderr
    assert count(tmp_path / "x.db") == 5
