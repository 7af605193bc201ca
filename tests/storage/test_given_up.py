"""Storage that is cancelled, forked, refused by the disk, or whose files and tables change."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider, batcher
from agenteval_otel.storage.batcher import ResultBatcher
from agenteval_otel.storage.line_file import LineFile
from tests.promises.programs import run_program
from tests.storage.samples import aggregated, scored
from tests.storage.test_files import lines_of, save
from tests.storage.test_sqlite import count


def test_a_save_that_is_cancelled_leaves_no_error_behind(tmp_path: Path) -> None:
    """What fails after nobody waits any more is not reported to the host's event loop."""
    path = tmp_path / "x.db"
    storage = SqlStorageProvider(path=path)
    told: list[dict[str, Any]] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        await storage.save_result(aggregated())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            saving = asyncio.create_task(storage.save_result(aggregated()))
            await asyncio.sleep(0)
            saving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await saving
            with pytest.raises(StorageError):
                await storage.save_result(aggregated())  # behind it: that one is done with
        del saving
        gc.collect()
        await storage.save_result(aggregated())
        await storage.close()

    asyncio.run(work())
    assert told == []


def test_a_failing_close_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the write and of the closing behind it fail that save; the next ones go on."""
    path = tmp_path / "x.jsonl"
    storage = JsonFileStorageProvider(path=path)
    write, close = os.write, os.close
    broken: set[int] = set()

    def refuse(descriptor: int, text: bytes) -> int:
        if not broken and text.startswith(b"{"):
            broken.add(descriptor)
            raise OSError(5, "Input/output error")
        return write(descriptor, text)

    def close_and_refuse(descriptor: int) -> None:
        close(descriptor)
        if descriptor in broken:
            raise OSError(5, "Input/output error")

    async def work() -> None:
        monkeypatch.setattr(os, "write", refuse)
        monkeypatch.setattr(os, "close", close_and_refuse)
        with pytest.raises(OSError, match="Input/output"):
            await storage.save_result(aggregated())
        monkeypatch.undo()
        await storage.save_result(aggregated())
        await storage.close()

    asyncio.run(work())
    assert len(lines_of(path)) == 1


class SlowToRest(LineFile):
    """A disk that hangs when it is asked for nothing but to bring the last lines to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rests, self.goes_on = threading.Event(), threading.Event()

    def rest(self) -> None:
        self.rests.set()
        self.goes_on.wait(30)


def test_a_disk_that_hangs_while_nothing_comes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as a write that hangs: what comes then is failed in no more than the usual time, or at once."""
    monkeypatch.setattr(batcher, "HUNG_S", 0.5)
    sink = SlowToRest(tmp_path / "x")
    batches: ResultBatcher[Any] = ResultBatcher("held", lambda: sink)

    async def work() -> None:
        await batches.save(b"a\n", 2)
        assert await asyncio.to_thread(sink.rests.wait, 30)
        with pytest.raises(StorageError, match="not saved within"):
            await batches.save(b"b\n", 2)
        with pytest.raises(StorageError, match="has hung"):
            await batches.save(b"c\n", 2)
        sink.goes_on.set()
        while True:
            with contextlib.suppress(StorageError):
                await batches.save(b"d\n", 2)
                break
        await batches.close()

    asyncio.run(work())
    assert sink.path.read_bytes().startswith(b"a\n")
    assert b"d\n" in sink.path.read_bytes()


def test_closing_blocks_no_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also long after the last result the file is closed on a thread of the provider's own."""
    by: list[int] = []
    close = LineFile.close
    monkeypatch.setattr(LineFile, "close", lambda file: (by.append(threading.get_ident()), close(file))[1])
    batches = ResultBatcher("x", lambda: LineFile(tmp_path / "x"))

    async def work() -> None:
        await batches.save(b"a\n", 2)
        thread = next(iter(batches._worker._threads), None)
        assert thread is not None
        await asyncio.to_thread(thread.join, 30)  # it ends when it has been idle
        await batches.close()

    asyncio.run(work())
    assert by
    assert threading.get_ident() not in by


def test_a_link_is_kept_where_files_rotate(tmp_path: Path) -> None:
    """Where the path leads to a file elsewhere, it is that one that is moved away, and the link leads to the next."""
    (tmp_path / "disk").mkdir()
    path = tmp_path / "x.jsonl"
    path.symlink_to(tmp_path / "disk" / "real.jsonl")
    file = LineFile(path, max_bytes=1024, keep=2)
    line = b'"' + b"x" * 700 + b'"\n'
    for _ in range(5):
        assert file.write([line]) == [None]
    file.close()
    assert path.is_symlink()
    assert {one.name for one in (tmp_path / "disk").iterdir()} == {"real.jsonl", "real.jsonl.1", "real.jsonl.2"}


