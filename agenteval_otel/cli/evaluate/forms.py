"""The two forms of a dataset, line by line: JSONL (an object on each line) and CSV (a header, then a row for each).

What is wrong with one input costs that input only; what is wrong with the form ends the source.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from agenteval_otel.cli.evaluate.fields import field_of, json_of
from agenteval_otel.cli.evaluate.sources import MAX_LINE_BYTES, Source
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

__all__ = ["FORMS", "Found", "Text", "form_of", "read_csv", "read_jsonl"]

_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Text:
    """The lines of a source as text, without a byte order mark, counted.

    Attributes:
        number: Of the line that was given last.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.number = source, 0
        self._lines = source.lines()
        self._first = next(self._lines, b"")
        if self._first.startswith(_UTF16):
            raise ConfigurationError(
                "UTF-16; it must be UTF-8 (a spreadsheet saves it as 'CSV UTF-8')", path=self._at(1)
            )
        self._first = self._first.removeprefix(codecs.BOM_UTF8)
        self.first = self._decoded(self._first, 1)

    def __iter__(self) -> Iterator[str]:
        if self._first:
            self.number = 1
            yield self.first
        for line in self._lines:
            self.number += 1
            yield self._decoded(line, self.number)

    def _decoded(self, line: bytes, number: int) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise ConfigurationError("not UTF-8", path=self._at(number)) from None

    def _at(self, number: int) -> str:
        return f"{self.source.name}:{number}"


Found = tuple[int, Callable[[], list[tuple[str, Any]]]]
"""The line on which an input begins, and what gives its named values or raises what is wrong with them."""


def form_of(lines: Text) -> str:
    """The form of a source: by its suffix, else by its first character."""
    known = next((form for suffix, form in _SUFFIXES.items() if lines.source.name.lower().endswith(suffix)), None)
    return known or ("jsonl" if lines.first.lstrip().startswith(("{", "[")) else "csv")


def read_jsonl(lines: Text) -> Iterator[Found]:
    """An input for each line that is not blank.

    Raises:
        ConfigurationError: It is JSON over several lines.
    """
    if lines.first.strip() in ("{", "["):
        raise ConfigurationError(
            "expected one JSON object on each line, found one that is spread over several; `jq -c . FILE` makes lines "
            "of objects, `jq -c '.[]' FILE` of a list", path=f"{lines.source.name}:1",
        )  # fmt: skip
    for line in lines:
        if line.strip():
            yield lines.number, partial(_object_of, line)


def _object_of(line: str) -> list[tuple[str, Any]]:
    found = json_of(line.rstrip())
    if not isinstance(found, dict):
        what = "a list (`jq -c '.[]' FILE` makes lines of it)" if isinstance(found, list) else repr(found)[:40]
        raise ConfigurationError(f"expected a JSON object on each line, found {what}")
    return list(found.items())


def read_csv(lines: Text) -> Iterator[Found]:
    """An input for each row below the header; separated by what the header has most of: commas, semicolons or tabs.

    Raises:
        ConfigurationError: The header is wrong, or from some row on it is no CSV.
    """
    # A limit of the process, which this is alone in; the usual one is 128 KiB a cell.
    csv.field_size_limit(MAX_LINE_BYTES)
    header: list[str] = []
    begins = 1
    reader = csv.reader(lines, strict=True, delimiter=max(",;\t", key=lines.first.count))
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ConfigurationError(_csv_words(error), path=f"{lines.source.name}:{begins}") from None
        if cells is None:
            return
        if not header and any(cells):
            header = _header_of(cells, f"{lines.source.name}:{begins}")
        elif any(cells):
            yield begins, partial(_named, header, cells)
        begins = lines.number + 1


def _csv_words(error: csv.Error) -> str:
    said = str(error)
    if "unexpected end" in said or "larger than field limit" in said:
        return "not CSV: a cell's quote is opened here or below, and never closed"
    if "new-line" in said:
        return "not CSV: a carriage return alone in a cell without quotes; lines end in a line feed, or in both"
    return f"not CSV: {said}; a quote within a quoted cell is written twice"


def _header_of(cells: list[str], place: str) -> list[str]:
    """The names of the columns.

    Raises:
        ConfigurationError: Names that are misspelt or stand there twice, or none for the answer.
    """
    problems: list[tuple[str | None, str]] = []
    places: set[tuple[str, ...]] = set()
    for name in cells:
        try:
            found = field_of(name) if name.strip() else ()
        except ConfigurationError as error:
            problems += [(place, f"column {path!r}: {message}") for path, message in error.problems]
            continue
        if found in places or not found:
            problems.append((place, f"column {name!r} stands there twice" if found else "a column without a name"))
        places.add(found)
    if not problems and not places & {("response",), ("error_type",)}:
        known = sorted(EvaluationInput.model_fields)
        problems.append((place, f"no column 'response', the answers that are evaluated{choices('', known)}"))
    if problems:
        raise ConfigurationError.of(problems)
    return cells


def _named(header: list[str], cells: list[str]) -> list[tuple[str, Any]]:
    if len(cells) != len(header):
        raise ConfigurationError(f"{len(cells)} cells, but the header has {len(header)} columns")
    named = []
    for name, cell in zip(header, cells, strict=True):
        place = field_of(name)
        if place == ("response",) or cell.strip():
            try:
                named.append((name, json_of(cell) if place in _AS_JSON else cell))
            except ConfigurationError as error:
                raise error.under(name) from None
    return named


def _is_container(annotation: Any) -> bool:
    """Whether a field holds a list, a mapping or a model, or None."""
    origin = get_origin(annotation)
    if origin in (list, tuple, dict):
        return True
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    return any(map(_is_container, get_args(annotation)))


_AS_JSON = {(name,) for name, field in EvaluationInput.model_fields.items() if _is_container(field.annotation)}


FORMS: dict[str, Callable[[Text], Iterator[Found]]] = {"jsonl": read_jsonl, "csv": read_csv}
"""By the word that chooses them on the command line."""
