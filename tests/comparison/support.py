"""Answers to compare, as records of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agenteval_otel.offline.comparison import Answer
from agenteval_otel.offline.comparison.answers import answer_of
from agenteval_otel.storage.rows import row_of_record

__all__ = ["answer", "answer_of_record", "answers", "record"]


def record(
    score: float | None, *, name: str = "tone", prompt: str | None = None, **fields: Any
) -> dict[str, Any]:
    """A stored result with one score."""
    own = {
        key: fields.pop(key)
        for key in ("probability", "least_probability", "evaluator_version", "passed")
        if key in fields
    }
    result = {"criterion_name": name, "evaluator_type": "T", "normalized": score, **own}
    asked = (
        {"prompt": prompt, "response": fields.pop("response", "an answer")}
        if prompt is not None
        else None
    )
    return {"results": [result], "input_snapshot": asked, **fields}


def answer_of_record(record: dict[str, Any], place: str) -> Answer:
    """The answer of a stored result in its JSON form."""
    return answer_of(row_of_record(record, place, place))


def answer(score: float | None, *, place: str = "a:1", **fields: Any) -> Answer:
    return answer_of_record(record(score, **fields), place)


def answers(scores: Sequence[float], **fields: Any) -> list[Answer]:
    """One answer for each score, to questions that are numbered."""
    return [
        answer(score, place=f"a:{number}", prompt=f"q{number}", **fields)
        for number, score in enumerate(scores, 1)
    ]
