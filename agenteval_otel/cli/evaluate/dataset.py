"""The dataset: evaluation inputs from JSONL and CSV files, read lazily, each with where it stands.

Everything is read twice: once to find what is wrong before anything is evaluated, once to evaluate. Neither keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, NamedTuple, Self

from agenteval_otel.cli.evaluate.fields import field_of, input_of, values_of
from agenteval_otel.cli.evaluate.forms import FORMS, Text, form_of
from agenteval_otel.cli.evaluate.sources import Source
from agenteval_otel.config import Problem, SettingsError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

__all__ = ["MAX_PROBLEMS", "Contents", "Dataset", "Row"]

MAX_PROBLEMS = 20


class Row(NamedTuple):
    """One input, and where it stands: the source's name and the line on which it begins."""

    source: str
    line: int
    evaluation_input: EvaluationInput

    @property
    def place(self) -> str:
        """As messages and reports say it: ``answers.jsonl:12``."""
        return f"{self.source}:{self.line}"


class Contents(NamedTuple):
    """What the first reading found: how many inputs, and the names that are no fields, which go into ``metadata``."""

    inputs: int
    kept_in_metadata: tuple[str, ...]


class Dataset:
    """The inputs of several sources, one after another.

    Args:
        paths: Files; ``-`` for standard input.
        form: ``jsonl`` or ``csv``; each source's own, by its suffix or else its first character, when left out.
        limit: How many inputs at most.
        check: Raises `ConfigurationError` for an input that could not be evaluated.
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
        self._names: dict[str, None] = {}
        names = [source.name for source in self._sources]
        for source, path in zip(self._sources, paths, strict=True):
            if names.count(source.name) > 1:  # of two files by one name the folder tells them apart
                source.name = path

    def __repr__(self) -> str:
        return f"<Dataset {self._sources}>"

    @property
    def names(self) -> list[str]:
        """What its sources are called."""
        return [source.name for source in self._sources]

    def __enter__(self) -> Self:
        for source in self._sources:
            self._open.enter_context(source)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[Row]:
        """The inputs, in order; after `check` as many as that found, also of a file that grows meanwhile.

        Raises:
            ConfigurationError: A source that has changed since it was checked, and is wrong now.
        """
        problems: list[Problem] = []
        given = 0
        for row in islice(self._rows(problems), self._limit):
            if problems:
                break
            given += 1
            yield row
        if problems:
            raise SettingsError(problems)
        if given < self._checked:
            changed = f"{', '.join(self.names)} changed meanwhile"
            raise ConfigurationError(f"{changed}: {given} inputs are there, {self._checked} were before")

    def check(self) -> Contents:
        """Read everything once; blocks meanwhile.

        Raises:
            SettingsError: What is wrong, each with file and line: the first `MAX_PROBLEMS`.
        """
        problems: list[Problem] = []
        inputs = sum(1 for _ in islice(self._rows(problems), self._limit))
        if problems:
            if len(problems) > MAX_PROBLEMS:
                problems[MAX_PROBLEMS:] = [Problem(None, None, f"and more; the first {MAX_PROBLEMS} are told")]
            raise SettingsError(problems)
        self._limit = self._checked = inputs
        return Contents(inputs, tuple(self._names))

    def _rows(self, problems: list[Problem]) -> Iterator[Row]:
        for source in self._sources:
            try:
                yield from self._rows_of(source, problems)
            except ConfigurationError as error:  # the rest of this source cannot be read
                problems += [Problem(path, None, message) for path, message in error.problems]
            if len(problems) > MAX_PROBLEMS:
                return

    def _rows_of(self, source: Source, problems: list[Problem]) -> Iterator[Row]:
        lines = Text(source)
        for line, found in FORMS[self._form or form_of(lines)](lines):
            place = f"{source.name}:{line}"
            try:
                named = found()
                self._note(named)
                evaluation_input = input_of(values_of(named))
                self._check(evaluation_input)
            except ConfigurationError as error:
                problems += [Problem(place, path, message) for path, message in error.problems]
                if len(problems) > MAX_PROBLEMS:
                    return
            else:
                yield Row(source.name, line, evaluation_input)

    def _note(self, named: list[tuple[str, Any]]) -> None:
        for name, _ in named:
            if name not in self._names and field_of(name) == ("metadata", name.strip()) and len(self._names) < 50:
                self._names[name] = None
