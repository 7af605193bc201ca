"""Results in a database: SQLite in a file, and the same on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.errors import StorageError
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationResult,
    RunError,
    SpanReference,
)
from agenteval_otel.storage import EvaluationStorageProvider, SqlStorageProvider
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import rows_of
from agenteval_otel.testing import check_component, check_storage
from tests.storage.samples import aggregated, failed, save, scored, skipped

DAY_NS = 86_400 * 10**9
NOW_NS = 1_700_000_000 * 10**9
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.backend)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The options that name an empty database of each kind."""
    if request.param == "sqlite":
        return {"path": tmp_path / "deep" / "results.db"}
    return {"url": request.getfixturevalue("postgresql").url}


@pytest.fixture
def storage(where: dict[str, Any]) -> SqlStorageProvider:
    return SqlStorageProvider(**where)


def ended(days_ago: float, *results: Any, **fields: Any) -> AggregatedEvaluationResult:
    return aggregated(*results, ended_ns=NOW_NS - int(days_ago * DAY_NS), **fields)


def at(days_ago: float) -> datetime:
    return datetime.fromtimestamp(NOW_NS / 1e9, UTC) - timedelta(days=days_ago)


def test_what_is_saved_is_read_back(storage: SqlStorageProvider) -> None:
    """Scores of every type, skips, failures, spans, snapshots and metadata come back as they were."""
    value = aggregated(
        scored("flag", score=True),
        scored("number", score=4),
        scored("share", score=0.25),
        scored("word", score="good"),
        scored("huge", score=10**30),
        scored("text", reasoning="a\nb \u2028 \U0001f600", metadata={"n": [1, {"a": None}]}),
        scored(
            "judged",
            evaluator_id="judge-1",
            evaluator_version="2",
            evaluator_kind="llm_judge",
            calls_model=True,
            threshold=0.7,
            probability=0.25,
            reason_code="too_long",
        ),
        failed(raised=True),
        skipped(),
        span=SpanReference(
            trace_id=TRACE, span_id="b7ad6b7169203331", trace_flags=1, trace_state="a=b"
        ),
        input_snapshot=EvaluationInput(prompt="q", response="a", context={"documents": ["d"]}),
        session_id="s",
        run_errors=(RunError(message="broke", evaluator_type="T"),),
        metadata={"durationMs": 3},
        model="m",
        conversation_id="c",
        sampling_probability=0.25,
        sampling_reason="ratio",
        has_ground_truth=True,
        evaluation_config_snapshot={"criteriaNames": ["flag"]},
        stream_end="completed",
        timestamp=1_700_000_000_000,
    )
    save(storage, value, aggregated(scored("other")))
    actual = storage.query(criterion="judged")
    assert len(actual) == 1
    assert actual[0].result == value.results[6]
    assert (actual[0].trace_id, actual[0].span_id, actual[0].weight) == (
        TRACE,
        "b7ad6b7169203331",
        4.0,
    )
    assert storage.read(actual[0].evaluation_id) == value
    assert storage.read("0" * 32) is None


def test_results_are_found(storage: SqlStorageProvider) -> None:
    """By criterion, agent, time, score, verdict, status and trace, and by several at once; the
    newest come first.
    """
    span = SpanReference(trace_id=TRACE, span_id="b7ad6b7169203331")
    save(
        storage,
        ended(3, scored("tone", score=0.2, passed=False), failed("facts"), agent="old"),
        ended(2, scored("tone", score=0.9), scored("length", score=True), agent="new", span=span),
        ended(1, scored("tone", score=0.5), skipped("facts"), agent="new"),
    )

    def names(**filters: Any) -> list[tuple[str, float]]:
        actual = storage.query(**filters)
        assert all(item.evaluated_at.tzinfo is not None for item in actual)
        return [
            (item.result.criterion_name, round((at(0) - item.evaluated_at) / timedelta(days=1), 3))
            for item in actual
        ]

    everything = [("tone", 1), ("facts", 1), ("tone", 2), ("length", 2), ("tone", 3), ("facts", 3)]
    assert names() == everything
    assert names(limit=2) == everything[:2]
    assert names(limit=3, offset=2) == everything[2:5]
    assert names(criterion="tone") == [("tone", 1), ("tone", 2), ("tone", 3)]
    assert names(agent="old") == everything[4:]
    assert names(since=at(2)) == everything[:4]
    assert names(until=at(2)) == everything[4:]
    assert names(since=at(2.5), until=at(1.5), criterion="tone") == [("tone", 2)]
    assert names(since=at(2).replace(tzinfo=None)) == everything[:4], "without a zone it is UTC"
    assert names(min_score=0.5) == [("tone", 1), ("tone", 2), ("length", 2)]
    assert names(min_score=0.1, max_score=0.5) == [("tone", 1), ("tone", 3)]
    assert names(passed=False) == [("tone", 3)]
    assert names(status="failed") == [("facts", 3)]
    assert names(status="skipped") == [("facts", 1)]
    assert names(trace_id=TRACE) == [("tone", 2), ("length", 2)]
    assert names(trace_id=TRACE, agent="old") == []


