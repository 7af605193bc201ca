"""Stored results as light rows: the columns that comparisons, pages and sums need, without SQLAlchemy.

A row is made of a line of JSON, of a database's row or of a result of this process, and is equal
whichever it was. Only this module turns text into results.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic.alias_generators import to_camel

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.results import unit_of
from agenteval_otel.models.scoring.probability import known, weight
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.base import without_objects

LABELS: Final = (
    "agent", "model", "service", "service_version", "prompt_name", "prompt_version", "environment", "experiment", "arm",
)  # fmt: skip
"""What answers are chosen and grouped by, besides tags (``tag.<key>``) and time."""
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")
_MOST_NAMES: Final = 1_000
_SHARED: Final = 4_096
_MOST_USD: Final = 1e9  # a cost above it is no cost
_LONGEST_NS: Final = 18 * 3_600 * 10**9  # no evaluator runs longer
PRICE_UNKNOWN: Final = -1.0
"""The cost of a judge's calls whose price is not known."""
SCORED: Final = "scored"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
_OF_RESULT: Final = (
    "criterion_name", "evaluator_id", "evaluator_type", "evaluator_version", "evaluator_kind", "error", "skip_reason",
    "normalized", "passed", "probability", "reason_code", "error_type", "label", "shadow", "least_probability",
    "objective", "metadata", "started_ns", "ended_ns",
)  # fmt: skip
_OF_INPUT: Final = {
    "prompt", "message_history", "ground_truth", "conversation", "response", "metadata", "tags", "session_id",
    "conversation_id", *LABELS,
}  # fmt: skip


_BY_ALIAS: Final = tuple(to_camel(name) for name in _OF_RESULT)
_FIRST_ALIAS: Final = _BY_ALIAS[0]
_EXPECTED: Final = (
    "expected an evaluated answer with its results, as evaluate --results writes them"
)


class ResultRow(NamedTuple):
    """One result: a score, a skip or a failure.

    Attributes:
        evaluator: The evaluator's id, else its type.
        status: ``scored``, ``skipped`` or ``failed``. A score outside of [0, 1] is a failure.
        probability: Inclusion probability. None if it is unknown.
        reason: The reason's code, else the type of the error, else the label.
        is_baseline: The answer had the least probability, as far as that is known.
        objective: The share of results that should pass, as the criterion had it. Set for scores
            only. None without one.
        cost: What the judge's calls cost in USD, or `PRICE_UNKNOWN`. None if no model was called, or
            if the result of another criterion has the cost of the same call.
        duration_ns: How long its evaluator ran, in a row of a file. Databases have it in
            `Place.columns` alone. None if that is not stored.
    """

    criterion: str
    evaluator: str
    evaluator_version: str | None
    status: str
    normalized: float | None
    passed: bool | None
    probability: float | None
    evaluator_kind: str = "deterministic"
    reason: str | None = None
    is_shadow: bool = False
    is_baseline: bool = True
    objective: float | None = None
    cost: float | None = None
    duration_ns: int | None = None

    @property
    def weight(self) -> float:
        """Return for how many answers the result stands."""
        return weight(self.probability)


class AnswerRow(NamedTuple):
    """An evaluated answer with its results.

    Attributes:
        id: Identifies the evaluation within its place. Ids sort as the evaluations were stored.
        place: As messages name it: ``results.jsonl:12``, or the id.
        at: When it was evaluated, Unix time in seconds.
        answered_at: When the answer was given. None if that was not stored.
        labels: Of `LABELS`, and tags as ``tag.<key>``.
        conversation_id: The conversation, else the session.
        input_id: ``metadata.id`` of the input. None without one.
        input: The stored input by the names of its fields, in JSON's types. Empty if it is not
            stored.
    """

    id: str
    place: str
    at: float
    answered_at: float | None
    labels: Mapping[str, str]
    conversation_id: str | None
    trace_id: str | None
    input_id: object
    results: Sequence[ResultRow]
    input: Mapping[str, Any]

    @property
    def unit(self) -> str | None:
        """Return what the answer shares with others that are not independent of it (`unit_of`)."""
        return unit_of(conversation=self.conversation_id, session=None, trace=self.trace_id)


