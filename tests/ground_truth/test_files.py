"""Stores that read files: formats, refusals with their messages, and changes of the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.components.loading import resolve
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
    result = store.find(EvaluationInput(prompt='extract: acme, "big" corp', metadata={"module": "faq"}))
    assert result is not None
    assert (result.answer, result.category, result.module, result.match) == (
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


HEADER = "UserPrompt,ExpectedOutput\n"
WRONG = {
    "empty": ("csv", "", r":1: UserPrompt and ExpectedOutput missing; expected UserPrompt, ExpectedOutput, Category"),
    "columns": ("csv", "UserPrompt,Answer\na,b\n", r":1: ExpectedOutput missing"),
    "twice": ("csv", "UserPrompt,user_prompt,ExpectedOutput\n", r":1: two columns UserPrompt"),
    "no rows": ("csv", HEADER, r"rows\.csv: no rows"),
    "short": ("csv", HEADER + "a,b\n\nc\n", r":4: expected the columns of line 1, found 1 of them"),
    "comma": ("csv", HEADER + "a,b,,\nHello, you,c\n", r":3: more cells than line 1 has columns"),
    "no prompt": ("csv", HEADER + "a,b\n ,c\n", r":3: UserPrompt is empty"),
    "quote": ("csv", HEADER + 'a,"b\nc\n', r": not CSV: unexpected end of data"),
    "bytes": ("csv", HEADER + "a,b\n\udcff,c\n", r":3: not UTF-8"),
    "rows": ("csv", HEADER + "a,b\n" * 5, r": more than 4 rows \(max_rows\)"),
    "size": ("csv", HEADER + "a," + "x" * 300_000, r": larger than 200000 bytes \(max_bytes\)"),
    "cut": ("jsonl", '{"user_prompt": "a", "expected_output": "b"}\n{"user', r":2: not JSON"),
    "list": ("jsonl", "[1]", r":1: expected an object, found list"),
    "missing": ("jsonl", '\n{"user_prompt": "a"}', r":2: ExpectedOutput missing"),
    "prompt": ("jsonl", '{"user_prompt": 7, "expected_output": "b"}', r":1: UserPrompt is no text"),
    "module": ("jsonl", '{"user_prompt": "a", "expected_output": "b", "module": 7}', r":1: Category and Module are"),
    "number": ("jsonl", '{"user_prompt": "a", "expected_output": NaN}', r":1: not JSON: ValueError"),
    "half": ("jsonl", '{"user_prompt": "a", "expected_output": "\\ud800"}', r":1: not JSON"),
    "deep": ("jsonl", "[" * 100_000, r":1: not JSON: RecursionError"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "content", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_file_is_refused_with_its_line(kind: str, content: str, message: str, tmp_path: Path) -> None:
    """At load, with the file, the line and what is wrong there."""
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match=message):
        resolve(GroundTruthStore, {"type": kind, "path": path, "max_rows": 4, "max_bytes": 200_000})


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A missing file, a folder and a pipe are refused; none is waited for."""
    os.mkfifo(tmp_path / "pipe")
    for name, output in (("absent.csv", "No such file"), (".", "not a file"), ("pipe", "not a file")):
        with pytest.raises(ConfigurationError, match=output):
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
    """A store on a file that the test changes, with a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = written(path, [("Who are you?", "Ann")]), ManualClock()
        self.store = CsvGroundTruthStore(path=path)
        self.failure: Exception | None = None
        self.file = self.store.__dict__["_file"] = IndexedFile(path, self._read, clock=self.clock)

    def _read(self, path: Path) -> QuestionIndex:
        if self.failure is not None:
            raise self.failure
        return self.store._read(path)

    def replace(self, answer: str, *more: tuple[str, ...]) -> None:
        """Write other rows, with a modification time of their own."""
        later(written(self.path, [("Who are you?", answer), *more]))

    def answer_later(self) -> object:
        """The answer after the next check, and after the reading that it may have started."""
        self.clock.advance(1.0)
        ask(self.store, "Who are you?")
        self.file._worker.close(20.0)
        return ask(self.store, "Who are you?")


@pytest.fixture
def changing(tmp_path: Path) -> Changing:
    return Changing(tmp_path / "rows.csv")


def test_a_changed_file_is_read_again(changing: Changing) -> None:
    """It is checked once a second; the old rows answer until then."""
    changing.replace("Bob")
    assert ask(changing.store, "Who are you?") == "Ann"
    assert changing.answer_later() == "Bob"
    assert changing.store.problems() == ()


def test_an_unusable_file_leaves_the_rows_from_before(changing: Changing) -> None:
    """It is reported once, with its line; the next valid file is used."""
    changing.replace("Bob", (" ", "x"))
    assert changing.answer_later() == "Ann"
    (problem,) = changing.store.problems()
    assert "rows.csv:3: UserPrompt is" in str(problem)
    assert (changing.answer_later(), changing.store.problems()) == ("Ann", ())
    later(changing.path)
    changing.path.write_text("UserPrompt,ExpectedOutput\nWho are you?,Cid\n")
    assert changing.answer_later() == "Cid"


def test_a_file_that_cannot_be_opened_is_tried_again(changing: Changing) -> None:
    """A missing file and too many open files: each second, until it can be read."""
    changing.path.unlink()
    assert changing.answer_later() == "Ann"
    assert "cannot be read" in str(changing.store.problems()[0])
    changing.replace("Bob")
    changing.failure = ConfigurationError("rows.csv: cannot be read")
    changing.failure.__cause__ = OSError("Too many open files")
    assert changing.answer_later() == "Ann"
    changing.failure = None
    assert changing.answer_later() == "Bob"


def test_a_relative_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts from the folder in which the store was loaded, wherever the process goes."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    monkeypatch.chdir(tmp_path)
    store = CsvGroundTruthStore(path=Path("rows.csv"))
    assert store.model_dump(mode="json")["path"] == "rows.csv"
    monkeypatch.chdir("/")
    later(written(path, [("Who are you?", "Bob")]))
    store._file._reload()
    assert (ask(store, "Who are you?"), store.problems()) == ("Bob", ())


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever bytes: rows, or an error that names the file."""
    path = tmp_path / "any"
    for kind, header in ((CsvGroundTruthStore, b"UserPrompt,ExpectedOutput\n"), (JsonlGroundTruthStore, b"")):
        path.write_bytes(header + content)
        message = str(path)
        try:
            assert kind(path=path).rows()
        except ConfigurationError as error:
            message = str(error)
        assert str(path) in message
