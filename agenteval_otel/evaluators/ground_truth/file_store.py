"""A store that keeps a file in memory, and reads it again when it has changed."""

from __future__ import annotations

import csv
import io
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import from_json

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.evaluators.ground_truth.index import QuestionIndex, SubstringIndex, TableRow
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.worker import Worker

_CHECK_EVERY_S = 1.0
_MAX_PROBLEMS = 16
_FIELDS: Final = {
    "userprompt": "UserPrompt",
    "expectedoutput": "ExpectedOutput",
    "category": "Category",
    "module": "Module",
}


class FileGroundTruthStore(GroundTruthStore, type="file"):
    """Finds reference answers in a CSV or JSONL file, which is kept in memory.

    The first line of a CSV file names the columns ``UserPrompt,ExpectedOutput,Category,Module``, in
    any order. The last two are optional, and other columns are ignored. JSONL has an object a line
    with the same fields, whose expected output may be any JSON value. ``UserPrompt``,
    ``userPrompt`` and ``user_prompt`` are one name. A row with an empty answer says that its
    question has no reference.

    A row with the same question wins: equal but for case, Unicode form and whitespace. Otherwise
    the nearest wins among the rows that the prompt contains as whole words and the rows that
    contain the prompt. Candidates are the rows of the input's module (``metadata["module"]`` if it
    is set, else the agent) and those without a module. If the module has no rows, all rows are
    candidates.

    Creating the store reads the file, which blocks. A lookup takes tens of microseconds. Lookups
    check for changes, at most once a second. A changed file is read on a separate thread, and the
    old rows are used until then.

    Attributes:
        path: The file, UTF-8. Its name ends in ``.csv`` or ``.jsonl``.
        matching: ``words``, or ``original``, as in the Partnership Agent: the first row of the file
            that matches as a substring, ignoring case only. Every row is compared.
        min_words: Words that prompt and row must share for a partial match. A character of a script
            without spaces counts as one.
        min_share: Minimum ratio of the numbers of words, shorter to longer of the two, for a
            partial match.
    """

    path: Path
    matching: Literal["words", "original"] = "words"
    min_words: int = Field(default=3, ge=1, le=100)
    min_share: float = Field(default=0.4, ge=0.01, le=1)

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        _ = self._file  # when it is loaded, not with the first answer
        return self

    def find(self, evaluation_input: EvaluationInput) -> GroundTruth | None:
        """Return the reference answer for the prompt, in the module of the input, or None."""
        return self._file.latest().find(evaluation_input.prompt, evaluation_input.module)

    def rows(self, module: str | None = None) -> tuple[TableRow, ...]:
        """Return the rows, or those of a module, in the order of the file.

        The case of the module's name is ignored.
        """
        index = self._file.latest()
        return index.rows if module is None else index.of_module(module)

    def problems(self) -> Sequence[Exception]:
        """Return, once, what was wrong with a changed file. The rows from before stay."""
        problems = self._file.problems
        return tuple(problems.popleft() for _ in range(len(problems)))

    @cached_property
    def _file(self) -> IndexedFile:
        # the process may change its folder later
        return IndexedFile(self.path.absolute(), self._read)

    def _read(self, path: Path) -> QuestionIndex:
        rows = read_rows(path)
        if not rows:
            raise ConfigurationError(f"{path}: no rows")
        if self.matching == "original":
            return SubstringIndex(rows)
        return QuestionIndex(rows, min_words=self.min_words, min_share=self.min_share)


class IndexedFile:
    """Holds the index of a file's rows, and updates it when the file changes.

    Any thread may call, and none waits for the file. If a changed file cannot be used, the index
    stays as it was, and the error is added to `problems`.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], QuestionIndex],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = Worker("agenteval-ground-truth", max_waiting=1, idle_s=0.0)
        self._path = path
        self._read = read
        self._clock = clock
        self.problems: deque[Exception] = deque(maxlen=_MAX_PROBLEMS)
        self._signature = _signature(path)  # before it is read, so that later changes are seen
        self._index = read(path)
        self._check_at = clock() + _CHECK_EVERY_S

    def latest(self) -> QuestionIndex:
        """Return the index. The file's signature is compared at most once a second."""
        now = self._clock()
        if now >= self._check_at:
            self._check_at = now + _CHECK_EVERY_S
            if not self._worker.has_thread and _signature(self._path) != self._signature:
                self._worker.submit(self._reload)
        return self._index

    def _reload(self) -> None:
        signature = _signature(self._path)
        try:
            self._index = self._read(self._path)
        except Exception as error:
            self.problems.append(error)
            if isinstance(error.__cause__, OSError):
                return  # not the file's content: tried again at the next check
        # Last: a process that was forked during the reading, without this thread, starts over.
        self._signature = signature


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # With the time of the inode's last change: of the rights, or of a copy that keeps the
    # modification time.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino


def _csv_rows(path: Path) -> Iterator[TableRow]:
    reader = csv.DictReader(lines_of(path), strict=True)
    try:
        header = [field_name(cell) for cell in reader.fieldnames or ()]
        reader.fieldnames = header
        _expect_fields(path, 1, header)
        for field, name in _FIELDS.items():
            if header.count(field) > 1:
                raise _wrong(path, 1, f"two columns {name}")
        for cells in reader:
            count = sum(cell is not None for cell in cells.values())
            if count < len(set(header)):
                raise _wrong(
                    path, reader.line_num, f"expected the columns of line 1, found {count} of them"
                )
            surplus = cells.pop(None, ())  # where DictReader puts cells beyond the header
            if any(map(str.strip, surplus)):
                raise _wrong(
                    path,
                    reader.line_num,
                    "more cells than line 1 has columns: quote text with commas",
                )
            yield _row(path, reader.line_num, cells)
    except csv.Error as error:
        # DictReader does not count the line on which its reader fails.
        raise _wrong(path, reader.reader.line_num, f"not CSV: {error}") from None


def _json_rows(path: Path) -> Iterator[TableRow]:
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            value = from_json(line, allow_inf_nan=False)
        except ValueError as error:
            raise _wrong(path, number, f"not JSON: {error}") from None
        if not isinstance(value, dict):
            raise _wrong(path, number, f"expected an object, found {type(value).__name__}")
        fields = {field_name(name): field for name, field in value.items()}
        _expect_fields(path, number, fields)
        yield _row(path, number, fields)


_READERS: Final[dict[str, Callable[[Path], Iterator[TableRow]]]] = {
    ".csv": _csv_rows,
    ".jsonl": _json_rows,
}


def read_rows(path: Path) -> tuple[TableRow, ...]:
    """Read the rows of a file. Raises `ConfigurationError` with the line that is wrong."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigurationError(f"{path}: expected a name that ends in .csv or .jsonl")
    return tuple(reader(path))


def lines_of(path: Path) -> io.StringIO:
    """Read the lines of a file, split at line feeds alone.

    A text may contain other characters that split lines.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or type(error).__name__}"
        ) from error
    try:
        return io.StringIO(content.decode("utf-8-sig"), newline="\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, content.count(b"\n", 0, error.start) + 1, "not UTF-8") from None


def field_name(name: str) -> str:
    """Return the name of a column or field as it is compared.

    ``UserPrompt``, ``userPrompt`` and ``user_prompt`` are the same name.
    """
    return name.strip().replace("_", "").casefold()


def _wrong(path: Path, line: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{path}:{line}: {problem}")


def _expect_fields(path: Path, line: int, fields: Collection[str]) -> None:
    missing = [_FIELDS[field] for field in ("userprompt", "expectedoutput") if field not in fields]
    if missing:
        raise _wrong(
            path, line, f"{' and '.join(missing)} missing. Expected {', '.join(_FIELDS.values())}"
        )


def _row(path: Path, line: int, fields: Mapping[str, Any]) -> TableRow:
    prompt = fields["userprompt"]
    names = [fields.get(field) for field in ("category", "module")]
    if not isinstance(prompt, str | None):
        raise _wrong(path, line, "UserPrompt is no text")
    if not prompt or not prompt.strip():
        raise _wrong(path, line, "UserPrompt is empty")
    if any(not isinstance(name, str | None) for name in names):
        raise _wrong(path, line, "Category and Module are expected to be text")
    category, module = ((name or "").strip() or None for name in names)
    return TableRow(prompt, fields["expectedoutput"], category, module)