def test_results_are_found_by_annotation(storage: SqlStorageProvider) -> None:
    """By prompt, user, environment and tags, all of them together; what comes back has them all."""
    said: dict[str, Any] = {
        "prompt_name": "p",
        "prompt_version": "3",
        "user_id": "u",
        "environment": "test",
    }
    value = aggregated(scored("tone"), **said, tags={"tenant": "acme", "plan.tier-1": "yes"})
    save(
        storage,
        value,
        aggregated(scored("tone"), prompt_version="4", tags={"tenant": "other"}),
        aggregated(),
    )
    (stored,) = storage.query(**said, tags={"tenant": "acme", "plan.tier-1": "yes"})
    assert (stored.prompt_version, stored.user_id, stored.tags) == ("3", "u", value.tags)
    assert storage.read(stored.evaluation_id) == value
    assert [item.prompt_version for item in storage.query(tags={"tenant": "other"})] == ["4"]
    assert storage.query(tags={"tenant": "acme", "plan": "x"}) == storage.query(user_id="v") == []


def test_values_are_bound(storage: SqlStorageProvider) -> None:
    """What looks like SQL is a value like any other, stored and asked for."""
    evil = "'); DROP TABLE agenteval_results; --"
    save(
        storage,
        aggregated(scored(evil, reasoning=evil, label=evil), agent=evil),
        aggregated(scored("tone")),
    )
    assert [item.agent for item in storage.query(criterion=evil, agent=evil)] == [evil]
    assert storage.query(criterion="' OR '1'='1", agent="x' OR 1=1 --", trace_id="%") == []
    assert len(storage.query()) == 2


def test_the_contract_of_storage_holds(storage: SqlStorageProvider) -> None:
    """It takes all kinds of results, many at once, and can be closed twice, and goes on after that."""
    check_storage(storage)
    check_component(storage, EvaluationStorageProvider)
    save(storage, aggregated())
    assert len(storage.query(limit=1000)) == 20 * 4 + 3


def test_anything_is_stored(storage: SqlStorageProvider) -> None:
    """Surrogates, NUL, NaN, endless names, times that no calendar has and objects cost no result."""
    save(
        storage,
        aggregated(
            scored("a\ud800b\0c", reasoning="r\udfff\0", label="l\0"),
            agent="x" * 5_000,
            ended_ns=10**30,
        ),
        aggregated(
            scored("nan", score=float("nan"), normalized=float("inf"), metadata={"x": float("nan")})
        ),
        aggregated(scored("huge", score=10**400, started_ns=2**70)),
        aggregated(scored("object", metadata={"host": object()})),
        aggregated(overall_score=float("-inf"), timestamp=-(10**30), ended_ns=None),
    )
    actual = {item.result.criterion_name: item for item in storage.query(limit=100)}
    assert {"a\ufffdbc", "nan", "huge", "object", "tone"} <= set(actual)
    assert actual["a\ufffdbc"].result.reasoning == "r\ufffd"
    assert actual["a\ufffdbc"].agent == "x" * 256
    assert (actual["nan"].result.score, actual["nan"].result.normalized) == (None, None)
    assert actual["huge"].result.score == 10**400


