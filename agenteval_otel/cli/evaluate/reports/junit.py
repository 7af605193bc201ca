"""JUnit XML for CI servers: each criterion of each input is a test case, each source a suite.

A verdict that is no pass is a ``failure``, an evaluator that broke an ``error``, an abstention ``skipped``; a score
without a verdict passes. Cases are kept in a temporary file, because the counts stand in front of them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO
from xml.sax.saxutils import escape, quoteattr

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.reports.base import Report, Summary
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult

__all__ = ["JUnitReport"]

_MAX_TEXT = 2000
# What XML 1.0 has no form for, escaped or not.
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = ("failures", "errors", "skipped")


class JUnitReport(Report):
    """The form that CI servers have in common: ``testsuites``, ``testsuite``, ``testcase`` with one outcome at most.

    No element or attribute is in it that the strict ones among them (Jenkins' xUnit plugin) refuse. The class of a case
    is its source and its criterion, its name the criterion and the input's place.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._cases: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see close
        self._suites: list[_Suite] = []

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        if not self._suites or self._suites[-1].source != row.source:
            self._suites.append(_Suite(row.source, self._cases.tell()))
        suite = self._suites[-1]
        by_criterion: dict[str, list[EvaluationResult]] = {}
        for result in aggregated.results:
            by_criterion.setdefault(result.criterion_name, []).append(result)
        for criterion, results in by_criterion.items():
            self._write(suite, row, criterion, _duration_of(results), *_outcome_of(results))
        if not by_criterion and aggregated.run_errors:
            first = aggregated.run_errors[0]
            inside = _element("error", [one.message for one in aggregated.run_errors], first.evaluator_type or "error")
            self._write(suite, row, "evaluation", 0.0, "errors", inside)

    def _write(self, suite: _Suite, row: Row, criterion: str, took_s: float, kind: str | None, inside: str) -> None:
        suite.count(kind, took_s)
        names = _attributes(
            classname=f"{_package(row.source)}.{_package(criterion)}", name=f"{criterion} at {row.place}",
            time=f"{took_s:.6f}",
        )  # fmt: skip
        self._cases.write(f"    <testcase{names}>{inside}</testcase>\n".encode())
        suite.end = self._cases.tell()

    def finish(self, summary: Summary) -> None:
        totals = {name: sum(suite.counts[name] for suite in self._suites) for name in ("tests", "failures", "errors")}
        facts = _attributes(name="agenteval-otel", **totals, time=f"{summary.duration_s:.6f}")
        self.file.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{facts}>\n')
        for suite in self._suites:
            facts = _attributes(name=suite.source, **suite.counts, time=f"{suite.took_s:.6f}")
            self.file.write(f"  <testsuite{facts}>\n")
            for piece in self._cases_of(suite):
                self.file.write(piece)
            self.file.write("  </testsuite>\n")
        self.file.write("</testsuites>\n")

    def close(self) -> None:
        self._cases.close()

    def _cases_of(self, suite: _Suite) -> Iterator[str]:
        self._cases.seek(suite.begin)
        left = suite.end - suite.begin
        while left > 0 and (line := self._cases.readline()):
            left -= len(line)
            yield line.decode()


class _Suite:
    """What is known of the cases of one source, and where in the file they are."""

    def __init__(self, source: str, begin: int) -> None:
        self.source, self.begin, self.end = source, begin, begin
        self.counts = dict.fromkeys(("tests", *_KINDS), 0)
        self.took_s = 0.0

    def count(self, kind: str | None, took_s: float) -> None:
        self.counts["tests"] += 1
        self.took_s += took_s
        if kind is not None:
            self.counts[kind] += 1


def _outcome_of(results: list[EvaluationResult]) -> tuple[str | None, str]:
    """What became of a criterion, and the elements that say so: what broke comes before what did not pass."""
    failed = [result for result in results if result.status == "failed"]
    if failed:
        return "errors", _element("error", [result.error or "" for result in failed], failed[0].error_type or "error")
    low = [result for result in results if result.passed is False]
    if low:
        return "failures", _element(
            "failure", [_score_in_words(result) for result in low], low[0].reason_code or "fail"
        )
    if all(result.status == "skipped" for result in results):
        reasons = dict.fromkeys(result.skip_reason or "" for result in results)
        return "skipped", f"<skipped{_attributes(message=', '.join(reasons))}/>"
    scored = [_score_in_words(result) for result in results if result.status == "scored"]
    return None, f"<system-out>{_text(chr(10).join(scored))}</system-out>"


def _element(name: str, texts: list[str], kind: str) -> str:
    text = "\n".join(texts)
    first = text.partition("\n")[0][:200]
    return f"<{name}{_attributes(message=first, type=kind)}>{_text(text)}</{name}>"


def _score_in_words(result: EvaluationResult) -> str:
    words = f"score {result.score}"
    if result.threshold is not None:
        words += f", passes from {result.threshold:g}"
    if result.reason_code:
        words += f" ({result.reason_code})"
    return f"{words}: {result.reasoning}" if result.reasoning else words


def _duration_of(results: Iterable[EvaluationResult]) -> float:
    """The sum over the evaluators, each of which may have scored several criteria in that time."""
    return sum(
        max(0, result.ended_ns - result.started_ns) / 1e9
        for result in results if result.started_ns is not None and result.ended_ns is not None
    )  # fmt: skip


def _package(name: str) -> str:
    """A name as one part of a class name, which servers cut at its dots."""
    return re.sub(r"[^\w-]", "_", name.rsplit("/", 1)[-1].removesuffix(".jsonl").removesuffix(".csv")) or "_"


def _attributes(**named: object) -> str:
    return "".join(
        f" {name}={quoteattr(_clean(str(value)), {chr(10): '&#10;', chr(13): '&#13;', chr(9): '&#9;'})}"
        for name, value in named.items()
    )  # fmt: skip


def _text(text: str) -> str:
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]} [and {len(text) - _MAX_TEXT:,} more characters]"
    return escape(_clean(text))


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
