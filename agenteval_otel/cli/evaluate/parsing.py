"""From the text of a dataset to `EvaluationInput`: JSONL (one object a line) and CSV (a header, then rows).

Names are those of the input's fields, in snake_case, camelCase, or with spaces or hyphens. CSV cells are text; where
the field is a list or a mapping they are JSON. A wrong input costs that input only; a wrong form ends the source.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NoReturn, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agenteval_otel.components.explained import explain_validation, known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

MAX_LINE_BYTES = 64 * 1024 * 1024
# The columns of the specification's files with reference answers.
_OTHER_NAMES = {
    "userprompt": ("prompt",),
    "expectedoutput": ("ground_truth",),
    "category": ("metadata", "category"),
    "module": ("metadata", "module"),
}
_FIELDS = {name.replace("_", ""): name for name in EvaluationInput.model_fields}
_TYPOS = 0.85
"""An unknown name of at least this likeness to a field counts as misspelled."""

Named = list[tuple[str, Any]]
"""The values of an input by the names in the dataset."""
Parsed = tuple[int, Callable[[], Named]]
"""The line on which an input begins, and a function that gives its values or raises `ConfigurationError`."""


def parse_jsonl(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    """An input for each line that is not blank."""
    if first.strip() in ("{", "["):
        raise ConfigurationError(
            "expected one JSON object on each line, found one that spans several; `jq -c . FILE` makes lines of "
            "objects, `jq -c '.[]' FILE` of a list", path=f"{source}:1",
        )  # fmt: skip
    for number, line in enumerate(chain([first], lines), 1):
        if line.strip():
            yield number, partial(_named_items, line)


def json_object(line: str) -> dict[str, Any]:
    """The JSON object on a line, or `ConfigurationError`."""
    value = _json(line.rstrip())
    if not isinstance(value, dict):
        what = "a list (`jq -c '.[]' FILE` makes lines of it)" if isinstance(value, list) else repr(value)[:40]
        raise ConfigurationError(f"expected a JSON object on each line, found {what}")
    return value


def _named_items(line: str) -> Named:
    return list(json_object(line).items())


def parse_csv(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    """An input for each row below the header; the separator is the most frequent of comma, semicolon and tab there."""
    csv.field_size_limit(MAX_LINE_BYTES)  # of the process; by default 128 KiB a cell
    header: list[str] = []
    begins = 1
    reader = csv.reader(chain([first], lines), strict=True, delimiter=max(",;\t", key=first.count))
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ConfigurationError(_csv_problem(error), path=f"{source}:{begins}") from None
        if cells is None:
            return
        if not header and any(cells):
            header = cells
            try:
                _check_header(header)
            except ConfigurationError as error:
                located = [(f"{source}:{begins}", f"{name}: {text}" if name else text) for name, text in error.problems]
                raise ConfigurationError.of(located) from None
        elif any(cells):
            yield begins, partial(_named_cells, header, cells)
        begins = reader.line_num + 1


PARSERS: dict[str, Callable[[str, str, Iterator[str]], Iterator[Parsed]]] = {"jsonl": parse_jsonl, "csv": parse_csv}
"""By the name of the form on the command line: a function of the source's name, first line and other lines."""


@lru_cache(maxsize=1024)
def field_of(name: str) -> tuple[str, ...]:
    """The path of a named value: its field, and the keys within. An unknown name is a key of ``metadata``."""
    root, *keys = name.strip().split(".")
    plain = root.lower().replace("_", "").replace("-", "").replace(" ", "")
    if plain in _FIELDS:
        return _FIELDS[plain], *keys
    if not keys and plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    if get_close_matches(plain, [*_FIELDS, *_OTHER_NAMES], n=1, cutoff=_TYPOS):
        fields = sorted(EvaluationInput.model_fields)
        raise ConfigurationError(f"unknown field{known_choices(root, fields)}; to keep it anyway: metadata.{root}",
                                 path=name.strip()[:80])  # fmt: skip
    return "metadata", name.strip()


def values_of(named: Named) -> dict[str, Any]:
    """The fields of an input; `ConfigurationError` for a misspelled name, or two names for one value."""
    fields: dict[str, Any] = {}
    names: dict[tuple[str, ...], str] = {}
    # Whole fields first: single keys override what they contain.
    for name, value in sorted(named, key=lambda pair: len(field_of(pair[0]))):
        path = field_of(name)
        if path in names:
            raise ConfigurationError(f"appears twice, also as {names[path]!r}", path=name)
        names[path] = name
        *parents, last = path
        inner = fields
        for key in parents:
            current = inner.get(key)
            if current is not None and not isinstance(current, Mapping):
                raise ConfigurationError(f"{key} is not a mapping here, so it has no {last!r}", path=name)
            inner[key] = dict(current or {})
            inner = inner[key]
        inner[last] = value
    return fields


def input_of(fields: Mapping[str, Any]) -> EvaluationInput:
    """The input with these fields, or `ConfigurationError`. Without an `error_type` a response is required."""
    if "response" not in fields and fields.get("error_type") is None:
        raise ConfigurationError(
            "is missing: the answer to evaluate (or error_type, where the agent raised)", path="response"
        )
    try:
        return EvaluationInput.model_validate(dict(fields))
    except ValidationError as error:
        raise explain_validation(error, EvaluationInput) from None


def _csv_problem(error: csv.Error) -> str:
    message = str(error)
    if "unexpected end" in message or "larger than field limit" in message:
        return "not CSV: a quote is opened here or below and never closed"
    if "new-line" in message:
        return "not CSV: a carriage return alone in a cell without quotes; lines end with a line feed, or both"
    return f"not CSV: {message}; write a quote within a quoted cell twice"


def _check_header(cells: list[str]) -> None:
    """Refuse names that are misspelled, missing or there twice, and a header without a column for the answer."""
    if not all(name.strip() for name in cells):
        raise ConfigurationError("a column without a name")
    if not values_of([(name, {}) for name in cells]).keys() & {"response", "error_type"}:
        fields = sorted(EvaluationInput.model_fields)
        raise ConfigurationError(f"no column 'response' with the answers to evaluate{known_choices('', fields)}")


def _named_cells(header: list[str], cells: list[str]) -> Named:
    if len(cells) != len(header):
        raise ConfigurationError(f"{len(cells)} cells, but the header has {len(header)} columns")
    named = []
    for name, cell in zip(header, cells, strict=True):
        path = field_of(name)
        if path == ("response",) or cell.strip():
            try:
                named.append((name, _json(cell) if path in _AS_JSON else cell))
            except ConfigurationError as error:
                raise error.with_prefix(name) from None
    return named


def _is_container(annotation: Any) -> bool:
    """Whether a field accepts a list, a mapping or a model."""
    if get_origin(annotation) in (list, tuple, dict):
        return True
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    return any(map(_is_container, get_args(annotation)))


_AS_JSON = {(name,) for name, field in EvaluationInput.model_fields.items() if _is_container(field.annotation)}


def _json(text: str) -> Any:
    """JSON without NaN and infinity. Half characters (lone surrogates) become question marks."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            whole = json.dumps(value, ensure_ascii=False)
            value = json.loads(whole.encode("utf-8", "replace"))
        return value
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ConfigurationError("JSON that is nested too deeply") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
