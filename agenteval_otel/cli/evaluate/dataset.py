"""The dataset: evaluation inputs, each with its place.

They are read from JSONL (one object a line), a JSON list, CSV (a header, then rows) or our stored
results.

Everything is read twice and lazily: first to find what is wrong before anything is evaluated, then
to evaluate.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn, Self

from pydantic import ValidationError

from agenteval_otel.capture.build import history_fields, last_question
from agenteval_otel.capture.messages import all_turns, is_message
from agenteval_otel.capture.reading import Reading
from agenteval_otel.cli.file_kinds import foreign_kind
from agenteval_otel.components.database.target import is_sqlite
from agenteval_otel.components.explained import explain_validation, known_choices
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.storage.erasure import ERASED
from agenteval_otel.storage.read import place_of

MAX_PROBLEMS = 20
_MAX_CELL = 2**31 - 1
_STDIN = "-"
_IS_CSV = {".csv": True, ".tsv": True, ".jsonl": False, ".ndjson": False, ".json": False}
_FIELDS = {name.replace("_", ""): name for name in EvaluationInput.model_fields}
# The columns of the specification's files with reference answers.
_OTHER_NAMES = {
    "userprompt": ("prompt",),
    "expectedoutput": ("ground_truth",),
    "category": ("metadata", "category"),
    "module": ("metadata", "module"),
}
_JSON_CELLS = {
    "criteria",
    "context",
    "agent_config",
    "message_history",
    "metadata",
    "tool_calls",
    "usage",
    "memory_stats",
    "steps",
    "conversation",
}
"""Fields that are lists or mappings: their cells are JSON."""
_FROM_SPREADSHEETS = "spreadsheets save as 'CSV UTF-8'"
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The line before the header in which Excel says which separator follows."""
_TOO_DEEP = "not JSON that can be read: it is nested too deeply"
_SNAPSHOT = ("inputSnapshot", "input_snapshot")  # where a stored result has its input
_WITHOUT_INPUT = (
    "a result that was stored without its input, as live answers are by default. With "
    "`telemetry: {content: span_and_event}` it is stored"
)
_MAPPED = ". If it has another name: --column response=NAME"
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,]*(?=[^\s,\]])")  # the items of a list
_MAX_NAMES = 64
_TYPOS = 0.85  # an unknown name of at least this likeness to a field counts as misspelled

Named = list[tuple[str, Any]]
"""The values of an input by the names in the dataset."""
Open = Callable[[], "BinaryIO | Generator[bytes]"]
"""A function that opens the lines of a source."""
Parsed = tuple[int, Callable[[], Named]]
"""The line on which an input begins, and a function that gives its values or raises
`ConfigurationError`.
"""


class DatasetRow(NamedTuple):
    """One input, the name of its source and the line on which it begins."""

    source: str
    line: int
    evaluation_input: EvaluationInput

    @property
    def place(self) -> str:
        """Return the place as messages and reports show it: ``answers.jsonl:12``."""
        return f"{self.source}:{self.line}"


@contextmanager
def readable_twice(path: str) -> Iterator[Open]:
    """Yield a function that opens the lines of a file.

    Standard input (``-``) and pipes are copied as they are read.
    """
    if path != _STDIN and not Path(path).is_fifo():
        yield lambda: open(path, "rb")  # noqa: SIM115 - `lines_of` closes it
        return
    with (
        nullcontext(sys.stdin.buffer) if path == _STDIN else open(path, "rb") as stream,
        tempfile.TemporaryFile() as copy,
    ):

        def lines() -> Generator[bytes]:
            copy.seek(0)
            yield from copy
            for line in stream:  # no further than it is asked for: a stream may have no end
                copy.write(line)
                yield line

        yield lines


def lines_of(open_lines: Open, path: str, name: str) -> Iterator[str]:
    """Yield the lines of a source. Raises `ConfigurationError` with its path or `name`."""
    try:
        with closing(open_lines()) as lines:
            for number, line in enumerate(lines, 1):
                yield _decoded(line, name, number)
    except (OSError, ValueError) as error:  # the latter for a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot be read: {reason}", path=path) from None


