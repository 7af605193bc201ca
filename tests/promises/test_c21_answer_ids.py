"""C21: scores of two answers never replace each other; those of one answer given again do."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from agenteval_otel import (
    configure,
    evaluation_reference,
    flush,
    monitor,
    record_feedback,
    record_ground_truth,
)
from agenteval_otel.capture.assembly.traces import AssembledTrace
from agenteval_otel.capture.calls import call_id_of_span
from agenteval_otel.capture.spans.forwarded import ForwardedAnswer, attributes_of
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan
from agenteval_otel.instrumentation.spans import SpanEvaluation
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.models.scoring.probability import Sampled
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.storage.scores import scores_of
from agenteval_otel.testing import RecordedTelemetry
from tests.engine.test_off_peak import CONTAINS, HOUR, Clock, set_up
from tests.promises.figures import Recorder
from tests.storage.receiver import Answer, of_span, receiving
from tests.storage.samples import aggregated, save, scored, skipped
from tests.storage.test_scores import langfuse, mlflow, phoenix, sent_by
from tests.testing.doubles import Keeping

ANSWERS = 8


@pytest.fixture
def span() -> Iterator[Any]:
    """A span of the application's, in which all that a test does takes place."""
    tracer = TracerProvider().get_tracer("application")
    with tracer.start_as_current_span("request") as current:
        yield current


def results_of(kept: Keeping) -> list[AggregatedEvaluationResult]:
    assert flush(20)
    saved, kept.saved = kept.saved, []
    return saved