def test_a_refused_row_costs_only_its_result(where: dict[str, Any]) -> None:
    """The other rows of a batch are stored, and the error shows no content."""
    database = Database(SqlStorageProvider(**where).target)
    several = [rows_of(aggregated(scored(f"c{number}"))) for number in range(5)]
    several[2].results[0]["started_ns"] = "canary-text"
    several[2].results[0]["criterion"] = None
    outcomes = database.write(several, may_wait=True)
    assert [outcome is None for outcome in outcomes] == [True, True, False, True, True]
    assert isinstance(outcomes[2], StorageError)
    assert "canary" not in str(outcomes[2])
    assert database.write(several[:1], may_wait=True) == [None], "a second time is no second row"
    database.close()
    assert len(SqlStorageProvider(**where).query()) == 4


def test_an_answer_that_is_saved_again_replaces_its_results(storage: SqlStorageProvider) -> None:
    """Each result replaces that of the same evaluator and criterion. What people, a replay and
    another call of the trace gave stays.
    """
    span = SpanReference(trace_id=TRACE, span_id="b7ad6b7169203331")

    def answer(*results: EvaluationResult, **fields: Any) -> AggregatedEvaluationResult:
        return aggregated(*results, **{"span": span, "call_id": "1", **fields})

    save(
        storage,
        answer(scored(score=0.1), skipped("facts")),
        answer(scored(score=0.2), call_id="2"),
        answer(scored(score=0.3), replayed=True),
        answer(scored(score=0.4, evaluator_kind="human")),
    )
    others = [("tone", 0.2), ("tone", 0.3), ("tone", 0.4)]

    def in_database() -> list[tuple[str, Any]]:
        results = [item.result for item in storage.query(limit=100)]
        return sorted((result.criterion_name, result.score) for result in results)

    save(storage, answer(scored(score=0.8)))
    assert in_database() == [("facts", None), *others, ("tone", 0.8)]
    save(storage, answer(scored(score=0.9), scored("facts")))
    assert in_database() == [("facts", 0.5), *others, ("tone", 0.9)]
    answers = database_of(storage.target).results()
    assert len(list(answers)) == 4, "an evaluation without results is left"


def test_old_results_are_deleted(where: dict[str, Any]) -> None:
    """With `keep_days` what is older is deleted, whole; what is younger stays."""
    now = datetime.now(UTC).timestamp() * 1e9
    keeping = SqlStorageProvider(**where)
    save(keeping, *[aggregated(ended_ns=int(now) - age * DAY_NS) for age in (0, 5, 9, 11, 400)])
    save(SqlStorageProvider(**where, keep_days=10), aggregated(ended_ns=int(now)))
    left = {item.evaluation_id for item in keeping.query(limit=1000)}
    assert len(left) == 4
    assert min(item.evaluated_at for item in keeping.query(limit=1000)) > datetime.now(
        UTC
    ) - timedelta(days=10)


def test_a_newer_version_is_refused(where: dict[str, Any], raw: Callable[[str], Any]) -> None:
    """Tables of a newer version of the package are neither written nor read, and the error says so."""
    storage = SqlStorageProvider(**where)
    save(storage, aggregated())
    raw("UPDATE agenteval_schema SET version = 2")
    for use in (lambda: save(storage, aggregated()), storage.query, lambda: storage.read("x")):
        with pytest.raises(StorageError, match="version 2, this package knows 1"):
            use()
    raw("UPDATE agenteval_schema SET version = 1")
    save(storage, aggregated())
    assert len(storage.query()) == 6


@pytest.fixture
def raw(where: dict[str, Any], request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Runs a statement past the package."""
    if "url" in where:
        query: Callable[[str], Any] = request.getfixturevalue("postgresql").query
        return query

    def run(statement: str) -> Any:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(where["path"])) as connection:
            result = connection.execute(statement).fetchall()
            connection.commit()
            return result

    return run


def test_the_documented_sql_works(where: dict[str, Any], raw: Callable[[str], Any]) -> None:
    """The tables are asked in plain SQL: a weighted mean by criterion, joined with the evaluations."""
    save(
        SqlStorageProvider(**where),
        aggregated(scored(normalized=1.0, probability=0.5)),
        aggregated(scored(normalized=0.0), model="m"),
    )
    mean = "SELECT criterion, sum(weight * normalized) / sum(weight) FROM agenteval_results GROUP BY criterion"
    ((name, value),) = raw(mean)
    assert (name, round(value, 6)) == ("tone", round(2 / 3, 6))
    joined = "SELECT e.model FROM agenteval_results r JOIN agenteval_evaluations e ON e.id = r.evaluation_id"
    assert sorted(row[0] or "" for row in raw(joined)) == ["", "m"]
