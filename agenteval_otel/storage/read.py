"""The reader of stored results: whole, as light rows, or as sums; from databases and JSON lines.

Every part that needs what was stored asks here, whichever the place is. A row that cannot be read
costs itself: it is counted, and logged once a reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from agenteval_otel.database.target import Target, database_at, is_sqlite
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.intervals import UnitSums
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.rows import (
    AnswerRow,
    Label,
    StoredEvaluation,
    StoredVerdict,
    UnreadableRows,
    joined_labels,
    row_of,
    scores_of,
)
from agenteval_otel.storage.sql_rows import name_of

Place: TypeAlias = Target | LineFiles
Stored: TypeAlias = Iterator[tuple[str, AggregatedEvaluationResult]]
"""Evaluations by their ids."""
CRITERION: Final = "criterion"
"""The group of `summarise` beside the labels."""
_MOST_OF_CONVERSATION: Final = 200
_AT_ONCE: Final = 10_000


def place_of(text: str) -> Place:
    """Return the place: an SQLite file, the address of a database, or a file of JSON lines.

    Raises:
        StorageError: A file that cannot be read, a wrong address, or an extra that is missing.
    """
    try:
        if "://" in text or is_sqlite(text):
            return database_at(text)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{text}: cannot be read: {reason}") from None
    except ValueError as error:
        raise StorageError(str(error)) from None
    return LineFiles([text])


class Query(NamedTuple):
    """Which stored results are read.

    Attributes:
        place: Where they are stored.
        labels: The values that are wanted, by names of `LABELS` and ``tag.<key>``.
        since: Evaluated at this moment or later.
        until: Evaluated before this moment.
    """

    place: Place
    labels: Mapping[str, Collection[str]] = {}
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_of_all(self) -> bool:
        return not self.labels and self.since is None and self.until is None

    def keeps(self, row: AnswerRow) -> bool:
        """Tell whether the answer is wanted."""
        if any(row.labels.get(name) not in values for name, values in self.labels.items()):
            return False
        if self.until is not None and row.at >= self.until.timestamp():
            return False
        return self.since is None or row.at >= self.since.timestamp()


def read_rows(query: Query, unreadable: UnreadableRows | None = None) -> Iterator[AnswerRow]:
    """Yield the answers that are wanted as light rows, in the order in which they were stored.

    Raises:
        StorageError: The place cannot be read.
    """
    unreadable = UnreadableRows() if unreadable is None else unreadable
    if isinstance(query.place, LineFiles):
        rows = query.place.rows(unreadable)
    else:
        from agenteval_otel.storage import sql_read  # loads SQLAlchemy

        rows = sql_read.read_rows(
            query.place,
            unreadable,
            labels=query.labels,
            since=query.since,
            until=query.until,
        )
    yield from filter(query.keeps, rows)
    unreadable.log(query.place.place)


def read_results(
    query: Query, unreadable: UnreadableRows | None = None, *, with_results: bool = True
) -> Stored:
    """Yield the whole evaluations that are wanted, in the order in which they were stored.

    Without `with_results` those of a database have none of their results, and are read faster.

    Raises:
        StorageError: The place cannot be read.
    """
    unreadable = UnreadableRows() if unreadable is None else unreadable
    if isinstance(query.place, LineFiles):
        stored = query.place.results(unreadable)
        is_filtered = query.is_of_all
    else:
        from agenteval_otel.storage import sql_read

        stored = sql_read.read_results(
            query.place,
            unreadable,
            labels=query.labels,
            since=query.since,
            until=query.until,
            with_results=with_results,
        )
        is_filtered = not any(name.startswith("tag.") for name in query.labels)
    for id, evaluation in stored:
        if is_filtered or query.keeps(row_of(evaluation, id)):
            yield id, evaluation
    unreadable.log(query.place.place)


def read_others(
    target: Target, evaluations: Mapping[str, tuple[str, str]]
) -> list[AggregatedEvaluationResult]:
    """Return the other evaluations of the same spans in a database. `evaluations` maps ids to their
    trace and span ids.
    """
    from agenteval_otel.storage import sql_read

    unreadable = UnreadableRows()
    others = sql_read.read_others(target, evaluations, unreadable)
    unreadable.log(target.place)
    return others


def read_feedback(place: Place, key: str) -> Stored:
    """Yield the evaluations with results of people that have this key in their metadata."""
    unreadable = UnreadableRows()
    if isinstance(place, LineFiles):
        needle = f'"{key}"'.encode()
        yield from place.results(unreadable, holding=lambda line: needle in line)
    else:
        from agenteval_otel.storage import sql_read

        yield from sql_read.read_feedback(place, key, unreadable)
    unreadable.log(place.place)


def read_answers(place: Place, ids: Mapping[str, Collection[str]]) -> Stored:
    """Yield the evaluations with one of these values of ``trace_id``, ``response_id`` or
    ``conversation_id``, perhaps without their results. Files give all that have an input.
    """
    unreadable = UnreadableRows()
    if isinstance(place, LineFiles):
        yield from place.results(unreadable, holding=_has_input)
    else:
        from agenteval_otel.storage import sql_read

        yield from sql_read.read_answers(place, ids, unreadable)
    unreadable.log(place.place)


def _has_input(line: bytes) -> bool:
    return b'"inputSnapshot"' in line or b'"input_snapshot"' in line


def _span_of(evaluation: AggregatedEvaluationResult) -> tuple[str, str] | None:
    span = evaluation.span
    return None if span is None else (span.trace_id, span.span_id)


# --- sums
class Sums:
    """The results of a group as sums, from which estimates come.

    Attributes:
        scores: Of the normalized scores, weighted by 1 / probability, by conversation or trace.
        passes: Of the verdicts, 1 for a pass.
        failed: How many answers have a result of the group that failed.
        newest: When the newest was evaluated, Unix time.
    """

    __slots__ = ("failed", "newest", "passes", "scores")

    def __init__(self) -> None:
        self.scores = UnitSums()
        self.passes = UnitSums()
        self.failed = 0
        self.newest = 0.0

    def __repr__(self) -> str:
        return f"<Sums {self.scores.count:,} scores, {self.failed:,} failed>"


def summarise(
    rows: Query | Iterable[AnswerRow], by: Sequence[str] = (CRITERION,)
) -> dict[tuple[str, ...], Sums]:
    """Return the sums of each group of results, in the order in which groups appear.

    Args:
        rows: What is read, or rows that were read already.
        by: ``criterion``, and names of `LABELS` or ``tag.<key>``. A missing label is the empty text.
    """
    groups: dict[tuple[str, ...], Sums] = {}
    for row in read_rows(rows) if isinstance(rows, Query) else rows:
        scores, failed = scores_of(row.results)
        for criterion in dict.fromkeys((*scores, *failed)):
            key = tuple(criterion if name == CRITERION else row.labels.get(name, "") for name in by)
            sums = groups.setdefault(key, Sums())
            sums.newest = max(sums.newest, row.at)
            sums.failed += criterion in failed
            score = scores.get(criterion)
            if score is None:
                continue
            if score.value is not None:
                sums.scores.add(score.value, score.weight, row.unit)
            if score.passed is not None:
                sums.passes.add(float(score.passed), score.weight, row.unit)
    return groups


# --- for the pages: results as columns, and what belongs to one answer
def count_results(place: Place) -> int:
    """Return how many results there are: of files at least as many as can be read."""
    if isinstance(place, LineFiles):
        return place.count_results()
    from agenteval_otel.storage import sql_read

    return sql_read.count_results(place)


def read_columns(place: Place, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
    """Yield the results as rows of `COLUMNS`, in parts, of the evaluations behind the id `after`.

    `skip` leaves out so many of the oldest results.
    """
    if isinstance(place, LineFiles):
        return _columns_of_lines(place, after, skip)
    from agenteval_otel.storage import sql_read

    return sql_read.read_columns(place, after=after, skip=skip)


def _columns_of_lines(files: LineFiles, after: str, skip: int) -> Iterator[Sequence[Any]]:
    unreadable = UnreadableRows()
    part: list[tuple[Any, ...]] = []
    for row in files.rows(unreadable, after=after):
        if skip > 0:
            skip -= len(row.results)
            continue
        label = row.labels.get
        for result in row.results:
            columns = (
                row.id,
                int(row.at),
                _name(result.criterion),
                _name(label("agent")),
                _name(label("model")),
                _name(label("prompt_version")),
                _name(result.evaluator_version),
                _name(label("environment")),
                _name(label("arm")),
                _name(result.reason),
                result.evaluator_kind,
                result.status,
                result.passed,
                result.weight,
                result.probability,
                result.normalized,
                row.unit or row.id,
                result.is_shadow,
            )
            part.append(columns)
        if len(part) >= _AT_ONCE:
            yield part
            part = []
    if part:
        yield part
    unreadable.log(files.place)


@lru_cache(maxsize=4096)
def _name_of_text(text: str) -> str | None:
    return name_of(text)


def _name(value: Any) -> str | None:
    return _name_of_text(value) if isinstance(value, str) else None


def find_answer(
    place: Place, evaluation_id: str
) -> tuple[AggregatedEvaluationResult, list[StoredEvaluation]] | None:
    """Return an evaluation, and what people and the application said of its answer. None for an id
    that is not stored.
    """
    if not isinstance(place, LineFiles):
        from agenteval_otel.storage import sql_read

        return sql_read.find_answer(place, evaluation_id)
    evaluation = place.find(evaluation_id)
    if evaluation is None:
        return None
    span = _span_of(evaluation)
    ids = {evaluation_id, *filter(None, [evaluation.response_id])}
    texts = ids if span is None else {*ids, span[0]}
    others = [
        StoredEvaluation(id, other)
        for id, other in place.mentioning(texts, UnreadableRows())
        if id != evaluation_id
        and (other.response_id in ids or (span is not None and _span_of(other) == span))
    ]
    return evaluation, others


def find_conversation(place: Place, conversation_id: str) -> list[StoredEvaluation]:
    """Return the evaluations of a conversation, oldest first."""
    if not isinstance(place, LineFiles):
        from agenteval_otel.storage import sql_read

        return sql_read.find_conversation(place, conversation_id, limit=_MOST_OF_CONVERSATION)
    evaluations = [
        StoredEvaluation(id, evaluation)
        for id, evaluation in place.mentioning([conversation_id], UnreadableRows())
        if evaluation.conversation_id == conversation_id
    ]
    evaluations.sort(key=lambda stored: stored.evaluation.ended_ns or 0)
    return evaluations[:_MOST_OF_CONVERSATION]


def find_evaluations(
    place: Place, evaluation_ids: Sequence[str]
) -> dict[str, AggregatedEvaluationResult]:
    """Return evaluations by their ids, at most a few hundred."""
    if not isinstance(place, LineFiles):
        from agenteval_otel.storage import sql_read

        return sql_read.find_evaluations(place, evaluation_ids)
    evaluations = ((id, place.find(id)) for id in evaluation_ids)
    return {id: evaluation for id, evaluation in evaluations if evaluation is not None}


def find_labels(place: Place, evaluation_ids: Sequence[str]) -> list[Label]:
    """Return the labels that these evaluations hold, each joined with the answer that it is about."""
    if not isinstance(place, LineFiles):
        from agenteval_otel.storage import sql_read

        return sql_read.find_labels(place, evaluation_ids)
    of_people = [
        verdict
        for id, evaluation in find_evaluations(place, evaluation_ids).items()
        for verdict in _verdicts_of(id, evaluation, is_human=True)
    ]
    if not of_people:
        return []
    ids = {id for verdict in of_people for id in (verdict.trace_id, verdict.response_id) if id}
    answers = [
        *place.referring(ids, UnreadableRows()),
        *find_evaluations(place, sorted(ids)).items(),
    ]
    of_others = [
        verdict
        for id, evaluation in answers
        for verdict in _verdicts_of(id, evaluation, is_human=False)
    ]
    return joined_labels(of_people, of_others)


def _verdicts_of(
    id: str, evaluation: AggregatedEvaluationResult, *, is_human: bool
) -> Iterator[StoredVerdict]:
    trace_id, span_id = _span_of(evaluation) or (None, None)
    for result in evaluation.results:
        if (result.evaluator_kind == "human") == is_human:
            yield StoredVerdict(
                id,
                evaluation.response_id,
                trace_id,
                span_id,
                result.criterion_name,
                result.passed,
            )
