"""The journal: what was written is there again, whatever a crash, a full disk or a bad sector did
to its files.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sidecar import journal as journal_module
from agenteval_otel.sidecar.journal import LOGS, TRACES, Journal, JournalFull
from agenteval_otel.sidecar.serve import kept_key

MIB = 1024 * 1024


def opened(folder: Path, max_bytes: int = 64 * MIB) -> Journal:
    return Journal(folder, max_bytes)


def contents(folder: Path) -> list[bytes]:
    """What another process would read."""
    journal = opened(folder)
    try:
        return [entry.data for entry in journal.left()]
    finally:
        journal.close()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.requests"))


def test_requests_are_there_again_in_their_order(tmp_path: Path) -> None:
    """With their kinds and numbers; and the next process goes on behind them."""
    first = opened(tmp_path)
    assert [first.write(TRACES, b"one"), first.write(LOGS, b""), first.write(TRACES, b"three")] == [
        1,
        2,
        3,
    ]
    first.close()
    second = opened(tmp_path)
    assert list(second.left()) == [(1, TRACES, b"one"), (2, LOGS, b""), (3, TRACES, b"three")]
    assert second.write(TRACES, b"four") == 4
    second.close()
    assert contents(tmp_path) == [b"one", b"", b"three", b"four"]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    cut=st.floats(0, 1),
    later=st.lists(st.binary(max_size=50)),
)
def test_a_power_cut_at_any_byte_costs_no_whole_record(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: float, later: list[bytes]
) -> None:
    """The newest segment ends anywhere: the records before it are there, and what is written
    afterwards too.
    """
    folder = tmp_path_factory.mktemp("journal")
    journal, ends = opened(folder), [0]
    written = [bytes([number]) * size for number, size in enumerate(sizes)]
    for data in written:
        journal.write(TRACES, data)
        ends.append(segments(folder)[-1].stat().st_size)
    journal.close()
    at = int(cut * ends[-1])
    os.truncate(segments(folder)[-1], at)
    whole = written[: sum(end <= at for end in ends) - 1]
    again = opened(folder)
    assert [entry.data for entry in again.left()] == whole
    for data in later:
        again.write(TRACES, data)
    again.close()
    assert contents(folder) == whole + later


def test_what_is_done_is_known_and_its_segments_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note is in force for the next process; segments go from the oldest on, and their disk with
    them.
    """
    monkeypatch.setattr(journal_module, "_SEGMENT_BYTES", 200)
    journal = opened(tmp_path)
    for _ in range(10):
        journal.write(TRACES, b"x" * 60)
    assert len(segments(tmp_path)) == 5
    assert journal.finish({(7, 0): 3, (8, 0): 9}, needed_from=5)
    journal.close()
    again = opened(tmp_path)
    assert [entry.number for entry in again.left()] == [5, 6, 7, 8, 9, 10]
    assert again.done == {(7, 0): 3, (8, 0): 9}
    assert again.size_bytes == sum(file.stat().st_size for file in segments(tmp_path))
    assert again.finish({}, again.number + 1)
    assert (segments(tmp_path), again.size_bytes) == ([], 0)
    again.close()


def test_restarts_add_nothing(tmp_path: Path) -> None:
    """Opened and read twenty times the folder is what it was."""
    journal = opened(tmp_path)
    journal.write(TRACES, b"x")
    journal.close()
    before = [(file.name, file.read_bytes()) for file in segments(tmp_path)]
    for _ in range(20):
        assert contents(tmp_path) == [b"x"]
    assert [(file.name, file.read_bytes()) for file in segments(tmp_path)] == before


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    """At the limit a request is refused and writes nothing; it fits again once others are done."""
    journal = opened(tmp_path, 1_000)
    count = 0

    def until_full() -> None:
        nonlocal count
        while True:
            journal.write(TRACES, b"x" * 100)
            count += 1

    with pytest.raises(JournalFull):
        until_full()
    assert 5 <= count <= 9
    assert journal.size_bytes <= 1_000
    assert not journal.fits(1_000)
    journal.finish({}, journal.number + 1)
    assert journal.write(TRACES, b"x" * 850) == count + 1
    journal.close()


def test_a_request_may_be_larger_than_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one to itself."""
    monkeypatch.setattr(journal_module, "_SEGMENT_BYTES", 100)
    journal = opened(tmp_path)
    for size in (10, 100_000, 10):
        journal.write(TRACES, b"x" * size)
    journal.close()
    assert [len(data) for data in contents(tmp_path)] == [10, 100_000, 10]


class FillingDisk:
    """Has files that are opened take only so many bytes more, as on a disk that fills up: a record
    is written in part.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        fdopen = os.fdopen
        patch.setattr(os, "fdopen", lambda *how, **more: OnDisk(fdopen(*how, **more), self))


