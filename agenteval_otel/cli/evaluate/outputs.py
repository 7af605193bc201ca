"""Outputs: reports and results, each with its file. Every file is opened before anything is evaluated."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple, Self

from agenteval_otel.capture.text import plain
from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.junit import JUnitReport
from agenteval_otel.cli.evaluate.reports import JsonReport, MarkdownReport, Report
from agenteval_otel.cli.evaluate.table import TableReport
from agenteval_otel.cli.evaluate.targets import Summary
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects

__all__ = ["KINDS", "Outputs", "result_line"]

KINDS: dict[str, type[Report]] = {
    "table": TableReport, "json": JsonReport, "junit": JUnitReport, "markdown": MarkdownReport,
}  # fmt: skip
_STDOUT = "-"
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class _Target(NamedTuple):
    kind: str
    path: str


class Outputs:
    """The reports and the file of results. As a context manager it opens and closes their files.

    Args:
        arguments: The options of the command.

    Raises:
        ConfigurationError: An unknown report, two outputs for one place, or an output that would overwrite an input.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._targets = _targets(arguments)
        self._results_path: str | None = arguments.results
        self._results_format: str = arguments.results_format
        self._inputs = [path for path in (*arguments.datasets, arguments.settings) if path not in (None, _STDOUT)]
        self._open = ExitStack()
        self._reports: list[Report] = []
        self._results: IO[str] | None = None
        self._check_places()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self._results_path is not None:
                # It contains the inputs, so only its owner may read it.
                self._results = opened.enter_context(_opened(self._results_path, owner_only=True))
            for kind, path in self._targets:
                report = KINDS[kind](opened.enter_context(_opened(path, for_people=kind == "table")))
                opened.callback(report.close)
                self._reports.append(report)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Add the results of one input, in the order of the dataset.

        Raises:
            StorageError: They cannot be written.
        """
        with _explained(self._results_path or "results"):
            if self._results is not None:
                self._results.write(result_line(aggregated, original=self._results_format == "original") + "\n")
            for report in self._reports:
                report.add(row, aggregated)

    def finish(self, summary: Summary) -> None:
        """Write the reports.

        Raises:
            StorageError: A report cannot be written.
        """
        for report, target in zip(self._reports, self._targets, strict=True):
            with _explained(target.path):
                report.finish(summary)
                report.file.flush()

    def _check_places(self) -> None:
        places = [("--report", target.path) for target in self._targets]
        if self._results_path is not None:
            places.append(("--results", self._results_path))
        for index, (option, path) in enumerate(places):
            if any(_same(path, other) for _, other in places[:index]):
                where = "standard output" if path == _STDOUT else path
                raise ConfigurationError(f"two outputs for {where}; give one of them its own file", path=option)
            if any(_same(path, source) for source in self._inputs):
                raise ConfigurationError(f"{path} is an input and would be overwritten", path=option)


def result_line(aggregated: AggregatedEvaluationResult, *, original: bool = False) -> str:
    """One line of ``--results``.

    Args:
        aggregated: The results of one input.
        original: In AgentDock's JSON form, in which a failed result carries its evaluator's filler score; else
            everything, as storage providers write it.
    """
    if original:
        form = aggregated.original_json()
        try:
            line = json.dumps(form, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            line = json.dumps(_without_nan(plain(form)), ensure_ascii=False)
    else:
        try:
            line = aggregated.model_dump_json(by_alias=True, exclude_none=True)
        except ValueError:  # an evaluator's metadata may contain objects that JSON cannot represent
            line = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
    return line.translate(_LINE_BREAKS)


def _without_nan(value: Any) -> Any:
    """Numbers that are not finite as null, as JavaScript writes them."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _targets(arguments: argparse.Namespace) -> list[_Target]:
    targets: list[_Target] = []
    for text in arguments.report:
        kind, separator, path = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(f"no report {kind!r}{choices(kind, KINDS)}", path="--report")
        if separator and not path:
            raise ConfigurationError(f"expected a file after {text!r}", path="--report")
        targets.append(_Target(kind, path or arguments.output or _STDOUT))
    if arguments.output is not None and all("=" in text for text in arguments.report):
        targets.append(_Target("table", arguments.output))
    if arguments.output is None and _STDOUT not in (arguments.results, *(target.path for target in targets)):
        targets.insert(0, _Target("table", _STDOUT))
    return targets


def _same(path: str, other: str) -> bool:
    if path == other or _STDOUT in (path, other):
        return path == other
    try:
        if os.path.exists(path) and os.path.exists(other):
            return os.path.samefile(path, other) and os.path.isfile(path)
        return os.path.realpath(path) == os.path.realpath(other)  # a link to a file that does not exist yet
    except (OSError, ValueError):
        return False


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
