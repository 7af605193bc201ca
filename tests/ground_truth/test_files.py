"""Stores that read files: what they take, what they refuse and with which words, and how they follow changes."""

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
from agenteval_otel.ground_truth.table import Table
from agenteval_otel.ground_truth.watched import Watched
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
    """One object a line, under any of the three spellings; an answer may be any value."""
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
    """Settings name it by its type, and its dump builds it again."""
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
    "rows": (b"UserPrompt,ExpectedOutput\n" + b"a,b\n" * 5, r":6: more than 4 rows \(max_rows\)"),
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


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Nothing there, a folder, or a pipe: which is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("absent.csv", "No such file"), (".", "not a file"), ("pipe", "not a file")):
        with pytest.raises(ConfigurationError, match=said):
            CsvGroundTruthStore(path=tmp_path / name)


def test_the_originals_way_is_for_few_rows(tmp_path: Path) -> None:
    """It looks at every row, so a large file is refused."""
    path = written(tmp_path / "rows.csv", [(f"question {number}", "a") for number in range(5_001)])
    assert len(CsvGroundTruthStore(path=path).rows()) == 5_001
    with pytest.raises(ConfigurationError, match=r":5002: more than 5000 rows"):
        CsvGroundTruthStore(path=path, matching="original")


def test_the_module_comes_from_the_input(tmp_path: Path) -> None:
    """What the metadata says, else the agent's name; a name without rows looks at all."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "a", "", "A"), ("Who are you?", "b", "", "B")])
    store = CsvGroundTruthStore(path=path)
    assert ask(store, "Who are you?", agent="B") == "b"
    assert ask(store, "Who are you?", agent_id="B") == "b"
    assert ask(store, "Who are you?", agent="B", metadata={"module": "a"}) == "a"
    assert ask(store, "Who are you?", agent="other", metadata={"module": 7}) == "a"


def test_another_form_is_a_few_lines(tmp_path: Path) -> None:
    """A subclass that reads rows of its own has all the rest."""
    path = tmp_path / "rows.tsv"
    path.write_text("Who?\tAnn\n")
    store = Tabbed(path=path)
    assert ask(store, "who?") == "Ann"  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        FileGroundTruthStore(path=path)


class Tabbed(FileGroundTruthStore):
    @classmethod
    def read_rows(cls, path: Path, lines: Any, limits: Any) -> Any:
        from agenteval_otel.ground_truth.index import Row

        return (Row(*line.rstrip().split("\t")) for line in lines if line.strip())


class Changing:
    """A watched file whose clock the test moves, and whose reading it begins."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.begun = path, ManualClock(), 0
        self.watched = Watched(path, self.read, clock=self.clock, begin=self.begin)

    def read(self, steadily: Callable[[Any], Any]) -> Table:
        store = CsvGroundTruthStore(path=self.path)
        return Table(steadily(store.rows()), min_words=3, min_share=0.4, steadily=steadily)

    def begin(self, work: Callable[[], None]) -> bool:
        self.begun += 1
        work()
        return True

    def answer(self) -> object:
        found = self.watched.table().find("who are you?")
        return None if found is None else found.answer


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Once a second it is looked at, and read only if it changed."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    later(written(one.path, [("Who are you?", "Bob")]))
    assert one.answer() == "Ann"
    one.clock.advance(1.0)
    one.answer()
    assert (one.answer(), one.begun) == ("Bob", 1)
    one.clock.advance(5.0)
    assert (one.answer(), one.begun, one.watched.troubles()) == ("Bob", 1, ())


