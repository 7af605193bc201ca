"""Outputs: which report goes where, and the open files. Everything is opened before anything is evaluated."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple, Self

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.reports import KINDS, Report, Summary
from agenteval_otel.cli.evaluate.results import ResultsFile
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult

__all__ = ["Outputs"]

_STDOUT = "-"


class _Asked(NamedTuple):
    kind: str
    path: str


class Outputs:
    """The reports and the file of results. A context manager: entered, everything is open.

    Args:
        arguments: The options of the command.

    Raises:
        ConfigurationError: An unknown report, two outputs for one place, or one that would write over what is read.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._asked = _asked(arguments)
        self._results_path: str | None = arguments.results
        self._results_format: str = arguments.results_format
        self._reads = [path for path in (*arguments.datasets, arguments.settings) if path not in (None, _STDOUT)]
        self._open = ExitStack()
        self._reports: list[Report] = []
        self._results: ResultsFile | None = None
        self._check_places()

    def __repr__(self) -> str:
        return f"<Outputs {self._asked}>"

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self._results_path is not None:
                # Holds the inputs, and so what people wrote: its owner's alone.
                file = opened.enter_context(_opened(self._results_path, owner_only=True))
                self._results = ResultsFile(file, shape=self._results_format)
            for asked in self._asked:
                report = KINDS[asked.kind](opened.enter_context(_opened(asked.path, for_people=asked.kind == "table")))
                opened.callback(report.close)
                self._reports.append(report)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Take the results of one input, in the order of the dataset.

        Raises:
            StorageError: They cannot be written.
        """
        with _explained(self._results_path or "results"):
            if self._results is not None:
                self._results.add(aggregated)
            for report in self._reports:
                report.add(row, aggregated)

    def finish(self, summary: Summary) -> None:
        """Write the reports.

        Raises:
            StorageError: One cannot be written.
        """
        for report, asked in zip(self._reports, self._asked, strict=True):
            with _explained(asked.path):
                report.finish(summary)
                report.file.flush()

    def _check_places(self) -> None:
        places = [("--report", asked.path) for asked in self._asked]
        if self._results_path is not None:
            places.append(("--results", self._results_path))
        for index, (option, path) in enumerate(places):
            if any(_same(path, other) for _, other in places[:index]):
                where = "standard output" if path == _STDOUT else path
                raise ConfigurationError(f"two outputs for {where}; give one of them a file of its own", path=option)
            if any(_same(path, read) for read in self._reads):
                raise ConfigurationError(f"{path} is read here, and would be written over", path=option)


def _asked(arguments: argparse.Namespace) -> list[_Asked]:
    asked: list[_Asked] = []
    for text in arguments.report:
        kind, separator, path = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(f"no report {kind!r}{choices(kind, KINDS)}", path="--report")
        if separator and not path:
            raise ConfigurationError(f"expected a file behind {text!r}", path="--report")
        asked.append(_Asked(kind, path or arguments.output or _STDOUT))
    if arguments.output is not None and all("=" in text for text in arguments.report):
        asked.append(_Asked("table", arguments.output))
    taken = [one.path for one in asked] + ([arguments.results] if arguments.results is not None else [])
    if _STDOUT not in taken and arguments.output is None:
        asked.insert(0, _Asked("table", _STDOUT))
    return asked


def _same(path: str, other: str) -> bool:
    if path == other or _STDOUT in (path, other):
        return path == other
    try:
        return os.path.samefile(path, other) and os.path.isfile(path)
    except (OSError, ValueError):
        return _resolved(path) == _resolved(other)


def _resolved(path: str) -> str:
    """Where a file that is not there yet would be: also behind a link."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _owner_only(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


@contextmanager
def _opened(path: str, *, owner_only: bool = False, for_people: bool = False) -> Iterator[IO[str]]:
    if path == _STDOUT:
        if sys.stdout is None:
            raise ConfigurationError("standard output is closed; --output FILE or KIND=FILE writes to a file")
        if not sys.stdout.encoding.lower().startswith("utf") and isinstance(sys.stdout, io.TextIOWrapper):
            # What a name holds may have no form there. For people something like it will do; data are UTF-8 everywhere.
            sys.stdout.reconfigure(errors="replace", encoding=None if for_people else "utf-8")
        yield sys.stdout
        return

    try:
        if owner_only and os.path.isfile(path):
            os.chmod(path, 0o600)
        file = open(  # noqa: SIM115 - closed below
            path, "w", encoding="utf-8", errors="backslashreplace", newline="\n",
            opener=_owner_only if owner_only else None,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot be written: {reason}", path=path) from None
    with _explained(path), file:
        yield file


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read has read enough
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
