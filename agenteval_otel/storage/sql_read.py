"""Reads stored results from a database: evaluations, light rows of them, and columns.

Evaluations are read whole. Columns are those of the results. Loads SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import sqlalchemy as sa

from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.label_history import LABELLER, WITHDRAWN, labels_replaced
from agenteval_otel.storage.notes import Notes
from agenteval_otel.storage.places import (
    ID_BYTES,
    MOST_TURNS,
    OF_OTHERS,
    AnswerSpan,
    FoundAnswers,
    Place,
    Query,
    Stored,
    Tag,
)
from agenteval_otel.storage.rows import (
    LABELS,
    PRICE_UNKNOWN,
    AnswerRow,
    Label,
    ResultRow,
    StoredEvaluation,
    StoredVerdict,
    UnreadableRows,
    answer_row,
    joined_labels,
    result_row,
    seconds_of,
)
from agenteval_otel.storage.sql_database import (
    EVALUATIONS,
    RESULTS,
    add_answer_texts,
    connect_reader,
    reader_engine,
)
from agenteval_otel.storage.sql_notes import SqlNotes
from agenteval_otel.storage.sql_rows import (
    StoredResult,
    evaluation_of,
    in_utc,
    name_of,
    stored_of,
)
from agenteval_otel.storage.sql_texts import MOST_FOUND, find_texts, has_index
from agenteval_otel.storage.words import WantedWord, tag_word

_AT_ONCE: Final = 2_500  # rows of Python's objects: a kilobyte each
_PAGE_ROWS: Final = 200
_STREAMED: Final = 500
_MOST_READ: Final = 2_000
_ADD_EVERY_S: Final = 10.0
_MOST_IN: Final = 400  # bound values in one statement
_READ: Final = [column for column in EVALUATIONS.c if column.name != "evaluated_at"]
"""The columns that an evaluation is made of. The others are for queries."""
# Of a text that is no JSON, or that escapes NUL, PostgreSQL would refuse to read the whole table as
# JSON. The first key stands before the last brace, and no brace between: so it is in no other object.
_OBJECTIVE: Final = r'"objective":([0-9.eE+-]+)[^{}]*\}$'
_COST: Final = r'"judge":\{[^{}]*"costUsd":([0-9.eE+-]+)'


class StoredDatabase(Place):
    """The tables of `storage: sql`, in an SQLite file or on a PostgreSQL server."""

    filters_labels = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self._added_s = -math.inf  # when a search last added answers to the index of words

    def __repr__(self) -> str:
        return f"<StoredDatabase {self.name}>"

    @property
    def name(self) -> str:
        return self.target.place

    @property
    def notes(self) -> Notes:
        return SqlNotes(self.target)

    def read_evaluation(self, evaluation_id: str) -> AggregatedEvaluationResult | None:
        """Return all of one evaluation, as it was saved. None if there is none with this id."""
        of_id = sa.select(*_READ).where(EVALUATIONS.c.id == name_of(evaluation_id))
        with connect_reader(self.target) as connection:
            row = connection.execute(of_id).mappings().first()
            if row is None:
                return None
            results = _results_of(connection, [row["id"]])
            return evaluation_of(row, results[row["id"]])

    def find_results(
        self, filters: Mapping[str, Any], *, limit: int, offset: int
    ) -> list[StoredResult]:
        """Return the results that match, newest first.

        Values are always bound, never part of the statement's text.
        """
        columns = RESULTS.c
        ranges = {
            "since": columns.evaluated_at.__ge__,
            "until": columns.evaluated_at.__lt__,
            "min_score": columns.score.__ge__,
            "max_score": columns.score.__le__,
        }
        conditions: list[sa.ColumnElement[bool]] = []
        for name, value in filters.items():
            if value is None or name == "tags":
                continue
            if name in ranges:
                conditions.append(ranges[name](value))
            else:
                conditions.append(columns[name] == value)
        for key, value in (filters.get("tags") or {}).items():
            conditions.append(columns.tags[key].as_string() == value)
        newest = (columns.evaluated_at.desc(), columns.evaluation_id.desc(), columns.position)
        statement = (
            sa.select(RESULTS).where(*conditions).order_by(*newest).limit(limit).offset(offset)
        )
        with connect_reader(self.target) as connection:
            return [stored_of(row) for row in connection.execute(statement).mappings()]

    def find_others(
        self, evaluations: Mapping[str, tuple[str, str]]
    ) -> list[AggregatedEvaluationResult]:
        unreadable = UnreadableRows()
        columns = EVALUATIONS.c
        traces = {trace_id for trace_id, _ in evaluations.values()}
        spans = {span_id for _, span_id in evaluations.values()}
        is_other = (
            columns.trace_id.in_(traces)
            & columns.span_id.in_(spans)
            & columns.id.not_in(evaluations)
        )
        with connect_reader(self.target) as connection:
            rows = connection.execute(sa.select(*_READ).where(is_other)).mappings().all()
            others = [evaluation for _, evaluation in evaluations_in(connection, rows, unreadable)]
        unreadable.log(self.name)
        return others

    def count_results(self) -> int:
        with connect_reader(self.target) as connection:
            return int(
                connection.execute(sa.select(sa.func.count()).select_from(RESULTS)).scalar_one()
            )

    def columns(self, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
        results = RESULTS.c
        evaluations = EVALUATIONS.c
        if self.target.path is None:
            evaluated: sa.ColumnElement[Any] = sa.func.floor(
                sa.extract("epoch", results.evaluated_at)
            )
        else:
            evaluated = sa.func.strftime("%s", results.evaluated_at)
        reason = sa.func.coalesce(results.reason_code, results.error_type, results.label)
        unit = sa.func.coalesce(
            evaluations.conversation_id,
            evaluations.session_id,
            results.trace_id,
            results.evaluation_id,
        )
        # in the order of `COLUMNS`
        selected = (
            results.evaluation_id,
            sa.cast(evaluated, sa.BigInteger),
            evaluations.response_ended_ns // 1_000_000_000,
            results.criterion,
            results.agent,
            evaluations.model,
            results.prompt_version,
            results.service_version,
            results.evaluator_version,
            results.environment,
            results.arm,
            reason,
            results.evaluator_kind,
            results.status,
            results.passed,
            results.weight,
            results.probability,
            results.normalized,
            unit,
            _has(self.target, '"shadow":true'),
            _has(self.target, '"least_probability":'),
            _stored_objective(self.target),
            _stored_cost(self.target),
            _stored_duration(),
        )
        joined = RESULTS.join(EVALUATIONS, evaluations.id == results.evaluation_id)
        with connect_reader(self.target) as connection:
            if skip:
                # All results of the evaluation at which `skip` ends are left out.
                last_left_out = (
                    sa.select(results.evaluation_id)
                    .order_by(results.evaluation_id)
                    .limit(1)
                    .offset(skip)
                )
                after = max(after, connection.execute(last_left_out).scalar() or "")
            statement = (
                sa.select(*selected).select_from(joined).where(results.evaluation_id > after)
            )
            ordered = statement.order_by(results.evaluation_id, results.position)
            if self.target.path is None:
                streaming = connection.execution_options(yield_per=_AT_ONCE)
                yield from streaming.execute(ordered).partitions()
                return
            # SQLite's own tuples: SQLAlchemy's rows would add a fifth of the time for a million results.
            cursor = connection.execute(ordered).cursor
            if cursor is None:
                return
            while part := cursor.fetchmany(_AT_ONCE):
                yield part

    def find_answer(
        self, evaluation_id: str
    ) -> tuple[AggregatedEvaluationResult, list[StoredEvaluation]] | None:
        evaluation = self.read_evaluation(evaluation_id)
        if evaluation is None:
            return None
        columns = EVALUATIONS.c
        span = evaluation.span
        response_ids = [name_of(evaluation_id)]
        if evaluation.response_id:
            response_ids.append(evaluation.response_id)
        conditions: list[sa.ColumnElement[bool]] = [columns.response_id.in_(response_ids)]
        if span is not None:
            conditions.append(
                sa.and_(columns.trace_id == span.trace_id, columns.span_id == span.span_id)
            )
        same: dict[str, StoredEvaluation] = {}
        for condition in conditions:
            same.update((answer.evaluation_id, answer) for answer in self._first(condition))
        same.pop(evaluation_id, None)
        return evaluation, [same[key] for key in sorted(same)]

    def find_turns(self, conversation_id: str) -> list[str]:
        columns = EVALUATIONS.c
        results = RESULTS.c
        of_evaluators = sa.exists().where(
            results.evaluation_id == columns.id, results.evaluator_kind.not_in(OF_OTHERS)
        )
        answered = sa.func.coalesce(columns.response_ended_ns, columns.ended_ns)
        is_turn = (columns.conversation_id == name_of(conversation_id)) & of_evaluators
        turns = sa.select(columns.id).where(is_turn)
        statement = turns.order_by(answered, columns.id).limit(MOST_TURNS)
        with connect_reader(self.target) as connection:
            return list(connection.execute(statement).scalars())

    def find_evaluations(
        self, evaluation_ids: Sequence[str]
    ) -> dict[str, AggregatedEvaluationResult]:
        answers = self._first(EVALUATIONS.c.id.in_(list(evaluation_ids)), limit=_MOST_IN)
        return {answer.evaluation_id: answer.evaluation for answer in answers}

    def find_spans(self, evaluation_ids: Sequence[str]) -> dict[str, AnswerSpan]:
        columns = EVALUATIONS.c
        call_id = sa.func.coalesce(columns.call_id, columns.span_id)
        chosen = sa.select(columns.id, columns.trace_id, columns.span_id, call_id)
        has_span = columns.trace_id.is_not(None) & columns.span_id.is_not(None)
        spans: dict[str, AnswerSpan] = {}
        with connect_reader(self.target) as connection:
            for part in _parts(evaluation_ids):
                for id, *span in connection.execute(chosen.where(has_span, columns.id.in_(part))):
                    spans[id] = AnswerSpan(*span)
        return spans

    def find_texts(self, wanted: Sequence[WantedWord], tag: Tag | None = None) -> FoundAnswers:
        words = list(wanted)
        if tag is not None:
            name, value = tag
            words.append(tag_word(name_of(name) or "", name_of(value) or ""))
        now_s = time.monotonic()
        # What is not added is read: newer ones at once, late ones wait for the next time.
        if now_s - self._added_s > _ADD_EVERY_S:
            with contextlib.suppress(StorageError):  # a right to read is enough
                add_answer_texts(self.target, wait=False)
            self._added_s = now_s
        with connect_reader(self.target) as connection:
            # A path of SQLite into JSON cannot name such a tag.
            is_odd = tag is not None and '"' in tag[0]
            if tag is None or wanted or is_odd or has_index(connection):
                return find_texts(connection, words, most_read=_MOST_READ)
            name, value = tag
            has_tag = EVALUATIONS.c.tags[name_of(name) or ""].as_string() == name_of(value)
            return _answers_where(connection, has_tag)

    def find_annotated(
        self, column: Literal["conversation_id", "user_id"], value: str
    ) -> FoundAnswers:
        with connect_reader(self.target) as connection:
            return _answers_where(connection, EVALUATIONS.c[column] == name_of(value))

    def find_labels(self, evaluation_ids: Sequence[str]) -> list[Label]:
        labels: list[Label] = []
        with connect_reader(self.target) as connection:
            for part in _parts(evaluation_ids):
                labels += _labels_of(connection, part)
        return labels

    def _rows(self, query: Query, unreadable: UnreadableRows) -> Iterator[AnswerRow]:
        """Yield the evaluations as light rows, by id. Both tables are read beside each other."""
        evaluations = EVALUATIONS.c
        results = RESULTS.c
        conditions = _conditions(query)
        labels = [evaluations[name] for name in LABELS]
        chosen = sa.select(
            evaluations.id,
            evaluations.conversation_id,
            evaluations.session_id,
            evaluations.trace_id,
            evaluations.ended_ns,
            evaluations.response_ended_ns,
            evaluations.tags,
            evaluations.details,
            *labels,
        )
        chosen = chosen.where(*conditions).order_by(evaluations.id)
        reason = sa.func.coalesce(results.reason_code, results.error_type, results.label)
        # The evaluation's id, then the arguments of `result_row`.
        of_results = sa.select(
            results.evaluation_id,
            results.criterion,
            results.evaluator,
            results.evaluator_version,
            results.status,
            results.normalized,
            results.passed,
            results.probability,
            results.evaluator_kind,
            reason,
            _has(self.target, '"shadow":true'),
            _has(self.target, '"least_probability":'),
        )
        if conditions:
            of_results = of_results.join(EVALUATIONS).where(*conditions)
        of_results = of_results.order_by(results.evaluation_id, results.position)
        with connect_reader(self.target) as connection:
            reading = connection.execution_options(yield_per=_STREAMED)
            rows: Iterator[Any] = iter(reading.execute(of_results))
            next_row: Sequence[Any] | None = next(rows, None)
            for row in reading.execute(chosen).mappings():
                id = row["id"]
                of_answer: list[ResultRow] = []
                # Ids below are of evaluations that were deleted meanwhile.
                while next_row is not None and next_row[0] <= id:
                    if next_row[0] == id:
                        of_answer.append(result_row(*next_row[1:]))
                    next_row = next(rows, None)
                try:
                    answer = _row_of_columns(row, of_answer)
                except (ValueError, TypeError, AttributeError) as error:  # changed by hand
                    unreadable.add(id, error)
                    continue
                unreadable.has_others = True
                yield answer

    def _results(self, query: Query, unreadable: UnreadableRows, *, with_results: bool) -> Stored:
        """Yield the evaluations by their ids, in the order in which they were stored.

        A page is in memory. No connection is open between pages: one kept open for hours would
        prevent cleanup.
        """
        conditions = _conditions(query)
        newest = ""
        page_rows = _PAGE_ROWS if with_results else _STREAMED
        engine = reader_engine(self.target)  # compiles the statement once: a third of the time
        while True:
            behind = sa.select(*_READ).where(EVALUATIONS.c.id > newest, *conditions)
            page = behind.order_by(EVALUATIONS.c.id).limit(page_rows)
            with connect_reader(self.target, engine) as connection:
                rows = connection.execute(page).mappings().all()
                ids = [row["id"] for row in rows]
                results = _results_of(connection, ids) if with_results else {}
            if not rows:
                return
            newest = ids[-1]
            yield from _built(rows, results, unreadable)

    def _feedback(self, key: str, unreadable: UnreadableRows) -> Stored:
        """Yield the evaluations with feedback that has this key, oldest first.

        Feedback is a result of a person. The key is in its metadata.
        """
        has_key = RESULTS.c.details.contains(f'"{key}":', autoescape=True)
        ids = sa.select(RESULTS.c.evaluation_id).where(RESULTS.c.evaluator_kind == "human", has_key)
        statement = (
            sa.select(*_READ).where(EVALUATIONS.c.id.in_(ids)).order_by(EVALUATIONS.c.evaluated_at)
        )
        with connect_reader(self.target) as connection:
            yield from evaluations_in(
                connection, connection.execute(statement).mappings().all(), unreadable
            )

    def _answers(self, ids: Mapping[str, Collection[str]], unreadable: UnreadableRows) -> Stored:
        """Yield the evaluations that have one of these values in one of these columns.

        They are without their results.
        """
        with connect_reader(self.target) as connection:
            for column, values in ids.items():
                for part in _parts(sorted(values)):
                    statement = sa.select(*_READ).where(EVALUATIONS.c[column].in_(part))
                    rows = connection.execute(statement).mappings().all()
                    yield from evaluations_in(connection, rows, unreadable, with_results=False)

    def _first(
        self, condition: sa.ColumnElement[bool], *, limit: int = 50
    ) -> list[StoredEvaluation]:
        columns = EVALUATIONS.c
        statement = (
            sa.select(*_READ)
            .where(condition)
            .order_by(columns.evaluated_at, columns.id)
            .limit(limit)
        )
        unreadable = UnreadableRows()
        with connect_reader(self.target) as connection:
            rows = connection.execute(statement).mappings().all()
            answers = evaluations_in(connection, rows, unreadable)
        unreadable.log(self.name)
        return [StoredEvaluation(*answer) for answer in answers]


def _answers_where(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> FoundAnswers:
    """Return the newest answers, their ids read as one text: faster than as many rows."""
    columns = EVALUATIONS.c
    newest = sa.select(columns.id).where(condition).order_by(columns.id.desc()).limit(MOST_FOUND)
    is_sqlite = connection.dialect.name == "sqlite"
    joined = sa.func.group_concat if is_sqlite else sa.func.string_agg
    text = connection.execute(sa.select(joined(newest.subquery().c.id, ""))).scalar()
    ids = bytes.fromhex(text or "")
    return FoundAnswers(ids, is_cut=len(ids) >= ID_BYTES * MOST_FOUND)


def evaluations_in(
    connection: sa.Connection,
    rows: Sequence[Mapping[Any, Any]],
    unreadable: UnreadableRows,
    *,
    with_results: bool = True,
) -> list[tuple[str, AggregatedEvaluationResult]]:
    """Return the evaluations that can be read. Others are counted."""
    ids = [row["id"] for row in rows]
    results = _results_of(connection, ids) if with_results else {}
    return list(_built(rows, results, unreadable))


def _built(
    rows: Sequence[Mapping[Any, Any]],
    results: Mapping[str, Sequence[Any]],
    unreadable: UnreadableRows,
) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
    """Yield the evaluations one by one.

    A list of a whole page of them costs time in the garbage collector.
    """
    for row in rows:
        id = row["id"]
        try:
            evaluation = evaluation_of(row, results.get(id, ()))
        except (ValueError, TypeError) as error:  # changed by hand
            unreadable.add(id, error)
            continue
        yield id, evaluation


def _results_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return the rows of the results of evaluations, in their order."""
    results: dict[str, list[Any]] = {id: [] for id in ids}
    for part in _parts(ids):
        of_part = sa.select(RESULTS).where(RESULTS.c.evaluation_id.in_(part))
        for row in connection.execute(of_part.order_by(RESULTS.c.position)).mappings():
            results[row["evaluation_id"]].append(row)
    return results


