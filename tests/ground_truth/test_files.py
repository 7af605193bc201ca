"""The store that reads files: formats, refusals with their messages, and changes of the file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.ground_truth.file_store import IndexedFile, read_rows
from agenteval_otel.evaluators.ground_truth.index import QuestionIndex
from agenteval_otel.ground_truth import FileGroundTruthStore, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing import ManualClock
from agenteval_otel.testing.checks import check_component
from tests.ground_truth.support import ask, later, written


def test_a_csv_file(tmp_path: Path) -> None:
    """Columns in any order, cells with commas, quotes and line ends, a byte order mark, blank
    lines, more columns.
    """
    path = tmp_path / "rows.csv"
    path.write_text(
        "\ufeffModule,note,user_prompt, ExpectedOutput ,Category\r\n"
        'FAQ,x,"Extract: Acme, ""Big"" Corp","two\nlines, and more",Entities\r\n'
        "\r\n"
        ",,Where are you?,Here\u2028there,\r\n",
        encoding="utf-8",
        newline="",
    )
    store = FileGroundTruthStore(path=path)
    assert store.rows() == (
        ('Extract: Acme, "Big" Corp', "two\nlines, and more", "Entities", "FAQ"),
        ("Where are you?", "Here\u2028there", None, None),
    )
    result = store.find(
        EvaluationInput(prompt='extract: acme, "big" corp', metadata={"module": "faq"})
    )
    assert result is not None
    assert (result.answer, result.category, result.module, result.match) == (
        "two\nlines, and more",
        "Entities",
        "FAQ",
        "exact",
    )


def test_a_jsonl_file(tmp_path: Path) -> None:
    """One object a line, in any of the three spellings; an answer may be any JSON value."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"user_prompt": "Who?", "expected_output": {"name": "Ann"}, "module": "a"}\n\n'
        '{"userPrompt": "Where?", "expectedOutput": ["x"], "Category": null, "extra": 1}\n'
        '{"UserPrompt": "When?", "ExpectedOutput": null}',
        encoding="utf-8",
    )
    store = FileGroundTruthStore(path=path)
    assert [row.answer for row in store.rows()] == [{"name": "Ann"}, ["x"], None]
    assert ask(store, "who?") == {"name": "Ann"}
    assert ask(store, "when?") is None


def test_it_is_a_component(tmp_path: Path) -> None:
    """Settings name it by its type, and its dump builds an equal one."""
    path = written(tmp_path / "rows.csv", [("Who are you?", "Ann")])
    store = resolve(GroundTruthStore, {"type": "file", "path": str(path), "minWords": 2})
    check_component(store, GroundTruthStore)
    assert store == FileGroundTruthStore(path=path, min_words=2)
    with pytest.raises(ConfigurationError, match="min_share: expected at most 1, found 2"):
        FileGroundTruthStore(path=path, min_share=2)


HEADER = "UserPrompt,ExpectedOutput\n"
WRONG = {
    "csv": {
        "": r":1: UserPrompt and ExpectedOutput missing. Expected UserPrompt, ExpectedOutput, Category",
        "UserPrompt,Answer\na,b\n": r":1: ExpectedOutput missing",
        "UserPrompt,user_prompt,ExpectedOutput\n": r":1: two columns UserPrompt",
        HEADER: r"rows\.csv: no rows",
        HEADER + "a,b\n\nc\n": r":4: expected the columns of line 1, found 1 of them",
        HEADER + "a,b,,\nHello, you,c\n": r":3: more cells than line 1 has columns",
        HEADER + "a,b\n ,c\n": r":3: UserPrompt is empty",
        HEADER + 'a,"b\nc\n': r": not CSV: unexpected end of data",
        HEADER + "a,b\n\udcff,c\n": r":3: not UTF-8",
    },
    "jsonl": {
        '{"user_prompt": "a", "expected_output": "b"}\n{"user': r":2: not JSON: EOF",
        "[1]": r":1: expected an object, found list",
        '\n{"user_prompt": "a"}': r":2: ExpectedOutput missing",
        '{"user_prompt": 7, "expected_output": "b"}': r":1: UserPrompt is no text",
        '{"user_prompt": "a", "expected_output": "b", "module": 7}': r":1: Category and Module are",
        '{"user_prompt": "a", "expected_output": NaN}': r":1: not JSON",
        '{"user_prompt": "a", "expected_output": "\\ud800"}': r":1: not JSON",
        "[" * 100_000: r":1: not JSON: recursion limit",
    },
    "txt": {HEADER + "a,b\n": r"expected a name that ends in \.csv or \.jsonl"},
}


