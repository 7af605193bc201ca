"""JSON lines: whole lines by many writers, cut-off lines, rotation, rights, syncing to the disk."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agenteval_otel import EvaluationInput, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import EvaluationStorageProvider, JsonFileStorageProvider
from agenteval_otel.storage.files import open_locked
from agenteval_otel.storage.json_file import LineFile
from agenteval_otel.testing import check_component, check_storage
from tests.storage.samples import aggregated, lines_of, save, scored
from tests.testing.doubles import Free, config_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def whole_of(*paths: Path) -> list[str]:
    """The lines that are JSON, as text."""
    whole = []
    for path in paths:
        for line in path.read_text().split("\n"):
            try:
                json.loads(line)
            except ValueError:
                continue
            whole.append(line)
    return whole


def numbered(*numbers: int) -> list[bytes]:
    return [b'{"n": %d}\n' % number for number in numbers]


def test_one_line_a_result(tmp_path: Path) -> None:
    """Each result is one JSON line in camelCase that reads back as the same result; a file is
    continued.
    """
    path = tmp_path / "deep" / "er" / "results.jsonl"
    results = [
        aggregated(),
        aggregated(scored(metadata={"n": [1, {"a": None}]}), session_id="s"),
        aggregated(),
    ]
    storage = JsonFileStorageProvider(path=path)
    save(storage, results[0])
    save(storage, results[1])
    save(JsonFileStorageProvider(path=path), results[2])
    lines = lines_of(path)
    assert lines[0]["overallScore"] == 0.5
    assert lines[0]["results"][0]["criterionName"] == "tone"
    assert [AggregatedEvaluationResult.model_validate(line) for line in lines] == results
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_reader_sees_one_line(path: Path) -> None:
    """Line separators of any kind inside a text do not end the line; NaN and infinities become
    null.
    """
    text = "a\nb\r\nc\u2028d\u2029e\u0085f\x0bg\x0ch\x1ci\x1dj\x1ek"
    save(
        JsonFileStorageProvider(path=path),
        aggregated(scored(reasoning=text, metadata={"x": float("nan")})),
    )
    raw = path.read_text(encoding="utf-8")
    assert len(raw.splitlines()) == raw.count("\n") == 1
    (line,) = lines_of(path)
    assert line["results"][0]["reasoning"] == text
    assert "NaN" not in raw


def test_values_without_json_are_written(path: Path) -> None:
    """Lone surrogates and objects, which offline inputs may hold, do not lose the result."""
    config = config_of(
        Free(), metadata={"host": object()}, storage=JsonFileStorageProvider(path=path)
    )
    assert (
        run_evaluation_sync(
            EvaluationInput(response="a\ud800b", prompt="c\udfff"), config
        ).run_errors
        is None
    )
    (line,) = lines_of(path)
    assert (line["overallScore"], line["inputSnapshot"]["response"][0]) == (0.5, "a")


def test_the_contract_of_storage_holds(path: Path) -> None:
    """It takes all kinds of results, many at once, and can be closed twice."""
    storage = JsonFileStorageProvider(path=path)
    check_storage(storage)
    check_component(storage, EvaluationStorageProvider)
    assert len(lines_of(path)) == 20


def test_the_specifications_name_of_the_path() -> None:
    """The file may be called ``filePath``, as in the specification; without one nothing is made."""
    assert JsonFileStorageProvider.load({"filePath": "/tmp/x.jsonl"}).path == Path("/tmp/x.jsonl")
    with pytest.raises(ConfigurationError, match="required field is missing"):
        JsonFileStorageProvider.load({})


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: a write is then cut off, and the next refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_line_by_line(path: Path) -> None:
    """Of a batch that did not fit whole the first lines are saved, the others not; afterwards it
    goes on.
    """
    file, lines = LineFile(path), numbered(*range(5))
    with at_most(22):
        assert [outcome is None for outcome in file.write(lines)] == [
            True,
            True,
            False,
            False,
            False,
        ]
        assert isinstance(file.write(lines)[0], OSError)
    assert file.write(numbered(9)) == [None]
    assert whole_of(path) == ['{"n": 0}', '{"n": 1}', '{"n": 9}']


@pytest.mark.parametrize("torn", ['{"n"', '{"cut of', '{"n": 2}'])
def test_a_line_that_was_cut_off_stays_alone(torn: str, path: Path) -> None:
    """The next line ends what a killed process left behind; on a full disk no lost line counts as
    saved.
    """
    file = LineFile(path)
    assert file.write(numbered(0)) == [None]
    with path.open("a") as other:
        other.write(torn)
    with at_most(14 + len(torn)):
        assert [type(outcome) for outcome in file.write(numbered(2))] == [StorageError]
    assert file.write(numbered(3, 4)) == [None, None]
    assert path.read_text() == f'{{"n": 0}}\n{torn}\n{{"n"\n{{"n": 3}}\n{{"n": 4}}\n'


def test_files_rotate(tmp_path: Path) -> None:
    """Above the size a file is moved away, so many are kept, the oldest goes; all are their owner's
    alone.
    """
    path = tmp_path / "deep" / "results.jsonl"
    file = LineFile(path, max_bytes=40, keep=3)
    # lines that wait together are spread over files
    assert file.write(numbered(*range(100, 110))) == [None] * 10
    for number in range(110, 120):
        assert file.write(numbered(number)) == [None]
    kept = [path.with_name(f"results.jsonl.{number}") for number in (3, 2, 1)]
    assert sorted(path.parent.iterdir()) == sorted([path, *kept])
    whole = whole_of(*kept, path)
    assert whole == [f'{{"n": {number}}}' for number in range(105, 120)][-len(whole) :]
    assert all(item.stat().st_size <= 40 for item in (path, *kept))
    assert {stat.S_IMODE(item.stat().st_mode) for item in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert file.write([b'"%s"\n' % (b"x" * 100), *numbered(1)]) == [None, None]
    assert sorted(item.stat().st_size for item in (path, kept[-1])) == [9, 103], (
        "a line that is too long stays alone"
    )


def test_a_gap_among_the_moved_files_is_filled(path: Path) -> None:
    """A process killed while it renamed files loses none: the next rotation renames only up to the
    gap.
    """
    for number in (1, 3):
        path.with_name(f"results.jsonl.{number}").write_text(f"{number}\n")
    path.write_text("0\n" * 30)
    assert LineFile(path, max_bytes=40, keep=3).write([b"new\n"]) == [None]
    kept = {
        item.name[-1]: item.read_text()[:2]
        for item in path.parent.iterdir()
        if item.name[-1].isdecimal()
    }
    assert kept == {"1": "0\n", "2": "1\n", "3": "3\n"}


def test_a_link_is_kept_where_files_rotate(tmp_path: Path, path: Path) -> None:
    """The file behind a link is moved away in its own folder, and the link leads to the next one."""
    (tmp_path / "disk").mkdir()
    path.symlink_to(tmp_path / "disk" / "real.jsonl")
    file = LineFile(path, max_bytes=1024, keep=2)
    for _ in range(5):
        assert file.write([b'"' + b"x" * 700 + b'"\n']) == [None]
    assert path.is_symlink()
    assert {item.name for item in (tmp_path / "disk").iterdir()} == {
        "real.jsonl",
        "real.jsonl.1",
        "real.jsonl.2",
    }


def test_a_lock_fails_the_save_where_nothing_may_block(path: Path) -> None:
    """Where the event loop's thread writes the line itself, a lock that another holds is a failed
    save.
    """
    file = LineFile(path)
    with open_locked(path):
        assert [type(outcome) for outcome in file.write(numbered(1), may_wait=False)] == [
            StorageError
        ]
    assert file.write(numbered(1), may_wait=False) == [None]


def test_a_child_does_not_keep_its_parents_lock(path: Path) -> None:
    """A lock that was held while the process was forked is free again when the parent lets go of
    it.
    """
    reads, writes = os.pipe()
    with open_locked(path):
        child = os.fork()
        if child == 0:
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
    with open_locked(path, wait=False):
        pass
    os.close(writes)
    os.waitpid(child, 0)
    os.close(reads)


@pytest.mark.parametrize(("fsync", "syncs"), [("never", 0), ("batch", 3)])
def test_lines_are_synced(
    fsync: str, syncs: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by default; with ``batch`` before each save returns."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    save(JsonFileStorageProvider.load({"path": str(path), "fsync": fsync}), *[aggregated()] * 3)
    assert len(synced) == syncs


@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_an_error_of_the_disk_fails_one_save_at_most(
    call: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a write or of a sync fails its saves, one of the closing none; the next save goes
    on.
    """
    original = getattr(os, call)

    def fail(descriptor: int, *_: bytes) -> None:
        if call == "close":
            original(descriptor)
        raise OSError(5, "Input/output error")

    file = LineFile(path, durable=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        outcomes = file.write(numbered(1, 2))
    assert [type(outcome) for outcome in outcomes] == [
        type(None) if call == "close" else OSError
    ] * 2
    assert file.write(numbered(3)) == [None]
