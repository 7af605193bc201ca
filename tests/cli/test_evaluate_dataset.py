"""Datasets: inputs from JSONL and CSV, and their problems by file and line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.cli.evaluate.dataset import MAX_PROBLEMS, Dataset, columns_of
from agenteval_otel.config import SettingsError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationInput
from agenteval_otel.storage import JsonFileStorageProvider, SqliteStorageProvider
from tests.cli.conftest import CommandLine
from tests.storage.samples import save, scored


def read(path: Path | str, **options: Any) -> list[EvaluationInput]:
    """The inputs, checked first, as the command does."""
    with Dataset([str(path)], **options) as dataset:
        count = dataset.check()
        rows = list(dataset)
    assert len(rows) == count
    return [row.evaluation_input for row in rows]


def problems(path: Path | str, **options: Any) -> list[str]:
    """The problems, as messages show them."""
    with Dataset([str(path)], **options) as dataset, pytest.raises(SettingsError) as caught:
        dataset.check()
    return [str(problem) for problem in caught.value.located]


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_jsonl_accepts_snake_case_and_camel_case(tmp_path: Path) -> None:
    """Blank lines, a byte order mark and Windows' line ends are accepted too. A list is a context of
    documents.
    """
    content = (
        b'\xef\xbb\xbf{"response": "a", "groundTruth": "b", "sessionId": "s"}\r\n\r\n'
        b'{"response": "c", "ground_truth": ["d"], "usage": {"inputTokens": 3}, "context": ["e"]}'
    )
    assert read(written(tmp_path, "a.jsonl", content)) == [
        EvaluationInput(response="a", ground_truth="b", session_id="s"),
        EvaluationInput(
            response="c",
            ground_truth=["d"],
            usage={"input_tokens": 3},
            context={"documents": ["e"]},
        ),
    ]


def test_csv_columns_are_fields(tmp_path: Path) -> None:
    """Cells are text, or JSON for lists and mappings; dotted columns are keys; an empty cell is no
    value.
    """
    content = (
        "\ufeffresponse,Ground Truth,cost,toolCalls,context.order.id,usage.output_tokens\r\n"
        '"It said ""no""\nand left",,0.5,"[{""name"": ""find""}]",A-1,7\r\n\r\n,42,,,,\r\n'
    )
    assert read(written(tmp_path, "a.csv", content)) == [
        EvaluationInput(
            response='It said "no"\nand left',
            cost=0.5,
            tool_calls=[{"name": "find"}],
            context={"order": {"id": "A-1"}},
            usage={"output_tokens": 7},
        ),
        EvaluationInput(response="", ground_truth="42"),
    ]


def test_columns_of_reference_answers_are_known(tmp_path: Path) -> None:
    """UserPrompt is the prompt, ExpectedOutput the ground truth; Category and Module are kept in
    the metadata.
    """
    path = written(
        tmp_path,
        "a.csv",
        "UserPrompt,ExpectedOutput,Category,Module,response\nWho?,Me,faq,FAQAgent,You\n",
    )
    metadata = {"category": "faq", "module": "FAQAgent"}
    expected = EvaluationInput(prompt="Who?", ground_truth="Me", response="You", metadata=metadata)
    assert read(path) == [expected]


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_the_header_decides_the_separator(separator: str, tmp_path: Path) -> None:
    """Spreadsheets write semicolons in many countries."""
    path = written(tmp_path, "a.csv", f'response{separator}prompt\n"1,5; or so"{separator}why\n')
    assert [(row.response, row.prompt) for row in read(path)] == [("1,5; or so", "why")]


@pytest.mark.parametrize("first", ["sep=|", "SEP=|", '"sep=|"'])
def test_the_line_of_a_spreadsheet_states_the_separator(first: str, tmp_path: Path) -> None:
    """It is no header, and counts as a line in the places of inputs."""
    path = written(tmp_path, "a.csv", f"{first}\r\nresponse|prompt\r\na, b; c|why\r\n")
    assert [(row.response, row.prompt) for row in read(path)] == [("a, b; c", "why")]
    with Dataset([str(path)]) as dataset:
        dataset.check()
        assert [row.place for row in dataset] == ["a.csv:3"]


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "When?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id": 1}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "Tuesday"},
    {"role": "assistant", "content": "On Tuesday."},
]


def test_the_messages_of_a_chat_are_an_input(tmp_path: Path) -> None:
    """As of a handler that returns them: the last question, the answer after it, and its calls."""
    path = written(tmp_path, "a.jsonl", json.dumps({"messages": CHAT, "weight": 1}) + "\n")
    (made,) = read(path)
    assert (made.prompt, made.response_text) == ("When?", "On Tuesday.")
    (call,) = made.tool_calls or ()
    assert (call.name, call.arguments, call.result) == ("find", {"id": 1}, "Tuesday")
    assert [message.role for message in made.message_history or ()] == ["system", "user"]
    assert made.metadata == {"weight": 1}


def test_named_fields_count_beside_the_messages_of_a_chat(tmp_path: Path) -> None:
    """A prompt that is named stays; with an answer of its own, messages are kept as they are."""
    asked = {"messages": CHAT, "Prompt": "Until when?"}
    answered = {"messages": CHAT, "response": "Never."}
    lines = "".join(json.dumps(line) + "\n" for line in (asked, answered))
    first, second = read(written(tmp_path, "a.jsonl", lines))
    assert (first.prompt, first.response_text) == ("Until when?", "On Tuesday.")
    assert (second.prompt, second.response_text) == (None, "Never.")
    assert second.metadata == {"messages": CHAT}


def test_without_a_suffix_the_first_character_decides_the_form(tmp_path: Path) -> None:
    """Else the suffix."""
    assert read(written(tmp_path, "a.txt", ' {"response": "a"}\n'))[0].response == "a"
    assert read(written(tmp_path, "b", "response\na\n"))[0].response == "a"


def test_a_list_of_objects_is_read(tmp_path: Path) -> None:
    """Over any lines; a place is the line on which the object begins."""
    path = written(
        tmp_path,
        "a.json",
        '[{"response": "a"},\n\n  {"response":\n "b", "context": {"c": [1]}} , {"response": ""}]',
    )
    with Dataset([str(path)]) as dataset:
        assert dataset.check() == 3
        assert [row.place for row in dataset] == ["a.json:1", "a.json:3", "a.json:4"]
    assert [row.response for row in read(path)] == ["a", "b", ""]
    assert read(written(tmp_path, "b.jsonl", "[]")) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "question,answer,context,response\nWhy?,So,{},old\n"),
        ("a.jsonl", '{"question": "Why?", "answer": "So", "context": {}, "response": "old"}\n'),
    ],
)
def test_columns_of_other_names_are_fields(name: str, content: str, tmp_path: Path) -> None:
    """What already has the name of such a field goes into the metadata."""
    columns = columns_of(["response=answer", "prompt = question", "metadata.docs=context"])
    (row,) = read(written(tmp_path, name, content), columns=columns)
    assert (row.prompt, row.response) == ("Why?", "So")
    assert row.metadata == {"response": "old", "docs": "{}" if name == "a.csv" else {}}
    assert problems(tmp_path / name, columns={"anwser": "response"}) == [
        "--column: no column 'anwser' (did you mean 'answer'?). Known: question, answer, context, response"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answer=response", "unknown field 'answer'. The field comes first: response=answer"),
        ("respnse=answer", "unknown field 'respnse' (did you mean 'response'?)"),
        ("response", "expected FIELD=COLUMN"),
    ],
)
def test_a_wrong_column_is_refused(text: str, message: str) -> None:
    """With the nearest field."""
    with pytest.raises(ConfigurationError) as caught:
        columns_of([text])
    assert message in str(caught.value)


def test_stored_results_give_their_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of JSON lines and of an SQLite file, whatever its name; one that was stored without its input
    is an error.
    """
    stored = EvaluationInput(prompt="Why?", response="So", context={"a": 1}, ground_truth="So")
    for provider in (
        JsonFileStorageProvider(path=tmp_path / "a.jsonl"),
        SqliteStorageProvider(path=tmp_path / "results"),
    ):
        # the criteria of then decide nothing: a run has its own
        asked = {"criteria": (EvaluationCriteria(name="earlier"),)}
        snapshot = stored.model_copy(update=asked)
        save(provider, AggregatedEvaluationResult(results=(scored(),), input_snapshot=snapshot))
        assert read(provider.place) == [stored]
        save(provider, AggregatedEvaluationResult(evaluation_config_snapshot={}))
        assert "without its input" in problems(provider.place)[0]
    foreign = tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE a (b)")
    assert "no such table: agenteval_schema" in problems(foreign)[0]
    monkeypatch.setattr(
        "agenteval_otel.components.database.target.importlib.util.find_spec", lambda name: None
    )
    assert 'needs the extra sql: pip install "agenteval-otel[sql]"' in problems(foreign)[0]


