"""The case that a judge is shown: the fields of an input by their names, shortened, and whether they are there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, WithJsonSchema

from agenteval_otel.capture.text import plain
from agenteval_otel.judges.prompt import CaseText, shortened
from agenteval_otel.models import EvaluationInput

__all__ = ["FIELDS", "CaseField", "CaseFields", "case_of", "fields_shown", "missing_of", "value_of"]

CaseField = Literal[
    "question", "response", "ground_truth", "context", "history", "tool_calls", "tool_results", "tool_definitions",
]  # fmt: skip
FIELDS: tuple[str, ...] = get_args(CaseField)
"""What of an input a judge may need; the words of the option ``needs``."""


def _known(value: str) -> str:
    for field in value.split("|"):
        if field not in FIELDS:
            raise ValueError(f"{field!r} is no field of a case; known: {', '.join(FIELDS)}, and a|b for the first that "
                             f"there is")  # fmt: skip
    return value


_ONE = "|".join(FIELDS)
CaseFields = Annotated[
    str,
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"enum": list(FIELDS)}, {"type": "string", "pattern": rf"^({_ONE})(\|({_ONE}))+$"}]}),
]
"""A field, or several of which the first that is there counts: ``context|ground_truth``."""

_IN_WORDS = {"question": "question", "ground_truth": "ground truth", "tool_calls": "tool calls",
             "tool_results": "tool results", "tool_definitions": "tool definitions"}  # fmt: skip
_DEFINITIONS = ("tools", "tool_definitions", "toolDefinitions")
_DEEPEST = 8
_LEAST_OF_AN_ENTRY = 100


def value_of(evaluation_input: EvaluationInput, field: str) -> Any:
    """What the input holds in a field (``context.key`` too): text, else plain data; None where there is nothing."""
    if field in ("response", "ground_truth") or field.startswith("context."):
        return _value_of(evaluation_input, field)
    if field == "tool_definitions":
        return _definitions(evaluation_input)
    if field == "tool_results":
        return _results(evaluation_input)
    context = evaluation_input.context
    values = {
        "question": evaluation_input.prompt,
        "context": context if context and set(context) - set(_DEFINITIONS) else None,
        "history": evaluation_input.message_history,
        "tool_calls": evaluation_input.tool_calls,
    }
    return values.get(field) or None


def case_of(evaluation_input: EvaluationInput, fields: Iterable[tuple[str, str]], *, limit: int) -> dict[str, CaseText]:
    """The fields that there are, by the names that the judge reads; each at most about `limit` characters.

    Args:
        evaluation_input: The input.
        fields: The judge's name of a field, and the field's own.
        limit: Characters; data that is longer as JSON is shortened as text, tool calls each for itself.

    Raises:
        CaptureError: A value's own methods raised.
    """
    texts = {}
    for name, field in fields:
        value = value_of(evaluation_input, field)
        if value is not None:
            texts[name] = _limited(value, limit, by_entry=field == "tool_calls")
    return texts


def missing_of(evaluation_input: EvaluationInput, needs: Iterable[str]) -> str | None:
    """Why the input cannot be judged: the first field that is needed and not there; None where all are.

    Of alternatives the first is named, and the others behind a colon.
    """
    for needed in needs:
        fields = needed.split("|")
        if not any(_is_there(evaluation_input, field) for field in fields):
            first, *others = (_IN_WORDS.get(field, field) for field in fields)
            return f"no {first}" + (": nor " + ", nor ".join(others) if others else "")
    return None


def fields_shown(evaluation_input: EvaluationInput, wanted: Sequence[str]) -> list[str]:
    """The fields that stand for what is wanted, each once and in the order of `FIELDS`: of alternatives the first."""
    shown = {
        next((field for field in fields if _is_there(evaluation_input, field)), fields[0])
        for fields in (alternatives.split("|") for alternatives in wanted)
    }
    return [field for field in FIELDS if field in shown]


def _is_there(evaluation_input: EvaluationInput, field: str) -> bool:
    value = value_of(evaluation_input, field)
    if field == "response" and isinstance(value, str):
        return True  # an empty answer is refused by its own word
    return _says(value)


def _says(value: Any, depth: int = 0) -> bool:
    """Whether there is anything in it: a text that is not blank, a number, or something that holds one."""
    if isinstance(value, str):
        return bool(value.strip())
    if depth < _DEEPEST and isinstance(value, Mapping | list | tuple):
        return any(_says(item, depth + 1) for item in (value.values() if isinstance(value, Mapping) else value))
    return value is not None


def _value_of(evaluation_input: EvaluationInput, field: str) -> Any:
    text = evaluation_input.text_at(field)
    return text if text is not None else evaluation_input.value_at(field)


def _definitions(evaluation_input: EvaluationInput) -> Any:
    for source in (evaluation_input.agent_config, evaluation_input.context):
        for name in _DEFINITIONS:
            if source and source.get(name):
                return source[name]
    return None


def _results(evaluation_input: EvaluationInput) -> list[dict[str, Any]] | None:
    calls = evaluation_input.tool_calls or ()
    return [{"name": call.name, "result": call.result} for call in calls if call.result is not None] or None


def _limited(value: Any, limit: int, *, by_entry: bool) -> CaseText:
    if isinstance(value, str):
        return shortened(value, limit)
    data = plain([item.model_dump(by_alias=True, exclude_none=True) if hasattr(item, "model_dump") else item
                  for item in value] if isinstance(value, list | tuple) else value)  # fmt: skip
    text = json.dumps(data, ensure_ascii=False)
    if len(text) <= limit and _is_strict(data):
        return CaseText(data)
    if by_entry and len(data) * _LEAST_OF_AN_ENTRY <= limit:
        return _each_shortened(data, limit)
    return shortened(text, limit)


def _each_shortened(entries: list[Any], limit: int) -> CaseText:
    """All of the entries, the long ones among them as shortened text."""
    shown, left_out = [], 0
    for entry in entries:
        text = json.dumps(entry, ensure_ascii=False)
        short = shortened(text, limit // len(entries))
        left_out += short.left_out
        shown.append(short.text if short.left_out or not _is_strict(entry) else entry)
    return CaseText(shown, left_out)


def _is_strict(data: Any) -> bool:
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:  # NaN or an infinity, for which JSON has no form
        return False
    return True
