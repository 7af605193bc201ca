"""The reports of an evaluation, and the results of its inputs.

A report is a table for people, JSON for programs, Markdown for pull requests or JUnit XML for CI
servers. Every file is opened before anything is evaluated.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import IO, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from pydantic import TypeAdapter

from agenteval_otel.capture.text import plain
from agenteval_otel.cli.evaluate.dataset import DatasetRow
from agenteval_otel.cli.evaluate.totals import Summary
from agenteval_otel.cli.figures import json_for_terminals
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.offline.comparison.report import json_of, markdown_of
from agenteval_otel.offline.comparison.report import tables_of as comparison_tables
from agenteval_otel.offline.reports.figures import DASH, count_of, markdown_text, with_interval
from agenteval_otel.offline.reports.table import console_for, tables_of
from agenteval_otel.storage.base import without_objects

_STDOUT = "-"
# Readers that split text into lines by `str.splitlines` split here too.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_JSON = TypeAdapter[Any](Any)


@contextmanager
def opened(places: Iterable[tuple[str, str]]) -> Iterator[list[ReportWriter]]:
    """Yield the reports of these kinds, each with its open file."""
    writers = KINDS | RESULTS
    with ExitStack() as files:
        reports: list[ReportWriter] = []
        for kind, path in places:
            file = files.enter_context(_opened(kind, path))
            reports.append(writers[kind](file))
        yield reports


def places_of(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the kind and the file of each output."""
    places: list[tuple[str, str]] = []
    for text in arguments.report:
        kind, separator, path = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(
                f"no report {kind!r}{known_choices(kind, KINDS)}", path="--report"
            )
        if separator and not path:
            raise ConfigurationError(f"expected a file after {text!r}", path="--report")
        places.append((kind, path or arguments.output or _STDOUT))
    if arguments.output is not None and all("=" in text for text in arguments.report):
        places.append(("table", arguments.output))
    if arguments.results is not None:
        places.append((arguments.results_format, arguments.results))
    if arguments.output is None and _STDOUT not in (path for _, path in places):
        places.append(("table", _STDOUT))
    _refuse_overwriting(places, arguments)
    return places


def _refuse_overwriting(places: list[tuple[str, str]], arguments: argparse.Namespace) -> None:
    inputs = [*arguments.datasets, arguments.settings, arguments.baseline, arguments.cache]
    seen = {os.path.realpath(path) for path in inputs if path not in (None, _STDOUT)}
    for kind, path in places:
        place = os.path.realpath(path)
        option = "--results" if kind in RESULTS else "--report"
        if place in seen and path != os.devnull:
            shown = "standard output" if path == _STDOUT else path
            raise ConfigurationError(
                f"{shown} is an input or another output. Name another file", path=option
            )
        seen.add(place)


def _opened(kind: str, path: str) -> AbstractContextManager[IO[str]]:
    if path == _STDOUT:
        if kind != "table" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # what programs read
        return nullcontext(sys.stdout)
    owner_only = kind in RESULTS  # they contain the inputs
    if owner_only and os.path.isfile(path):
        os.chmod(path, 0o600)
    raw = _File(path, "w", opener=_open_for_owner if owner_only else None)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", newline="\n")


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _File(io.FileIO):
    """A file that adds its name to write errors, which may lack it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.name
            raise


class ReportWriter:
    """Writes results to an open file, which it neither opens nor closes."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        """Add the results of one input, in the order of the dataset.

        Most reports only need the totals.
        """

    def finish(self, summary: Summary) -> None:
        """Write what needs the totals."""


class FullResults(ReportWriter):
    """Each input's result as a JSON line: everything, as storage providers write it."""

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        try:
            line = aggregated.model_dump_json(by_alias=True, exclude_none=True)
        except ValueError:  # an evaluator's metadata may contain objects that JSON cannot represent
            line = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
        self.file.write(line.translate(_LINE_BREAKS) + "\n")


class AgentDockResults(ReportWriter):
    """Prints each input's result as a JSON line in AgentDock's form.

    In that form a failed result carries a filler score.
    """

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        line = _JSON.dump_json(plain(aggregated.original_json())).decode()
        self.file.write(line.translate(_LINE_BREAKS) + "\n")


def _heading(summary: Summary) -> str:
    """Return a heading such as ``3 inputs from answers.jsonl in 0.1 s``."""
    inputs = count_of(summary.totals.inputs, "input")
    return f"{inputs} from {', '.join(summary.sources)} in {summary.duration_s:,.1f} s"


