"""Stores that read files: formats, refusals with their messages, and changes of the file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.components import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.ground_truth import (
    CsvGroundTruthStore,
    FileGroundTruthStore,
    GroundTruthStore,
    JsonlGroundTruthStore,
)
from agenteval_otel.ground_truth.file_store import IndexedFile
from agenteval_otel.ground_truth.index import QuestionIndex, Row
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing import ManualClock
from agenteval_otel.testing.checks import check_component
from tests.ground_truth.support import ask, later, written


def test_a_csv_file(tmp_path: Path) -> None:
    """Columns in any order, cells with commas, quotes and line ends, a byte order mark, blank lines, more columns."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "\ufeffModule,note,user_prompt, ExpectedOutput ,Category\r\n"
        'FAQ,x,"Extract: Acme, ""Big"" Corp","two\nlines, and more",Entities\r\n'
        "\r\n"
        ",,Where are you?,Here\u2028there,\r\n",
        encoding="utf-8", newline="",
    )  # fmt: skip
    store = CsvGroundTruthStore(path=path)
    assert store.rows() == (
        ('Extract: Acme, "Big" Corp', "two\nlines, and more", "Entities", "FAQ"),
        ("Where are you?", "Here\u2028there", None, None),
    )
    found = store.find(EvaluationInput(prompt='extract: acme, "big" corp', metadata={"module": "faq"}))
    assert found is not None
    assert (found.answer, found.category, found.module, found.match) == (
        "two\nlines, and more", "Entities", "FAQ", "exact",
    )  # fmt: skip


def test_a_jsonl_file(tmp_path: Path) -> None:
    """One object a line, in any of the three spellings; an answer may be any JSON value."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"user_prompt": "Who?", "expected_output": {"name": "Ann"}, "module": "a"}\n\n'
        '{"userPrompt": "Where?", "expectedOutput": ["x"], "Category": null, "extra": 1}\n'
        '{"UserPrompt": "When?", "ExpectedOutput": null}',
        encoding="utf-8",
    )
    store = JsonlGroundTruthStore(path=path)
    assert [row.answer for row in store.rows()] == [{"name": "Ann"}, ["x"], None]
    assert ask(store, "who?") == {"name": "Ann"}  # type: ignore[arg-type]
    assert ask(store, "when?") is None  # type: ignore[arg-type]


def test_it_is_a_component(tmp_path: Path) -> None:
    """Settings name it by its type, and its dump builds an equal one."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    store = resolve(GroundTruthStore, {"type": "csv", "path": str(path), "minWords": 2})
    check_component(store, GroundTruthStore)
    assert store == CsvGroundTruthStore(path=path, min_words=2)
    with pytest.raises(ConfigurationError, match=r"unknown ground_truth type 'cvs'.*; known: csv, jsonl"):
        resolve(GroundTruthStore, {"type": "cvs"})
    with pytest.raises(ConfigurationError, match="min_share: expected at most 1, found 2"):
        CsvGroundTruthStore(path=path, min_share=2)


WRONG_CSV = {
    "empty": (b"", r":1: column UserPrompt and ExpectedOutput missing"),
    "columns": (b"UserPrompt,Answer\na,b\n", r":1: column ExpectedOutput missing; expected UserPrompt,Exp"),
    "twice": (b"UserPrompt,user_prompt,ExpectedOutput\n", r":1: two columns 'user_prompt'"),
    "no rows": (b"UserPrompt,ExpectedOutput\n", r"rows\.csv: no rows"),
    "short": (b"UserPrompt,ExpectedOutput\na,b\n\nc\n", r":4: expected the columns of line 1, found 1 of them"),
    "comma": (b"UserPrompt,ExpectedOutput\na,b,,\nHello, you,c\n", r":3: more cells than line 1 has columns"),
    "no prompt": (b"UserPrompt,ExpectedOutput\na,b\n ,c\n", r":3: UserPrompt is "),
    "quote": (b'UserPrompt,ExpectedOutput\na,"b\nc\n', r": not CSV: unexpected end of data"),
    "bytes": (b"UserPrompt,ExpectedOutput\na,b\n\xff,c\n", r":3: not UTF-8"),
    "rows": (b"UserPrompt,ExpectedOutput\n" + b"a,b\n" * 5, r": more than 4 rows \(max_rows\)"),
    "size": (b"UserPrompt,ExpectedOutput\na," + b"x" * 300, r": larger than 200 bytes \(max_bytes\)"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), WRONG_CSV.values(), ids=list(WRONG_CSV))
def test_a_wrong_csv_file_is_refused_with_its_line(content: bytes, said: str, tmp_path: Path) -> None:
    """At load, with the file, the line and what is wrong there."""
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        CsvGroundTruthStore(path=path, max_rows=4, max_bytes=200)