def rows(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def ids_of(results: list[AggregatedEvaluationResult]) -> list[str]:
    return [score.id for result in results for score in scores_of(result, with_failures=True)]


def good(value: EvaluationInput) -> bool:
    return True


def sent_ids(make: Any, answers: list[AggregatedEvaluationResult]) -> list[str]:
    """The ids under which a receiver gets the scores of answers."""
    replies = {
        langfuse: Answer(202, {"message": "Accepted"}),
        phoenix: Answer(body={"data": []}),
        mlflow: Answer(body={}),
    }
    with receiving(replies[make]) as receiver:
        assert sent_by(make(receiver.url), *answers) == []
        bodies = [request.body for request in receiver.requests]
    if make is mlflow:
        return [body["assessment"]["assessment_id"] for body in bodies]
    if make is phoenix:
        return [item["identifier"] for body in bodies for item in body["data"]]
    return [item["id"] for body in bodies for item in body]


@pytest.mark.parametrize("make", [langfuse, phoenix, mlflow])
def test_answers_that_share_a_span_have_scores_of_their_own(
    make: Any, span: Any, promise: Recorder
) -> None:
    """Eight answers in one span of the application's, without a response id: eight scores at the
    receiver; sent again they are the same eight.
    """
    kept = Keeping()
    configure(evaluators=[good], storage=[kept], sample_rate=1.0, agent_span="never")
    answer = monitor(str.upper)
    for number in range(ANSWERS):
        answer(f"q{number}")
    results = results_of(kept)
    spans = {(result.span.trace_id, result.span.span_id) for result in results if result.span}
    assert (len(results), len(spans), {result.response_id for result in results}) == (8, 1, {None})
    first, again = sent_ids(make, results), sent_ids(make, results)
    promise(
        "C21", figure=f"{make.__name__}: {len(set(first))} scores of {ANSWERS} answers of a span"
    )
    assert len(set(first)) == ANSWERS
    assert sorted(first) == sorted(again)


def test_a_row_and_a_line_have_the_id(span: Any, tmp_path: Path) -> None:
    """The database has it in a column, the file in a field, and both are read back with it."""
    sql, lines = SqlStorageProvider(path=tmp_path / "x.db"), tmp_path / "x.jsonl"
    storage = [sql, JsonFileStorageProvider(path=lines)]
    configure(evaluators=[good], storage=storage, sample_rate=1.0)
    monitor(str.upper)("q")
    assert flush(20)
    [(of_row,)] = rows(tmp_path / "x.db", "SELECT call_id FROM agenteval_evaluations")
    of_line = json.loads(lines.read_text())["callId"]
    [stored] = sql.query()
    read = sql.read(stored.evaluation_id)
    assert read is not None
    assert len({of_row, of_line, read.call_id}) == 1
    assert len(of_row) == 16


def test_all_that_comes_later_has_the_id_of_its_answer(span: Any, tmp_path: Path) -> None:
    """Late truth, feedback and off-peak results are of the answer, though its span has others."""
    kept, clock = Keeping(), Clock()
    off_peak = set_up(
        RecordedTelemetry(),
        tmp_path,
        clock,
        CONTAINS,
        "ExactMatch",
        storage=[kept],
        ground_truth_window_s=60,
        agent_span="never",
    )
    references: list[str] = []

    @monitor
    def answer(question: str) -> str:
        references.append(evaluation_reference())
        return question.upper()

    answer("one")
    answer("two")
    first = results_of(kept)
    one, two = (result.call_id for result in first)
    assert one != two
    assert first[0].span == first[1].span
    assert record_ground_truth("ONE", references[0])
    [completed] = results_of(kept)
    assert (completed.call_id, completed.results[0].score) == (one, True)
    assert record_feedback(references[1], thumbs="down")
    [said] = results_of(kept)
    assert said.call_id == two
    clock.now_s += 11 * HOUR
    assert off_peak.look() == 2
    late = results_of(kept)
    assert {result.call_id for result in late} == {one, two}
    assert len(set(ids_of([*first, completed, said, *late]))) == 6  # of each answer three


def forwarded(number: int, call_id: str | None) -> ForwardedAnswer:
    value = EvaluationInput(prompt="q", response=f"answer {number}", agent="support")
    attributes = attributes_of(value, Sampled(1.0, None, 1), call_id)
    return ForwardedAnswer(7, 9, 1, ReadEvent("answer", 1_700_000_000_000_000_000, attributes), {})


def test_an_answer_that_comes_again_to_the_sidecar_replaces_its_scores(
    tmp_path: Path, promise: Recorder
) -> None:
    """Forwarded answers that share a span, each received twice, as after a kill: one row each, and
    equal ids of scores; an id of another form is not taken.
    """
    kept, sql = Keeping(), SqlStorageProvider(path=tmp_path / "x.db")
    configure(evaluators=[good], storage=[kept, sql])
    evaluation = SpanEvaluation()
    for _ in range(2):
        for number in range(ANSWERS):
            evaluation.evaluate_forwarded(forwarded(number, call_id_of_span(number + 1)))
        assert flush(20)
    results = results_of(kept)
    assert len(results) == 2 * ANSWERS
    assert sorted(Counter(ids_of(results)).values()) == [2] * ANSWERS
    assert len(sql.query()) == ANSWERS
    promise("C21", figure=f"received twice: {len(sql.query())} rows of {ANSWERS} answers of a span")
    evaluation.evaluate_forwarded(forwarded(0, "'; DROP TABLE agenteval_results"))
    [other] = results_of(kept)
    assert other.call_id is not None
    assert len(other.call_id) == 16
    assert len(sql.query()) == ANSWERS + 1


def answered(call: str, *results: Any, **fields: Any) -> AggregatedEvaluationResult:
    return of_span(*results, call_id=call, **fields)


def test_rows_of_the_same_result_replace_each_other(tmp_path: Path) -> None:
    """By answer, evaluator, version and criterion, in one batch or later; nothing else is touched."""
    sql = SqlStorageProvider(path=tmp_path / "x.db")
    old = {"evaluator_id": "Tone", "evaluator_version": "1"}
    new = {"evaluator_id": "Tone", "evaluator_version": "2"}
    person = {"evaluator_id": "human", "evaluator_kind": "human"}
    save(
        sql,
        answered("a" * 16, scored(**old, score=0.1), skipped("facts", evaluator_id="Facts")),
        answered("b" * 16, scored(**old, score=0.2)),
        answered("a" * 16, scored(**person, score=0.3)),
        answered("a" * 16, scored(**person, score=0.4)),
        answered("a" * 16, scored(**old, score=0.5), replayed=True),
        aggregated(scored(**old, score=0.6)),
        aggregated(scored(**old, score=0.6)),
    )
    assert len(sql.query()) == 8
    # Its truth came, it was evaluated by another version, and then given again.
    save(sql, answered("a" * 16, scored("facts", evaluator_id="Facts", score=0.7)))
    save(sql, answered("a" * 16, scored(**new, score=0.8)))
    save(
        sql,
        answered("a" * 16, scored(**old, score=0.9)),
        answered("a" * 16, scored(**old, score=1.0)),
    )
    scores = sorted(item.result.score for item in sql.query())
    assert scores == [0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.7, 0.8, 1.0]
    empty = "WHERE id NOT IN (SELECT evaluation_id FROM agenteval_results)"
    assert rows(tmp_path / "x.db", f"SELECT id FROM agenteval_evaluations {empty}") == []


def test_a_database_from_before_is_read_and_written(tmp_path: Path) -> None:
    """Tables without the column get it when they are read, or written, first."""
    for first in ("read", "write"):
        path = tmp_path / f"{first}.db"
        save(SqlStorageProvider(path=path), answered("a" * 16, scored()))
        rows(path, "ALTER TABLE agenteval_evaluations DROP COLUMN call_id")
        sql = SqlStorageProvider(path=path)
        if first == "read":
            [item] = sql.query()
            read = sql.read(item.evaluation_id)
            assert read is not None
            assert read.call_id is None
        save(sql, answered("b" * 16, scored()), answered("b" * 16, scored()))
        assert len(sql.query()) == 2


def agent_span(id: int, answer: str) -> ReadSpan:
    messages = [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": f"agent-{id}",
        "gen_ai.output.messages": json.dumps(messages),
    }
    return ReadSpan(
        7, id, None, "invoke_agent", 1, 1, 2, attributes, resource={"service.name": "x"}
    )


def test_answers_of_spans_have_the_ids_of_their_spans() -> None:
    """A span that comes again, as after a kill, gives the same id, which is its own."""
    kept = Keeping()
    configure(evaluators=[good], storage=[kept], sample_rate=1.0)
    for _ in range(2):
        spans = [agent_span(9, "answer 1"), agent_span(0xAB, "answer 2")]
        SpanEvaluation().evaluate([AssembledTrace(spans, 100)])
    results = results_of(kept)
    ids = Counter(result.call_id for result in results)
    assert ids == {"0000000000000009": 2, "00000000000000ab": 2}
    assert all(result.span and result.span.span_id == result.call_id for result in results)
