"""`replay --from sql`: answers that were stored with their input, by SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agenteval_otel.components.database.target import target_of
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    SpanReference,
)
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.storage.read import database_of
from tests.cli.conftest import CommandLine

from . import recordings as rec
from .test_files import polite, replay, results

ANSWERS = 450


def stored(number: int, text: str | None, **more: Any) -> AggregatedEvaluationResult:
    trace_id, span_id = rec.ids(number)
    result = EvaluationResult(
        criterion_name="polite",
        score=number % 2 == 0,
        passed=number % 2 == 0,
        normalized=float(number % 2 == 0),
        evaluator_type="RuleBased",
        evaluator_version="old",
        probability=0.1,
    )
    at_ns = rec.BASE_NS + number * rec.SECOND
    return AggregatedEvaluationResult.model_validate(
        {
            "agent": "support",
            "service": "shop",
            "results": (result,),
            "ended_ns": at_ns,
            "response_ended_ns": at_ns,
            "span": SpanReference(trace_id=trace_id, span_id=span_id, trace_flags=1),
            "input_snapshot": None
            if text is None
            else EvaluationInput(
                response=text, agent="support", service="shop", criteria=[{"name": "earlier"}]
            ),
            **more,
        }
    )


def save(path: Path, *saved: AggregatedEvaluationResult) -> None:
    async def work() -> None:
        provider = SqlStorageProvider(path=path)
        for aggregated in saved:
            await provider.save_result(aggregated)
        await provider.close()

    asyncio.run(work())


def test_stored_answers_are_scored_again(cli: CommandLine) -> None:
    """With the stored scores beside, whatever their probability was; each span once, over several
    pages.
    """
    without_input, replayed = stored(900, None), stored(901, "No.", replayed=True)
    save(
        cli.folder / "agenteval.db",
        *(stored(n, polite(n)) for n in range(ANSWERS)),
        without_input,
        replayed,
        stored(3, polite(3)),
    )
    report = replay(cli, "agenteval.db")
    assert report["left_out"] == {
        "evaluations stored without their input": 1,
        "replayed answers and conversations": 1,
        "unselected": 0,
    }
    own = f"criteria that {ANSWERS + 1} answers had for themselves"
    assert report["notes"] == [f"not used: {own}. Those of this replay count"]
    [compared] = report["compared"]
    assert (report["answers"], compared["answers"], compared["now_pass"]) == (
        ANSWERS,
        ANSWERS,
        ANSWERS // 2,
    )
    assert compared["recorded"]["mean"]["mean"] == 0.5
    assert compared["recorded"]["evaluators"] == ["RuleBased old"]
    assert {line["span"]["traceId"] for line in results(cli.folder)} == {
        rec.ids(n)[0] for n in range(ANSWERS)
    }


def test_stored_answers_are_chosen(cli: CommandLine) -> None:
    """By time, agent and recorded score."""
    save(cli.folder / "agenteval.db", *(stored(n, polite(n)) for n in range(20)))
    options = (
        "--since",
        "2026-03-01T00:00:04",
        "--until",
        "2026-03-01T00:00:10",
        "--below",
        "polite=0.5",
    )
    assert replay(cli, "--from", "sql", "agenteval.db", *options)["answers"] == 3
    replay(cli, "--from", "sql", "agenteval.db", "--agent", "other", "--results", "b", code=2)
    replay(cli, "--from", "sql", "missing.db", "--results", "c", code=2)
    assert "missing.db: there is no such database" in cli.err


def test_what_came_later_is_a_recorded_score(cli: CommandLine) -> None:
    """What a person said, and what an off-peak evaluator found hours later, is stored by itself: no
    further answer.
    """
    said = EvaluationResult(
        criterion_name="thumbs",
        score=False,
        passed=False,
        normalized=0.0,
        evaluator_type="person",
        evaluator_kind="human",
    )
    late = EvaluationResult(
        criterion_name="late", score=0.25, normalized=0.25, evaluator_type="RuleBased"
    )
    empty = EvaluationInput(response="", agent="support", service="shop")
    hour = 3_600 * rec.SECOND
    unjoined = stored(2, "", results=(said,), input_snapshot=empty, span=None)
    save(
        cli.folder / "agenteval.db",
        *(stored(n, polite(n)) for n in range(3)),
        unjoined,
        stored(1, "", results=(said,), input_snapshot=empty, ended_ns=rec.BASE_NS + hour),
        stored(2, polite(2), results=(late,), ended_ns=rec.BASE_NS + hour),
    )
    assert replay(cli, "--from", "sql", "agenteval.db")["answers"] == 3
    recorded = {
        line["span"]["traceId"]: line["metadata"]["replay"]["recorded"]
        for line in results(cli.folder)
    }
    names = [{entry["criterion_name"] for entry in recorded[rec.ids(n)[0]]} for n in range(3)]
    assert names == [{"polite"}, {"polite", "thumbs"}, {"polite", "late"}]
    chosen = replay(
        cli, "--from", "sql", "agenteval.db", "--below", "thumbs=0.5", "--results", "said.jsonl"
    )
    assert chosen["answers"] == 1


def test_one_trace_of_very_many_answers_is_read_in_pages(tmp_path: Path) -> None:
    """Of a process that lives within one trace: beside an answer stand the results of its own span
    alone.
    """
    trace_id, _ = rec.ids(1)
    spans = [
        SpanReference(trace_id=trace_id, span_id=f"{number:016x}", trace_flags=1)
        for number in (1, 2, 2)
    ]
    save(
        tmp_path / "a.db",
        *(stored(number, polite(number), span=span) for number, span in enumerate(spans)),
    )
    target = target_of(tmp_path / "a.db", None)
    keys = [key for key, _ in database_of(target).results()]
    assert len(database_of(target).find_others({keys[1]: (trace_id, spans[1].span_id)})) == 1
    assert database_of(target).find_others({keys[0]: (trace_id, spans[0].span_id)}) == []
    assert database_of(target).find_others({}) == []
