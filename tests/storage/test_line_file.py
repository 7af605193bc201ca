"""Lines in files: cut-off ones, many writers, rotation, rights, bringing them to the disk."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.storage import JsonFileStorageProvider
from agenteval_otel.storage import line_file as line_file_module
from agenteval_otel.storage.line_file import LineFile
from agenteval_otel.storage.places import FileLock
from tests.promises.programs import run_program
from tests.storage.samples import aggregated, scored
from tests.storage.test_files import lines_of, save


def whole_of(*paths: Path) -> list[str]:
    """The lines that are JSON, as text."""
    found = []
    for path in paths:
        for line in path.read_text().split("\n"):
            try:
                json.loads(line)
            except ValueError:
                continue
            found.append(line)
    return found


def test_twenty_long_lines_at_once(tmp_path: Path) -> None:
    """Twenty results of 600 KB that are saved at the same time are twenty whole lines."""
    path = tmp_path / "results.jsonl"
    storage = JsonFileStorageProvider(path=path)
    texts = [chr(ord("a") + number) * 600_000 for number in range(20)]

    async def work() -> None:
        await asyncio.gather(*(storage.save_result(aggregated(scored(reasoning=text))) for text in texts))
        await storage.close()

    asyncio.run(work())
    assert sorted(line["results"][0]["reasoning"] for line in lines_of(path)) == texts


def test_a_line_behind_a_cut_off_one_is_written_again(tmp_path: Path) -> None:
    """What another process was killed within, while this one had the file open, costs no line of this one."""
    path = tmp_path / "results.jsonl"
    file = LineFile(path)
    assert file.write([b'{"n": 1}\n']) == [None]
    with path.open("ab") as other:
        other.write(b'{"n": "cut o')
    assert file.write([b'{"n": 2}\n', b'{"n": 3}\n']) == [None, None]
    assert file.write([b'{"n": 4}\n']) == [None]
    file.close()
    assert Counter(whole_of(path)) == Counter(['{"n": 1}', '{"n": 2}', '{"n": 3}', '{"n": 4}'])
    assert path.read_text().split("\n")[1] == '{"n": "cut o{"n": 2}'


def test_a_whole_line_without_its_end_is_kept(tmp_path: Path) -> None:
    """A last line that lacks nothing but its end gets that, and is read like the others."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}')
    file = LineFile(path)
    assert file.write([b'{"n": 3}\n']) == [None]
    file.close()
    assert path.read_text() == '{"n": 1}\n{"n": 2}\n{"n": 3}\n'


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the file while another process writes a long line leaves no empty line behind it."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"n": "lo')

    def go_on(seconds: float) -> None:
        with path.open("ab") as other:
            other.write(b'ng"}\n')

    monkeypatch.setattr(line_file_module.time, "sleep", go_on)
    file = LineFile(path)
    assert file.write([b'{"n": 2}\n']) == [None]
    file.close()
    assert path.read_text() == '{"n": "long"}\n{"n": 2}\n'


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: a write is then cut off, and the next refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_line_by_line(tmp_path: Path) -> None:
    """Of a batch that did not fit whole the first lines are saved, the others not; afterwards it goes on."""
    path = tmp_path / "results.jsonl"
    file = LineFile(path)
    lines = [b'{"n": %d}\n' % number for number in range(5)]
    with at_most(22):
        assert [outcome is None for outcome in file.write(lines)] == [True, True, False, False, False]
        assert isinstance(file.write(lines)[0], OSError)
    assert file.write([b'{"n": 9}\n']) == [None]
    file.close()
    assert whole_of(path) == ['{"n": 0}', '{"n": 1}', '{"n": 9}']


def test_a_cut_off_line_behind_a_cut_off_one(tmp_path: Path) -> None:
    """With another's cut-off line and a full disk, no lost line counts as saved."""
    path = tmp_path / "results.jsonl"
    file = LineFile(path)
    assert file.write([b'{"n": 1}\n']) == [None]
    with path.open("ab") as other:
        other.write(b'{"n"')
    with at_most(18):
        assert [type(outcome) for outcome in file.write([b'{"n": 2}\n'])] == [StorageError]
    assert file.write([b'{"n": 3}\n']) == [None]
    file.close()
    assert whole_of(path) == ['{"n": 1}', '{"n": 3}']


def test_files_rotate(tmp_path: Path) -> None:
    """Above the size a file is moved away, so many are kept, the oldest goes; all are their owner's alone."""
    path = tmp_path / "deep" / "results.jsonl"
    file = LineFile(path, max_bytes=40, keep=3)
    for number in range(100, 120):
        assert file.write([b'{"n": %d}\n' % number]) == [None]
    file.close()
    kept = [path.with_name(f"results.jsonl.{number}") for number in (3, 2, 1)]
    assert sorted(path.parent.iterdir()) == sorted([path, *kept, path.with_name("results.jsonl.lock")])
    assert whole_of(*kept, path) == [f'{{"n": {number}}}' for number in range(105, 120)][-len(whole_of(*kept, path)) :]
    assert all(one.stat().st_size <= 40 for one in (path, *kept))
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_batch_is_spread_over_files(tmp_path: Path) -> None:
    """Lines that wait together do not make a file larger than it may be; one that is too long has a file alone."""
    path = tmp_path / "results.jsonl"
    file = LineFile(path, max_bytes=40, keep=20)
    lines = [b'{"n": %d}\n' % number for number in range(100, 120)] + [b'"%s"\n' % (b"x" * 100)]
    assert file.write(lines) == [None] * 21
    file.close()
    sizes = [one.stat().st_size for one in tmp_path.iterdir() if not one.name.endswith(".lock")]
    assert sorted(sizes)[-2:] == [33, 103]
    assert len(whole_of(*tmp_path.iterdir())) == 21


