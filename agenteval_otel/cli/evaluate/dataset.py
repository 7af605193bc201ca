"""The dataset: evaluation inputs from JSONL (one object a line) and CSV (a header, then rows), each with its place.

Everything is read twice and lazily: first to find what is wrong before anything is evaluated, then to evaluate.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import chain
from typing import IO, Any, NamedTuple, NoReturn, Self

from pydantic import ValidationError

from agenteval_otel.components.explained import explain_validation, known_choices
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

MAX_PROBLEMS = 20
_MAX_CELL = 2**31 - 1
_MAX_UNKNOWN = 50
_STDIN = "-"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}
_FIELDS = {name.replace("_", ""): name for name in EvaluationInput.model_fields}
# The columns of the specification's files with reference answers.
_OTHER_NAMES = {
    "userprompt": ("prompt",), "expectedoutput": ("ground_truth",), "category": ("metadata", "category"),
    "module": ("metadata", "module"),
}  # fmt: skip
_JSON_CELLS = {
    "criteria", "context", "agent_config", "message_history", "metadata", "tool_calls", "usage", "memory_stats",
}  # fmt: skip
"""Fields that are lists or mappings: their cells are JSON."""
_TYPOS = 0.85
"""An unknown name of at least this likeness to a field counts as misspelled."""

Named = list[tuple[str, Any]]
"""The values of an input by the names in the dataset."""
Parsed = tuple[int, Callable[[], Named]]
"""The line on which an input begins, and a function that gives its values or raises `ConfigurationError`."""


class Row(NamedTuple):
    """One input, the name of its source and the line on which it begins."""

    source: str
    line: int
    evaluation_input: EvaluationInput

    @property
    def place(self) -> str:
        """As messages and reports show it: ``answers.jsonl:12``."""
        return f"{self.source}:{self.line}"


class Source:
    """The lines of one file, or of standard input (``-``) and pipes, which are copied while they are first read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._copy: IO[bytes] | None = None
        self.name = "stdin" if path == _STDIN else os.path.basename(path) or path

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def lines(self) -> Iterator[str]:
        try:
            if self._copy is not None:
                self._copy.seek(0)
                yield from self._decoded(self._copy)
            elif self._path == _STDIN:
                if sys.stdin is None:
                    raise ConfigurationError("standard input is closed", path=self.name)
                yield from self._decoded(sys.stdin.buffer, once=True)
            else:
                with open(self._path, "rb") as file:
                    yield from self._decoded(file, once=not stat.S_ISREG(os.fstat(file.fileno()).st_mode))
        except (OSError, ValueError) as error:  # the latter for a NUL in the path
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"cannot be read: {reason}", path=self._path) from None

    def _decoded(self, file: IO[bytes], *, once: bool = False) -> Iterator[str]:
        copy = self._copy = tempfile.TemporaryFile() if once else self._copy  # noqa: SIM115 - closed with the source
        for number, line in enumerate(file, 1):
            if once and copy is not None:
                copy.write(line)
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                utf16 = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                hint = "UTF-16; it must be UTF-8 (spreadsheets: 'CSV UTF-8')" if utf16 else "not UTF-8"
                raise ConfigurationError(hint, path=f"{self.name}:{number}") from None