@pytest.mark.parametrize("suffix", WRONG)
def test_a_wrong_file_is_refused_with_its_line(suffix: str, tmp_path: Path) -> None:
    """At load, with the file, the line and what is wrong there; so are missing files and folders."""
    path = tmp_path / f"rows.{suffix}"
    for content, message in WRONG[suffix].items():
        path.write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(ConfigurationError, match=message):
            FileGroundTruthStore(path=path)
    (tmp_path / "folder.csv").mkdir()
    for name, problem in (("absent.csv", "No such file"), ("folder.csv", "Is a directory")):
        with pytest.raises(ConfigurationError, match=f"cannot be read: {problem}"):
            FileGroundTruthStore(path=tmp_path / name)


def test_the_module_comes_from_the_input(tmp_path: Path) -> None:
    """From the metadata, else the agent's name; a name without rows sees all."""
    path = written(
        tmp_path / "rows.csv", [("Who are you?", "a", "", "A"), ("Who are you?", "b", "", "B")]
    )
    store = FileGroundTruthStore(path=path)
    assert ask(store, "Who are you?", agent="B") == "b"
    assert ask(store, "Who are you?", agent_id="B") == "b"
    assert ask(store, "Who are you?", agent="B", metadata={"module": "a"}) == "a"
    assert ask(store, "Who are you?", agent="other", metadata={"module": 7}) == "a"


class Changing:
    """A file that the test changes, and its index, with a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.path = written(path, [("Who are you?", "Ann")])
        self.failure: Exception | None = None
        self.readings = 0
        self._clock = ManualClock()
        self.index = IndexedFile(path, self._read, clock=self._clock)

    def _read(self, path: Path) -> QuestionIndex:
        self.readings += 1
        if self.failure is not None:
            raise self.failure
        return QuestionIndex(read_rows(path), min_words=3, min_share=0.4)

    def replace(self, answer: str, *more: tuple[str, ...]) -> None:
        """Write other rows, with a modification time of their own."""
        later(written(self.path, [("Who are you?", answer), *more]))

    def answer(self) -> object:
        row = self.index.latest().find("Who are you?")
        return None if row is None else row.answer

    def check(self) -> None:
        """Have the file checked, a second after the last check."""
        self._clock.advance(1.0)
        self.index.latest()

    def check_until(self, condition: Callable[[], bool]) -> None:
        """Have the file checked, a second later each time, until its reading has shown."""
        deadline = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < deadline
            self.check()
            time.sleep(0.002)

    def problem(self) -> str:
        """The first problem that is found from now on. The old rows answer."""
        before = self.answer()
        self.index.problems.clear()
        self.check_until(lambda: len(self.index.problems) > 0)
        assert self.answer() == before
        return str(self.index.problems[0])


@pytest.fixture
def changing(tmp_path: Path) -> Changing:
    return Changing(tmp_path / "rows.csv")


def test_a_changed_file_is_read_again(changing: Changing) -> None:
    """It is checked once a second; the old rows answer until then."""
    changing.replace("Bob")
    assert changing.answer() == "Ann"
    changing.check_until(lambda: changing.answer() == "Bob")
    assert not changing.index.problems


def test_an_unchanged_file_is_not_read_again(changing: Changing) -> None:
    """It is read at the start, and once for its change."""
    for _ in range(3):
        changing.check()
    changing.replace("Bob")
    changing.check_until(lambda: changing.answer() == "Bob")
    assert changing.readings == 2


def test_an_unusable_file_leaves_the_rows_from_before(changing: Changing) -> None:
    """It is reported once, with its line; the next valid file is used."""
    changing.replace("Bob", (" ", "x"))
    assert "rows.csv:3: UserPrompt is" in changing.problem()
    later(changing.path)
    changing.path.write_text("UserPrompt,ExpectedOutput\nWho are you?,Cid\n")
    changing.check_until(lambda: changing.answer() == "Cid")
    assert len(changing.index.problems) == 1


def test_a_file_that_cannot_be_opened_is_tried_again(changing: Changing) -> None:
    """A missing file and too many open files: each second, until it can be read."""
    changing.path.unlink()
    assert "cannot be read" in changing.problem()
    changing.replace("Bob")
    changing.failure = ConfigurationError("rows.csv: too many open files")
    changing.failure.__cause__ = OSError("Too many open files")
    for _ in range(2):
        assert "too many" in changing.problem()
    changing.failure = None
    changing.check_until(lambda: changing.answer() == "Bob")


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever bytes: rows, or an error that names the file."""
    for path, header in ((tmp_path / "any.csv", HEADER.encode()), (tmp_path / "any.jsonl", b"")):
        path.write_bytes(header + content)
        message = str(path)
        try:
            assert FileGroundTruthStore(path=path).rows()
        except ConfigurationError as error:
            message = str(error)
        assert str(path) in message
