"""C7: a storage fault stays in the storage: callers and other providers go on, it is counted, and
it heals.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.storage.files import lock_of, open_locked
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.postgresql import PostgreSQL
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.programs import run_program

HEALED_S = 5.0
ANSWER = "an answer " * 40


class Host:
    """A host that answers, with a JSON file or a database beside the recorded telemetry."""

    def __init__(self, storage: Any, telemetry: RecordedTelemetry) -> None:
        self.storage, self.telemetry, self.calls = storage, telemetry, 0
        dispatcher = PoolDispatcher(max_items=20_000, linger_s=0.0)
        self.pipeline = pipeline_of(
            storage=(storage, telemetry.storage()), dispatcher=dispatcher, sheds=False
        )
        self.answer = monitor(pipeline=self.pipeline, agent="agent")(
            lambda number: f"{ANSWER}{number}"
        )

    def call(self, count: int = 1) -> float:
        """Answer so often; gives the median of what an answer took the caller, in seconds."""
        took = []
        for _ in range(count):
            self.calls += 1
            began = time.perf_counter()
            self.answer(self.calls)
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    @property
    def failures(self) -> int:
        """Saves that the storage failed at."""
        return self.pipeline.accounting.failures.get(f"storage:{self.storage.type}", 0)

    def until(self, reached: Callable[[], bool], within_s: float, what: str) -> float:
        """Answer every 5 ms until it is so; gives the seconds that it took."""
        began, pause = time.monotonic(), threading.Event()
        while not reached():
            assert time.monotonic() - began < 3 * within_s, (
                f"{what} takes more than {3 * within_s} s"
            )
            self.call()
            pause.wait(0.005)
        return time.monotonic() - began

    def flushed(self) -> bool:
        """Whether a call and a flush go through without a failure."""
        before = self.failures
        self.call()
        return self.pipeline.flush(10.0) and self.failures == before

    def saved(self) -> tuple[int, int]:
        """How many results are saved whole, and how many lines of a file are not; SQLite finds no
        fault in its file.
        """
        if isinstance(self.storage, JsonFileStorageProvider):
            return lines_in(self.storage.path.read_bytes())
        if self.storage.path is not None:
            with closing(sqlite3.connect(self.storage.path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return len(self.storage.query(limit=1_000_000)), 0

    def outlives(
        self,
        start: Callable[[], Any],
        stop: Callable[[], Any],
        name: str,
        promise: Recorder,
        *,
        torn: int = 0,
    ) -> None:
        """Before, during and after a fault: what each promises."""
        self.call(50)
        assert self.pipeline.flush(10.0)
        quiet = self.call(500)
        assert self.pipeline.flush(10.0)
        start()
        try:
            seen_s = self.until(lambda: self.failures > 0, 10.0, "the fault's being seen")
            faulty = min(self.call(500) for _ in range(3))
            self.pipeline.flush(10.0)
        finally:
            stop()
        healed_s = self.until(self.flushed, 20.0, "recovery")
        self._check(torn)
        promise(
            "C7",
            figure=(
                f"{name}: seen after {seen_s:.2f} s, saving again {healed_s:.2f} s after the repair, a call "
                f"{quiet * 1e6:.0f} us before and {faulty * 1e6:.0f} us meanwhile"
            ),
        )
        assert healed_s <= HEALED_S
        assert faulty <= 3 * quiet + 50e-6

    def _check(self, most_torn: int) -> None:
        """Every call is evaluated, the other provider saves all the while, and what counts as saved
        is there.
        """
        outcomes = self.pipeline.accounting.outcomes()
        assert outcomes["evaluated"] == sum(outcomes.values()) == self.calls
        assert len(self.telemetry.events()) == self.calls
        whole, torn = self.saved()
        assert torn <= most_torn, f"{torn} torn lines"
        assert whole >= self.calls - self.failures


def lines_in(text: bytes) -> tuple[int, int]:
    """The whole lines, and how many others there are; a line that is glued to a torn one is no
    whole one.
    """
    whole = torn = 0
    for line in filter(None, text.split(b"\n")):
        try:
            json.loads(line)
            whole += 1
        except ValueError:
            torn += 1
    return whole, torn


@pytest.fixture
def host_with(telemetry: RecordedTelemetry) -> Iterator[Callable[..., Host]]:
    """Makes a host that saves in this file, by its ending, or with these options."""
    made: list[Host] = []

    def make(path: Path | None = None, **options: Any) -> Host:
        lines = path is not None and path.suffix == ".jsonl"
        storage: Any = (
            JsonFileStorageProvider(path=path)
            if lines
            else SqlStorageProvider(path=path, **options)
        )
        made.append(Host(storage, telemetry))
        return made[-1]

    yield make
    for host in made:
        host.pipeline.shutdown(5.0)


def mount(folder: Path, options: str) -> None:
    """Mount a file system of its own over a folder; skipped where none may be mounted."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


