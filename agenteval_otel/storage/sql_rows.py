"""A result as the rows of a database's two tables, and back, without SQLAlchemy.

Fields that queries filter by have a column. All others are JSON in `details`, so a new field needs
no new column.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.inputs import Annotations
from agenteval_otel.models.scoring.probability import weight
from agenteval_otel.models.value import Value
from agenteval_otel.runtime.text import sanitise
from agenteval_otel.storage.base import without_objects

_NAME_CHARS = 256
# texts that may be long; all others are names
_TEXTS = frozenset({"reasoning", "error", "skip_reason"})
_EVALUATION_COLUMNS = frozenset({
    "agent", "agent_id", "session_id", "conversation_id", "response_id", "model", "call_id", "sampling_reason",
    "stream_end", "started_ns", "ended_ns", "response_ended_ns", "overall_score", "sampling_probability",
    "has_ground_truth",
})  # fmt: skip
_ANNOTATIONS = frozenset(Annotations.model_fields)  # in both tables
_RESULT_COLUMNS = frozenset(
    {
        "evaluator_type",
        "evaluator_version",
        "evaluator_kind",
        "label",
        "reason_code",
        "error_type",
        "normalized",
        "threshold",
        "probability",
        "passed",
        "started_ns",
        "ended_ns",
        *_TEXTS,
    }
)
_ROW_BYTES = 200
_LARGEST = 2**63 - 1
_MAX_DIGITS = 4_300  # Python does not parse longer integers


class Rows(NamedTuple):
    """A result as rows.

    Attributes:
        size: In bytes.
        replaces: Its results replace earlier ones of the same answer. Those of people, and of
            answers without a trace or an id, replace nothing.
    """

    evaluation: dict[str, Any]
    results: list[dict[str, Any]]
    size: int
    replaces: bool = False

    def keys(self) -> list[tuple[Any, ...]]:
        """Return the identity of each result: its answer, evaluator, version and criterion."""
        answer = answer_of(self.evaluation)
        return [(*answer, *result_of(row)) for row in self.results]

    def without(self, keys: Collection[tuple[Any, ...]]) -> Rows:
        """Return the rows whose results have none of these identities."""
        kept = [row for key, row in zip(self.keys(), self.results, strict=True) if key not in keys]
        return self._replace(results=kept)


def answer_of(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return the identity of an evaluation's answer.

    Replayed results have an identity of their own, so they do not replace recorded ones.
    """
    is_replay = '"replayed":true' in row["details"]
    return row["trace_id"], row["span_id"], row["call_id"], is_replay


def result_of(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return which of an answer's results it is."""
    return row["evaluator"], row["evaluator_version"], row["criterion"]


class StoredResult(Annotations):
    """One score, skip or failure as it is stored, with what its response was annotated with.

    Attributes:
        evaluation_id: Of the evaluation: 32 hexadecimal digits, which sort by time.
        evaluated_at: When the evaluation ended, in UTC.
        agent: Which agent answered.
        trace_id: Of the evaluated span. None without one.
        span_id: Of the evaluated span.
        weight: For how many responses it stands: 1 / probability.
        result: The result itself.
    """

    evaluation_id: str
    evaluated_at: datetime
    agent: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    weight: float = 1.0
    result: EvaluationResult


def rows_of(aggregated: AggregatedEvaluationResult, key: str | None = None) -> Rows:
    """Return the rows of a result, with values that every database takes.

    There is no NUL, lone surrogate, NaN or endless name. `key` is the id of the evaluation. Without
    it a new one is made, which sorts by time.
    """
    key = key or f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
    try:
        return _rows_of(aggregated, key)
    except ValueError:
        return _rows_of(without_objects(aggregated), key)


def _rows_of(aggregated: AggregatedEvaluationResult, key: str) -> Rows:
    span = aggregated.span
    trace_id = span.trace_id if span else None
    span_id = span.span_id if span else None
    common: dict[str, Any] = {
        "evaluated_at": _evaluated_at(aggregated),
        "agent": name_of(aggregated.agent),
        "trace_id": name_of(trace_id),
        "span_id": name_of(span_id),
        **_cells(aggregated, _ANNOTATIONS - {"tags"}),
        "tags": tags_of(aggregated.tags),
    }
    in_columns = {*_EVALUATION_COLUMNS, *_ANNOTATIONS, "results"}
    details = aggregated.model_dump_json(exclude=in_columns, exclude_defaults=True)
    evaluation = {
        "id": key,
        **common,
        **_cells(aggregated, _EVALUATION_COLUMNS),
        "details": details,
    }
    results = [
        {"evaluation_id": key, "position": position, **common, **_result_cells(result)}
        for position, result in enumerate(aggregated.results)
    ]
    size = _ROW_BYTES * (1 + len(results)) + len(details)
    for row in results:
        size += len(row["details"])
        size += sum(len(row[name] or "") for name in _TEXTS)
    is_of_people = any(result.evaluator_kind == "human" for result in aggregated.results)
    replaces = span is not None and aggregated.call_id is not None and not is_of_people
    return Rows(evaluation, results, size, replaces)


def _result_cells(result: EvaluationResult) -> dict[str, Any]:
    in_columns = {*_RESULT_COLUMNS, "criterion_name"}
    if type(result.score) is float and math.isfinite(result.score):
        # Any other score is not exact as a float, so `details` has it too.
        in_columns.add("score")
    evaluator = result.evaluator_id or result.evaluator_type
    score = _real(result.score)
    probability = _real(result.probability)
    details = result.model_dump_json(exclude=in_columns, exclude_defaults=True)
    return {
        **_cells(result, _RESULT_COLUMNS),
        "criterion": name_of(result.criterion_name),
        "evaluator": name_of(evaluator),
        "status": result.status,
        "score": score,
        "weight": weight(probability),
        "details": details,
    }


def _cells(value: Value, columns: frozenset[str]) -> dict[str, Any]:
    return {name: _cell(name, getattr(value, name)) for name in columns}


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return sanitise(value) if name in _TEXTS else name_of(value)
    if isinstance(value, float):
        return _real(value)
    is_too_large = value is not None and abs(value) > _LARGEST
    return None if is_too_large else value


def _real(number: object) -> float | None:
    try:
        real = float(number) if isinstance(number, bool | int | float) else math.nan
    except OverflowError:
        return None
    return real if math.isfinite(real) else None


def in_utc(moment: datetime | None) -> datetime | None:
    """Return the moment in UTC. Without a zone it is taken as UTC. None for None."""
    if moment is None:
        return None
    if moment.tzinfo:
        return moment.astimezone(UTC)
    return moment.replace(tzinfo=UTC)


def name_of(text: str | None) -> str | None:
    return None if text is None else sanitise(text)[:_NAME_CHARS]


def tags_of(tags: Mapping[str, str] | None) -> dict[str | None, str | None] | None:
    return {name_of(key): name_of(value) for key, value in tags.items()} if tags else None


def _evaluated_at(aggregated: AggregatedEvaluationResult) -> datetime:
    seconds = aggregated.ended_ns / 1e9 if aggregated.ended_ns else aggregated.timestamp / 1e3
    try:
        return datetime.fromtimestamp(seconds or time.time(), UTC)
    except (OverflowError, ValueError, OSError):  # out of the calendar's range
        return datetime.now(UTC)


def stored_of(row: Mapping[Any, Any]) -> StoredResult:
    # The row's other columns are left out.
    return StoredResult(
        **{**row, "evaluated_at": in_utc(row["evaluated_at"])}, result=_result_of(row)
    )


def evaluation_of(
    row: Mapping[Any, Any], results: Sequence[Mapping[Any, Any]]
) -> AggregatedEvaluationResult:
    columns = _EVALUATION_COLUMNS | _ANNOTATIONS
    return AggregatedEvaluationResult(
        **_fields_of(row, columns), results=tuple(map(_result_of, results))
    )


def _result_of(row: Mapping[Any, Any]) -> EvaluationResult:
    return EvaluationResult(
        **_fields_of(row, _RESULT_COLUMNS | {"score"}), criterion_name=row["criterion"]
    )


def _fields_of(row: Mapping[Any, Any], columns: frozenset[str]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in columns},
        **json.loads(row["details"], parse_int=_number),
    }


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < _MAX_DIGITS else float(digits)
