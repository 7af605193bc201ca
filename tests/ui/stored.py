"""Results for the pages' tests: stored as providers do, with times, weights and content of the
test's choice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agenteval_otel.components.database.target import Target
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    SpanReference,
    ToolCall,
)
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import rows_of
from agenteval_otel.ui.columns import ResultColumns

DAY_NS = 86_400 * 10**9


def score(
    name: str = "helpfulness", value: float = 1.0, *, passed: bool | None = True, **fields: Any
) -> EvaluationResult:
    return EvaluationResult(
        criterion_name=name,
        evaluator_type="Judge",
        evaluator_kind="llm_judge",
        score=value,
        normalized=value,
        passed=passed,
        label="pass" if passed else "fail",
        **{"probability": 1.0, **fields},
    )


def answer(
    *results: EvaluationResult, number: int = 0, with_span: bool = True, **fields: Any
) -> AggregatedEvaluationResult:
    """An evaluation of an answer that is stored with its content, unless `input_snapshot` is None."""
    snapshot = EvaluationInput(
        prompt=f"How do I return order {number}?",
        response=f"Within thirty days, order {number}.",
        agent="support",
        tool_calls=[ToolCall(name="find_order", arguments={"id": number})],
    )
    now = time.time_ns()
    span = (
        SpanReference(trace_id=f"{number + 1:032x}", span_id=f"{number + 1:016x}")
        if with_span
        else None
    )
    given = {
        "agent": "support",
        "ended_ns": now,
        "input_snapshot": snapshot,
        "span": span,
        **fields,
    }
    return AggregatedEvaluationResult(timestamp=now // 10**6, results=results, **given)


def store(path: Path, answers: Iterable[AggregatedEvaluationResult]) -> Place:
    target = Target(path, "")
    database = Database(target)
    items = [rows_of(item) for item in answers]
    assert not any(database.write(items, may_wait=True)), "stored"
    database.close()
    return database_of(target)


def columns_of(place: Place, **settings: Any) -> ResultColumns:
    """The columns of what is stored there, as the pages read them."""
    columns = ResultColumns(place, **settings)
    columns.refresh()
    return columns


def traffic(count: int = 300) -> list[AggregatedEvaluationResult]:
    """Three days of a support agent whose helpfulness drops with the second version of its prompt."""
    chance, answers, now = random.Random(7), [], time.time_ns()
    for number in range(count):
        is_new = number > count * 0.6
        probability = chance.choice((0.1, 0.25, 1.0))
        results = [
            score(
                name,
                round(0.8 if (passed := chance.random() < rate) else 0.3, 2),
                passed=passed,
                probability=probability,
                reasoning="It names the period.",
                reason_code=None if passed else "incomplete",
            )
            for name, rate in (
                ("helpfulness", 0.6 if is_new else 0.95),
                ("groundedness", 0.9),
                ("tone", 0.97),
            )
        ]
        results.append(
            EvaluationResult(
                criterion_name="json_schema", evaluator_type="Rules", skip_reason="no schema"
            )
        )
        answers.append(
            answer(
                *results,
                number=number,
                ended_ns=now - (count - number) * 3 * DAY_NS // count,
                conversation_id=f"conversation-{number // 3}",
                prompt_version="2" if is_new else "1",
                experiment="shorter",
                arm="short" if number % 2 else "control",
                model=chance.choice(("claude-sonnet", "gpt-mini")),
                agent=chance.choice(("support", "billing")),
                overall_score=0.5,
                sampling_probability=probability,
            )
        )
    return answers


def write_run(
    path: Path, *, rate: float = 0.95, version: str = "1", count: int = 120, first: int = 0
) -> Path:
    """A file as `evaluate --results` writes it: a dataset's answers, of which this share contains
    what they should.
    """
    chance, lines = random.Random(3), []
    for number in range(first, first + count):
        passed = chance.random() < rate
        snapshot = EvaluationInput(
            prompt=f"Question {number}?", response=f"Answer {number}, {passed}."
        )
        results = (
            score("contains", float(passed), passed=passed),
            score("response_health", evaluator_version=version),
            score("length", chance.random(), passed=None),
        )
        lines.append(answer(*results, input_snapshot=snapshot, with_span=False, number=number))
    path.write_text("".join(f"{line.model_dump_json(by_alias=True)}\n" for line in lines))
    return path