class TableReport(ReportWriter):
    """Prints a row for each criterion, as wide as the terminal.

    In a pipe or file, the table is 80 columns wide (`COLUMNS` sets another width).

    Narrow terminals get fewer columns, never broken ones.
    """

    def finish(self, summary: Summary) -> None:
        console = console_for(self.file)
        for part in tables_of(
            _heading(summary), summary.totals, summary.targets, width=console.width
        ):
            console.print(part)
        if summary.comparison is not None:
            console.print("")
            for part in comparison_tables(summary.comparison, width=console.width):
                console.print(part)


class JsonReport(ReportWriter):
    """Prints one JSON object. Absent values (a mean without scores) are null."""

    def finish(self, summary: Summary) -> None:
        totals = summary.totals
        missed = [
            {name: getattr(target, name) for name in ("criterion", "target", "reached")}
            for target in summary.missed
        ]
        report = {
            "sources": list(summary.sources),
            "duration_s": round(summary.duration_s, 3),
            **totals.as_json(),
            "fail_under": [limit._asdict() for limit in summary.limits],
            "missed": missed,
        }
        if totals.judges:
            report["judges"] = vars(totals.judges)
        if summary.comparison:
            report["baseline"] = json_of(summary.comparison)
        self.file.write(json_for_terminals(report) + "\n")


class MarkdownReport(ReportWriter):
    """Prints a heading with the outcome, a table, the missed targets and the lowest inputs.

    Contains no text of an answer.
    """

    def finish(self, summary: Summary) -> None:
        self.file.write("\n".join(_markdown(summary)) + "\n")
        if summary.comparison is not None:
            self.file.write(f"\n{markdown_of(summary.comparison)}")


def _markdown(summary: Summary) -> Iterator[str]:
    totals = summary.totals
    missed = summary.missed
    outcome = "all targets met" if summary.targets else "no targets set"
    if missed:
        outcome = f"{count_of(len(missed), 'target')} missed"
    if missed:
        sign = "❌ "
    elif summary.targets:
        sign = "✅ "
    else:
        sign = ""
    yield f"### {sign}Evaluation: {outcome}"
    yield from ("", f"{markdown_text(_heading(summary))}.")
    yield from (
        "",
        "| criterion | mean (95 %) | pass rate (95 %) | scored | skipped | failed | target |",
    )
    yield "|---|---|---|--:|--:|--:|---|"
    for item in totals.criteria:
        mean = DASH if item.mean is None else with_interval(item.mean)
        rate = DASH if item.pass_rate is None else with_interval(item.pass_rate, rate=True)
        counts = f"{item.scored:,} | {item.skipped:,} | {item.failed:,}"
        yield f"| {markdown_text(item.name)} | {mean} | {rate} | {counts} | {_marked(summary, item.name)} |"
    overall = totals.overall
    shown = DASH if overall is None else with_interval(overall)
    scored = 0 if overall is None else overall.scores
    yield f"| **overall score** | {shown} | | {scored:,} | | | {_marked(summary, None)} |"
    sections = [("Missed", [str(target) for target in missed])]
    sections += [(heading, [": ".join(row) for row in rows]) for heading, rows in totals.notes()]
    for heading, lines in sections:
        if lines:
            yield from ("", f"**{heading}**", "", *(f"- {markdown_text(line)}" for line in lines))
    if totals.lowest:
        yield from (
            "",
            "<details><summary>Lowest scores</summary>",
            "",
            "| input | overall score | not passed |",
        )
        yield "|---|--:|---|"
        for low in totals.lowest:
            yield f"| {markdown_text(low.place)} | {low.overall_score:.2f} | {markdown_text(', '.join(low.criteria))} |"
        yield from ("", "</details>")


def _marked(summary: Summary, criterion: str | None) -> str:
    own = [target for target in summary.targets if target.criterion == criterion]
    return ", ".join(f"{target.shown} {'✅' if target.met else '❌'}" for target in own)


