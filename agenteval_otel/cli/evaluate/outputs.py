"""Outputs: reports and results, each with its file. Every file is opened before anything is evaluated."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple, Self

from pydantic import TypeAdapter

from agenteval_otel.capture.text import plain
from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.reports import JsonReport, JUnitReport, MarkdownReport, Report, TableReport
from agenteval_otel.cli.evaluate.totals import Summary
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects

KINDS: dict[str, type[Report]] = {
    "table": TableReport, "json": JsonReport, "junit": JUnitReport, "markdown": MarkdownReport,
}  # fmt: skip
_STDOUT = "-"
# Readers that split text into lines by `str.splitlines` split here too.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_JSON = TypeAdapter[Any](Any)


class _Place(NamedTuple):
    """A report and its file."""

    kind: str
    path: str


class Outputs:
    """The reports and the file of results. As a context manager it opens and closes their files."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._places = _places(arguments)
        self._results_path: str | None = arguments.results
        self._line = original_line if arguments.results_format == "agentdock" else result_line
        self._open = ExitStack()
        self._reports: list[Report] = []
        self._results: IO[str] | None = None
        _check_places(self._places, arguments)

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self._results_path is not None:
                # It contains the inputs, so only its owner may read it.
                self._results = opened.enter_context(_opened(self._results_path, owner_only=True))
            for kind, path in self._places:
                self._reports.append(KINDS[kind](opened.enter_context(_opened(path, for_people=kind == "table"))))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Add the results of one input, in the order of the dataset, or raise `StorageError`."""
        with _explained(self._results_path or "results"):
            if self._results is not None:
                self._results.write(self._line(aggregated) + "\n")
            for report in self._reports:
                report.add(row, aggregated)

    def finish(self, summary: Summary) -> None:
        """Write the reports, or raise `StorageError`."""
        for report, place in zip(self._reports, self._places, strict=True):
            with _explained(place.path):
                report.finish(summary)
                report.file.flush()


def result_line(aggregated: AggregatedEvaluationResult) -> str:
    """One line of ``--results``: everything, as storage providers write it."""
    try:
        line = aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:  # an evaluator's metadata may contain objects that JSON cannot represent
        line = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
    return line.translate(_LINE_BREAKS)


def original_line(aggregated: AggregatedEvaluationResult) -> str:
    """One line in AgentDock's JSON form, in which a failed result carries its evaluator's filler score."""
    return _JSON.dump_json(plain(aggregated.original_json())).decode().translate(_LINE_BREAKS)


def _places(arguments: argparse.Namespace) -> list[_Place]:
    places: list[_Place] = []
    for text in arguments.report:
        kind, separator, path = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(f"no report {kind!r}{known_choices(kind, KINDS)}", path="--report")
        if separator and not path:
            raise ConfigurationError(f"expected a file after {text!r}", path="--report")
        places.append(_Place(kind, path or arguments.output or _STDOUT))
    if arguments.output is not None and all("=" in text for text in arguments.report):
        places.append(_Place("table", arguments.output))
    if arguments.output is None and _STDOUT not in (arguments.results, *(place.path for place in places)):
        places.insert(0, _Place("table", _STDOUT))
    return places


def _check_places(places: list[_Place], arguments: argparse.Namespace) -> None:
    outputs = [("--report", place.path) for place in places]
    outputs += [("--results", arguments.results)] if arguments.results is not None else []
    inputs = {os.path.realpath(path) for path in (*arguments.datasets, arguments.settings) if path not in (None, "-")}
    seen: set[str] = set()
    for option, path in outputs:
        place = path if path == _STDOUT else os.path.realpath(path)
        if place in inputs:
            raise ConfigurationError(f"{path} is an input and would be overwritten", path=option)
        if place in seen:
            where = "standard output" if path == _STDOUT else path
            raise ConfigurationError(f"two outputs for {where}; give one of them its own file", path=option)
        if os.path.isfile(place) or not os.path.exists(place):
            seen.add(place)  # not a device such as /dev/null


@contextmanager
def _opened(path: str, *, owner_only: bool = False, for_people: bool = False) -> Iterator[IO[str]]:
    if path == _STDOUT:
        if sys.stdout is None:
            raise ConfigurationError("standard output is closed; --output FILE or KIND=FILE writes to a file")
        if not sys.stdout.encoding.lower().startswith("utf") and isinstance(sys.stdout, io.TextIOWrapper):
            # People get what their terminal can show; data are UTF-8 everywhere.
            sys.stdout.reconfigure(errors="replace", encoding=None if for_people else "utf-8")
        yield sys.stdout
        return
    try:
        if owner_only and os.path.isfile(path):
            os.chmod(path, 0o600)
        file = open(  # noqa: SIM115 - closed below
            path, "w", encoding="utf-8", errors="backslashreplace", newline="\n",
            opener=(lambda name, flags: os.open(name, flags, 0o600)) if owner_only else None,
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
        raise  # the reader has closed the pipe
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