def test_criteria_of_stored_results_are_said_to_be_unused(tmp_path: Path, cli: CommandLine) -> None:
    """Once, with their number. Those of a plain row are used, and nothing is said of them."""
    plain = EvaluationInput(prompt="Why?", response="So")
    asked = plain.model_copy(update={"criteria": (EvaluationCriteria(name="earlier"),)})
    provider = JsonFileStorageProvider(path=tmp_path / "a.jsonl")
    for snapshot in (plain, asked, asked):
        save(provider, AggregatedEvaluationResult(results=(scored(),), input_snapshot=snapshot))
    (cli.folder / "settings.yaml").write_text("evaluators: [ResponseHealth]\n")
    cli("evaluate", str(tmp_path / "a.jsonl"), "--settings", "settings.yaml", "--quiet")
    line = "not used: criteria that 2 stored results had for themselves. Those of this run count"
    assert cli.err.splitlines().count(line) == 1
    row = {"prompt": "Why?", "response": "So", "criteria": [{"name": "response_health"}]}
    rows = written(tmp_path, "rows.jsonl", json.dumps(row))
    cli("evaluate", str(rows), "--settings", "settings.yaml", "--quiet")
    assert "not used" not in cli.err


def test_unknown_names_are_kept_in_the_metadata(tmp_path: Path) -> None:
    """They are listed, so that the command can name them."""
    path = written(
        tmp_path,
        "a.jsonl",
        '{"response": "a", "id": 3, "metadata": {"own": 1}, "metadata.more": 2}\n',
    )
    with Dataset([str(path)]) as dataset:
        assert (dataset.check(), list(dataset.unknown_names)) == (1, ["id"])
        assert [row.evaluation_input.metadata for row in dataset] == [
            {"own": 1, "more": 2, "id": 3}
        ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.jsonl",
            '{"response": "a"}\n{"response": \n',
            "a.jsonl:2: not JSON: Expecting value at character 13",
        ),
        ("a.jsonl", '{"response": NaN}\n', "a.jsonl:1: not JSON: NaN is not a JSON number"),
        ("a.jsonl", '"text"\n', "a.jsonl:1: expected a JSON object on each line, found 'text'"),
        ("a.jsonl", '{"prompt": "a"}\n', "a.jsonl:1: response: is missing"),
        (
            "a.jsonl",
            '{"response": "a", "usage": 3}\n',
            "a.jsonl:1: usage: expected a mapping, found 3",
        ),
        (
            "a.jsonl",
            '{"response": "a", "cost": "dear"}\n',
            "a.jsonl:1: cost: expected a number, found 'dear'",
        ),
        (
            "a.jsonl",
            '{"response": "a", "promt": "b"}\n',
            "a.jsonl:1: promt: unknown field (did you mean 'prompt'?)",
        ),
        ("a.jsonl", '{"sessionId": 1, "session_id": 2, "response": ""}\n', "also as 'sessionId'"),
        (
            "a.jsonl",
            '{"response": "", "context": "x", "context.y": 1}\n',
            "context is not a mapping here",
        ),
        (
            "a.jsonl",
            b'{"response": "a"}\n{"response": "\xff"}\n',
            "a.jsonl:2: not UTF-8. `iconv -f latin1",
        ),
        ("a.jsonl", "[" * 100_000 + "\n", "not JSON that can be read: it is nested too deeply"),
        ("a.jsonl", '{"response": ' + "9" * 5000 + "}\n", "a.jsonl:1: not JSON: Exceeds the limit"),
        ("a.json", '{\n  "response": "a"\n}\n', "jq -c . FILE"),
        (
            "a.json",
            '[{"response": "a"},\n {"response": "b"}',
            "a.json:2: not JSON: Expecting ',' delimiter",
        ),
        (
            "a.json",
            '[{"response": "a"},\n\n 3]',
            "a.json:3: expected a JSON object on each line, found 3",
        ),
        ("a.csv", "prompt\na\n", "a.csv:1: no column 'response'"),
        (
            "a.csv",
            "response,grountruth\na,b\n",
            "a.csv:1: grountruth: unknown field (did you mean 'ground_truth'?)",
        ),
        (
            "a.csv",
            "response,Response\na,b\n",
            "a.csv:1: Response: appears twice, also as 'response'",
        ),
        ("a.csv", "response,\na,b\n", "a.csv:1: a column without a name"),
        (
            "a.csv",
            'response,prompt\n"a\nb",c\nd\n',
            "a.csv:4: 1 cells, but the header has 2 columns",
        ),
        ("a.csv", 'response,prompt\na,b\n"c,d\ne,f\n', "a.csv:3: not CSV: unexpected end of data"),
        ("a.csv", 'response\n"a"b\n', "a.csv:2: not CSV"),
        ("a.csv", "response\ra\rb\r", "a.csv:1: not CSV: new-line character"),
        ("a.csv", "response,context\na,b\n", "a.csv:2: context: not JSON"),
        ("a.csv", b"\xff\xfer\x00e\x00", "a.csv:1: UTF-16"),
        ("a.json", '{"data": [{"response": "a"}]}', "in the list 'data': `jq -c '.data[]' FILE`"),
        ("a.csv", "sep=;\nresponse;prompt\na\n", "a.csv:3: 1 cells, but the header has 2"),
        ("a.jsonl", '{"messages": [{"role": "user", "content": "Q"}]}\n', "response: is missing"),
    ],
)
def test_a_problem_has_its_file_and_line(
    name: str, content: str | bytes, expected: str, tmp_path: Path
) -> None:
    """It names the field and what was expected."""
    messages = problems(written(tmp_path, name, content))
    assert any(expected in message for message in messages), messages
    assert all(message.startswith(name) for message in messages)