def _decoded(line: bytes, name: str, number: int) -> str:
    if number == 1 and (problem := foreign_kind(line)) is not None:
        raise ConfigurationError(problem, path=name)
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        utf16 = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        hint = "not UTF-8. `iconv -f latin1 -t utf-8` converts Latin-1"
        if utf16:
            hint = "UTF-16, it must be UTF-8"
        hint += f" ({_FROM_SPREADSHEETS})"
        raise ConfigurationError(hint, path=f"{name}:{number}") from None


def is_database(path: str) -> bool:
    """Tell whether the path is an SQLite database. Pipes are not read: that would consume them."""
    with suppress(OSError, ValueError):
        return Path(path).is_file() and is_sqlite(path)
    return False


def columns_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the fields by their names in the dataset, from texts such as ``response=answer``."""
    columns: dict[str, str] = {}
    for text in texts:
        field, _, name = map(str.strip, text.partition("="))
        if not (field and name):
            raise ConfigurationError(
                f"expected FIELD=COLUMN such as response=answer, found {text!r}", path="--column"
            )
        if _plain(field.partition(".")[0]) not in _FIELDS:
            swapped = f". The field comes first: {name}={field}" if _plain(name) in _FIELDS else ""
            known = known_choices(field, sorted(EvaluationInput.model_fields))
            raise ConfigurationError(f"unknown field {field!r}{swapped or known}", path="--column")
        columns[name] = field
    return columns


_UNUSED: Final = object()
"""Stands for the criteria of a stored input."""


class _ErasedError(Exception):
    """A stored result whose answer was erased: there is nothing to evaluate."""


class Dataset:
    """Yields the inputs of several sources, one after another, at most `limit` of them.

    The suffix of a source decides whether it is JSON or CSV, else its first character. `columns`
    are fields by the names that stand for them. `check` raises `ConfigurationError` for an input
    that cannot be evaluated. Without `needs_response` the answers are made later.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        limit: int | None = None,
        check: Callable[[EvaluationInput], None] | None = None,
        columns: Mapping[str, str] | None = None,
        needs_response: bool = True,
    ) -> None:
        self._paths = paths
        self._limit = limit
        self._check = check
        self._sources: list[Open] = []
        self._columns = columns or {}
        self.needs_response = needs_response
        self._mapped = {_field_of(field) for field in self._columns.values()}
        self._names: dict[str, None] = {}
        self._open = ExitStack()
        self.unknown_names: dict[str, None] = {}
        self.erased = 0
        """How many stored results `check` left out, because `agenteval-otel erase` removed their
        answers.
        """
        self.with_own_criteria = 0
        """How many stored results `check` read without the criteria that their inputs had."""
        self.on_input: Callable[[EvaluationInput], None] = lambda _: None
        """Takes each input that `check` reads."""
        names = ["stdin" if path == _STDIN else os.path.basename(path) or path for path in paths]
        # The folders tell two files of one name apart.
        self.names: list[str] = []
        for name, path in zip(names, paths, strict=True):
            self.names.append(path if names.count(name) > 1 else name)

    def __enter__(self) -> Self:
        self._sources = [self._open.enter_context(readable_twice(path)) for path in self._paths]
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def check(self) -> int:
        """Read everything once and return the number of inputs.

        Raises `SettingsError` with the first problems.
        """
        problems: list[Problem] = []
        inputs = 0
        for row in self._rows():
            if isinstance(row, DatasetRow):
                inputs += 1
                self.on_input(row.evaluation_input)
            else:
                problems += row
            if inputs == self._limit or len(problems) > MAX_PROBLEMS:
                break
        missing = [name for name in self._columns if name not in self._names]
        if self._names and missing:
            problems = [
                Problem(None, "--column", f"no column {name!r}{known_choices(name, self._names)}")
                for name in missing
            ]
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [
                Problem(None, None, f"and more, these are the first {MAX_PROBLEMS}")
            ]
        if problems:
            raise SettingsError(problems)
        self._limit = inputs  # the run has to end, even where a file grows meanwhile
        return inputs

    def __len__(self) -> int:
        return self._limit or 0

    def __iter__(self) -> Iterator[DatasetRow]:
        """Yield the inputs, in order.

        Raises `SettingsError` if a source has become wrong since it was checked.
        """
        for number, row in enumerate(self._rows(), 1):
            if not isinstance(row, DatasetRow):
                raise SettingsError(row)
            yield row
            if number == self._limit:
                return

    def _rows(self) -> Iterator[DatasetRow | list[Problem]]:
        """Yield each input, or what is wrong with it or with the rest of its source."""
        self.erased = 0
        self.with_own_criteria = 0
        for name, path, source in zip(self.names, self._paths, self._sources, strict=True):
            try:
                for line, values in self._parsed(name, path, source):
                    row = self._row(name, line, values)
                    if row is None:
                        self.erased += 1
                    else:
                        yield row
            except ConfigurationError as error:
                yield [Problem(path, None, message) for path, message in error.problems]

    def _parsed(self, name: str, path: str, source: Open) -> Iterator[Parsed]:
        if is_database(path):
            return _parse_sqlite(path)
        lines = lines_of(source, path, name)
        first = next(lines, "")
        _, suffix = os.path.splitext(name)
        is_csv = _IS_CSV.get(suffix.lower())
        if is_csv is None:
            is_csv = not first.lstrip().startswith(("{", "["))
        if is_csv:
            return _parse_csv(name, first, lines, self)
        parse = _parse_list if first.lstrip().startswith("[") else _parse_jsonl
        parsed = parse(name, first, lines)
        return ((line, partial(self._renamed, values)) for line, values in parsed)

    def _renamed(self, values: Callable[[], Named]) -> Named:
        named = values()
        if "messages" not in self._columns and ("response",) not in self._mapped:
            named = _with_messages(named)
        return [(self.field_of(name), value) for name, value in named]

    def field_of(self, name: str) -> str:
        """Return the field that a column stands for.

        A column with the name of a mapped field becomes part of the metadata.
        """
        if not self._columns:
            return name
        if len(self._names) < _MAX_NAMES or name in self._columns:
            self._names[name] = None
        if name in self._columns:
            return self._columns[name]
        return f"metadata.{name}" if _field_of(name) in self._mapped else name

    def _row(
        self, source: str, line: int, parse: Callable[[], Named]
    ) -> DatasetRow | list[Problem] | None:
        """Return an input or its problems.

        The result is None for a result whose answer was erased.
        """
        try:
            parsed = parse()
            named = [(name, value) for name, value in parsed if value is not _UNUSED]
            if len(named) < len(parsed):
                self.with_own_criteria += 1
            for name, _ in named:
                is_unknown = _field_of(name) == ("metadata", name.strip())
                if is_unknown:
                    self.unknown_names[name] = None
            evaluation_input = input_of(named, needs_response=self.needs_response)
            if self._check is not None:
                self._check(evaluation_input)
        except _ErasedError:
            return None
        except ConfigurationError as error:
            return [Problem(f"{source}:{line}", path, message) for path, message in error.problems]
        return DatasetRow(source, line, evaluation_input)