def test_a_broken_file_leaves_the_rows_from_before(tmp_path: Path) -> None:
    """It is told once, with its line; a file that is gone too; the next right one is taken."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    later(written(one.path, [("Who are you?", "Bob"), (" ", "x")]))
    one.clock.advance(1.0)
    one.answer()
    assert one.answer() == "Ann"
    (trouble,) = one.watched.troubles()
    assert "rows.csv:3: UserPrompt is" in str(trouble)
    for _ in range(3):
        one.clock.advance(1.0)
        assert (one.answer(), one.watched.troubles()) == ("Ann", ())
    one.path.unlink()
    one.clock.advance(1.0)
    assert one.answer() == "Ann"
    assert "cannot be read" in str(one.watched.troubles()[0])
    later(later(written(one.path, [("Who are you?", "Cid")])))
    one.clock.advance(1.0)
    one.answer()
    assert one.answer() == "Cid"


def test_it_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is meant from the folder in which it was loaded, wherever the process goes."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    monkeypatch.chdir(tmp_path)
    store = CsvGroundTruthStore(path=Path("rows.csv"))
    assert store.model_dump(mode="json")["path"] == "rows.csv"
    monkeypatch.chdir("/")
    later(written(path, [("Who are you?", "Bob")]))
    store._watched._read_again()
    assert (ask(store, "Who are you?"), store.troubles()) == ("Bob", ())


def test_new_rights_and_old_times_are_changes_too(tmp_path: Path) -> None:
    """A file of the same size with the time of the one before, such as a copy that keeps times, is read."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    before = one.path.stat()
    while one.path.stat().st_ctime_ns == before.st_ctime_ns:  # the file system's clock ticks
        written(one.path, [("Who are you?", "Bob")])
        os.utime(one.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    one.clock.advance(1.0)
    one.answer()
    assert one.answer() == "Bob"


def test_what_only_just_now_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    """Too many open files, missing rights: told once, and tried every second until it goes."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    read = one.watched._read

    def refused(steadily: Any) -> Table:
        raise ConfigurationError("rows.csv: cannot be read: Too many open files") from OSError()

    one.watched._read = refused
    later(written(one.path, [("Who are you?", "Bob")]))
    told: list[Exception] = []
    for _ in range(3):
        one.clock.advance(1.0)
        assert one.answer() == "Ann"
        told += one.watched.troubles()
    assert (len(told), one.begun) == (1, 3)
    one.watched._read = read
    one.clock.advance(1.0)
    one.answer()
    assert one.answer() == "Bob"


def test_a_reading_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    """A process that is forked while the file is read has no such thread: it reads the file itself."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    read, begin = one.watched._read, one.watched._begin

    class Gone(BaseException):
        """The thread is not there any more."""

    def goes(steadily: Any) -> Table:
        raise Gone

    def begins(work: Callable[[], None]) -> bool:
        with pytest.raises(Gone):
            work()
        return True

    later(written(one.path, [("Who are you?", "Bob")]))
    one.watched._read, one.watched._begin = goes, begins
    one.clock.advance(1.0)
    assert one.answer() == "Ann"
    one.watched._read, one.watched._begin = read, begin
    one.clock.advance(1.0)
    one.answer()
    assert one.answer() == "Bob"


def test_many_threads_ask_while_the_file_changes(tmp_path: Path) -> None:
    """Each gets the rows of one of the files, and all the last one's in the end."""
    clock = ManualClock()
    path = written(tmp_path / "rows.csv", [("Who are you?", "0")])
    store = CsvGroundTruthStore(path=path)
    watched = Watched(path, store._read, clock=clock)
    wrong: list[object] = []
    done = threading.Event()

    def asks() -> None:
        while not done.is_set():
            found = watched.table().find("who are you?")
            if found is None or not found.answer.isdigit():
                wrong.append(found)

    threads = [threading.Thread(target=asks) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 30):
        written(tmp_path / "next.csv", [("Who are you?", str(number))])
        os.replace(later(tmp_path / "next.csv"), path)
        clock.advance(1.0)
    for _ in range(1_000):
        clock.advance(1.0)
        found = watched.table().find("who are you?")
        if found is not None and found.answer == "29":
            break
        watched._worker.close(20.0)
    done.set()
    for thread in threads:
        thread.join(20.0)
    assert found is not None
    assert (found.answer, wrong, watched.troubles()) == ("29", [], ())


def test_reading_again_holds_nobody_up(tmp_path: Path) -> None:
    """While it is read, on a thread of its own, the rows from before answer; nothing else is begun."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    clock, entered, leave = ManualClock(), threading.Event(), threading.Event()
    tables = iter([Table([], min_words=3, min_share=0.4), Table([], min_words=3, min_share=0.4)])
    threads: list[threading.Thread] = []

    def read(steadily: Any) -> Table:
        if threading.current_thread() is not threading.main_thread():
            threads.append(threading.current_thread())
            entered.set()
            leave.wait(20.0)
        return next(tables)

    watched = Watched(path, read, clock=clock)
    first = watched.table()
    for _ in range(3):
        later(path)
        clock.advance(1.0)
        assert watched.table() is first
        assert entered.wait(20.0)
    leave.set()
    (thread,) = threads
    thread.join(20.0)
    assert watched.table() is not first


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """What was written after it was looked at is not lost."""
    one = Changing(written(tmp_path / "rows.csv", [("Who are you?", "Ann")]))
    read = one.watched._read

    def changes_meanwhile(steadily: Any) -> Table:
        table = read(steadily)
        if one.begun == 1:
            later(later(written(one.path, [("Who are you?", "Cid")])))
        return table

    one.watched._read = changes_meanwhile
    later(written(one.path, [("Who are you?", "Bob")]))
    for expected in ("Bob", "Cid"):
        one.clock.advance(1.0)
        one.answer()
        assert one.answer() == expected


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