def test_the_first_problems_are_listed(tmp_path: Path) -> None:
    """Problems of several lines are listed together, up to a bound."""
    path = written(
        tmp_path,
        "a.jsonl",
        '{"response": 1}\n{"cost": "x"}\n{"response": "", "cost": "x", "turns": "y"}\n',
    )
    assert [message.split(": ")[0:2] for message in problems(path)] == [
        ["a.jsonl:2", "response"],
        ["a.jsonl:3", "cost"],
        ["a.jsonl:3", "turns"],
    ]
    messages = problems(written(tmp_path, "b.jsonl", "nothing\n" * 1000))
    assert len(messages) == MAX_PROBLEMS + 1
    assert messages[-1] == f"and more, these are the first {MAX_PROBLEMS}"


def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    """The other files are checked all the same."""
    bad = written(tmp_path, "bad.jsonl", "x\n")
    paths = [str(tmp_path / "none.jsonl"), str(tmp_path), str(bad), "a\0b"]
    with Dataset(paths) as dataset, pytest.raises(SettingsError) as caught:
        dataset.check()
    messages = [str(problem) for problem in caught.value.located]
    assert len(messages) == 4
    assert messages[0].endswith("none.jsonl: cannot be read: No such file or directory")
    assert "directory" in messages[1]
    assert messages[2].startswith("bad.jsonl:1: not JSON")
    assert "cannot be read: embedded null byte" in messages[3]