class OnDisk:
    def __init__(self, file: Any, disk: FillingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        room = len(data) if self._disk.room is None else self._disk.room
        written: int = self._file.write(data[:room])
        if written < len(data):
            self._disk.room = room - written
            raise OSError(errno.ENOSPC, "No space left on device")
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FillingDisk:
    return FillingDisk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 20, 25, 60])
def test_a_full_disk_leaves_no_half_record(room: int, tmp_path: Path, disk: FillingDisk) -> None:
    """Neither of a request nor of a note: what is written once there is room again can be read."""
    journal = opened(tmp_path)
    journal.write(TRACES, b"before")
    disk.room = room
    with pytest.raises(JournalFull):
        journal.write(TRACES, b"x" * 100)
    disk.room = room
    assert not journal.finish({(1, 0): 1, (2, 0): 1}, 1)
    assert segments(tmp_path)[0].stat().st_size == journal.size_bytes
    disk.room = None
    assert journal.write(TRACES, b"after") == 2
    journal.close()
    assert contents(tmp_path) == [b"before", b"after"]


def test_on_a_full_disk_what_is_done_still_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: FillingDisk
) -> None:
    """Segments are dropped although the note about others cannot be written: nothing else makes
    room.
    """
    monkeypatch.setattr(journal_module, "_SEGMENT_BYTES", 50)
    journal = opened(tmp_path)
    for _ in range(3):
        journal.write(TRACES, b"x" * 60)
    disk.room = 0
    assert not journal.finish({(1, 0): 3}, needed_from=3)  # the note would begin another segment
    assert len([file for file in segments(tmp_path) if file.stat().st_size]) == 1
    journal.close()


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Files of other names, folders, and names that no segment has are neither read nor removed nor
    counted.
    """
    names = ["notes.otlp", "x", "1.otlp", "ffffffffffffffff.otlp", "000000000000000g.otlp", "key"]
    for name in names:
        (tmp_path / name).write_bytes(b"foreign")
    (tmp_path / "0000000000000009.otlp").mkdir()
    journal = opened(tmp_path)
    assert (list(journal.left()), journal.size_bytes) == ([], 0)
    journal.write(TRACES, b"x")
    journal.finish({}, 2)
    journal.close()
    assert all((tmp_path / name).read_bytes() == b"foreign" for name in names)


def test_garbage_with_a_segments_name_is_not_fatal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty file, one of noise, one of a foreign format: the others are read, and the log says
    how much was lost.
    """
    journal = opened(tmp_path)
    journal.write(TRACES, b"good")
    journal.close()
    for number, data in (
        (100, b""),
        (101, b"\xf7OTL" * 50),
        (102, os.urandom(5_000)),
        (103, b"PK\3\4"),
    ):
        (tmp_path / f"{number:016x}.otlp").write_bytes(data)
    with caplog.at_level("WARNING"):
        again = opened(tmp_path)
    assert [entry.data for entry in again.left()] == [b"good"]
    assert again.write(TRACES, b"next") == 104
    assert again.finish({}, 105)
    assert segments(tmp_path) == []
    again.close()
    assert "journal_damaged" in caplog.text
    assert "good" not in caplog.text


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second says so; once the first has ended the folder is free."""
    journal = opened(tmp_path)
    with pytest.raises(ConfigurationError, match="another process uses it"):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_folder_that_cannot_be_used_is_an_error(kind: str, tmp_path: Path) -> None:
    """It names the setting, and what the system says."""
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file" if kind == "file" else tmp_path / "file" / "journal"
    with pytest.raises(ConfigurationError, match=r"sidecar\.durable.*cannot be used"):
        opened(folder)


def test_others_cannot_read_it(tmp_path: Path) -> None:
    """The folder and its files are for their owner alone: they hold content."""
    folder = tmp_path / "a" / "journal"
    journal = opened(folder)
    journal.write(TRACES, b"x")
    journal.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert segments(folder)[0].stat().st_mode & 0o777 == 0o600


def test_an_erasure_that_failed_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the disk refuses, nor of a process that was killed in between."""
    journal = opened(tmp_path)
    number = journal.write(TRACES, b"of a person")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.rewrite(journal.segments()[0], {number: b""})
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", "", ".requests"]
    journal.close()
    (tmp_path / "0000000000000001.erasing").write_bytes(b"of a person")
    assert contents(tmp_path) == [b"of a person"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", "", ".requests"]


def test_a_durable_sidecar_keeps_its_key(tmp_path: Path) -> None:
    """Made once, for its owner alone; a file without a key, or a folder that takes none, is an
    error at start.
    """
    folder = tmp_path / "journal"
    key = kept_key(folder)
    assert len(key) >= 32
    assert kept_key(folder) == key
    assert [(file.name, stat.S_IMODE(file.stat().st_mode)) for file in folder.iterdir()] == [
        ("sampling.key", 0o600)
    ]
    (folder / "sampling.key").write_text("")
    with pytest.raises(ConfigurationError, match="has no key"):
        kept_key(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        kept_key(tmp_path / "file")