def _parse_jsonl(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    if first.strip() == "{":
        raise ConfigurationError(
            "expected one JSON object on each line, or a list, found an object that spans several lines. "
            "`jq -c . FILE` makes lines of objects",
            path=f"{source}:1",
        )
    for number, line in enumerate(chain([first], lines), 1):
        if line.strip():
            yield number, partial(named_values, line)


def named_values(line: str) -> Named:
    """Return the names and values of the JSON object on a line, else raise `ConfigurationError`."""
    value = _json(line.rstrip())
    if not isinstance(value, dict):
        raise ConfigurationError(f"expected a JSON object on each line, found {repr(value)[:40]}")
    snapshot = next((value[name] for name in _SNAPSHOT if isinstance(value.get(name), dict)), None)
    if snapshot is None and "results" in value and value.get("metadata") == ERASED:
        raise _ErasedError
    if snapshot is None and "evaluationConfigSnapshot" in value:
        raise ConfigurationError(_WITHOUT_INPUT)
    return list(value.items()) if snapshot is None else _without_criteria(snapshot)


def _without_criteria(snapshot: Mapping[str, Any]) -> Named:
    """Return the values of a stored input.

    Its criteria are those by which the answer was scored then. A run has its own.
    """
    named = [(name, value) for name, value in snapshot.items() if name != "criteria"]
    if snapshot.get("criteria"):
        named.append(("criteria", _UNUSED))
    return named


def _with_messages(named: Named) -> Named:
    """Return the values with those of a chat's ``messages`` in their place if no answer is named.

    What follows the user's last message is the answer, as for a handler that returns a
    conversation.
    """
    messages = dict(named).get("messages")
    has_answer = any(_plain(name) == "response" for name, _ in named)
    if has_answer or not isinstance(messages, list) or not messages:
        return named
    if not all(is_message(message) for message in messages):
        return named
    turns = all_turns(messages)
    reading = Reading()
    reading.add_conversation(turns)
    history = [] if reading.read_history is None else reading.read_history()
    read: dict[str, Any] = {
        "prompt": last_question(history),
        "message_history": history_fields(history),
        "tool_calls": reading.calls.finished(),
        "response": reading.text if len(turns) > len(history) else None,
    }
    rest = [(name, value) for name, value in named if name != "messages"]
    stated = {_plain(name) for name, _ in rest}
    for name, value in read.items():
        if value is not None and _plain(name) not in stated:
            rest.append((name, value))
    return rest


def _parse_list(source: str, first: str, lines: Iterator[str]) -> Iterator[Parsed]:
    """Yield an input for each object of a JSON list, which is read whole."""
    text = "".join(chain([first], lines))
    try:
        json.loads(text)
    except RecursionError:
        raise ConfigurationError(_TOO_DEEP, path=f"{source}:1") from None
    except ValueError as error:
        place = f"{source}:{getattr(error, 'lineno', 1)}"
        message = getattr(error, "msg", str(error)[:80])
        raise ConfigurationError(f"not JSON: {message}", path=place) from None
    end = text.index("[") + 1
    line = 1
    while (between := _BETWEEN.match(text, end)) is not None:
        line += text.count("\n", end, between.end())
        _, end = _DECODER.raw_decode(text, between.end())
        yield line, partial(named_values, text[between.end() : end])
        line += text.count("\n", between.end(), end)


def _parse_sqlite(path: str) -> Iterator[Parsed]:
    try:
        stored = place_of(path).results(with_results=False)
        for number, (_, evaluation) in enumerate(stored, 1):
            yield number, partial(_named_fields, evaluation)
    except StorageError as error:
        raise ConfigurationError(str(error)) from None


def _named_fields(stored: AggregatedEvaluationResult) -> Named:
    if stored.metadata == ERASED:
        raise _ErasedError
    if stored.input_snapshot is None:
        raise ConfigurationError(_WITHOUT_INPUT)
    return _without_criteria(stored.input_snapshot.model_dump(exclude_defaults=True))


def _parse_csv(source: str, first: str, lines: Iterator[str], dataset: Dataset) -> Iterator[Parsed]:
    """Yield an input for each row below the header.

    The separator is the most frequent of comma, semicolon and tab in the header. If a line before
    the header says ``sep=`` and a character, that character is the separator.
    """
    csv.field_size_limit(_MAX_CELL)  # of the process; by default 128 KiB a cell
    header: list[str] = []
    begins = 1
    stated = _SEPARATOR.fullmatch(first)
    if stated is not None:
        begins = 2
        separator = stated[1]
    else:
        separator = max(",;\t", key=first.count)
        lines = chain([first], lines)
    reader = csv.reader(lines, strict=True, delimiter=separator)
    try:
        for cells in reader:
            if header and any(cells):
                yield begins, partial(_named_cells, header, cells)
            elif any(cells):
                header = list(map(dataset.field_of, cells))
                _check_header(header, f"{source}:{begins}", needs_response=dataset.needs_response)
            # The reader has not seen the line that states the separator.
            begins = reader.line_num + (1 if stated is None else 2)
    except csv.Error as error:
        raise ConfigurationError(f"not CSV: {error}", path=f"{source}:{begins}") from None


def _check_header(cells: list[str], place: str, *, needs_response: bool) -> None:
    """Refuse names that are misspelled, missing or there twice.

    A header without a column for the answer is refused too.
    """
    if not all(name.strip() for name in cells):
        raise ConfigurationError("a column without a name", path=place)
    try:
        fields = _fields_of([(name, {}) for name in cells])
    except ConfigurationError as error:
        raise ConfigurationError(str(error), path=place) from None
    if needs_response and not fields.keys() & {"response", "error_type", "conversation"}:
        known = known_choices("", sorted(EvaluationInput.model_fields))
        raise ConfigurationError(
            f"no column 'response' with the answers to evaluate{_MAPPED}{known}", path=place
        )


def _named_cells(header: list[str], cells: list[str]) -> Named:
    if len(cells) != len(header):
        raise ConfigurationError(f"{len(cells)} cells, but the header has {len(header)} columns")
    named = []
    for name, cell in zip(header, cells, strict=True):
        field, *keys = _field_of(name)
        is_response = field == "response" and not keys
        if not cell.strip() and not is_response:
            continue
        value: Any = cell
        if field in _JSON_CELLS and not keys:
            try:
                value = _json(cell)
            except ConfigurationError as error:
                raise error.with_prefix(name) from None
        named.append((name, value))
    return named


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@lru_cache(maxsize=1024)
def _field_of(name: str) -> tuple[str, ...]:
    """Return the path of a named value: its field, and the keys within.

    An unknown name is a key of ``metadata``.
    """
    root, *keys = name.strip().split(".")
    plain = _plain(root)
    if plain in _FIELDS:
        return _FIELDS[plain], *keys
    if not keys and plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    if get_close_matches(plain, [*_FIELDS, *_OTHER_NAMES], n=1, cutoff=_TYPOS):
        fields = sorted(EvaluationInput.model_fields)
        raise ConfigurationError(
            f"unknown field{known_choices(root, fields)}. To keep it anyway: metadata.{root}",
            path=name.strip()[:80],
        )
    return "metadata", name.strip()


def _fields_of(named: Named) -> dict[str, Any]:
    """Return the fields of an input.

    Raises `ConfigurationError` for a misspelled name, or two names for one value.
    """
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
                raise ConfigurationError(
                    f"{key} is not a mapping here, so it has no {last!r}", path=name
                )
            inner[key] = dict(current or {})
            inner = inner[key]
        inner[last] = value
    return fields


def input_of(named: Named, *, needs_response: bool = True) -> EvaluationInput:
    """Return the input with these values, else raise `ConfigurationError`.

    With `needs_response` a response, error_type or conversation is needed.
    """
    fields = _fields_of(named)
    has_answer = "response" in fields or any(
        fields.get(name) is not None for name in ("error_type", "conversation")
    )
    if needs_response and not has_answer:
        raise ConfigurationError(
            f"is missing: the answer to evaluate (or error_type, where the agent raised){_MAPPED}"
            f"{_inputs_within(named)}",
            path="response",
        )
    try:
        return EvaluationInput.model_validate(fields)
    except ValidationError as error:
        raise explain_validation(error, EvaluationInput) from None


def _inputs_within(named: Named) -> str:
    """Return a hint at the inputs if an object holds them in a list. Else the hint is empty."""
    for name, value in named:
        is_unknown = _field_of(name)[0] == "metadata" and name.isidentifier()
        is_list = isinstance(value, list) and bool(value)
        if is_unknown and is_list and all(isinstance(item, dict) for item in value):
            return f". If the inputs are in the list {name!r}: `jq -c '.{name}[]' FILE` makes lines of them"
    return ""


def _json(text: str) -> Any:
    """Read JSON without NaN and infinity.

    Half characters (lone surrogates) become question marks.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            whole = json.dumps(value, ensure_ascii=False)
            value = json.loads(whole.encode("utf-8", "replace"))
        return value
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:  # its words differ between versions of Python
        raise ConfigurationError(_TOO_DEEP) from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