class Dataset:
    """The inputs of several sources, one after another; at most `limit`.

    Without a `form`, ``jsonl`` or ``csv``, the suffix of a source decides, else its first character. `check` raises
    `ConfigurationError` for an input that cannot be evaluated.
    """

    def __init__(
        self, paths: Sequence[str], *, form: str | None = None, limit: int | None = None,
        check: Callable[[EvaluationInput], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._sources = [Source(path) for path in paths]
        self._form, self._limit, self._check = form, limit, check
        self.unknown_names: dict[str, None] = {}
        names = [source.name for source in self._sources]
        for source, path in zip(self._sources, paths, strict=True):
            if names.count(source.name) > 1:  # the folders tell two files of one name apart
                source.name = path
        self.names = [source.name for source in self._sources]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self._sources:
            source.close()

    def check(self) -> int:
        """Read everything once; gives the number of inputs, or raises `SettingsError` with the first problems."""
        problems: list[Problem] = []
        inputs = 0
        for row in self._rows():
            if isinstance(row, Row):
                inputs += 1
            else:
                problems += row
            if inputs == self._limit or len(problems) > MAX_PROBLEMS:
                break
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [Problem(None, None, f"and more; these are the first {MAX_PROBLEMS}")]
        if problems:
            raise SettingsError(problems)
        self._limit = inputs  # the run has to end, even where a file grows meanwhile
        return inputs

    def __len__(self) -> int:
        return self._limit or 0

    def __iter__(self) -> Iterator[Row]:
        """The inputs, in order; `SettingsError` where a source has become wrong since it was checked."""
        for number, row in enumerate(self._rows(), 1):
            if not isinstance(row, Row):
                raise SettingsError(row)
            yield row
            if number == self._limit:
                return

    def _rows(self) -> Iterator[Row | list[Problem]]:
        """Each input, or what is wrong with it or with the rest of its source."""
        for source in self._sources:
            try:
                lines = source.lines()
                first = next(lines, "")
                known = (form for suffix, form in _SUFFIXES.items() if source.name.lower().endswith(suffix))
                form = self._form or next(known, "jsonl" if first.lstrip().startswith(("{", "[")) else "csv")
                for line, parse in (_parse_csv if form == "csv" else _parse_jsonl)(source.name, first, lines):
                    yield self._row(source.name, line, parse)
            except ConfigurationError as error:
                yield [Problem(path, None, message) for path, message in error.problems]

    def _row(self, source: str, line: int, parse: Callable[[], Named]) -> Row | list[Problem]:
        try:
            named = parse()
            for name, _ in named:
                if _field_of(name) == ("metadata", name.strip()) and len(self.unknown_names) < _MAX_UNKNOWN:
                    self.unknown_names[name] = None
            evaluation_input = input_of(named)
            self._check(evaluation_input)
        except ConfigurationError as error:
            return [Problem(f"{source}:{line}", path, message) for path, message in error.problems]
        return Row(source, line, evaluation_input)


def _parse_jsonl(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    if first.strip() in ("{", "["):
        raise ConfigurationError(
            "expected one JSON object on each line, found one that spans several; `jq -c . FILE` makes lines of "
            "objects, `jq -c '.[]' FILE` of a list", path=f"{source}:1",
        )  # fmt: skip
    for number, line in enumerate(chain([first], lines), 1):
        if line.strip():
            yield number, partial(named_values, line)


def named_values(line: str) -> Named:
    """The names and values of the JSON object on a line, or `ConfigurationError`."""
    value = _json(line.rstrip())
    if not isinstance(value, dict):
        what = "a list (`jq -c '.[]' FILE` makes lines of it)" if isinstance(value, list) else repr(value)[:40]
        raise ConfigurationError(f"expected a JSON object on each line, found {what}")
    return list(value.items())


def _parse_csv(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    """An input for each row below the header; the separator is the most frequent of comma, semicolon and tab there."""
    csv.field_size_limit(_MAX_CELL)  # of the process; by default 128 KiB a cell
    header: list[str] = []
    begins = 1
    reader = csv.reader(chain([first], lines), strict=True, delimiter=max(",;\t", key=first.count))
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            hints = (hint for part, hint in _CSV_PROBLEMS.items() if part in str(error))
            problem = next(hints, f"{error}; write a quote within a quoted cell twice")
            raise ConfigurationError(f"not CSV: {problem}", path=f"{source}:{begins}") from None
        if cells is None:
            return
        if not header and any(cells):
            header = cells
            try:
                _check_header(header)
            except ConfigurationError as error:
                raise ConfigurationError(str(error), path=f"{source}:{begins}") from None
        elif any(cells):
            yield begins, partial(_named_cells, header, cells)
        begins = reader.line_num + 1


_CSV_PROBLEMS = {
    "unexpected end": "a quote is opened here or below and never closed",
    "new-line": "a carriage return alone in a cell without quotes; lines end with a line feed, or both",
}  # fmt: skip


def _check_header(cells: list[str]) -> None:
    """Refuse names that are misspelled, missing or there twice, and a header without a column for the answer."""
    if not all(name.strip() for name in cells):
        raise ConfigurationError("a column without a name")
    if not _fields_of([(name, {}) for name in cells]).keys() & {"response", "error_type"}:
        fields = sorted(EvaluationInput.model_fields)
        raise ConfigurationError(f"no column 'response' with the answers to evaluate{known_choices('', fields)}")


def _named_cells(header: list[str], cells: list[str]) -> Named:
    if len(cells) != len(header):
        raise ConfigurationError(f"{len(cells)} cells, but the header has {len(header)} columns")
    named = []
    for name, cell in zip(header, cells, strict=True):
        field, *keys = _field_of(name)
        if cell.strip() or (field == "response" and not keys):
            try:
                named.append((name, _json(cell) if field in _JSON_CELLS and not keys else cell))
            except ConfigurationError as error:
                raise error.with_prefix(name) from None
    return named


@lru_cache(maxsize=1024)
def _field_of(name: str) -> tuple[str, ...]:
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


def _fields_of(named: Named) -> dict[str, Any]:
    """The fields of an input; `ConfigurationError` for a misspelled name, or two names for one value."""
    fields: dict[str, Any] = {}
    names: dict[tuple[str, ...], str] = {}
    # Whole fields first: single keys override what they contain.
    for name, value in sorted(named, key=lambda pair: len(_field_of(pair[0]))):
        path = _field_of(name)
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


def input_of(named: Named) -> EvaluationInput:
    """The input with these values, or `ConfigurationError`. Without an `error_type` a response is required."""
    fields = _fields_of(named)
    if "response" not in fields and fields.get("error_type") is None:
        raise ConfigurationError(
            "is missing: the answer to evaluate (or error_type, where the agent raised)", path="response"
        )
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        raise explain_validation(error, EvaluationInput) from None


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
