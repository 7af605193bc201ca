"""Stores that keep a file in memory, and read it again when it has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.ground_truth.base import GroundTruth, GroundTruthStore, module_of
from agenteval_otel.ground_truth.index import MAX_ORIGINAL_ROWS, Matching, QuestionIndex, Row
from agenteval_otel.ground_truth.rows import csv_rows, jsonl_rows, read_lines
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.worker import Worker

__all__ = ["CsvGroundTruthStore", "FileGroundTruthStore", "JsonlGroundTruthStore"]

_CHECK_EVERY_S = 1.0
_MAX_PROBLEMS = 16


class FileGroundTruthStore(GroundTruthStore):
    """Reference answers from a file, kept in memory.

    The same question comes first: equal but for case, Unicode form and whitespace. Otherwise the nearest row that the
    prompt contains as whole words, or that contains the prompt. Candidates are the rows of the input's module
    (`module_of`) and those without a module; if the module has no rows, all.

    Reads the file when it is created, which blocks. A lookup takes tens of microseconds. Once a second, at a lookup,
    the file's times and size are compared; a changed file is read on a thread that exists only for that, while the old
    rows answer.

    Attributes:
        path: The file, UTF-8.
        matching: ``words``, or ``original``: as the Partnership Agent does, any substring, ignoring case only, the
            first row of the file; for at most 5,000 rows.
        min_words: Words that prompt and row must share for a partial match; a character of a script without spaces
            counts as one.
        min_share: What the shorter of the two must be of the longer, in words, for a partial match.
        max_rows: A file with more is refused.
        max_bytes: A larger file is refused.
    """

    path: Path
    matching: Matching = "words"
    min_words: int = Field(default=3, ge=1, le=100)
    min_share: float = Field(default=0.4, ge=0.01, le=1)
    max_rows: int = Field(default=200_000, ge=1, le=1_000_000)
    max_bytes: int = Field(default=67_108_864, ge=1, le=1_073_741_824)

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        _ = self._file  # when it is loaded, not with the first answer
        return self

    def find(self, evaluation_input: EvaluationInput) -> GroundTruth | None:
        """The reference answer for the prompt, in the module of the input."""
        return self._file.index().find(evaluation_input.prompt, module_of(evaluation_input))

    def rows(self, module: str | None = None) -> tuple[Row, ...]:
        """The rows, or those of a module (ignoring the case of its name), in the order of the file."""
        index = self._file.index()
        return index.rows if module is None else index.of_module(module)

    def problems(self) -> Sequence[Exception]:
        """What was wrong with a changed file; the rows from before stay."""
        return self._file.take_problems()

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str]) -> Iterator[Row]:
        """The rows of the file's lines. Implement it for another format.

        Raises:
            ConfigurationError: Names the file, the line and what is wrong there.
        """
        raise NotImplementedError

    @cached_property
    def _file(self) -> IndexedFile:
        path = self.path.absolute()  # the process may change its folder later
        limit = min(self.max_rows, MAX_ORIGINAL_ROWS) if self.matching == "original" else self.max_rows

        def read() -> QuestionIndex:
            rows = tuple(islice(self.read_rows(path, read_lines(path, self.max_bytes)), limit + 1))
            if len(rows) > limit:
                raise ConfigurationError(f"{path}: more than {limit} rows (max_rows)")
            if not rows:
                raise ConfigurationError(f"{path}: no rows")
            return QuestionIndex(rows, matching=self.matching, min_words=self.min_words, min_share=self.min_share)

        return IndexedFile(path, read)


class CsvGroundTruthStore(FileGroundTruthStore, type="csv"):
    """Reference answers from a CSV file with the columns ``UserPrompt,ExpectedOutput,Category,Module``.

    The first line names the columns, in any order; ``Category`` and ``Module`` are optional, other columns are ignored.
    A row with an empty answer says that its question has no reference.
    """

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str]) -> Iterator[Row]:
        """The rows of the lines; see `csv_rows`."""
        return csv_rows(path, lines)


class JsonlGroundTruthStore(FileGroundTruthStore, type="jsonl"):
    """Reference answers from a JSONL file: an object a line with ``user_prompt``, ``expected_output`` and optionally
    ``category`` and ``module``; ``UserPrompt`` and ``userPrompt`` are the same name.

    An expected output may be any JSON value.
    """

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str]) -> Iterator[Row]:
        """The rows of the lines; see `jsonl_rows`."""
        return jsonl_rows(path, lines)


class IndexedFile:
    """The index of a file's rows, which follows the file.

    A changed file that cannot be used leaves the index as it was, and is reported once. Any thread may call; none
    waits for the file.

    Args:
        path: The file.
        read: Reads it; called here, and later on a thread of its own.
        clock: Seconds, monotonic.

    Raises:
        ConfigurationError: The first reading failed.
    """

    def __init__(
        self, path: Path, read: Callable[[], QuestionIndex], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._worker = Worker("agenteval-ground-truth", max_waiting=1, idle_s=0.0)
        self._path, self._read, self._clock = path, read, clock
        self._problems: list[Exception] = []
        self._last_problem = ""
        # The signature is taken before the file is read, so later changes are seen. One tuple: both change together.
        signature = _signature(path)
        self._current = read(), signature
        self._check_at = clock() + _CHECK_EVERY_S

    def __repr__(self) -> str:
        return f"<IndexedFile {self._path} {self._current[0]!r}>"

    def index(self) -> QuestionIndex:
        """The index; compares the file's signature once a second."""
        now = self._clock()
        if now >= self._check_at:
            self._check_at = now + _CHECK_EVERY_S
            changed = not self._worker.has_thread and _signature(self._path) != self._current[1]
            # With a thread there, another caller has started the same reading in this moment.
            if changed and not self._worker.submit(self.reload) and not self._worker.has_thread:
                self._report(RuntimeError("no thread can be started to read the changed file"))
        return self._current[0]

    def reload(self) -> None:
        """Read the file now. Blocks; raises nothing."""
        signature = _signature(self._path)
        try:
            index = self._read()
        except Exception as error:
            self._report(error)
            if isinstance(error, MemoryError) or isinstance(error.__cause__, OSError):
                return  # not the file's content: tried again at the next check
            index = self._current[0]
        else:
            self._last_problem = ""
        # Last: a process that was forked during the reading, without this thread, starts over.
        self._current = index, signature

    def take_problems(self) -> Sequence[Exception]:
        """What was wrong since the last call."""
        problems, self._problems = self._problems, []
        return tuple(problems)

    def _report(self, error: Exception) -> None:
        if str(error) != self._last_problem and len(self._problems) < _MAX_PROBLEMS:
            self._last_problem = str(error)
            self._problems.append(error)


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # With the time of the inode's last change: of the rights, or of a copy that keeps the modification time.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino
