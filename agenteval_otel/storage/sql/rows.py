"""A result as the rows of its two tables, and back, without SQLAlchemy.

Fields that queries filter by have a column; all others are JSON in `details`, so a new field needs no new column.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agenteval_otel.capture.text import sanitise
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.value import Value
from agenteval_otel.scoring.probability import weight
from agenteval_otel.storage.base import without_objects

__all__ = ["Rows", "StoredResult", "evaluation_of", "name_of", "rows_of", "stored_of"]

NAME_CHARS = 256
_NAMES = ("agent", "agent_id", "session_id", "conversation_id", "response_id", "model", "sampling_reason", "stream_end")
_TIMES = ("started_ns", "ended_ns", "response_ended_ns")
_OF_EVALUATION = frozenset({*_NAMES, *_TIMES, "overall_score", "sampling_probability", "has_ground_truth", "results"})
_RESULT_NAMES = ("evaluator_type", "evaluator_version", "evaluator_kind", "label", "reason_code", "error_type")
_RESULT_TEXTS = ("reasoning", "error", "skip_reason")
_RESULT_REALS = ("normalized", "threshold", "probability")
_OF_RESULT = frozenset({*_RESULT_NAMES, *_RESULT_TEXTS, *_RESULT_REALS, "criterion_name", "passed", "started_ns",
                        "ended_ns"})  # fmt: skip
_ROW_BYTES = 200
_LARGEST = 2**63 - 1
_MAX_DIGITS = 4_000


class Rows(NamedTuple):
    """A result as rows: one for the evaluation, and one for each score, skip and failure; and their size in bytes."""

    evaluation: dict[str, Any]
    results: list[dict[str, Any]]
    size: int


class StoredResult(Value):
    """One score, skip or failure as it is stored.

    Attributes:
        evaluation_id: Of the evaluation: 32 hexadecimal digits, which sort by time.
        evaluated_at: When the evaluation ended, in UTC.
        agent: Which agent answered.
        trace_id: Of the evaluated span; None without one.
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


def rows_of(aggregated: AggregatedEvaluationResult) -> Rows:
    """The rows of a result, with values that every database takes: no NUL, lone surrogate, NaN or endless name."""
    try:
        return _rows_of(aggregated)
    except ValueError:
        return _rows_of(without_objects(aggregated))


def _rows_of(aggregated: AggregatedEvaluationResult) -> Rows:
    span = aggregated.span
    common: dict[str, Any] = {
        "evaluated_at": _when(aggregated),
        "agent": name_of(aggregated.agent),
        "trace_id": name_of(span.trace_id if span else None),
        "span_id": name_of(span.span_id if span else None),
    }
    evaluation = {
        "id": f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}",
        **common,
        **{name: name_of(getattr(aggregated, name)) for name in _NAMES},
        **{name: _whole(getattr(aggregated, name)) for name in _TIMES},
        "overall_score": _real(aggregated.overall_score),
        "sampling_probability": _real(aggregated.sampling_probability),
        "has_ground_truth": aggregated.has_ground_truth,
        "details": aggregated.model_dump_json(exclude=set(_OF_EVALUATION), exclude_defaults=True),
    }
    results = [
        _result_row(result, {"evaluation_id": evaluation["id"], "position": position, **common})
        for position, result in enumerate(aggregated.results)
    ]
    texts = [len(row["details"]) + sum(len(row[name] or "") for name in _RESULT_TEXTS) for row in results]
    return Rows(evaluation, results, _ROW_BYTES * (1 + len(results)) + len(evaluation["details"]) + sum(texts))


def _result_row(result: EvaluationResult, common: Mapping[str, Any]) -> dict[str, Any]:
    exact = type(result.score) is float and math.isfinite(result.score)
    return {
        **common,
        "criterion": name_of(result.criterion_name),
        "evaluator": name_of(result.evaluator_id or result.evaluator_type),
        "status": result.status,
        "score": _real(result.score),
        "passed": result.passed,
        "weight": weight(_real(result.probability)),
        **{name: name_of(getattr(result, name)) for name in _RESULT_NAMES},
        **{name: _text(getattr(result, name)) for name in _RESULT_TEXTS},
        **{name: _real(getattr(result, name)) for name in _RESULT_REALS},
        "started_ns": _whole(result.started_ns),
        "ended_ns": _whole(result.ended_ns),
        "details": result.model_dump_json(exclude={*_OF_RESULT, *({"score"} if exact else ())}, exclude_defaults=True),
    }


def stored_of(row: Mapping[str, Any]) -> StoredResult:
    """The stored result of a row of `agenteval_results`."""
    return StoredResult(
        **{name: row[name] for name in StoredResult.model_fields if name != "result"}, result=_result_of(row)
    )


def evaluation_of(row: Mapping[str, Any], results: list[Mapping[str, Any]]) -> AggregatedEvaluationResult:
    """The result of a row of `agenteval_evaluations` and those that belong to it."""
    fields = {name: row[name] for name in _OF_EVALUATION - {"results"}}
    return AggregatedEvaluationResult(**fields, **_details_of(row), results=tuple(map(_result_of, results)))


def _result_of(row: Mapping[str, Any]) -> EvaluationResult:
    fields = {name: row[name] for name in _OF_RESULT - {"criterion_name"}}
    return EvaluationResult(**{
        **fields, "criterion_name": row["criterion"], "score": row["score"], **_details_of(row),
    })  # fmt: skip


def _details_of(row: Mapping[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = json.loads(row["details"], parse_int=_integer)
    return details


def _integer(digits: str) -> int | float:
    # Python refuses to read longer integers: one such number must not fail the whole query.
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _when(aggregated: AggregatedEvaluationResult) -> datetime:
    seconds = aggregated.ended_ns / 1e9 if aggregated.ended_ns else aggregated.timestamp / 1e3
    try:
        return datetime.fromtimestamp(seconds or time.time(), UTC)
    except (OverflowError, ValueError, OSError):  # out of the calendar's range
        return datetime.now(UTC)


def name_of(text: str | None) -> str | None:
    """A name as it is stored."""
    return None if text is None else sanitise(text)[:NAME_CHARS]


def _text(text: str | None) -> str | None:
    return None if text is None else sanitise(text)


def _real(number: Any) -> float | None:
    try:
        real = float(number) if isinstance(number, bool | int | float) else math.nan
    except OverflowError:
        return None
    return real if math.isfinite(real) else None


def _whole(number: int | None) -> int | None:
    return number if number is not None and abs(number) <= _LARGEST else None
