"""The background writer: saves that are cancelled, hang, share memory, or come when no thread can
be started.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.storage.batcher import ResultBatcher
from tests.storage.samples import aggregated, lines_of, save
from tests.storage.test_sqlite import count
from tests.telemetry.support import start_no_thread


class BlockedSink:
    """A sink whose writes wait until they may go on."""

    def __init__(self) -> None:
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.saved: list[str] = []

    def write(self, items: Sequence[str], *, may_wait: bool) -> Sequence[Exception | None]:
        self.entered.set()
        assert self.may_go_on.wait(30)
        self.saved += items
        return [None] * len(items)

    def close(self) -> None: ...


def test_a_save_that_is_cancelled_leaves_no_error_behind(tmp_path: Path) -> None:
    """What fails after nobody waits any more is not reported to the host's event loop."""
    path = tmp_path / "x.db"
    storage = SqlStorageProvider(path=path)
    reported: list[dict[str, Any]] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
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
    assert reported == []


def test_waiting_results_share_the_memory_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that do not fit beside captured calls are refused; a single one is saved all the
    same.
    """
    monkeypatch.setattr(MEMORY, "max_bytes", MEMORY.used_bytes + 1_000)
    before, sink = MEMORY.results.used_bytes, BlockedSink()

    async def work() -> None:
        results = ResultBatcher("disk", lambda: sink)
        first = asyncio.create_task(results.save("larger than all", 5_000))
        assert await asyncio.to_thread(sink.entered.wait, 30)
        with pytest.raises(StorageError, match="disk: does not keep up, 5000 bytes wait"):
            await results.save("beside captured calls", 1_001)
        second = asyncio.create_task(results.save("fits", 1_000))
        await asyncio.sleep(0)
        assert MEMORY.results.used_bytes == before + 1_000
        sink.may_go_on.set()
        await asyncio.gather(first, second)
        await results.close()

    asyncio.run(work())
    assert sink.saved == ["larger than all", "fits"]
    assert MEMORY.results.used_bytes == before


@pytest.mark.parametrize("type_", ["json_file", "sql"])
def test_results_are_saved_without_a_thread(
    type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the process's exit, or at its limit of threads, the thread that saves a result writes it."""
    path = tmp_path / "results"
    start_no_thread(monkeypatch)
    storage = (JsonFileStorageProvider if type_ == "json_file" else SqlStorageProvider)(path=path)
    save(storage, aggregated(), aggregated())
    monkeypatch.undo()
    assert (len(lines_of(path)) if type_ == "json_file" else count(path)) == 2


class Connected:
    """A sink that says goodbye on its connection when it goes, as database clients do."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, items: Sequence[str], *, may_wait: bool) -> Sequence[Exception | None]:
        return [None] * len(items)

    def close(self) -> None: ...

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(b"goodbye")


def test_a_child_does_not_end_its_parents_connection() -> None:
    """A forked child keeps what it shares with its parent, and opens its own."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        batcher = ResultBatcher("here", lambda: Connected(ours))
        asyncio.run(batcher.save("a", 1))
        if (pid := os.fork()) == 0:
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(10)
        asyncio.run(batcher.close())