def test_a_fork_moves_no_log_into_the_database(tmp_path: Path) -> None:
    """Closing the connection before a fork leaves the log for our own thread: the host's thread waits for no disk."""
    finished = run_program(
        """
        import asyncio, os, sys
        from agenteval_otel.models import AggregatedEvaluationResult
        from agenteval_otel.storage import SqlStorageProvider
        path = sys.argv[1]
        storage = SqlStorageProvider(path=path)
        save = lambda: asyncio.run(storage.save_result(AggregatedEvaluationResult(agent="x" * 200)))
        for _ in range(5):
            save()
        before = os.stat(path + "-wal").st_size, os.stat(path).st_mtime_ns
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        print("same", before == (os.stat(path + "-wal").st_size, os.stat(path).st_mtime_ns), before[0] > 0)
        save()
        asyncio.run(storage.close())
        print("after", os.path.exists(path + "-wal"))
        """,
        str(tmp_path / "x.db"),
    )
    assert finished.lines("same") == ["True True"], finished.stderr
    assert finished.lines("after") == ["False"]
    assert count(tmp_path / "x.db") == 6


def test_an_unreadable_row_is_an_error(tmp_path: Path) -> None:
    """Numbers that Python refuses to read cost no query; a row that somebody has spoilt is named."""
    path = tmp_path / "x.db"
    storage = SqlStorageProvider(path=path)
    save(storage, aggregated(scored(score=10**5000, metadata={"n": 10**5000})), aggregated(scored(probability=1e-320)))
    found = storage.query()
    assert len(found) == 2
    assert {one.weight for one in found} == {1.0}
    assert storage.read(found[0].evaluation_id) is not None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE agenteval_results SET details = 'no JSON'")
    with pytest.raises(StorageError, match="cannot be read"):
        storage.query()


def test_what_is_asked_for_is_written_as_it_is_stored(tmp_path: Path) -> None:
    """Endless names and lone surrogates are found under what was made of them; numbers are as large as numbers are."""
    storage = SqlStorageProvider(path=tmp_path / "x.db")
    name = "long \ud800" * 100
    save(storage, aggregated(scored(name), agent=name))
    assert len(storage.query(criterion=name, agent=name, limit=2**63 - 1)) == 1
    assert storage.read("\ud800") is None
    with pytest.raises(Exception, match="limit"):
        storage.query(limit=2**63)


def test_tables_that_somebody_dropped_are_made_anew(tmp_path: Path) -> None:
    """One of them, or all: the saves that meet with it fail, and the next one is stored."""
    path = tmp_path / "x.db"
    storage = SqlStorageProvider(path=path)

    async def work() -> None:
        await storage.save_result(aggregated())
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TABLE agenteval_results")
        with pytest.raises(StorageError, match="no such table"):
            await storage.save_result(aggregated())
        await storage.save_result(aggregated())
        await storage.close()

    asyncio.run(work())
    assert len(storage.query()) == 3


def test_two_that_write_one_file_in_a_process_lose_nothing(tmp_path: Path) -> None:
    """A second provider of the file, in the same process, does not cost the first one its locks at the file."""
    path = tmp_path / "x.db"
    finished = run_program(
        '''
        import asyncio, os, subprocess, sys
        from agenteval_otel.models import AggregatedEvaluationResult
        from agenteval_otel.storage import SqlStorageProvider
        path = sys.argv[1]
        other = """if True:
            import asyncio, sys
            from agenteval_otel.models import AggregatedEvaluationResult
            from agenteval_otel.storage import SqlStorageProvider
            storage = SqlStorageProvider(path=sys.argv[1])

            async def work():
                await storage.save_result(AggregatedEvaluationResult())
                await storage.close()

            asyncio.run(work())
        """
        save = lambda one: asyncio.run(one.save_result(AggregatedEvaluationResult()))
        first, second = SqlStorageProvider(path=path), SqlStorageProvider(path=path)
        save(first)
        save(second)
        subprocess.run([sys.executable, "-c", other, path], check=True)
        save(first)
        save(second)
        print("log", os.path.exists(path + "-wal"), flush=True)
        os._exit(0)
        ''',
        str(path),
    )
    assert finished.lines("log") == ["True"], finished.stderr
    assert count(path) == 5


class Held:
    """A sink that saves nothing until it may."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.saved: list[str] = []

    def write(self, items: Sequence[str], *, may_wait: bool) -> Sequence[Exception | None]:
        self.begun.set()
        assert self.may_go_on.wait(30)
        self.saved += items
        return [None] * len(items)

    def rest(self) -> None:
        return

    def close(self) -> None:
        return


def test_results_that_wait_share_the_memory_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that do not fit beside captured calls are refused; a single one is saved all the same."""
    monkeypatch.setattr(MEMORY, "max_bytes", MEMORY.used_bytes + 1_000)
    before, sink = MEMORY.results.used_bytes, Held()

    async def work() -> None:
        batches: ResultBatcher[Any] = ResultBatcher("held", lambda: sink)
        first = asyncio.create_task(batches.save("larger than all", 5_000))
        assert await asyncio.to_thread(sink.begun.wait, 30)
        with pytest.raises(StorageError, match="held: does not keep up, 5000 bytes wait"):
            await batches.save("beside captured calls", 1_001)
        second = asyncio.create_task(batches.save("fits", 1_000))
        await asyncio.sleep(0)
        assert MEMORY.results.used_bytes == before + 1_000
        sink.may_go_on.set()
        await asyncio.gather(first, second)
        await batches.close()

    asyncio.run(work())
    assert sink.saved == ["larger than all", "fits"]
    assert MEMORY.results.used_bytes == before