WRONG_JSONL = {
    "cut": ('{"user_prompt": "a", "expected_output": "b"}\n{"user', r":2: not JSON"),
    "list": ("[1]", r":1: expected an object, found list"),
    "missing": ('\n{"user_prompt": "a"}', r":2: ExpectedOutput missing"),
    "prompt": ('{"user_prompt": 7, "expected_output": "b"}', r":1: UserPrompt is no text"),
    "module": ('{"user_prompt": "a", "expected_output": "b", "module": 7}', r":1: Module is no text"),
    "number": ('{"user_prompt": "a", "expected_output": NaN}', r":1: not JSON: ValueError"),
    "half": ('{"user_prompt": "a", "expected_output": "\\ud800"}', r":1: not JSON"),
    "deep": ("[" * 100_000, r":1: not JSON: RecursionError"),
    "long": (json.dumps({"user_prompt": "a", "expected_output": "x" * 300_000}), r":1: longer than 262144"),
    "long prompt": (json.dumps({"user_prompt": "a" * 70_000, "expected_output": "x"}), r":1: UserPrompt is longer"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), WRONG_JSONL.values(), ids=list(WRONG_JSONL))
def test_a_wrong_jsonl_file_is_refused_with_its_line(content: str, said: str, tmp_path: Path) -> None:
    """At load, with the file, the line and what is wrong there."""
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=said):
        JsonlGroundTruthStore(path=path)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A missing file, a folder and a pipe are refused; none is waited for."""
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("absent.csv", "No such file"), (".", "not a file"), ("pipe", "not a file")):
        with pytest.raises(ConfigurationError, match=said):
            CsvGroundTruthStore(path=tmp_path / name)


def test_original_matching_limits_the_rows(tmp_path: Path) -> None:
    """It scans every row, so a large file is refused."""
    path = written(tmp_path / "rows.csv", [(f"question {number}", "a") for number in range(5_001)])
    assert len(CsvGroundTruthStore(path=path).rows()) == 5_001
    with pytest.raises(ConfigurationError, match="more than 5000 rows"):
        CsvGroundTruthStore(path=path, matching="original")


def test_the_module_comes_from_the_input(tmp_path: Path) -> None:
    """From the metadata, else the agent's name; a name without rows sees all."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "a", "", "A"), ("Who are you?", "b", "", "B")])
    store = CsvGroundTruthStore(path=path)
    assert ask(store, "Who are you?", agent="B") == "b"
    assert ask(store, "Who are you?", agent_id="B") == "b"
    assert ask(store, "Who are you?", agent="B", metadata={"module": "a"}) == "a"
    assert ask(store, "Who are you?", agent="other", metadata={"module": 7}) == "a"


def test_another_format_is_a_few_lines(tmp_path: Path) -> None:
    """A subclass that reads its own rows inherits the rest."""
    path = tmp_path / "rows.tsv"
    path.write_text("Who?\tAnn\n")
    store = Tabbed(path=path)
    assert ask(store, "who?") == "Ann"  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        FileGroundTruthStore(path=path)


class Tabbed(FileGroundTruthStore):
    @classmethod
    def read_rows(cls, path: Path, lines: Any) -> Any:
        return (Row(*line.rstrip().split("\t")) for line in lines if line.strip())


class Changing:
    """An indexed file whose clock the test moves."""

    def __init__(self, path: Path) -> None:
        written(path, [("Who are you?", "Ann")])
        self.path, self.clock, self.reads = path, ManualClock(), 0
        self.before_reading: Callable[[], object] = lambda: None
        self.file = IndexedFile(path, self.read, clock=self.clock)

    def read(self) -> QuestionIndex:
        self.reads += 1
        self.before_reading()
        return CsvGroundTruthStore(path=self.path)._file.index()

    def replace(self, answer: str, *more: tuple[str, ...], seconds: int = 1) -> None:
        """Write other rows, with a modification time of their own."""
        written(self.path, [("Who are you?", answer), *more])
        for _ in range(seconds):
            later(self.path)

    def answer(self) -> object:
        found = self.file.index().find("who are you?")
        return None if found is None else found.answer

    def answer_later(self) -> object:
        """The answer after the next check, and after the reading that it may have started."""
        self.clock.advance(1.0)
        self.answer()
        self.file._worker.close(20.0)
        return self.answer()


@pytest.fixture
def changing(tmp_path: Path) -> Changing:
    return Changing(tmp_path / "rows.csv")


def test_a_changed_file_is_read_again(changing: Changing) -> None:
    """It is checked once a second, and read only if it changed."""
    changing.replace("Bob")
    assert changing.answer() == "Ann"
    assert [changing.answer_later(), changing.answer_later(), changing.reads] == ["Bob", "Bob", 2]
    assert changing.file.take_problems() == ()


