"""Where answers come from: files, databases, filters; and what is wrong with them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, SpanReference
from agenteval_otel.offline.comparison import (
    Answer,
    ComparedSource,
    Filters,
    answer_of_result,
    arms_of,
)
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from tests.comparison.support import answer_of_record, record
from tests.storage.samples import aggregated, failed, save, scored, skipped

NOON_NS = int(datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp() * 1e9)


def evaluated(version: str, hour: int = 0) -> AggregatedEvaluationResult:
    return aggregated(
        scored(probability=0.25, evaluator_id="tone-1", evaluator_version="v"),
        failed(),
        skipped(),
        prompt_version=version,
        experiment="short",
        arm=f"arm {version}",
        service_version="1.2",
        model="m",
        conversation_id="c1",
        tags={"tenant": "acme"},
        ended_ns=NOON_NS + hour * 3_600 * 10**9,
        span=SpanReference(trace_id="ab" * 16, span_id="cd" * 8),
        input_snapshot=EvaluationInput(
            prompt="Where?",
            response="There.",
            message_history=[
                {"role": "assistant", "content": "Hm.", "tool_calls": [{"name": "search"}]}
            ],
        ),
    )


@pytest.fixture
def locations(tmp_path: Path) -> list[str]:
    """A database and a file with the same two results."""
    database, file = tmp_path / "a.db", tmp_path / "a.jsonl"
    for storage in (SqlStorageProvider(path=database), JsonFileStorageProvider(path=file)):
        save(storage, evaluated("3"), evaluated("4", hour=1))
    return [str(database), str(file)]


def within_a_process(answer: Answer) -> Answer:
    """Without where it is stored, and without its texts, which are read from there."""
    return answer._replace(place="", source=None, id="", texts=None)


def test_texts_are_read_again_when_they_are_shown(tmp_path: Path) -> None:
    """A million answers are kept without them. One whose file is written anew or gone has none."""
    path = tmp_path / "results.jsonl"
    path.write_text(evaluated("3").model_dump_json(by_alias=True) + "\n")
    [answer] = ComparedSource(str(path)).answers()
    assert answer.texts is None
    assert answer.content == ("Where?", "There.")
    path.write_text(path.read_text().replace("There.", "Here."))
    assert answer.content is None
    path.unlink()
    assert answer.content is None


def test_a_database_and_a_file_give_the_same_answers(locations: list[str]) -> None:
    """Scores, weights, versions, conversation, labels, content, time and what recognises the input,
    whichever way the results were stored.
    """
    own = [answer_of_result(result, "") for result in (evaluated("3"), evaluated("4", hour=1))]
    for location in locations:
        stored = list(ComparedSource(location).answers())
        assert [answer.content for answer in stored] == [answer.content for answer in own]
        assert [within_a_process(answer) for answer in stored] == list(map(within_a_process, own))
    first = own[0]
    assert first.scores["tone"][:3] == (0.5, True, 4.0)
    assert first.scores["tone"].version == "tone-1 v"
    assert (first.cluster, first.is_live, first.failed) == ("c1", True, ("length",))
    assert first.content == ("Where?", "There.")
    labels = {
        "prompt_version": "3",
        "arm": "arm 3",
        "service_version": "1.2",
        "tag.tenant": "acme",
    }
    assert labels.items() <= first.labels.items()


@pytest.mark.parametrize(
    ("query", "versions"),
    [
        ("prompt_version=4", ["4"]),
        ("tag.tenant=acme&arm=arm 3", ["3"]),
        ("tag.tenant=other", []),
        ("since=2026-11-01T12:30", ["4"]),
        ("until=2026-11-01T13:30%2B01:00", ["3"]),
        ("model=m&service_version=1.2", ["3", "4"]),
    ],
)
def test_filters_choose_in_files_and_databases(
    locations: list[str], query: str, versions: list[str]
) -> None:
    """By label, tag and time, whichever way the database is named."""
    database, file = locations
    for location in (f"sql:{database}", f"sql:sqlite:///{database}", database, file):
        chosen = ComparedSource(f"{location}?{query}").answers()
        assert [item.labels["prompt_version"] for item in chosen] == versions


def test_an_address_keeps_what_is_no_filter_and_hides_its_password() -> None:
    source = ComparedSource("sql:postgresql://ann:secret@db/x?sslmode=require&prompt_version=3")
    assert source.location == "sql:postgresql://ann:secret@db/x?sslmode=require"
    assert source.filters.labels == {"prompt_version": "3"}
    assert "secret" not in source.name


def test_two_arms(tmp_path: Path) -> None:
    """Of two values the earlier one is first; of more, two have to be named."""
    answers = [
        answer_of_record(record(1.0, arm=arm, timestamp=time), arm)
        for arm, time in (("b", 1e12), ("a", 2e12))
    ]
    assert list(arms_of(answers, "arm")) == ["b", "a"]
    answers.append(answer_of_record(record(1.0, arm="c", timestamp=1.0), "c"))
    assert list(arms_of(answers, "arm", ("a", "c"))) == ["a", "c"]
    with pytest.raises(
        ConfigurationError, match=r"found 3: a \(1\), b \(1\), c \(1\)\. --by arm=A,B names two"
    ):
        arms_of(answers, "arm")
    with pytest.raises(ConfigurationError, match="no answer has arm=d"):
        arms_of(answers, "arm", ("a", "d"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "a.jsonl:2: not JSON"),
        ("[1]", "a.jsonl:2: expected a JSON object on each line, found list"),
        ('{"prompt": "q"}', "a.jsonl:2: expected an evaluated answer with its results"),
        ('{"results": 3}', "expected an evaluated answer"),
        ('{"results": [3]}', "expected an evaluated answer"),
    ],
)
def test_what_is_no_result_costs_itself_and_is_named_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, message: str
) -> None:
    """The other lines are compared, and one log line counts what is left out."""
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{text}\n" for text in (json.dumps(record(1.0)), line, line)))
    assert len(list(ComparedSource(str(file)).answers())) == 1
    [logged] = caplog.messages
    assert "stored_rows_unreadable" in logged
    assert "count=2" in logged
    assert message in logged


def test_a_file_without_any_result_is_refused_with_its_first_line(tmp_path: Path) -> None:
    """A dataset is no file of results; a filter that keeps nothing is no error."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "q"}\n' * 2)
    with pytest.raises(ConfigurationError, match=r"a\.jsonl:1: expected an evaluated answer"):
        list(ComparedSource(str(file)).answers())
    file.write_text(f"{json.dumps(record(1.0))}\n[1]\n")
    assert list(ComparedSource(f"{file}?agent=other").answers()) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no.jsonl", "cannot be read: .*evaluate --results FILE"),
        ("no.jsonl?prompt_verison=3", "did you mean 'prompt_version'"),
        ("no.jsonl?since=yesterday", "expected a moment such as"),
        ("sql:no.db", "there is no such database"),
        ("sql:mysql://db/x", "expected sqlite"),
    ],
)
def test_sources_that_are_not_there(source: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(ComparedSource(source).answers())


def test_filters_of_both_sides_add_up() -> None:
    early, late = (Filters.parse([("since", text)], "") for text in ("2026-01-01", "2026-02-01"))
    assert (early & late).since == datetime(2026, 2, 1, tzinfo=UTC)


def test_odd_numbers_are_failures() -> None:
    """NaN, a score out of range and a word are no scores; a probability that is none counts as
    unknown.
    """
    for odd in (float("nan"), 1.5, "good"):
        read = answer_of_record(
            {"results": [{"criterionName": "tone", "evaluatorType": "T", "normalized": odd}]}, "a:1"
        )
        assert (read.scores, read.failed) == ({}, ("tone",))
    assert answer_of_record(record(1.0, probability=0), "a:1").scores["tone"].weight == 1.0
