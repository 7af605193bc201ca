"""JUnit XML for CI servers: each criterion of each input is a test case, each source a suite.

A result that does not pass is a ``failure``, an evaluator that failed an ``error``, a skip ``skipped``; a score that
neither passes nor fails is a passing case. Cases wait in temporary files, because the counts precede them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from typing import IO
from xml.sax.saxutils import escape, quoteattr

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.reports import Report
from agenteval_otel.cli.evaluate.targets import Summary
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult

__all__ = ["JUnitReport"]

_MAX_TEXT = 2000
_IN_MEMORY = 1 << 20
# Characters that XML 1.0 cannot contain, escaped or not.
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Suite:
    """The cases of one source."""

    def __init__(self, source: str) -> None:
        self.source, self.took_s = source, 0.0
        self.counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        self.cases = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed with the report
            _IN_MEMORY, "w+", encoding="utf-8"
        )

    def add(self, row: Row, criterion: str, took_s: float, kind: str | None, content: str) -> None:
        self.counts["tests"] += 1
        self.took_s += took_s
        if kind is not None:
            self.counts[kind] += 1
        names = _attributes(
            classname=f"{_package(row.source)}.{_package(criterion)}", name=f"{criterion} at {row.place}",
            time=f"{took_s:.6f}",
        )  # fmt: skip
        self.cases.write(f"    <testcase{names}>{content}</testcase>\n")


class JUnitReport(Report):
    """The form that CI servers have in common: ``testsuites``, ``testsuite``, ``testcase`` with one outcome at most.

    It contains no element or attribute that the strict servers (Jenkins' xUnit plugin) refuse. The class of a case is
    its source and criterion, its name the criterion and the input's place.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._suites: list[_Suite] = []

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        if not self._suites or self._suites[-1].source != row.source:
            self._suites.append(_Suite(row.source))
        suite = self._suites[-1]
        by_criterion: dict[str, list[EvaluationResult]] = {}
        for result in aggregated.results:
            by_criterion.setdefault(result.criterion_name, []).append(result)
        for criterion, results in by_criterion.items():
            suite.add(row, criterion, _duration_of(results), *_outcome_of(results))
        if not by_criterion and aggregated.run_errors:
            messages = [error.message for error in aggregated.run_errors]
            content = _element("error", messages, aggregated.run_errors[0].evaluator_type or "error")
            suite.add(row, "evaluation", 0.0, "errors", content)

    def finish(self, summary: Summary) -> None:
        sums = {name: sum(suite.counts[name] for suite in self._suites) for name in ("tests", "failures", "errors")}
        attributes = _attributes(name="agenteval-otel", **sums, time=f"{summary.duration_s:.6f}")
        self.file.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{attributes}>\n')
        for suite in self._suites:
            attributes = _attributes(name=suite.source, **suite.counts, time=f"{suite.took_s:.6f}")
            self.file.write(f"  <testsuite{attributes}>\n")
            suite.cases.seek(0)
            shutil.copyfileobj(suite.cases, self.file)
            self.file.write("  </testsuite>\n")
        self.file.write("</testsuites>\n")

    def close(self) -> None:
        for suite in self._suites:
            suite.cases.close()


def _outcome_of(results: list[EvaluationResult]) -> tuple[str | None, str]:
    """The count to raise, and the element that shows it; a failed result counts before one that does not pass."""
    failed = [result for result in results if result.status == "failed"]
    if failed:
        return "errors", _element("error", [result.error or "" for result in failed], failed[0].error_type or "error")
    low = [result for result in results if result.passed is False]
    if low:
        return "failures", _element("failure", [_score_text(result) for result in low], low[0].reason_code or "fail")
    if all(result.status == "skipped" for result in results):
        reasons = dict.fromkeys(result.skip_reason or "" for result in results)
        return "skipped", f"<skipped{_attributes(message=', '.join(reasons))}/>"
    scored = [_score_text(result) for result in results if result.status == "scored"]
    return None, f"<system-out>{_text(chr(10).join(scored))}</system-out>"


def _element(name: str, texts: list[str], kind: str) -> str:
    text = "\n".join(texts)
    first = text.partition("\n")[0][:200]
    return f"<{name}{_attributes(message=first, type=kind)}>{_text(text)}</{name}>"


def _score_text(result: EvaluationResult) -> str:
    words = f"score {result.score}"
    if result.threshold is not None:
        words += f", passes from {result.threshold:g}"
    if result.reason_code:
        words += f" ({result.reason_code})"
    return f"{words}: {result.reasoning}" if result.reasoning else words


def _duration_of(results: Iterable[EvaluationResult]) -> float:
    """The sum over the evaluators. One evaluator may score several criteria in that time."""
    return sum(
        max(0, result.ended_ns - result.started_ns) / 1e9
        for result in results if result.started_ns is not None and result.ended_ns is not None
    )  # fmt: skip


def _package(name: str) -> str:
    """A name as one part of a class name. Servers split class names at dots."""
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