def test_a_gap_among_the_moved_files_is_filled(tmp_path: Path) -> None:
    """A process killed while it renamed files loses none: the next rotation renames only up to the gap."""
    path = tmp_path / "results.jsonl"
    for number in (1, 3):
        path.with_name(f"results.jsonl.{number}").write_text(f"{number}\n")
    path.write_text("0\n" * 30)
    file = LineFile(path, max_bytes=40, keep=3)
    assert file.write([b"new\n"]) == [None]
    file.close()
    found = {one.name[-1]: one.read_text()[:2] for one in tmp_path.iterdir() if one.name[-1].isdecimal()}
    assert found == {"1": "0\n", "2": "1\n", "3": "3\n"}


def test_many_that_rotate_lose_nothing(tmp_path: Path) -> None:
    """Several writers of one file, each with a descriptor of its own, that all move it away: every line is there."""
    path = tmp_path / "results.jsonl"
    failed: list[object] = []

    def work(writer: int) -> None:
        file = LineFile(path, max_bytes=2_000, keep=1_000)
        for number in range(200):
            failed.extend(filter(None, file.write([b'{"n": "%d-%d"}\n' % (writer, number)])))
        file.close()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    found = whole_of(*(one for one in tmp_path.iterdir() if not one.name.endswith(".lock")))
    assert sorted(found) == sorted(f'{{"n": "{writer}-{number}"}}' for writer in range(4) for number in range(200))


def test_a_lock_that_is_held_is_not_waited_for_where_nothing_may_block(tmp_path: Path) -> None:
    """Where the line is written by the event loop itself, a lock in another's hands is a failed save."""
    path = tmp_path / "results.jsonl"
    file = LineFile(path, max_bytes=1024)
    with FileLock(path).acquired():
        assert [type(outcome) for outcome in file.write([b"1\n"], may_wait=False)] == [StorageError]
    assert file.write([b"1\n"], may_wait=False) == [None]
    file.close()


def test_a_lock_file_that_is_removed_still_locks(tmp_path: Path) -> None:
    """Who waited for a lock file that is gone meanwhile takes the one that is there."""
    lock = FileLock(tmp_path / "x")
    entered, order = threading.Event(), []

    def other() -> None:
        entered.set()
        with lock.acquired():
            order.append("other")

    thread = threading.Thread(target=other)
    with lock.acquired():
        thread.start()
        assert entered.wait(10)
        lock.path.unlink()
        order.append("first")
    thread.join(10)
    assert order[-1] in ("other", "first")
    assert sorted(order) == ["first", "other"]
    assert lock.path.exists()


def test_a_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    """A lock that was held while the process was forked is free again when the parent lets go of it."""
    lock = FileLock(tmp_path / "x")
    reads, writes = os.pipe()
    with lock.acquired():
        child = os.fork() if hasattr(os, "fork") else 0
        if child == 0:
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
    with lock.acquired(wait=False):
        held = True
    os.close(writes)
    os.waitpid(child, 0)
    os.close(reads)
    assert held


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    return synced


def test_lines_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `batch` and no interval before each save is answered; never by default; at last when the file is closed."""
    synced = counted(monkeypatch)
    save(JsonFileStorageProvider(path=tmp_path / "never"), aggregated(), aggregated())
    assert synced == []
    save(JsonFileStorageProvider(path=tmp_path / "each", fsync="batch", fsync_interval_s=0), *[aggregated()] * 3)
    assert len(synced) == 3
    save(JsonFileStorageProvider(path=tmp_path / "rare", fsync="batch", fsync_interval_s=60), *[aggregated()] * 3)
    assert len(synced) == 5, "the first batch, and the rest when it is closed"


def test_a_failing_sync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk fails the saves that it is met with, or the next ones; then it goes on."""
    path = tmp_path / "results.jsonl"
    broken = True

    def sync(descriptor: int) -> None:
        if broken:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", sync)
    file = LineFile(path, sync_every_s=0.0)
    assert [type(outcome) for outcome in file.write([b"1\n", b"2\n"])] == [OSError, OSError]
    broken = False
    assert file.write([b"3\n"]) == [None]
    file.close()

    late = LineFile(path, sync_every_s=60.0)
    assert late.write([b"4\n"]) == [None]
    assert late.write([b"5\n"]) == [None]
    broken = True
    late.rest()
    assert [type(outcome) for outcome in late.write([b"6\n"])] == [OSError]
    broken = False
    assert late.write([b"7\n"]) == [None]
    late.close()


@pytest.mark.parametrize(
    "wrong", [{"max_bytes": 0}, {"max_bytes": 10}, {"keep": 0}, {"fsync": "sometimes"}, {"fsync_interval_s": -1}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    """Each option is checked when it is loaded, and named."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        JsonFileStorageProvider.load({"path": "x.jsonl", **wrong})


def test_a_file_that_may_only_be_written(tmp_path: Path) -> None:
    """A file that is not ours to read takes whole lines all the same."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"n": 1}\n')
    path.chmod(0o200)
    tmp_path.chmod(0o777)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(0o755)
    finished = run_program(
        """
        import os, sys
        from pathlib import Path
        from agenteval_otel.storage.line_file import LineFile
        path = Path(sys.argv[1])
        if os.getuid() == 0:
            os.chown(path, 65534, 65534)
            os.setuid(65534)
        print("outcomes", LineFile(path).write([b'{"n": 2}\\n']))
        """,
        str(path),
    )
    assert finished.lines("outcomes") == ["[None]"], finished.stderr
    path.chmod(0o600)
    assert whole_of(path) == ['{"n": 1}', '{"n": 2}']
