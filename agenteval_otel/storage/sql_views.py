"""Queries of the pages of `agenteval-otel ui`: all results as columns, and what belongs to one
answer. Read only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from agenteval_otel.database.target import Target
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.sql_database import (
    EVALUATIONS,
    RESULTS,
    connect_reader,
    read_evaluation,
)
from agenteval_otel.storage.sql_rows import name_of

COLUMNS: Final = (
    "evaluation_id", "moment", "criterion", "agent", "model", "prompt_version", "evaluator_version", "environment",
    "arm", "reason", "evaluator_kind", "status", "passed", "weight", "probability", "normalized", "cluster", "shadow",
)  # fmt: skip
"""Of a row of `read_columns`, in this order; `moment` is in seconds since the epoch."""
_AT_ONCE: Final = 10_000
_MOST_IN: Final = 400  # bound values in one statement


class Label(NamedTuple):
    """A person's label of an answer, with the evaluators' verdicts on it.

    Attributes:
        evaluation_id: Of the answer; None where it is not in this database.
        passed: The person's verdict; None of a score or a comment.
        others: The evaluators' verdicts by criterion.
    """

    evaluation_id: str | None
    criterion: str
    passed: bool | None
    others: dict[str, bool]


class Answer(NamedTuple):
    """An evaluation with the id of its row."""

    evaluation_id: str
    evaluation: AggregatedEvaluationResult


def count_results(target: Target) -> int:
    with connect_reader(target) as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(RESULTS)).scalar_one())


def read_columns(target: Target, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
    """Rows of `COLUMNS`, in parts, of the evaluations whose id is larger than `after`, in the order
    of the ids.

    `skip` leaves out so many of the oldest results.
    """
    results, evaluations = RESULTS.c, EVALUATIONS.c
    if target.path is None:
        moment: Any = sa.func.floor(sa.extract("epoch", results.evaluated_at))
        is_shadow: Any = sa.func.strpos(results.details, '"shadow":true') > 0
    else:
        moment = sa.func.strftime("%s", results.evaluated_at)
        is_shadow = sa.func.instr(results.details, '"shadow":true') > 0
    selected = (
        results.evaluation_id,
        sa.cast(moment, sa.BigInteger),
        results.criterion,
        results.agent,
        evaluations.model,
        results.prompt_version,
        results.evaluator_version,
        results.environment,
        results.arm,
        sa.func.coalesce(results.reason_code, results.error_type, results.label),
        results.evaluator_kind,
        results.status,
        results.passed,
        results.weight,
        results.probability,
        results.normalized,
        sa.func.coalesce(evaluations.conversation_id, results.trace_id, results.evaluation_id),
        is_shadow,
    )
    joined = RESULTS.join(EVALUATIONS, evaluations.id == results.evaluation_id)
    with connect_reader(target) as connection:
        if skip:
            oldest = (
                sa.select(results.evaluation_id)
                .order_by(results.evaluation_id)
                .limit(1)
                .offset(skip)
            )
            after = max(after, connection.execute(oldest).scalar() or "")
        statement = sa.select(*selected).select_from(joined).where(results.evaluation_id > after)
        rows = connection.execution_options(yield_per=_AT_ONCE).execute(
            statement.order_by(results.evaluation_id)
        )
        yield from rows.partitions()


def find_labels(target: Target, evaluation_ids: Sequence[str]) -> list[Label]:
    """The labels that these evaluations hold, each joined with the answer that it is about."""
    labels: list[Label] = []
    with connect_reader(target) as connection:
        for part in _parts(evaluation_ids):
            labels += _labels_of(connection, part)
    return labels


def _labels_of(connection: sa.Connection, evaluation_ids: Sequence[str]) -> list[Label]:
    results, evaluations = RESULTS.c, EVALUATIONS.c
    joined = RESULTS.join(EVALUATIONS, evaluations.id == results.evaluation_id)
    selected = (
        evaluations.id,
        evaluations.response_id,
        evaluations.trace_id,
        evaluations.span_id,
        results.criterion,
        results.passed,
    )
    is_human = results.evaluator_kind == "human"
    of_people = (
        sa.select(*selected).select_from(joined).where(evaluations.id.in_(evaluation_ids), is_human)
    )
    labels = connection.execute(of_people.order_by(evaluations.id)).all()
    traces = sorted({label.trace_id for label in labels if label.trace_id})
    ids = sorted({label.response_id for label in labels if label.response_id})
    # What leads to an answer: its span, its own id, or the id of its evaluation.
    answers: dict[tuple[str | None, str], tuple[str, dict[str, bool]]] = {}
    for condition in (
        evaluations.trace_id.in_(traces),
        evaluations.id.in_(ids),
        evaluations.response_id.in_(ids),
    ):
        for row in connection.execute(
            sa.select(*selected).select_from(joined).where(condition, ~is_human)
        ):
            for key in ((row.trace_id, row.span_id), (None, row.id), (None, row.response_id)):
                if key[1] is not None:
                    others = answers.setdefault(key, (row.id, {}))[1]
                    if row.passed is not None:
                        others[row.criterion] = row.passed
    unknown: tuple[str | None, dict[str, bool]] = (None, {})
    return [
        Label(answer[0], label.criterion, label.passed, answer[1])
        for label in labels
        for answer in [
            answers.get((label.trace_id, label.span_id))
            or answers.get((None, label.response_id))
            or unknown
        ]
    ]


def find_answer(
    target: Target, evaluation_id: str
) -> tuple[AggregatedEvaluationResult, list[Answer]] | None:
    """An evaluation, and what people and the application said of its answer; None if there is none
    with this id.
    """
    evaluation = read_evaluation(target, evaluation_id)
    if evaluation is None:
        return None
    columns, span = EVALUATIONS.c, evaluation.span
    conditions: list[sa.ColumnElement[bool]] = [
        columns.response_id.in_([name_of(evaluation_id), *filter(None, [evaluation.response_id])])
    ]
    if span is not None:
        conditions.append(
            sa.and_(columns.trace_id == span.trace_id, columns.span_id == span.span_id)
        )
    same = {
        answer.evaluation_id: answer
        for condition in conditions
        for answer in _answers(target, condition)
    }
    same.pop(evaluation_id, None)
    return evaluation, [same[key] for key in sorted(same)]


def find_conversation(target: Target, conversation_id: str, *, limit: int = 200) -> list[Answer]:
    """The evaluations of a conversation, oldest first."""
    return _answers(target, EVALUATIONS.c.conversation_id == name_of(conversation_id), limit=limit)


def find_evaluations(
    target: Target, evaluation_ids: Sequence[str]
) -> dict[str, AggregatedEvaluationResult]:
    """Evaluations by their ids, at most a few hundred."""
    answers = _answers(target, EVALUATIONS.c.id.in_(list(evaluation_ids)), limit=_MOST_IN)
    return {answer.evaluation_id: answer.evaluation for answer in answers}


def _answers(target: Target, condition: sa.ColumnElement[bool], *, limit: int = 50) -> list[Answer]:
    from agenteval_otel.storage.sql_rows import evaluation_of

    columns = EVALUATIONS.c
    statement = (
        sa.select(EVALUATIONS)
        .where(condition)
        .order_by(columns.evaluated_at, columns.id)
        .limit(limit)
    )
    with connect_reader(target) as connection:
        rows = connection.execute(statement).mappings().all()
        by_id: dict[str, list[Any]] = {row["id"]: [] for row in rows}
        of_these = sa.select(RESULTS).where(RESULTS.c.evaluation_id.in_(list(by_id)))
        for result in connection.execute(of_these.order_by(RESULTS.c.position)).mappings():
            by_id[result["evaluation_id"]].append(result)
        return [Answer(row["id"], evaluation_of(row, by_id[row["id"]])) for row in rows]


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _MOST_IN):
        yield values[start : start + _MOST_IN]