class UnreadableRows:
    """Counts the stored rows that cannot be read. Each costs itself alone.

    Attributes:
        count: How many there are.
        has_others: Whether other rows could be read.
        reasons: How many there are by reason.
        first: The place of the first one and why it cannot be read. Empty without one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.has_others = False
        self.reasons: Counter[str] = Counter()
        self.first = ""

    def __repr__(self) -> str:
        return f"<UnreadableRows {self.count:,}>"

    def add(self, place: str, error: Exception) -> None:
        reason = reason_of(error)
        self.count += 1
        self.reasons[reason] += 1
        self.first = self.first or f"{place}: {reason}"

    def log(self, place: str) -> None:
        """Log how many of a place there are, if any."""
        if self.count:
            log.warning("stored_rows_unreadable", part=place, count=self.count, first=self.first)


class NotAResultError(ValueError):
    """A stored value is no evaluated answer. The message has no content of it."""


def reason_of(error: Exception) -> str:
    """Return why a row cannot be read, in words without content."""
    if isinstance(error, NotAResultError):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}"
    if isinstance(error, RecursionError):
        return "not JSON that can be read: it is nested too deeply"
    return "no stored result: a value does not fit"


# --- whole results
def parse_result(line: bytes | str) -> AggregatedEvaluationResult:
    """Return the result on a line of JSON, of any released form.

    Raises:
        ValueError: The line is no result.
    """
    try:
        return AggregatedEvaluationResult.model_validate_json(line)
    except ValueError:
        if isinstance(line, bytes):  # a byte that is not UTF-8 costs a character, not the line
            text = line.decode("utf-8", "replace")
            if "\ufffd" in text:
                return AggregatedEvaluationResult.model_validate_json(text)
        raise


def result_of_record(record: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """Return the result of an object that was read from JSON.

    Raises:
        ValueError: It is no result.
    """
    return AggregatedEvaluationResult.model_validate(record)


# --- light rows
class _Names(dict[str, str]):
    """Names of fields in snake_case by their names in any form."""

    def __missing__(self, name: str) -> str:
        snake = _CAPITAL.sub(lambda match: f"_{match[0].lower()}", name)
        if len(self) < _MOST_NAMES:  # keys of users' own objects are among them
            self[name] = snake
        return snake


_NAMES: Final = _Names()


def in_snake_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not None in a mapping, with its keys in snake_case: files have either form."""
    return {_NAMES[name]: value for name, value in fields.items() if value is not None}