def unmount(folder: Path) -> None:
    """Take the file system off again, even while it is in use."""
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_that_is_removed_or_moved_away(
    host_with: Callable[..., Host], tmp_path: Path
) -> None:
    """The next result makes the file and its folder anew: none goes to a file that nobody sees."""
    path = tmp_path / "deep" / "results.jsonl"
    host = host_with(path)
    for away in (
        lambda: shutil.rmtree(path.parent),
        path.unlink,
        lambda: path.rename(tmp_path / "old"),
    ):
        host.call()
        assert host.pipeline.flush(5.0)
        away()
        host.call(3)
        assert host.pipeline.flush(5.0)
        assert host.saved() == (3, 0)
    assert len((tmp_path / "old").read_bytes().splitlines()) == 4


# SQLite needs room for a write-ahead log, and for little more.
@pytest.mark.parametrize(
    ("name", "size", "torn"), [("results.jsonl", "4m", 1), ("results.db", "24m", 0)]
)
def test_a_full_disk(
    name: str,
    size: str,
    torn: int,
    host_with: Callable[..., Host],
    tmp_path: Path,
    promise: Recorder,
) -> None:
    """ENOSPC: a line that is cut off stays alone, a transaction is rolled back; losses count, freed
    space is used.
    """
    ballast = tmp_path / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    mount(tmp_path, f"size={size}")
    try:
        host_with(tmp_path / name).outlives(
            fill, ballast.unlink, f"{name}, disk full", promise, torn=torn
        )
    finally:
        unmount(tmp_path)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("results.jsonl", "folder gone"),
        ("results.db", "folder gone"),
        ("results.jsonl", "read-only"),
    ],
)
def test_a_folder_that_cannot_be_used(
    name: str, fault: str, host_with: Callable[..., Host], tmp_path: Path, promise: Recorder
) -> None:
    """A folder with a file in its place, or read-only (EROFS), is noticed at once, and used again
    when it is back.
    """
    folder, aside = tmp_path / "results", tmp_path / "aside"
    folder.mkdir()

    def move() -> None:
        folder.rename(aside)
        folder.write_text("in the way")

    def back() -> None:
        folder.unlink()
        aside.rename(folder)

    title = f"{name}, {fault}"
    host = host_with(folder / name)
    if fault == "folder gone":
        host.outlives(move, back, title, promise)
    else:
        host.outlives(lambda: mount(folder, "ro"), lambda: unmount(folder), title, promise)


@pytest.mark.parametrize("owner", ["SQLite's", "ours", "JSON's"])
def test_a_lock_that_somebody_holds(
    owner: str, host_with: Callable[..., Host], tmp_path: Path, promise: Recorder
) -> None:
    """A writer that does not end, of another program or of another process of ours, holds nothing
    up but the file.
    """
    path = tmp_path / ("x.jsonl" if owner == "JSON's" else "x.db")
    with contextlib.ExitStack() as stack:

        def take() -> None:
            if owner != "SQLite's":
                stack.enter_context(open_locked(path if owner == "JSON's" else lock_of(path)))
                return
            connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            stack.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE")

        host_with(path).outlives(
            take, stack.close, f"{path.suffix[1:]}, {owner} lock held", promise
        )


@pytest.mark.backend
@pytest.mark.parametrize("how", ["stopped", "hangs"])
def test_a_server_that_does_not_answer(
    how: str, host_with: Callable[..., Host], postgresql: PostgreSQL, promise: Recorder
) -> None:
    """A server that is gone or never answers is noticed, and used when it is back."""
    host, title = host_with(url=postgresql.url), f"PostgreSQL {how}"
    if how == "hangs":
        host.outlives(postgresql.pause, postgresql.resume, title, promise)
    else:
        host.outlives(postgresql.stop, postgresql.start, title, promise)


def test_a_disk_that_hangs(
    host_with: Callable[..., Host], tmp_path: Path, promise: Recorder
) -> None:
    """A write that does not come back holds up neither the caller nor the other provider, and goes
    on when it can.
    """
    path = tmp_path / "results.jsonl"
    os.mkfifo(path)
    with Reader(path) as reader:
        host = host_with(path)
        host.saved = reader.saved

        def stop_reading() -> None:
            reader.reads.clear()
            host.call(400)  # the pipe is full

        host.outlives(stop_reading, reader.reads.set, "disk hangs", promise)
        host.pipeline.shutdown(5.0)