def test_large_cells_and_texts_are_read(tmp_path: Path) -> None:
    """Ten megabytes in one answer, as JSON and as CSV."""
    text = "word " * 2_000_000
    for name, content in (
        ("a.jsonl", json.dumps({"response": text})),
        ("a.csv", f'response,prompt\n"{text}",b\n'),
    ):
        assert read(written(tmp_path, name, content))[0].response == text


def test_half_characters_become_question_marks(tmp_path: Path) -> None:
    """No report can contain a lone surrogate; pairs stay."""
    path = written(
        tmp_path, "a.jsonl", r'{"response": "a\ud800b", "prompt": "\ud83d\ude42"}' + "\n"
    )
    (evaluation_input,) = read(path)
    assert (evaluation_input.response, evaluation_input.prompt) == ("a?b", "🙂")


def test_standard_input_and_pipes_are_checked_and_then_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can be read only once, so they are copied. A shell's process substitution is a pipe."""
    content = b'{"response": "a"}\n{"response": "b"}\n'
    expected = [EvaluationInput(response="a"), EvaluationInput(response="b")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read("-") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content + b"x\n")))
    assert problems("-")[0].startswith("stdin:3: not JSON")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"response\na\nb\n"))
    writer.start()
    assert read(pipe) == expected
    writer.join()


def test_a_stream_is_read_as_far_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer may never end; what it wrote beyond the limit is not read."""
    reader, writer = os.pipe()
    os.write(writer, b"response\na\nb\nc\n")
    with open(reader) as stream, open(writer):
        monkeypatch.setattr(sys, "stdin", stream)
        assert [evaluation_input.response for evaluation_input in read("-", limit=2)] == ["a", "b"]


def test_places_tell_files_of_one_name_apart(tmp_path: Path) -> None:
    """A place is the file's name, with the folder only if necessary, and the first line of the
    input.
    """
    paths = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        paths.append(str(written(tmp_path / folder, "a.csv", 'response\n"a\nb"\nc\n')))
    with Dataset(paths[:1]) as dataset:
        assert [row.place for row in dataset] == ["a.csv:2", "a.csv:4"]
    x, y = paths
    with Dataset(paths) as dataset:
        assert [row.place for row in dataset] == [f"{x}:2", f"{x}:4", f"{y}:2", f"{y}:4"]


def test_a_file_may_grow_but_not_become_wrong(tmp_path: Path) -> None:
    """The run ends where the file was checked, also if it is written faster than evaluated; an
    error has its line.
    """
    path = written(tmp_path, "a.jsonl", '{"response": "a"}\n' * 2)
    with Dataset([str(path)]) as dataset:
        assert dataset.check() == 2
        path.write_text('{"response": "a"}\n' * 5)
        assert len(list(dataset)) == 2
        path.write_text('x\n{"response": "b"}\n')
        with pytest.raises(SettingsError, match=r"a\.jsonl:1: not JSON"):
            list(dataset)