def test_a_broken_file_leaves_the_rows_from_before(changing: Changing) -> None:
    """It is reported once, with its line; a missing file too; the next valid one is used."""
    changing.replace("Bob", (" ", "x"))
    assert changing.answer_later() == "Ann"
    (problem,) = changing.file.take_problems()
    assert "rows.csv:3: UserPrompt is" in str(problem)
    for _ in range(3):
        assert (changing.answer_later(), changing.file.take_problems()) == ("Ann", ())
    changing.path.unlink()
    assert changing.answer_later() == "Ann"
    assert "cannot be read" in str(changing.file.take_problems()[0])
    changing.replace("Cid", seconds=2)
    assert changing.answer_later() == "Cid"


def test_a_relative_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts from the folder in which the store was loaded, wherever the process goes."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    monkeypatch.chdir(tmp_path)
    store = CsvGroundTruthStore(path=Path("rows.csv"))
    assert store.model_dump(mode="json")["path"] == "rows.csv"
    monkeypatch.chdir("/")
    later(written(path, [("Who are you?", "Bob")]))
    store._file.reload()
    assert (ask(store, "Who are you?"), store.problems()) == ("Bob", ())


def test_a_copy_with_the_old_time_is_a_change(changing: Changing) -> None:
    """A file of the same size and modification time is read if its inode changed."""
    before = changing.path.stat()
    while changing.path.stat().st_ctime_ns == before.st_ctime_ns:  # until the file system's clock ticks
        written(changing.path, [("Who are you?", "Bob")])
        os.utime(changing.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changing.answer_later() == "Bob"


def test_a_file_that_cannot_be_opened_is_tried_again(changing: Changing) -> None:
    """Too many open files, missing rights: reported once, and tried every second."""

    def refuse() -> None:
        raise ConfigurationError("rows.csv: cannot be read: Too many open files") from OSError()

    changing.replace("Bob")
    changing.before_reading = refuse
    problems: list[Exception] = []
    for _ in range(3):
        assert changing.answer_later() == "Ann"
        problems += changing.file.take_problems()
    assert (len(problems), changing.reads) == (1, 4)
    changing.before_reading = lambda: None
    assert changing.answer_later() == "Bob"


def test_a_reading_that_is_lost_starts_over(changing: Changing) -> None:
    """A process that is forked while the file is read does not have the reading thread: it reads the file itself."""

    class Lost(BaseException):
        """The thread does not exist any more."""

    def lose() -> None:
        raise Lost

    changing.replace("Bob")
    changing.before_reading = lose
    assert changing.answer_later() == "Ann"
    changing.before_reading = lambda: None
    assert changing.answer_later() == "Bob"


def test_many_threads_look_up_while_the_file_changes(changing: Changing) -> None:
    """Each gets the rows of one of the files, and in the end all get the last one's."""
    wrong: list[object] = []
    done = threading.Event()

    def look_up() -> None:
        while not done.is_set():
            answer = str(changing.answer())
            if answer != "Ann" and not answer.isdecimal():
                wrong.append(answer)

    threads = [threading.Thread(target=look_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            other = changing.path.with_name("other.csv")
            written(other, [("Who are you?", str(number))])
            os.replace(other, changing.path)
            changing.answer_later()
    finally:
        done.set()
    for thread in threads:
        thread.join(20.0)
    assert (changing.answer_later(), wrong, changing.file.take_problems()) == ("19", [], ())


def test_reading_again_blocks_no_lookup(changing: Changing) -> None:
    """While the file is read, the old rows answer, and no second reading starts."""
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leave.wait(20.0)

    changing.replace("Bob")
    changing.before_reading = wait
    for _ in range(3):
        changing.clock.advance(1.0)
        assert changing.answer() == "Ann"
        assert entered.wait(20.0)
    leave.set()
    changing.file._worker.close(20.0)
    assert (changing.answer(), changing.reads) == ("Bob", 2)


def test_a_file_that_changes_while_it_is_read_is_read_again(changing: Changing) -> None:
    """A change between the check and the end of the reading is not lost."""
    index = changing.read

    def change_meanwhile() -> QuestionIndex:
        result = index()
        if changing.reads == 2:
            changing.replace("Cid", seconds=3)
        return result

    changing.file._read = change_meanwhile
    changing.replace("Bob")
    assert [changing.answer_later(), changing.answer_later()] == ["Bob", "Cid"]


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever bytes: rows, or an error that names the file."""
    path = tmp_path / "any"
    for kind, header in ((CsvGroundTruthStore, b"UserPrompt,ExpectedOutput\n"), (JsonlGroundTruthStore, b"")):
        path.write_bytes(header + content)
        said = str(path)
        try:
            rows = kind(path=path).rows()
        except ConfigurationError as error:
            rows, said = ((),), str(error)
        assert rows
        assert str(path) in said