def _conditions(query: Query) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that columns can hold. Tags are left to the caller."""
    labels, since, until = query
    columns = EVALUATIONS.c
    conditions: list[sa.ColumnElement[bool]]
    conditions = [columns[name].in_(values) for name, values in labels.items() if name in columns]
    if since is not None:
        conditions.append(columns.evaluated_at >= in_utc(since))
    if until is not None:
        conditions.append(columns.evaluated_at < in_utc(until))
    return conditions


def _row_of_columns(row: Mapping[Any, Any], results: Sequence[ResultRow]) -> AnswerRow:
    details = json.loads(row["details"])
    named: dict[str, Any] = {}
    for name in LABELS:
        value = row[name]
        if value is not None:
            named[name] = value
    evaluated_at = seconds_of(row["ended_ns"], details.get("timestamp"))
    answered_at = seconds_of(row["response_ended_ns"], None) or None
    conversation = row["conversation_id"] or row["session_id"]
    snapshot = details.get("input_snapshot") or {}
    id = row["id"]
    return answer_row(
        id=id,
        place=id,
        at=evaluated_at,
        answered_at=answered_at,
        named=named,
        tags=row["tags"] or {},
        conversation=conversation,
        trace_id=row["trace_id"],
        metadata=details.get("metadata"),
        results=results,
        fields=snapshot,
    )


def _has(target: Target, text: str) -> Any:
    """Return the condition that the details of a result have this text of their JSON.

    Quotation marks within texts are escaped there, so that only a key of that name reads like it.
    """
    find = sa.func.strpos if target.path is None else sa.func.instr
    return find(RESULTS.c.details, text) > 0


def _stored_objective(target: Target) -> Any:
    """Return the objective in the details of a result, on a server as text. NULL without one."""
    details = RESULTS.c.details
    has_it = _has(target, '"objective":')
    if target.path is None:
        return sa.case((has_it, sa.func.substring(details, _OBJECTIVE)))
    # of a text that is no JSON SQLite would refuse to read the whole table
    has_it &= sa.func.json_valid(details) == 1
    return sa.case((has_it, sa.func.json_extract(details, "$.objective")))


def _stored_cost(target: Target) -> Any:
    """Return the cost in the details of a result as `COLUMNS` has it, on a server as text."""
    details = RESULTS.c.details
    has_judge = _has(target, '"judge":{')
    from_cache = _has(target, '"fromCache":true')
    if target.path is None:
        of_server = sa.func.substring(details, _COST)
        unknown = sa.case((from_cache, "0"), else_=str(PRICE_UNKNOWN))
        return sa.case((has_judge, sa.func.coalesce(of_server, unknown)))
    has_judge &= sa.func.json_valid(details) == 1
    of_file = sa.func.json_extract(details, "$.metadata.judge.costUsd")
    without_price = sa.case((from_cache, 0.0), else_=PRICE_UNKNOWN)
    return sa.case((has_judge, sa.func.coalesce(of_file, without_price)))


def _stored_duration() -> Any:
    """Return how long the evaluator of a result ran, in nanoseconds. NULL if that is not known."""
    began = RESULTS.c.started_ns
    ended = RESULTS.c.ended_ns
    # the difference of two numbers above 0 fits wherever they do
    return sa.case(((began > 0) & (ended >= began), ended - began))


def replaced_labels(connection: sa.Connection) -> set[tuple[str, str]]:
    """Return the labels that do not count, by the evaluations that hold them and their criteria."""
    is_human = RESULTS.c.evaluator_kind == "human"
    selected = sa.select(RESULTS.c.evaluation_id).where(is_human).distinct()
    ids = sorted(connection.execute(selected).scalars())
    labels: list[Label] = []
    for part in _parts(ids):
        labels += _labels_of(connection, part)
    return {(label.label_id, label.criterion) for label in labels_replaced(labels)}


def _labels_of(connection: sa.Connection, evaluation_ids: Sequence[str]) -> list[Label]:
    results = RESULTS.c
    evaluations = EVALUATIONS.c
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
    of_person = (
        *selected,
        evaluations.user_id,
        results.details,
        sa.func.coalesce(results.skip_reason, "") == WITHDRAWN,
    )
    of_people = (
        sa.select(*of_person)
        .select_from(joined)
        .where(evaluations.id.in_(evaluation_ids), is_human)
        .order_by(evaluations.id)
    )
    labels: list[StoredVerdict] = []
    for row in connection.execute(of_people):
        label = StoredVerdict(*row)
        labels.append(label._replace(name=_labeller_in(label.name or "")))
    traces = sorted({label.trace_id for label in labels if label.trace_id})
    ids = sorted({label.response_id for label in labels if label.response_id})
    others: list[StoredVerdict] = []
    for condition in (
        evaluations.trace_id.in_(traces),
        evaluations.id.in_(ids),
        evaluations.response_id.in_(ids),
    ):
        of_others = sa.select(*selected).select_from(joined).where(condition, ~is_human)
        others += [StoredVerdict(*row) for row in connection.execute(of_others)]
    return joined_labels(labels, others)


def _labeller_in(details: str) -> str | None:
    """Return the name in the details of a label. None if there is none, or they were changed by hand."""
    if f'"{LABELLER}":' not in details:
        return None
    try:
        name = json.loads(details)["metadata"][LABELLER]
    except (ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _MOST_IN):
        yield values[start : start + _MOST_IN]