def record_of(line: bytes) -> dict[str, Any]:
    """Return the JSON object on a line.

    Raises:
        ValueError: The line is not one.
    """
    try:
        value = json.loads(line)
    except UnicodeDecodeError:
        value = json.loads(line.decode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise NotAResultError(f"expected a JSON object on each line, found {type(value).__name__}")
    return value


def row_of_record(record: Mapping[str, Any], id: str, place: str) -> AnswerRow:
    """Return the row of a result in its JSON form, by the fields' names or their aliases.

    Raises:
        NotAResultError: The object is no result.
    """
    fields = in_snake_case(record)
    results = fields.get("results")
    if not isinstance(results, list | tuple):
        raise NotAResultError(_EXPECTED)
    rows = [_row_of_result_record(item) for item in results]
    span = in_snake_case(_mapping(fields.get("span")))
    evaluated_at = seconds_of(fields.get("ended_ns"), fields.get("timestamp"))
    answered_at = seconds_of(fields.get("response_ended_ns"), None) or None
    conversation = fields.get("conversation_id") or fields.get("session_id")
    tags = _mapping(fields.get("tags"))
    snapshot = in_snake_case(_mapping(fields.get("input_snapshot")))
    return answer_row(
        id,
        place,
        evaluated_at,
        answered_at,
        fields,
        tags,
        conversation,
        span.get("trace_id"),
        fields.get("metadata"),
        rows,
        snapshot,
    )


def row_of(aggregated: AggregatedEvaluationResult, place: str) -> AnswerRow:
    """Return the row of a result of this process. Texts of the input are not copied."""
    rows = [
        result_row(
            result.criterion_name,
            result.evaluator_id or result.evaluator_type,
            result.evaluator_version,
            result.status,
            result.normalized,
            result.passed,
            result.probability,
            result.evaluator_kind,
            result.reason_code or result.error_type or result.label,
            result.shadow,
            result.least_probability,
        )
        for result in aggregated.results
    ]
    span = aggregated.span
    evaluated_at = seconds_of(aggregated.ended_ns, aggregated.timestamp)
    answered_at = seconds_of(aggregated.response_ended_ns, None) or None
    named: dict[str, Any] = {}
    for name in LABELS:
        value = getattr(aggregated, name)
        if value is not None:
            named[name] = value
    conversation = aggregated.conversation_id or aggregated.session_id
    trace_id = span.trace_id if span else None
    return answer_row(
        place,
        place,
        evaluated_at,
        answered_at,
        named,
        aggregated.tags or {},
        conversation,
        trace_id,
        aggregated.metadata,
        rows,
        _input_of(aggregated),
    )


def _input_of(aggregated: AggregatedEvaluationResult) -> Mapping[str, Any]:
    if aggregated.input_snapshot is None:
        return {}
    wanted = {"mode": "json", "include": _OF_INPUT, "exclude_none": True}
    try:
        return aggregated.input_snapshot.model_dump(**wanted)  # type: ignore[arg-type]
    except ValueError:  # an input may contain objects that JSON cannot represent
        snapshot = without_objects(aggregated).input_snapshot
        return {} if snapshot is None else snapshot.model_dump(**wanted)  # type: ignore[arg-type]


def answer_row(
    id: str,
    place: str,
    at: float,
    answered_at: float | None,
    named: Mapping[str, Any],
    tags: Mapping[str, Any],
    conversation: object,
    trace_id: object,
    metadata: object,
    results: Sequence[ResultRow],
    fields: Mapping[str, Any],
) -> AnswerRow:
    """Return a row. What an answer was not annotated with comes from its input."""
    labels: dict[str, str] = {}
    for name in LABELS:
        value = named.get(name) or fields.get(name)
        if value is not None:
            labels[name] = str(value)
    for name, value in (tags or _mapping(fields.get("tags"))).items():
        labels[f"tag.{name}"] = str(value)
    conversation = conversation or fields.get("conversation_id") or fields.get("session_id")
    conversation_id = conversation if isinstance(conversation, str) else None
    own_id = _id_in(metadata, fields.get("metadata"))
    return AnswerRow(
        id,
        place,
        at,
        answered_at,
        labels,
        conversation_id,
        trace_id if isinstance(trace_id, str) else None,
        own_id,
        results,
        fields,
    )


def result_row(
    criterion: str,
    evaluator: str,
    version: str | None,
    status: str,
    normalized: Any,
    passed: object,
    probability: object,
    kind: str = "deterministic",
    reason: str | None = None,
    is_shadow: object = False,
    least_probability: object = None,
    objective: object = None,
    cost: float | None = None,
    duration_ns: int | None = None,
) -> ResultRow:
    """Return a row. A score that is no number from 0 to 1, NaN included, is a failure.

    Of `least_probability` it matters alone whether there is one.
    """
    if normalized is not None and not (
        isinstance(normalized, int | float) and 0 <= normalized <= 1
    ):
        normalized = None
        status = FAILED if status == SCORED else status
    verdict = passed if isinstance(passed, bool) else None
    return ResultRow(
        criterion,
        evaluator,
        version,
        status,
        normalized,
        verdict,
        known(probability),
        kind,
        reason,
        bool(is_shadow),
        not least_probability,
        objective_of(objective),
        cost,
        duration_ns,
    )


def _row_of_result_record(record: object) -> ResultRow:
    if not isinstance(record, Mapping):
        raise NotAResultError(_EXPECTED)
    # A file has one form, so that one look tells which: half the time of looking for each name.
    names = _BY_ALIAS if _FIRST_ALIAS in record else _OF_RESULT
    (
        criterion,
        evaluator_id,
        evaluator_type,
        version,
        kind,
        error,
        skip_reason,
        normalized,
        passed,
        probability,
        reason_code,
        error_type,
        label,
        shadow,
        least_probability,
        objective,
        metadata,
        started_ns,
        ended_ns,
    ) = map(record.get, names)
    if not isinstance(criterion, str):
        raise NotAResultError("a result has no criterion")
    status = SCORED
    if error:
        status = FAILED
    elif skip_reason is not None:
        status = SKIPPED
    evaluator = str(evaluator_id or evaluator_type)
    reason = reason_code or error_type or label
    return result_row(
        criterion,
        evaluator,
        version,
        status,
        normalized,
        passed,
        probability,
        kind or "deterministic",
        reason,
        shadow is True,
        least_probability,
        objective,
        None if metadata is None else _cost_in(metadata),
        _duration_of(started_ns, ended_ns),
    )


def _duration_of(started_ns: object, ended_ns: object) -> int | None:
    """Return how long an evaluator ran. None if that cannot be."""
    if not isinstance(started_ns, int) or not isinstance(ended_ns, int):
        return None
    duration_ns = ended_ns - started_ns
    return duration_ns if started_ns > 0 and 0 <= duration_ns <= _LONGEST_NS else None


def _cost_in(metadata: object) -> float | None:
    """Return what the judge's calls cost, of a result's metadata."""
    facts = metadata.get("judge") if isinstance(metadata, Mapping) else None
    if not isinstance(facts, Mapping):
        return None
    cost = facts.get("costUsd")
    return 0.0 if cost is None and facts.get("fromCache") is True else cost_of(cost)


def cost_of(stored: object) -> float:
    """Return a cost in USD, stored as a number or its text, or `PRICE_UNKNOWN`."""
    cost = _number_of(stored)
    return cost if 0.0 <= cost <= _MOST_USD else PRICE_UNKNOWN


def objective_of(stored: object) -> float | None:
    """Return an objective above 0, stored as a number or its text. None without one."""
    return None if stored is None else known(_number_of(stored))


def _number_of(stored: object) -> float:
    if isinstance(stored, int | float | str):
        with contextlib.suppress(ValueError, OverflowError):
            return float(stored)
    return math.nan


_LAST_S = 253_402_300_799.0  # the end of the year 9999: no date can be later


def seconds_of(ended_ns: object, timestamp: object) -> float:
    """Return when an answer was evaluated, Unix time. 0 if that is unknown."""
    for value, unit in ((ended_ns, 1e9), (timestamp, 1e3)):
        if isinstance(value, int | float) and 0 < value <= _LAST_S * unit:
            return value / unit
    return 0.0


def _id_in(*metadata: Any) -> Any:
    for item in metadata:
        if isinstance(item, Mapping) and item.get("id") is not None:
            return item["id"]
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- results taken together
class ScoreOf(NamedTuple):
    """A criterion's score of an answer: from 0 to 1, higher is better. None if it has no such form."""

    value: float | None
    passed: bool | None
    weight: float
    version: str
    is_baseline: bool = True


# A comparison keeps the scores of a million answers, and most of them are equal.
_shared_score = lru_cache(maxsize=_SHARED, typed=True)(ScoreOf)


def scores_of(results: Iterable[ResultRow]) -> tuple[dict[str, ScoreOf], tuple[str, ...]]:
    """Return the score of each criterion, and the criteria whose evaluator broke.

    Several evaluators of one criterion give the mean of their scores. It passes if all pass.
    """
    by_name: dict[str, list[ScoreOf]] = {}
    failed: list[str] = []
    for row in results:
        if row.status == FAILED:
            failed.append(row.criterion)
        elif row.status == SCORED:
            version = f"{row.evaluator} {row.evaluator_version or ''}".strip()
            score = _shared_score(row.normalized, row.passed, row.weight, version, row.is_baseline)
            by_name.setdefault(row.criterion, []).append(score)
    scores = {
        name: scores[0] if len(scores) == 1 else _mean(scores) for name, scores in by_name.items()
    }
    return scores, tuple(failed)


def _mean(scores: list[ScoreOf]) -> ScoreOf:
    values = [score.value for score in scores if score.value is not None]
    verdicts = [score.passed for score in scores if score.passed is not None]
    versions = {score.version for score in scores}
    mean = math.fsum(values) / len(values) if values else None
    passed = all(verdicts) if verdicts else None
    largest_weight = max(score.weight for score in scores)
    is_baseline = all(score.is_baseline for score in scores)
    return ScoreOf(mean, passed, largest_weight, ", ".join(sorted(versions)), is_baseline)


# --- labels, joined with the answers that they are about
class Label(NamedTuple):
    """A person's label of an answer, with the evaluators' verdicts on it.

    Attributes:
        evaluation_id: Of the answer. None if it is not stored in this place.
        passed: The person's verdict. None for a score or a comment.
        others: The evaluators' verdicts by criterion.
        label_id: Of the evaluation that holds the label itself.
        person: Identifies the person, as feedback stores it: a hash of the name, unless the
            settings say otherwise. None if it is not known.
        name: What the person typed. None if it is not stored.
        is_withdrawal: It takes back the person's label before it.
    """

    evaluation_id: str | None
    criterion: str
    passed: bool | None
    others: dict[str, bool]
    label_id: str = ""
    person: str | None = None
    name: str | None = None
    is_withdrawal: bool = False


class StoredEvaluation(NamedTuple):
    """An evaluation with its id."""

    evaluation_id: str
    evaluation: AggregatedEvaluationResult


class StoredVerdict(NamedTuple):
    """Holds a verdict, of a person or an evaluator, with what leads to its answer.

    The last three are of a person: see `Label`.
    """

    evaluation_id: str
    response_id: str | None
    trace_id: str | None
    span_id: str | None
    criterion: str
    passed: bool | None
    person: str | None = None
    name: str | None = None
    is_withdrawal: bool = False


def joined_labels(
    of_people: Iterable[StoredVerdict], of_others: Iterable[StoredVerdict]
) -> list[Label]:
    """Return the labels, each with the verdicts on its answer.

    What leads to an answer is its span, its own id, or the id of its evaluation.
    """
    answers: dict[tuple[str | None, str], tuple[str, dict[str, bool]]] = {}
    for row in of_others:
        keys = ((row.trace_id, row.span_id), (None, row.evaluation_id), (None, row.response_id))
        for trace_id, id in keys:
            if id is not None:
                answer = answers.setdefault((trace_id, id), (row.evaluation_id, {}))
                others = answer[1]
                if row.passed is not None:
                    others[row.criterion] = row.passed
    labels = []
    unknown: tuple[str | None, dict[str, bool]] = (None, {})
    for label in of_people:
        of_span = answers.get((label.trace_id, label.span_id or ""))
        of_response = answers.get((None, label.response_id or ""))
        evaluation_id, others = of_span or of_response or unknown
        joined = Label(
            evaluation_id,
            label.criterion,
            label.passed,
            others,
            label.evaluation_id,
            label.person,
            label.name,
            label.is_withdrawal,
        )
        labels.append(joined)
    return labels
