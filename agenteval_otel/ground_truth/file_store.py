"""Stores that read a file into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.ground_truth.base import GroundTruth, GroundTruthStore, module_of
from agenteval_otel.ground_truth.index import Row
from agenteval_otel.ground_truth.rows import Limits, csv_rows, jsonl_rows, opened
from agenteval_otel.ground_truth.table import MAX_ORIGINAL_ROWS, Matching, Table
from agenteval_otel.ground_truth.watched import Watched
from agenteval_otel.models import EvaluationInput

__all__ = ["CsvGroundTruthStore", "FileGroundTruthStore", "JsonlGroundTruthStore"]


class FileGroundTruthStore(GroundTruthStore):
    """Reference answers from a file, held in memory; a changed file is read again without holding anybody up.

    The same question comes first: equal but for case, Unicode form and whitespace. Else the nearest row that stands in
    the prompt as whole words, or in which the prompt stands. Looked at are the rows of the input's module (`module_of`)
    and those that name none; where the module has no rows, all.

    Reads the file when it is made, which blocks. A lookup takes tens of microseconds, and never waits for the file.

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
        _ = self._watched  # at load, and not with the first answer
        return self

    def find(self, evaluation_input: EvaluationInput) -> GroundTruth | None:
        """The reference answer for the prompt, in the module of the input."""
        return self._watched.table().find(evaluation_input.prompt, module_of(evaluation_input))

    def rows(self, module: str | None = None) -> tuple[Row, ...]:
        """The rows, or those of a module (ignoring the case of its name), in the order of the file."""
        table = self._watched.table()
        return table.rows if module is None else table.of_module(module)

    def troubles(self) -> Sequence[Exception]:
        """What was wrong with new files, of which the old rows stand in for the new."""
        return self._watched.troubles()

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str], limits: Limits) -> Iterator[Row]:
        """The rows of the file's lines. Implement it for another form.

        Raises:
            ConfigurationError: Names the file, the line and what is wrong there.
        """
        raise NotImplementedError

    @cached_property
    def _watched(self) -> Watched:
        return Watched(self._file, self._read)

    @cached_property
    def _file(self) -> Path:
        # Where it is now: the process may go to another folder.
        return self.path.absolute()

    def _read(self, steadily: Callable[[Iterable[Any]], Iterable[Any]]) -> Table:
        rows = self.max_rows
        if self.matching == "original" and rows > MAX_ORIGINAL_ROWS:
            rows = MAX_ORIGINAL_ROWS
        limits = Limits(rows, self.max_bytes)
        table = Table(
            steadily(self.read_rows(self._file, opened(self._file, limits), limits)),
            matching=self.matching, min_words=self.min_words, min_share=self.min_share, steadily=steadily,
        )  # fmt: skip
        if not table.rows:
            raise ConfigurationError(f"{self._file}: no rows")
        return table


class CsvGroundTruthStore(FileGroundTruthStore, type="csv"):
    """Reference answers from a CSV file with the columns ``UserPrompt,ExpectedOutput,Category,Module``.

    The first line names the columns, in any order; ``Category`` and ``Module`` may be missing, others are passed over.
    The same question comes first: equal but for case, Unicode form and whitespace. Else the nearest row that stands in
    the prompt as whole words, or in which the prompt stands. A row with an empty answer says that its question has no
    reference.
    """

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str], limits: Limits) -> Iterator[Row]:
        """The rows of the lines; see `csv_rows`."""
        return csv_rows(path, lines, limits)


class JsonlGroundTruthStore(FileGroundTruthStore, type="jsonl"):
    """Reference answers from a JSONL file: an object a line with ``user_prompt``, ``expected_output`` and, if you like,
    ``category`` and ``module``; ``UserPrompt`` and ``userPrompt`` are the same name.

    An expected output may be any JSON value. Matches as the type ``csv``.
    """

    @classmethod
    def read_rows(cls, path: Path, lines: Iterable[str], limits: Limits) -> Iterator[Row]:
        """The rows of the lines; see `jsonl_rows`."""
        return jsonl_rows(path, lines, limits)
