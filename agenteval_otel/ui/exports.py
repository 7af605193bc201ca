"""What the pages give away as files: rows of CSV that every spreadsheet takes, and lines of JSON."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from agenteval_otel.ui import answer_list, views
from agenteval_otel.ui.columns import ResultColumns, Rows
from agenteval_otel.ui.costs import CostGroup, Costs
from agenteval_otel.ui.text import visible

_MOST_ROWS: Final = 100_000
_MOST_ANSWERS: Final = 10_000
_ROWS_AT_ONCE: Final = 2_000
# Many spreadsheets split a line at `;`, tabs or bars, and then a formula may begin in mid-text. Of a
# comma they see nothing: a cell with one is written in quotes. In some languages full-width signs
# begin a formula too.
_FORMULA: Final = re.compile(r"(^|[;|\t\n])([ \xa0]*[=+\-@\uff1d\uff0b\uff0d\uff20\t])")
_QUOTED: Final = re.compile(_FORMULA.pattern.replace(")([", ")'([", 1))
_STATUS: Final = ("scored", "skipped", "failed")


def rows_of_overview(criteria: Iterable[views.CriterionView]) -> Iterator[Iterable[Any]]:
    """Yield the rows of the overview, their header first."""
    yield (
        "criterion",
        "kind",
        "scored",
        "skipped",
        "failed",
        "pass_rate",
        "low",
        "high",
        "mean",
        "represents",
    )
    for view in criteria:
        kind = "human" if view.is_human else "evaluator"
        counts = (view.scored, view.skipped, view.failed)
        ends = view.passes.estimate[:3] if view.passes else (None, None, None)
        mean = view.mean.estimate.mean if view.mean else None
        represents = view.main.represents if view.main else None
        yield (view.name, kind, *counts, *ends, mean, represents)


def rows_of_criterion(
    columns: ResultColumns, rows: Rows, dimensions: Sequence[str]
) -> Iterator[Iterable[Any]]:
    """Yield these results of a criterion, the newest 100,000, behind their header.

    They are as they are when the header is read.
    """
    stored = {
        name: columns[name]
        for name in (
            "evaluation_id",
            "answered",
            "evaluated",
            "status",
            "passed",
            "normalized",
            "weight",
            *dimensions,
        )
    }
    names = {dimension: columns.names(dimension) for dimension in dimensions}
    yield (
        "evaluation_id",
        "answered_at",
        "evaluated_at",
        *dimensions,
        "status",
        "passed",
        "normalized",
        "weight",
    )
    for row in rows[-_MOST_ROWS:]:
        evaluation_id = stored["evaluation_id"][row].tobytes().hex()
        answered = views.moment_text(int(stored["answered"][row]))
        evaluated = views.moment_text(int(stored["evaluated"][row]))
        labels = [names[dimension][stored[dimension][row]] for dimension in dimensions]
        outcome = _STATUS[stored["status"][row]]
        passed = int(stored["passed"][row])
        verdict = "" if passed < 0 else bool(passed)
        normalized = float(stored["normalized"][row])
        score = "" if math.isnan(normalized) else normalized
        weight = float(stored["weight"][row])
        yield (evaluation_id, answered, evaluated, *labels, outcome, verdict, score, weight)


def rows_of_answers(
    columns: ResultColumns, wanted: answer_list.ListQuery
) -> Iterator[Iterable[Any]]:
    """Yield the answers of a list, at most 10,000, with the first words of their texts.

    Which they are is settled when the header is read. Texts are read while rows are sent.
    """
    rows = answer_list.find(columns, wanted)[:_MOST_ANSWERS]
    moments = answer_list.moments_of(columns, rows, wanted.window.by)
    yield (
        "evaluation_id",
        f"{wanted.window.by}_at",
        "agent",
        "model",
        "prompt",
        "answer",
        "error",
        "failed",
        "passed",
        "without_verdict",
    )
    for item in answer_list.listed(columns.place, moments):
        moment = views.moment_text(item.moment)
        texts = (item.agent, item.model, item.prompt, item.answer, item.error)
        yield (item.key, moment, *texts, ", ".join(item.failed), item.passed, item.other)


def lines_of_answers(columns: ResultColumns, wanted: answer_list.ListQuery) -> Iterator[bytes]:
    """Yield the evaluations of a list of answers as JSON lines, at most 10,000.

    Which they are is settled at once. They are read while lines are sent.
    """
    rows = answer_list.find(columns, wanted)[:_MOST_ANSWERS]
    keys = [columns.id_of(row) for row in rows]
    stored = answer_list.evaluations_of(columns.place, keys)
    return (f"{item.model_dump_json(by_alias=True)}\n".encode() for _, item in stored)


def rows_of_costs(costs: Costs | None) -> Iterator[Iterable[Any]]:
    """Yield what each criterion and each agent cost and how long it ran, behind their header."""
    yield (
        "by",
        "name",
        "verdicts",
        "without_price",
        "cost_usd",
        "runs",
        "seconds",
        "seconds_each",
    )
    groups_by: Mapping[str, Sequence[CostGroup]] = {} if costs is None else costs.by
    for column, groups in groups_by.items():
        for group in groups:
            of_time = (group.runs, group.seconds, group.seconds_each)
            yield (column, group.name, group.calls, group.unpriced, group.usd, *of_time)


def csv_text(rows: Iterator[Iterable[Any]]) -> Iterator[bytes]:
    """Yield the text of a file with these rows, in parts."""
    while part := list(islice(rows, _ROWS_AT_ONCE)):
        text = io.StringIO()
        csv.writer(text).writerows([[_cell(value) for value in row] for row in part])
        yield text.getvalue().encode("utf-8", "replace")


def without_quotes(cell: str) -> str:
    """Return the text of a cell that `csv_text` has written."""
    return _QUOTED.sub(r"\1\2", cell)


def _cell(value: object) -> Any:
    """Return a value that no spreadsheet takes for a formula."""
    return _FORMULA.sub(r"\1'\2", visible(value)) if isinstance(value, str) else value
