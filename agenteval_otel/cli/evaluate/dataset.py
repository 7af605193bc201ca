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
from contextlib import ExitStack
from itertools import islice
from typing import IO, Any, NamedTuple, Self

from agenteval_otel.cli.evaluate.parsing import MAX_LINE_BYTES, PARSERS, field_of, input_of, values_of
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

__all__ = ["MAX_PROBLEMS", "Contents", "Dataset", "Row", "Source"]

MAX_PROBLEMS = 20
_STDIN = "-"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Row(NamedTuple):
    """One input, the name of its source and the line on which it begins."""

    source: str
    line: int
    evaluation_input: EvaluationInput

    @property
    def place(self) -> str:
        """As messages and reports show it: ``answers.jsonl:12``."""
        return f"{self.source}:{self.line}"


class Contents(NamedTuple):
    """The number of inputs, and the names that are no fields of an input."""

    inputs: int
    unknown_names: tuple[str, ...]


class Source:
    """The lines of one file, or of standard input, as often as needed.

    A file is opened each time. Standard input and pipes are copied to a temporary file during the first reading.

    Args:
        path: The file; ``-`` for standard input.

    Attributes:
        name: As messages and reports show it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._copy: IO[bytes] | None = None
        self.name = "stdin" if path == _STDIN else os.path.basename(path) or path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.close()

    def lines(self) -> Iterator[str]:
        """The lines with their ends; blocks for as long as the file system or the pipe takes.

        Raises:
            ConfigurationError: It cannot be read, is no UTF-8, or has a line of more than `MAX_LINE_BYTES`.
        """
        try:
            if self._copy is not None:
                self._copy.seek(0)
                yield from self._decoded(self._copy)
            elif self._path == _STDIN and sys.stdin is None:
                raise ConfigurationError("standard input is closed", path=self.name)
            elif self._path == _STDIN:
                yield from self._decoded(sys.stdin.buffer, once=True)
            else:
                with open(self._path, "rb") as file:
                    yield from self._decoded(file, once=not stat.S_ISREG(os.fstat(file.fileno()).st_mode))
        except OSError as error:
            raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=self._path) from None
        except ValueError:  # a NUL in the path
            raise ConfigurationError("is not a valid path", path=repr(self._path)) from None

    def _decoded(self, file: IO[bytes], *, once: bool = False) -> Iterator[str]:
        if once:
            self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"{self.name}:{number}"
            if len(line) > MAX_LINE_BYTES:
                raise ConfigurationError(f"a line of more than {MAX_LINE_BYTES // 1024 // 1024} MiB", path=place)
            if once and self._copy is not None:
                self._copy.write(line)
            if number == 1 and line.startswith(_UTF16):
                raise ConfigurationError("UTF-16; it must be UTF-8 (spreadsheets: 'CSV UTF-8')", path=place)
            try:
                yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode()
            except UnicodeDecodeError:
                raise ConfigurationError("not UTF-8", path=place) from None


class Dataset:
    """The inputs of several sources, one after another.

    Args:
        paths: Files; ``-`` for standard input.
        form: ``jsonl`` or ``csv``; by each source's suffix, else by its first character, when left out.
        limit: Maximum number of inputs.
        check: Raises `ConfigurationError` for an input that cannot be evaluated.
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
        self._checked = 0
        self._open = ExitStack()
        self._unknown: dict[str, None] = {}
        names = [source.name for source in self._sources]
        for source, path in zip(self._sources, paths, strict=True):
            if names.count(source.name) > 1:  # the folders tell two files of one name apart
                source.name = path

    @property
    def names(self) -> list[str]:
        """The names of its sources."""
        return [source.name for source in self._sources]

    def __enter__(self) -> Self:
        for source in self._sources:
            self._open.enter_context(source)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[Row]:
        """The inputs, in order; after `check` as many as it counted, even where a file grows meanwhile.

        Raises:
            ConfigurationError: A source has changed since it was checked, and is wrong now.
        """
        problems: list[Problem] = []
        count = 0
        for row in islice(self._rows(problems), self._limit):
            if problems:
                break
            count += 1
            yield row
        if problems:
            raise SettingsError(problems)
        if count < self._checked:
            names = ", ".join(self.names)
            raise ConfigurationError(f"{names} changed during the run: {self._checked} inputs before, {count} now")

    def check(self) -> Contents:
        """Read everything once; blocks meanwhile.

        Raises:
            SettingsError: The first `MAX_PROBLEMS` problems, each with file and line.
        """
        problems: list[Problem] = []
        inputs = sum(1 for _ in islice(self._rows(problems), self._limit))
        if problems:
            if len(problems) > MAX_PROBLEMS:
                problems[MAX_PROBLEMS:] = [Problem(None, None, f"and more; these are the first {MAX_PROBLEMS}")]
            raise SettingsError(problems)
        self._limit = self._checked = inputs
        return Contents(inputs, tuple(self._unknown))

    def _rows(self, problems: list[Problem]) -> Iterator[Row]:
        for source in self._sources:
            try:
                yield from self._rows_of(source, problems)
            except ConfigurationError as error:  # the rest of this source cannot be read
                problems += [Problem(path, None, message) for path, message in error.problems]
            if len(problems) > MAX_PROBLEMS:
                return

    def _rows_of(self, source: Source, problems: list[Problem]) -> Iterator[Row]:
        lines = source.lines()
        first = next(lines, "")
        known = (form for suffix, form in _SUFFIXES.items() if source.name.lower().endswith(suffix))
        form = self._form or next(known, "jsonl" if first.lstrip().startswith(("{", "[")) else "csv")
        for line, parse in PARSERS[form](source.name, first, lines):
            place = f"{source.name}:{line}"
            try:
                named = parse()
                self._note_unknown(named)
                evaluation_input = input_of(values_of(named))
                self._check(evaluation_input)
            except ConfigurationError as error:
                problems += [Problem(place, path, message) for path, message in error.problems]
                if len(problems) > MAX_PROBLEMS:
                    return
            else:
                yield Row(source.name, line, evaluation_input)

    def _note_unknown(self, named: list[tuple[str, Any]]) -> None:
        for name, _ in named:
            if name not in self._unknown and field_of(name) == ("metadata", name.strip()) and len(self._unknown) < 50:
                self._unknown[name] = None