_MAX_CHARACTERS = 2000
# Characters that XML 1.0 cannot contain, escaped or not.
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitReport(ReportWriter):
    """JUnit XML: each criterion of each input is a test case, each source a suite.

    Keeps the cases until the end.

    Strict servers (Jenkins' xUnit plugin) accept every element.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._suites: dict[str, Element] = {}

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        by_criterion: dict[str, list[EvaluationResult]] = {}
        for result in aggregated.results:
            by_criterion.setdefault(result.criterion_name, []).append(result)
        for criterion, results in by_criterion.items():
            _add_outcome(self._case(row, criterion, results), results)
        if not by_criterion and aggregated.run_errors:
            messages = [error.message for error in aggregated.run_errors]
            kind = aggregated.run_errors[0].evaluator_type or "error"
            _add_element(self._case(row, "evaluation", []), "error", messages, kind)

    def _case(
        self, row: DatasetRow, criterion: str, results: Iterable[EvaluationResult]
    ) -> Element:
        """Add a case.

        It takes as long as its evaluators. One evaluator may score several criteria in that
        time.
        """
        suite = self._suites.setdefault(row.source, Element("testsuite", name=_clean(row.source)))
        took_ns = 0
        for result in results:
            took_ns += max(0, (result.ended_ns or 0) - (result.started_ns or 0))
        classname = f"{_package(row.source)}.{_package(criterion)}"
        name = _clean(f"{criterion} at {row.place}")
        time = f"{took_ns / 1e9:.6f}"
        return SubElement(suite, "testcase", classname=classname, name=name, time=time)

    def finish(self, summary: Summary) -> None:
        root = Element("testsuites", name="agenteval-otel")
        root.extend(self._suites.values())
        for element in (root, *root):
            cases = list(element.iter("testcase"))
            element.set("tests", str(len(cases)))
            for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                if element is not root or name != "skipped":
                    count = sum(case.find(tag) is not None for case in cases)
                    element.set(name, str(count))
            took_s = sum(float(case.get("time", 0)) for case in cases)
            element.set("time", f"{took_s:.6f}")
        root.set("time", f"{summary.duration_s:.6f}")
        indent(root)
        self.file.write(
            f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'
        )


def _add_outcome(case: Element, results: list[EvaluationResult]) -> None:
    """Add the element that shows the outcome.

    A failed result counts before one that does not pass.
    """
    failed = [result for result in results if result.status == "failed"]
    low = [result for result in results if result.passed is False]
    if any(result.shadow for result in results):
        element = SubElement(case, "skipped", message="shadow")
        element.text = _clean("\n".join(map(_score_text, results)))
    elif failed:
        errors = [result.error or "" for result in failed]
        _add_element(case, "error", errors, failed[0].error_type or "error")
    elif low:
        texts = [_score_text(result) for result in low]
        _add_element(case, "failure", texts, low[0].reason_code or "fail")
    elif all(result.status == "skipped" for result in results):
        reasons = dict.fromkeys(result.skip_reason or "" for result in results)
        SubElement(case, "skipped", message=_clean(", ".join(reasons)))
    else:
        scored = [_score_text(result) for result in results if result.status == "scored"]
        element = SubElement(case, "system-out")
        element.text = _clean("\n".join(scored))


def _add_element(case: Element, tag: str, texts: list[str], kind: str) -> None:
    text = "\n".join(texts)
    first_line, _, _ = text.partition("\n")
    element = SubElement(case, tag, message=_clean(first_line[:200]), type=_clean(kind))
    element.text = _clean(text)


def _score_text(result: EvaluationResult) -> str:
    words = f"score {result.score}"
    if result.threshold is not None:
        words += f", passes from {result.threshold:g}"
    if result.reason_code:
        words += f" ({result.reason_code})"
    return f"{words}: {result.reasoning}" if result.reasoning else words


def _package(name: str) -> str:
    """Return a name as one part of a class name. Servers split class names at dots."""
    _, _, file = name.rpartition("/")
    stem = file.removesuffix(".jsonl").removesuffix(".csv")
    return re.sub(r"[^\w-]", "_", stem) or "_"


def _clean(text: str) -> str:
    """Return the text as XML can contain it, cut if it is long."""
    if len(text) > _MAX_CHARACTERS:
        left_out = len(text) - _MAX_CHARACTERS
        text = f"{text[:_MAX_CHARACTERS]} [and {left_out:,} more characters]"
    return _NO_XML.sub("\ufffd", text)


KINDS: dict[str, type[ReportWriter]] = {
    "table": TableReport,
    "json": JsonReport,
    "junit": JUnitReport,
    "markdown": MarkdownReport,
}
RESULTS: dict[str, type[ReportWriter]] = {"full": FullResults, "agentdock": AgentDockResults}
