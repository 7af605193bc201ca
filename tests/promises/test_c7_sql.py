"""C7 for databases: a fault stays in the storage; callers and the other provider go on, it is counted, and it heals.

The faults are real ones: a file system that is full, a folder that is moved away, locks that somebody holds, a server
that is stopped and one that hangs.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.storage import EvaluationStorageProvider, SqlStorageProvider
from agenteval_otel.storage.files import lock_of, open_locked
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.fixtures import postgresql_binary_fixture, postgresql_fixture, postgresql_server_fixture
from tests.backends.postgresql import PostgreSQL
from tests.promises.test_c7_storage import Fault, Host, mount, unmount

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]


class SqlHost(Host):
    """A host with a database beside the recorded telemetry."""

    storage: EvaluationStorageProvider

    def lines(self) -> tuple[list[dict[str, Any]], int]:
        """The evaluations that are stored; a file that SQLite finds a fault in has none."""
        assert isinstance(self.storage, SqlStorageProvider)
        if self.storage.path is not None:
            with closing(sqlite3.connect(self.storage.path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = self.storage.query(limit=1_000_000)
        return [json.loads(one.model_dump_json()) for one in found], 0


@pytest.fixture
def host_with(telemetry: RecordedTelemetry) -> Iterator[Callable[..., SqlHost]]:
    made: list[SqlHost] = []

    def make(**options: Any) -> SqlHost:
        made.append(SqlHost(options.get("path", Path()), telemetry, SqlStorageProvider(**options)))
        return made[-1]

    yield make
    for host in made:
        host.pipeline.shutdown(5.0)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for a write-ahead log, and for little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount(folder, "size=24m")
    yield folder
    unmount(folder)


def test_a_full_disk(host_with: Callable[..., SqlHost], small: Path, promise: Callable[..., None]) -> None:
    """ENOSPC: what does not fit is rolled back and counted, the file stays whole, and freed space is used."""
    ballast = small / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    Fault(host_with(path=small / "x.db"), fill, ballast.unlink).run(promise, "SQLite, disk full")


def test_a_folder_that_is_moved_away(
    host_with: Callable[..., SqlHost], tmp_path: Path, promise: Callable[..., None]
) -> None:
    """A folder with a file in its place is missed at once, and used again when it is back."""
    folder, aside = tmp_path / "results", tmp_path / "aside"

    def move() -> None:
        folder.rename(aside)
        folder.write_text("in the way")

    def back() -> None:
        folder.unlink()
        aside.rename(folder)

    Fault(host_with(path=folder / "x.db"), move, back).run(promise, "SQLite, folder gone")


@pytest.mark.parametrize("whose", ["SQLite's", "ours"])
def test_a_lock_that_somebody_holds(
    whose: str, host_with: Callable[..., SqlHost], tmp_path: Path, promise: Callable[..., None]
) -> None:
    """A writer that does not end, of another program or of another process of ours, holds nothing up but the file."""
    path = tmp_path / "x.db"
    with ExitStack() as held:

        def take() -> None:
            if whose == "ours":
                held.enter_context(open_locked(lock_of(path)))
                return
            connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            held.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE")

        Fault(host_with(path=path), take, held.close).run(promise, f"SQLite, {whose} lock held")


@pytest.mark.backend
@pytest.mark.parametrize("how", ["stopped", "hangs"])
def test_a_server_that_does_not_answer(
    how: str, host_with: Callable[..., SqlHost], postgresql: PostgreSQL, promise: Callable[..., None]
) -> None:
    """A server that is gone or never answers is noticed, and used when it is back."""
    stop, start = (postgresql.pause, postgresql.resume) if how == "hangs" else (postgresql.stop, postgresql.start)
    Fault(host_with(url=postgresql.url), stop, start).run(promise, f"PostgreSQL {how}")
