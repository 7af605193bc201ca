"""The reader of stored results: equal rows from every place, damaged rows that cost themselves, sums."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.components.database.target import target_of
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult, SpanReference
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.places import Place, Query
from agenteval_otel.storage.read import database_of, place_of
from agenteval_otel.storage.rows import AnswerRow, UnreadableRows, row_of, row_of_record
from tests.sources import package_sources
from tests.storage.samples import aggregated, change, failed, save, scored, skipped

NOON_NS = int(datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp() * 1e9)
ORIGINAL = {
    "overallScore": 0.5,
    "timestamp": 1_700_000_000_000,
    "results": [
        {"criterionName": "tone", "score": 4, "evaluatorType": "LLMJudge", "reasoning": "kind"},
        {"criterionName": "length", "score": 0, "evaluatorType": "Rule", "error": "broke"},
    ],
}
"""A result as the original framework wrote it."""


def answered(number: int, **fields: object) -> AggregatedEvaluationResult:
    history = [
        {"role": "assistant", "content": "Hm.", "tool_calls": [{"name": "search"}]},
        {"role": "user", "content": "And?"},
    ]
    return aggregated(
        scored(probability=0.25, evaluator_id="tone-1", evaluator_version="v"),
        scored(evaluator_kind="human", passed=False, score=0.0, normalized=0.0),
        failed(),
        skipped(),
        **{
            "agent": "support",
            "prompt_version": str(number),
            "conversation_id": f"c{number // 2}",
            "tags": {"tenant": "acme"},
            "ended_ns": NOON_NS + number * 3_600 * 10**9,
            "span": SpanReference(trace_id=f"{number + 1:032x}", span_id="cd" * 8),
            "input_snapshot": EvaluationInput(
                prompt=f"Where is {number}?", response="There.", message_history=history
            ),
            **fields,
        },
    )


@pytest.fixture(params=["database", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Four answers in two conversations. Databases give ids within a millisecond no order."""
    results = [answered(number) for number in range(4)]
    path = tmp_path / "results"
    if request.param == "file":
        save(JsonFileStorageProvider(path=path), *results)
    else:
        save(SqlStorageProvider(path=path), *results)
    return place_of(str(path))


def _by_version(place: Place) -> list[AnswerRow]:
    return sorted(place.rows(), key=lambda row: row.labels["prompt_version"])


def test_rows_are_equal_whichever_place_they_come_from(place: Place) -> None:
    """Databases, lines and results of this process give the same rows: labels, unit, input, results."""
    rows = list(place.rows())
    expected = [row_of(answered(number), "") for number in range(4)]
    for row, own in zip(_by_version(place), expected, strict=True):
        # Only a file's row has durations: of a database the columns have them.
        results = [result._replace(duration_ns=None) for result in row.results]
        read = row._replace(id="", place="", results=results)
        assert read._replace(input={}) == own._replace(id="", input={})
        assert read.input["prompt"] == own.input["prompt"]
        assert read.unit == own.unit
    assert [row.id for row in rows] == sorted({row.id for row in rows})


@pytest.mark.parametrize(
    ("filters", "versions"),
    [
        ({"labels": {"prompt_version": ("1", "3")}}, ["1", "3"]),
        ({"labels": {"tag.tenant": ("other",)}}, []),
        ({"since": datetime(2026, 11, 1, 14, tzinfo=UTC)}, ["2", "3"]),
        ({"until": datetime(2026, 11, 1, 13, tzinfo=UTC)}, ["0"]),
        ({"labels": {"agent": ("support",), "tag.tenant": ("acme",)}}, ["0", "1", "2", "3"]),
    ],
)
def test_a_query_filters_rows_and_whole_results(
    place: Place, filters: dict[str, object], versions: list[str]
) -> None:
    """Every place gives the same answers for a query, as rows and as evaluations."""
    query = Query(**filters)  # type: ignore[arg-type]
    assert sorted(row.labels["prompt_version"] for row in place.rows(query)) == versions
    assert sorted(result.prompt_version or "" for _, result in place.results(query)) == versions


def test_what_belongs_to_an_answer_is_found(place: Place) -> None:
    """By its id, by its conversation, and by its span; an id that is not stored gives nothing."""
    rows = _by_version(place)
    [conversation] = {row.conversation_id for row in rows[:2]}
    assert conversation is not None
    assert place.find_turns(conversation) == [row.id for row in rows[:2]]
    stored = place.find_answer(rows[3].id)
    assert stored is not None
    assert stored[0].prompt_version == "3"
    for unknown in ("f" * 32, "x", "0" * 31 + "1", f"{1:012x}{0:020x}"):
        assert place.find_answer(unknown) is None
    [label] = place.find_labels([rows[0].id])
    assert (label.evaluation_id, label.criterion, label.passed) == (rows[0].id, "tone", False)
    assert label.others["tone"] is True


