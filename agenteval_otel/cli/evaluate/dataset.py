"""The dataset: evaluation inputs from JSONL and CSV files, read lazily, each with its place.

Everything is read twice: first to find what is wrong before anything is evaluated, then to evaluate. Nothing is kept.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple, Self

from agenteval_otel.cli.evaluate.parsing import MAX_LINE_BYTES, PARSERS, Named, field_of, input_of, values_of
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

MAX_PROBLEMS = 20
_MAX_UNKNOWN = 50
_STDIN = "-"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}


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
    """The lines of one file, or of standard input (``-``), as often as needed.

    A file is opened each time. Standard input and pipes are copied to a temporary file during the first reading.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._copy: IO[bytes] | None = None
        self.name = "stdin" if path == _STDIN else os.path.basename(path) or path

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def lines(self) -> Iterator[str]:
        """The lines with their ends."""
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
        except OSError as error:
            raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=self._path) from None
        except ValueError:  # a NUL in the path
            raise ConfigurationError("is not a valid path", path=repr(self._path)) from None

    def _decoded(self, file: IO[bytes], *, once: bool = False) -> Iterator[str]:
        copy = self._copy = tempfile.TemporaryFile() if once else self._copy  # noqa: SIM115 - closed with the source
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"{self.name}:{number}"
            if len(line) > MAX_LINE_BYTES:
                raise ConfigurationError(f"a line of more than {MAX_LINE_BYTES // 1024 // 1024} MiB", path=place)
            if once and copy is not None:
                copy.write(line)
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                utf16 = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                hint = "UTF-16; it must be UTF-8 (spreadsheets: 'CSV UTF-8')" if utf16 else "not UTF-8"
                raise ConfigurationError(hint, path=place) from None


class Dataset:
    """The inputs of several sources, one after another; at most `limit`.

    Without a `form`, ``jsonl`` or ``csv``, the suffix of a source decides, else its first character. `check` raises
    `ConfigurationError` for an input that cannot be evaluated. `unknown_names` are the first 50 that are no fields.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        form: str | None = None,
        limit: int | None = None,
        check: Callable[[EvaluationInput], None] = lambda _: None,
    ) -> None:
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
                for line, parse in PARSERS[form](source.name, first, lines):
                    yield self._row(source.name, line, parse)
            except ConfigurationError as error:
                yield [Problem(path, None, message) for path, message in error.problems]

    def _row(self, source: str, line: int, parse: Callable[[], Named]) -> Row | list[Problem]:
        try:
            named = parse()
            for name, _ in named:
                if field_of(name) == ("metadata", name.strip()) and len(self.unknown_names) < _MAX_UNKNOWN:
                    self.unknown_names[name] = None
            evaluation_input = input_of(values_of(named))
            self._check(evaluation_input)
        except ConfigurationError as error:
            return [Problem(f"{source}:{line}", path, message) for path, message in error.problems]
        return Row(source, line, evaluation_input)
