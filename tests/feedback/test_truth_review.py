"""`truth review`: what people corrected enters the file of reference answers, after a decision and
once.
"""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import (
    annotate,
    configure,
    evaluation_reference,
    flush,
    monitor,
    record_feedback,
)
from agenteval_otel.cli import main
from agenteval_otel.evaluators.ground_truth.additions import add, read_known
from agenteval_otel.evaluators.ground_truth.index import TableRow
from agenteval_otel.ground_truth import FileGroundTruthStore
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.models import EvaluationInput
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.fixtures import (
    postgresql_binary_fixture,
    postgresql_fixture,
    postgresql_server_fixture,
)
from tests.backends.postgresql import PostgreSQL

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]

CORRECTED = {
    "When is it due?": "On Tuesday.",
    "Where is it?": "At home.\x1b[2J",
    "Who has it?": "Ann has it.",
}


@pytest.fixture
def telemetry() -> Iterator[RecordedTelemetry]:
    recorded = RecordedTelemetry()
    RECORDER.reset()
    yield recorded
    recorded.shutdown()


def answered(
    telemetry: RecordedTelemetry, storage: Any, *, content: str = "span_and_event"
) -> None:
    """Answers, corrections of them by their references, one that praises, one of an answer that is
    not stored.
    """
    configure(storage=[storage, telemetry.storage(content=content)], sample_rate=1.0, redactors=[])

    @monitor(agent="support")
    def answer(question: str) -> str:
        annotate(response="On Monday.")
        return evaluation_reference()

    for question, correction in CORRECTED.items():
        with telemetry.tracer().start_as_current_span("request"):
            reference = answer(question)
        assert flush(20.0)
        record_feedback(
            reference, thumbs="down", correction=correction, comment="Wrong", user_id="ann"
        )
        record_feedback(reference, thumbs="up", user_id="bob")
    record_feedback(trace_id="a" * 32, span_id="b" * 16, correction="Of another process.")
    assert flush(20.0)


Review = Callable[..., Any]


@pytest.fixture
def review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Review:
    """Runs the verb; gives its exit code and its output, read where it is JSON."""

    def run(place: str, *options: str, file: str = "truth.jsonl") -> tuple[int, Any]:
        code = main(["truth", "review", "--from", place, "--to", str(tmp_path / file), *options])
        captured = capsys.readouterr()
        output = captured.out + captured.err
        return code, json.loads(output) if "--json" in options and code == 0 else output

    return run


def waiting(review: Review, place: str, **fields: Any) -> dict[str, dict[str, Any]]:
    """What is to be reviewed, by its correction."""
    return {each["correction"]: each for each in review(place, "--json", **fields)[1]}


@pytest.fixture(params=["sqlite", "jsonl", pytest.param("postgresql", marks=pytest.mark.backend)])
def place(request: pytest.FixtureRequest, tmp_path: Path, telemetry: RecordedTelemetry) -> str:
    """Where corrections are stored: a real database, or a file of lines."""
    if request.param == "jsonl":
        path = tmp_path / "results.jsonl"
        answered(telemetry, JsonFileStorageProvider(path=path))
        with path.open("a") as file:
            file.write('{"correction": ')  # cut off
        return str(path)
    if request.param == "sqlite":
        path = tmp_path / "results.db"
        answered(telemetry, SqlStorageProvider(path=path))
        return str(path)
    server: PostgreSQL = request.getfixturevalue("postgresql")
    answered(telemetry, SqlStorageProvider(url=server.url))
    return server.url


def test_a_correction_becomes_a_reference_answer(
    place: str, review: Review, tmp_path: Path
) -> None:
    """Shown with question and answer; accepted as it is or edited it is in the file with where it
    comes from, and the store finds it; what was decided is not asked again."""
    # SQLite with one format of the reference answers, the other places with the other.
    file = "truth.jsonl" if place.endswith(".db") else "truth.csv"
    pending = waiting(review, place, file=file)
    assert {each["prompt"] for each in pending.values()} == {*CORRECTED, None}
    due, where = pending["On Tuesday."], pending["At home.\x1b[2J"]
    assert (due["answer"], due["comment"], due["agent"]) == ("On Monday.", "Wrong", "support")
    code, shown = review(place, "--list", file=file)
    assert code == 0
    assert "question   When is it due?" in shown
    assert "\x1b" not in shown
    assert not (tmp_path / file).exists()
    code, output = review(
        place, "--accept", due["id"], "--edit", where["id"], "At home.", file=file
    )
    assert (code, output.split()) == (0, ["added:", due["id"], "added:", where["id"]])
    who = pending["Ann has it."]
    assert review(place, "--reject", who["id"], file=file)[0] == 0
    assert list(waiting(review, place, file=file)) == ["Of another process."]
    store = FileGroundTruthStore(path=tmp_path / file)
    for question, expected in (
        ("When is it due?", "On Tuesday."),
        ("where is it?", "At home."),
        ("Who has it?", None),
    ):
        truth = store.find(EvaluationInput(prompt=question, response="x", agent="support"))
        assert (truth and truth.answer) == expected
    text = (tmp_path / file).read_text()
    for part in (due["id"], due["traceId"], "recordedAt", "reviewedBy"):
        assert part in text
    assert "ann" not in text.replace("Ann", "").lower(), "users are known by their hash"
    rejected = (tmp_path / f"{file}.rejected").read_text()
    assert who["id"] in rejected
    assert "Ann" not in rejected


@pytest.fixture
def database(tmp_path: Path, telemetry: RecordedTelemetry) -> str:
    path = tmp_path / "results.db"
    answered(telemetry, SqlStorageProvider(path=path))
    return str(path)