def test_columns_continue_behind_an_id(place: Place) -> None:
    """All results are counted, read in order, and read again from any answer on."""
    rows = list(place.rows())
    assert place.count_results() == 16
    columns = [row for part in place.columns(after="") for row in part]
    assert len(columns) == 16
    later = [row for part in place.columns(after=rows[1].id) for row in part]
    assert [row[0] for row in later] == [row[0] for row in columns[8:]]
    assert len([row for part in place.columns(after="", skip=8) for row in part]) in (4, 8)


def test_a_damaged_row_of_a_database_costs_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that was changed by hand is counted and logged; all others are read, whole and light."""
    path = tmp_path / "a.db"
    save(SqlStorageProvider(path=path), *(answered(number) for number in range(3)))
    change(path, "UPDATE agenteval_evaluations SET details = '{cut' WHERE prompt_version = '1'")
    database = database_of(target_of(path, None))
    for read in (database.rows, database.results):
        unreadable = UnreadableRows()
        assert len(list(read(unreadable=unreadable))) == 2
        assert unreadable.count == 1
        assert "not JSON" in unreadable.first
    assert "stored_rows_unreadable" in caplog.text or "cannot be read" in caplog.text


def test_damaged_lines_cost_themselves(tmp_path: Path) -> None:
    """Half a line in the middle, other JSON, bytes that are no UTF-8 and deep nesting are counted by
    reason; a last line without an end was cut off, and is passed over.
    """
    path = tmp_path / "a.jsonl"
    good = answered(0).model_dump_json(by_alias=True, exclude_none=True).encode()
    wrong = [good[:50], b"[1]", b'{"results": 3}', b'{"results": [{}]}', b"[" * 100_000]
    latin = good.replace(b"There.", b"Caf\xe9.")
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join([good, *wrong, b"", good, latin, good[:80]]))
    files = LineFiles([path])
    for read in (files.rows, files.results):
        unreadable = UnreadableRows()
        assert len(list(read(unreadable=unreadable))) == 3
        assert unreadable.count == len(wrong)
        assert unreadable.first.startswith("a.jsonl:2: ")
        assert sum(unreadable.reasons.values()) == len(wrong)


def test_results_of_the_original_framework_are_read(tmp_path: Path) -> None:
    """Their failures carry a filler score, which is no score; names may be in either form."""
    path = tmp_path / "a.jsonl"
    snake = {"results": [{"criterion_name": "tone", "evaluator_type": "T", "normalized": 0.5}]}
    path.write_text(f"{json.dumps(ORIGINAL)}\n{json.dumps(snake)}\n")
    first, second = LineFiles([path]).rows()
    assert [(row.criterion, row.status) for row in first.results] == [
        ("tone", "scored"),
        ("length", "failed"),
    ]
    assert first.at == 1_700_000_000
    assert second.results[0].normalized == 0.5
    whole = [result for _, result in LineFiles([path]).results()]
    assert [result.status for result in whole[0].results] == ["scored", "failed"]


def test_a_file_that_grows_is_read_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is appended later is behind what was read; a file that is gone is an error with its name."""
    path = tmp_path / "a.jsonl"
    line = answered(0).model_dump_json(by_alias=True, exclude_none=True)
    path.write_text(f"{line}\n{line[:40]}")
    files = LineFiles([path])
    [row] = files.rows()
    with path.open("a") as file:
        file.write(f"{line[40:]}\n")
    assert len([row for part in files.columns(after=row.id) for row in part]) == 4
    with path.open("a") as file:
        file.write("[1]\n")
    caplog.clear()
    list(files.columns(after=row.id))
    assert f"a.jsonl, byte {2 * len(line) + 2}: " in caplog.text, "lines before it were not counted"
    path.unlink()
    with pytest.raises(StorageError, match=r"a\.jsonl cannot be read"):
        list(files.rows())


def test_a_time_that_no_date_can_have_is_unknown() -> None:
    """A page shows the answer without a time, and does not end with an error."""
    for ended_ns in (10**409, 1e300, float("inf"), -5, True, "soon"):
        row = row_of_record({**ORIGINAL, "timestamp": None, "endedNs": ended_ns}, "a", "file")
        assert 0.0 <= row.at < 1.0


def test_only_the_reader_knows_whether_a_place_is_a_database() -> None:
    """No other package imports the queries of databases: it asks a `Place`."""
    importers = set()
    for source in package_sources():
        for node in source.nodes_of(ast.ImportFrom):
            if node.module == "agenteval_otel.storage.sql_read":
                importers.add(source.module.split(".")[0])
    assert importers <= {"storage"}


def test_only_the_storage_turns_stored_text_into_results() -> None:
    """Another package would read a damaged or an older line in another way."""
    readers = set()
    for source in package_sources():
        for node in source.nodes_of(ast.Attribute):
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            if name == "AggregatedEvaluationResult" and node.attr.startswith("model_validate"):
                readers.add(source.module)
    assert readers <= {"storage.rows", "storage.base"}