def test_a_pipe_that_nobody_reads(host_with: Callable[..., Host], tmp_path: Path) -> None:
    """Opening it is refused instead of waited for."""
    os.mkfifo(tmp_path / "results.jsonl")
    host = host_with(tmp_path / "results.jsonl")
    host.until(lambda: host.failures > 0, 5.0, "the refusal")


class Reader:
    def __init__(self, path: Path) -> None:
        self.reads, self.text = threading.Event(), bytearray()
        self.reads.set()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # A writer of its own: the pipe does not end between two of the provider's.
        self._holder = os.open(path, os.O_WRONLY)
        os.set_blocking(self._descriptor, True)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def saved(self) -> tuple[int, int]:
        """The whole lines and the others, of everything that was written before."""
        marks = self.text.count(b"\1") + 1
        os.write(self._holder, b"\1")
        while self.text.count(b"\1") < marks:
            time.sleep(0.01)
        return lines_in(bytes(self.text).replace(b"\1", b""))

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reads.set()
        os.write(self._holder, b"\0")
        self._thread.join(5.0)
        os.close(self._holder)
        os.close(self._descriptor)

    def _work(self) -> None:
        while not self.text.endswith(b"\0"):
            self.reads.wait()
            self.text += os.read(self._descriptor, 65536)


PROGRAM = """
    import os, resource, signal, sys, threading, time
    from pathlib import Path
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.config import current_pipeline
    from agenteval_otel.storage import JsonFileStorageProvider
    kind, path = sys.argv[1], Path(sys.argv[2])
    if kind == "rights" and os.getuid() == 0:
        os.chown(path.parent, 65534, 65534)
        os.setuid(65534)
    durable = {"fsync": "batch"} if kind == "sync" else {}
    configure(storage=[JsonFileStorageProvider(path=path, **durable)], sample_rate=1.0)
    answer = monitor(lambda number: "an answer " * 40 + str(number))
    failures = lambda: current_pipeline().accounting.failures.get("storage:json_file", 0)
    calls = 0

    def until(reached):
        global calls
        began = time.monotonic()
        while not reached():
            if time.monotonic() - began > 15:
                sys.exit(f"{kind}: not reached, {failures()} failures")
            calls += 1
            answer(calls)
            flush(2.0)
        return time.monotonic() - began

    def saves():
        before = failures()
        return flush(5.0) and failures() == before and size() > full

    def size():
        try:
            return path.stat().st_size
        except OSError:
            return 0

    full = 0
    until(lambda: size() > 0 or failures() > 3)
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (size() + 300, resource.RLIM_INFINITY))
    elif kind == "rights":
        path.parent.chmod(0)
    seen = until(lambda: failures() > 0)
    full = size()
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    elif kind == "rights":
        path.parent.chmod(0o700)
    healed = until(lambda: failures() > 0 and saves())
    print("report", calls, failures(), accounting()["evaluated"], seen, healed)
"""


@pytest.mark.parametrize("kind", ["limit", "rights", "error", "sync"])
def test_faults_of_the_process(kind: str, tmp_path: Path, promise: Recorder) -> None:
    """EFBIG with a short write, lost rights, EIO of write and of fsync: counted, the host goes on,
    and saves again.
    """
    path = tmp_path / "results" / "results.jsonl"
    path.parent.mkdir()
    before: tuple[str, ...] = ()
    if kind in ("error", "sync"):
        if shutil.which("strace") is None:
            pytest.skip("needs strace, which injects errors into system calls")
        call = "write" if kind == "error" else "fsync"
        inject = f"strace -f -qq -o /dev/null -P {path} -e trace={call} -e inject={call}:error=EIO:when=5..20"
        before = tuple(inject.split())
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    finished = run_program(PROGRAM, kind, str(path), before=before)
    assert finished.code == 0, finished.stderr
    calls, failures, evaluated, seen, healed = finished.lines("report")[0].split()
    promise(
        "C7",
        figure=f"{kind}: {failures} counted, seen after {float(seen):.2f} s, healed after {float(healed):.2f} s",
    )
    whole, torn = lines_in(path.read_bytes())
    assert int(evaluated) == int(calls)
    # What could not be brought to the disk is in the file, and counted as failed all the same.
    assert whole == int(calls) - (0 if kind == "sync" else int(failures))
    assert torn == (kind == "limit"), "one write was cut off, and stays alone"
    assert float(healed) <= HEALED_S
