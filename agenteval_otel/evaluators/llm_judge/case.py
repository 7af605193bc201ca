"""The case that a judge reads: the fields of an input by their names, shortened, and which are missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, WithJsonSchema

from agenteval_otel.capture.text import plain
from agenteval_otel.judges.prompt import CaseText, shortened
from agenteval_otel.models import EvaluationInput

CaseField = Literal[
    "question", "response", "ground_truth", "context", "history", "tool_calls", "tool_results", "tool_definitions",
]  # fmt: skip
FIELDS: tuple[str, ...] = get_args(CaseField)
"""The fields of an input that a judge may need; the words of the option ``needs``."""


def _known(value: str) -> str:
    for field in value.split("|"):
        if field not in FIELDS:
            raise ValueError(f"{field!r} is no field of a case; known: {', '.join(FIELDS)}, and a|b for the first that "
                             f"there is")  # fmt: skip
    return value


_FIELD = "|".join(FIELDS)
CaseFields = Annotated[
    str,
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"enum": list(FIELDS)}, {"type": "string", "pattern": rf"^({_FIELD})(\|({_FIELD}))+$"}]}),
]
"""A field, or several of which the first that is there counts: ``context|ground_truth``."""

_DEFINITIONS = ("tools", "tool_definitions", "toolDefinitions")
_DEEPEST = 8
_LEAST_OF_AN_ENTRY = 100


def value_of(evaluation_input: EvaluationInput, field: str) -> Any:
    """The input's value of a field (``context.key`` too): text, else plain data; None if it is missing."""
    if field in ("response", "ground_truth") or field.startswith("context."):
        text = evaluation_input.text_at(field)
        return text if text is not None else evaluation_input.value_at(field)
    context, calls = evaluation_input.context, evaluation_input.tool_calls
    if field == "tool_definitions":
        sources = (source or {} for source in (evaluation_input.agent_config, context))
        return next((source[name] for source in sources for name in _DEFINITIONS if source.get(name)), None)
    values: dict[str, Any] = {
        "question": evaluation_input.prompt,
        "context": context if context and set(context) - set(_DEFINITIONS) else None,
        "history": evaluation_input.message_history,
        "tool_calls": calls,
        "tool_results": [{"name": call.name, "result": call.result} for call in calls or () if call.result is not None],
    }
    return values.get(field) or None


def case_of(evaluation_input: EvaluationInput, fields: Iterable[tuple[str, str]], *, limit: int) -> dict[str, CaseText]:
    """The fields (the judge's name and the input's) that the input has, each at most about `limit` characters long.

    Data that is longer as JSON is shortened as text, tool calls each for itself.
    """
    values = ((name, field, value_of(evaluation_input, field)) for name, field in fields)
    return {
        name: _limited(value, limit, by_entry=field == "tool_calls")
        for name, field, value in values
        if value is not None
    }


def missing_of(evaluation_input: EvaluationInput, needs: Iterable[str]) -> str | None:
    """Why the input cannot be judged: the first missing field, alternatives behind a colon; None if all are there."""
    for needed in needs:
        fields = needed.split("|")
        if not any(_is_there(evaluation_input, field) for field in fields):
            first, *others = (field.replace("_", " ") for field in fields)
            return f"no {first}" + (": nor " + ", nor ".join(others) if others else "")
    return None


def fields_shown(evaluation_input: EvaluationInput, wanted: Sequence[str]) -> list[str]:
    """The wanted fields in the order of `FIELDS`; of alternatives the first that the input has."""
    shown = {
        next((field for field in fields if _is_there(evaluation_input, field)), fields[0])
        for fields in (alternatives.split("|") for alternatives in wanted)
    }
    return [field for field in FIELDS if field in shown]


def _is_there(evaluation_input: EvaluationInput, field: str) -> bool:
    value = value_of(evaluation_input, field)
    # An empty answer has its own skip reason.
    return _has_content(value) or (field == "response" and isinstance(value, str))


def _has_content(value: Any, depth: int = 0) -> bool:
    """Whether it is or contains a text that is not blank, or a number."""
    if isinstance(value, str):
        return bool(value.strip())
    if depth < _DEEPEST and isinstance(value, Mapping | list | tuple):
        return any(_has_content(item, depth + 1) for item in (value.values() if isinstance(value, Mapping) else value))
    return value is not None


def _limited(value: Any, limit: int, *, by_entry: bool) -> CaseText:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, list | tuple):
        value = [
            item.model_dump(by_alias=True, exclude_none=True) if isinstance(item, BaseModel) else item for item in value
        ]
    data = plain(value)
    whole = _within(data, limit)
    if by_entry and isinstance(whole.text, str) and len(data) * _LEAST_OF_AN_ENTRY <= limit:
        entries = [_within(entry, limit // len(data)) for entry in data]
        return CaseText([entry.text for entry in entries], sum(entry.left_out for entry in entries))
    return whole


def _within(data: Any, limit: int) -> CaseText:
    """The data as it is, or as shortened text where it is too long, or is not JSON (NaN, an infinity)."""
    text = json.dumps(data, ensure_ascii=False)
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        return shortened(text, limit)
    return CaseText(data) if len(text) <= limit else shortened(text, limit)