def test_the_file_keeps_what_it_has(database: str, review: Review, tmp_path: Path) -> None:
    """Rows, columns and lines of others stay as they are; another answer to a question is replaced
    on demand alone.
    """
    file = tmp_path / "truth.csv"
    file.write_text(
        'Note,UserPrompt,ExpectedOutput,Module\nmine,"when IS  it due?","On Friday, I think",support\nx,"A ""b""?",c,\n'
    )
    file.chmod(0o640)
    due = waiting(review, database, file="truth.csv")["On Tuesday."]
    assert due["inFile"] == "On Friday, I think"
    code, output = review(database, "--accept", due["id"], file="truth.csv")
    assert (code, "the file has another answer" in output) == (1, True)
    before = file.read_text()
    assert before.startswith("Note,UserPrompt")
    assert "Tuesday" not in before
    assert review(database, "--accept", due["id"], "--replace", file="truth.csv")[0] == 0
    lines = file.read_text().splitlines()
    assert lines[0] == "Note,UserPrompt,ExpectedOutput,Module,Category,Provenance"
    assert lines[1] == 'x,"A ""b""?",c,,,'
    assert lines[2].startswith(",When is it due?,On Tuesday.,support,,")
    assert "On Friday, I think" in lines[2]
    assert len(lines) == 3
    assert file.stat().st_mode & 0o777 == 0o640
    lines_file = tmp_path / "truth.jsonl"
    lines_file.write_text('{"user_prompt":"A?",  "expected_output": {"n": 1.50}}\n')
    assert review(database, "--accept", due["id"])[0] == 0
    assert lines_file.read_text().startswith(
        '{"user_prompt":"A?",  "expected_output": {"n": 1.50}}\n{"userPrompt": "When'
    )


def test_what_the_file_says_already_is_not_asked(
    database: str, review: Review, tmp_path: Path
) -> None:
    """Whoever wrote it, and whoever else corrected the same."""
    row = {"userPrompt": "when is it due?", "expectedOutput": "On Tuesday.", "module": "Support"}
    (tmp_path / "truth.jsonl").write_text(json.dumps(row))
    assert "On Tuesday." not in waiting(review, database)


def test_wrong_decisions_change_nothing(database: str, review: Review, tmp_path: Path) -> None:
    """They are named, before any is carried out."""
    pending = waiting(review, database)
    due, lost, who = (
        pending[correction]["id"]
        for correction in ("On Tuesday.", "Of another process.", "Ann has it.")
    )
    cases = [
        (["--accept", "123"], "123: no correction to review has this id"),
        (["--accept", lost], "is not stored"),
        (["--accept", due, "--reject", due], "accepted and rejected"),
        (["--edit", due, " "], "the answer is blank"),
    ]
    for options, wrong in cases:
        code, output = review(database, "--accept", who, *options)
        assert (code, wrong in output) == (2, True), output
        assert not (tmp_path / "truth.jsonl").exists()


def test_without_content_there_is_nothing_to_review(
    tmp_path: Path, review: Review, telemetry: RecordedTelemetry
) -> None:
    """Corrections are content: where that is not captured, they are not stored."""
    answered(telemetry, SqlStorageProvider(path=tmp_path / "results.db"), content="no_content")
    assert review(str(tmp_path / "results.db"))[1] == "0 corrections to review\n"


def test_places_that_cannot_be_read_are_named(tmp_path: Path, review: Review) -> None:
    """No file, no database, no file of reference answers."""
    for place in (str(tmp_path / "none.db"), "mysql://a/b", "postgresql://a:b@127.0.0.1:1/x"):
        code, output = review(place)
        assert code == 2
        assert "agenteval-otel truth: " in output
    (tmp_path / "empty.jsonl").touch()
    assert review(str(tmp_path / "empty.jsonl"), file="truth.txt")[0] == 2
    (tmp_path / "truth.csv").write_text("a,b\n1,2\n")
    code, output = review(str(tmp_path / "empty.jsonl"), file="truth.csv")
    assert (code, "truth.csv:1" in output) == (2, True)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE x (y)")
    other.close()
    assert review(str(tmp_path / "other.db"))[0] == 2


def test_on_a_terminal_each_is_asked(database: str, tmp_path: Path) -> None:
    """Accept, edit, reject and skip, one after the other; the end of the input quits."""
    master, terminal = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "agenteval_otel",
        "truth",
        "review",
        "--from",
        database,
        "--to",
        "truth.jsonl",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        os.write(master, b"x\na\ne\nAt work.\nr\ns\n")
        output, _ = program.communicate(timeout=60)
    os.close(master)
    os.close(terminal)
    assert program.returncode == 0, output
    assert "1 of 4" in output
    assert "1 correction left to review" in output
    rows = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]
    assert [(row["userPrompt"], row["expectedOutput"]) for row in rows] == [
        ("When is it due?", "On Tuesday."),
        ("Where is it?", "At work."),
    ]
    assert [row["provenance"].get("edited") for row in rows] == [None, True]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_line_ends_inside_a_text_stay_as_they_are(tmp_path: Path, suffix: str) -> None:
    """Of the rows that were there: a file from Windows, or a text with lines."""
    path = tmp_path / f"truth.{suffix}"
    rows = b'UserPrompt,ExpectedOutput\r\nWhen?,"One\r\nTwo\rThree\nFour"\r\n'
    if suffix == "jsonl":
        rows = b'{"userPrompt": "When?", "expectedOutput": "One\\r\\nTwo\\rThree\\nFour"}\r\n'
    path.write_bytes(rows)
    add(path, TableRow("Where?", "Here."), {})
    known = {item.row.prompt: item.row.answer for item in read_known(path)}
    assert known == {"When?": "One\r\nTwo\rThree\nFour", "Where?": "Here."}
