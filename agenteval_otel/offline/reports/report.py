"""`report`: the results of a run in one table."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Literal

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.calibration.record import CalibrationRecords, load_records
from agenteval_otel.offline.reports.figures import DASH, count_of, frequencies, with_interval
from agenteval_otel.offline.reports.totals import Totals
from agenteval_otel.runtime.masking import printable

_COLUMNS = ("criterion", "mean", "pass rate", "scored", "skipped", "failed")
_RESULT_FIELDS = (
    "criterion_name",
    "status",
    "score",
    "normalized",
    "label",
    "passed",
    "reason_code",
    "reasoning",
    "error",
    "skip_reason",
    "evaluator_id",
)


def report(
    results: Iterable[AggregatedEvaluationResult] | AggregatedEvaluationResult,
    *,
    calibration: str | os.PathLike[str] | None = None,
) -> Report:
    """Put the results of `run_evaluations`, or one result, together: a row for each criterion.

    Args:
        results: The results.
        calibration: File of calibration records: the pass rates are shown corrected too where a
            record holds for the judge that judged, and else why not.

    Raises:
        ConfigurationError: `results` has the wrong type, or `calibration` is no file of records.
    """
    is_one = isinstance(results, AggregatedEvaluationResult) or not isinstance(results, Iterable)
    items: list[Any] = [results] if is_one else list(results)
    for position, item in enumerate(items):
        if not isinstance(item, AggregatedEvaluationResult):
            wrong = f"expected what run_evaluations returns, found {type(item).__name__}"
            raise ConfigurationError(wrong, path=f"results[{position}]")
    return Report(items, records=None if calibration is None else load_records(calibration))


class Report:
    """Shows means and pass rates of the criteria, and why results failed or were skipped.

    The figures have their 95 % intervals. It is a table as text, in notebooks, and in colour by
    `rich.print`. The figures are the same as those of `agenteval-otel evaluate`.
    """

    def __init__(
        self,
        results: Iterable[AggregatedEvaluationResult],
        places: Iterable[str] | None = None,
        *,
        records: CalibrationRecords | None = None,
    ) -> None:
        self.results = list(results)
        self.totals = Totals(records=records)
        if places is None:
            places = [f"results[{position}]" for position in range(len(self.results))]
        for item, place in zip(self.results, places, strict=True):
            self.totals.add(item, place=place)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def __rich_console__(self, console: object, options: Any) -> Iterator[Any]:
        from agenteval_otel.offline.reports.table import tables_of

        yield from tables_of(self._heading, self.totals, width=options.max_width)

    def text(self, *, width: int | None = None, colour: bool = False) -> str:
        """Return the table for a terminal of this width.

        None takes the width of the present terminal.
        """
        from agenteval_otel.offline.reports.table import console_for

        file = io.StringIO()
        console_for(file, width=width, colour=colour).print(self)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values.

        They are the same as ``agenteval-otel evaluate --report json`` prints.
        """
        return self.totals.as_json()

    def to_dataframe(self, by: Literal["criterion", "result"] = "criterion") -> Any:
        """Return a pandas data frame with a row for each criterion, or for each single result.

        A row for a single result also has its input.

        Raises:
            ConfigurationError: pandas is not installed, or `by` is another word.
        """
        rows = {"criterion": self._criterion_rows, "result": self._result_rows}.get(by)
        if rows is None:
            raise ConfigurationError(f"expected 'criterion' or 'result', found {by!r}", path="by")
        try:
            import pandas
        except ImportError:
            raise ConfigurationError("to_dataframe needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(rows()))

    @property
    def _heading(self) -> str:
        totals = self.totals
        broken = f", {totals.broken:,} with failures" if totals.broken else ""
        parts = f" ({frequencies(totals.run_errors)})" if totals.run_errors else ""
        return f"{count_of(totals.inputs, 'input')}{broken}{parts}"

    def _criterion_rows(self) -> Iterator[dict[str, Any]]:
        for item in self.totals.criteria:
            row: dict[str, Any] = {"criterion": item.name}
            for name, estimate in (
                ("mean", item.mean),
                ("pass_rate", item.pass_rate),
                ("calibrated_pass_rate", item.calibrated),
            ):
                row[name] = None if estimate is None else estimate.mean
                row[f"{name}_low"] = None if estimate is None else estimate.low
                row[f"{name}_high"] = None if estimate is None else estimate.high
            yield {**row, "scored": item.scored, "skipped": item.skipped, "failed": item.failed}

    def _result_rows(self) -> Iterator[dict[str, Any]]:
        for position, item in enumerate(self.results):
            snapshot = item.input_snapshot
            shared = {
                "prompt": None if snapshot is None else snapshot.prompt,
                "response": None if snapshot is None else snapshot.response,
            }
            for result in item.results:
                fields = {name: getattr(result, name) for name in _RESULT_FIELDS}
                yield {"input": position, **fields, "overall_score": item.overall_score, **shared}

    def _repr_html_(self) -> str:
        head = _cells(_COLUMNS, "th")
        body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in self._html_rows())
        notes = "".join(self._html_notes())
        return (
            f"<div><b>{_text(self._heading)}</b><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{notes}<small>In brackets: 95 % intervals. Means leave out failed and "
            f"skipped results.</small></div>"
        )

    def _html_rows(self) -> Iterator[list[str]]:
        for item in self.totals.criteria:
            failed = "0"
            if item.failed:
                failed = f"<b style='color:#c62828'>{item.failed:,}</b>"
            yield [
                _text(item.name),
                _html(item.mean),
                _html(item.pass_rate, rate=True),
                f"{item.scored:,}",
                f"{item.skipped:,}",
                failed,
            ]
        overall = self.totals.overall
        scores = overall.scores if overall else 0
        yield ["<b>overall score</b>", _html(overall), "", f"{scores:,}", "", ""]

    def _html_notes(self) -> Iterator[str]:
        lowest: list[tuple[str, ...]] = []
        for low in self.totals.lowest[:5]:
            if low.criteria:
                lowest.append((low.place, f"{low.overall_score:.2f}", *low.criteria))
        for heading, rows in (*self.totals.notes(), ("Lowest", lowest)):
            if not rows:
                continue
            attribute = " open" if heading == "Failed" else ""
            lines = "".join(f"<li>{_text(': '.join(row))}</li>" for row in rows)
            yield f"<details{attribute}><summary>{heading}</summary><ul>{lines}</ul></details>"


def _cells(cells: Iterable[str], tag: str) -> str:
    shown: list[str] = []
    for column, cell in enumerate(cells):
        side = "left" if column < 3 else "right"
        shown.append(f"<{tag} style='padding:2px 8px;text-align:{side}'>{cell}</{tag}>")
    return "".join(shown)


def _html(estimate: Estimate | None, *, rate: bool = False) -> str:
    if estimate is None:
        return DASH
    figure, bracket, interval = with_interval(estimate, rate=rate).partition(" (")
    return f"{figure}<small style='opacity:.65'>{bracket}{interval}</small>"


def _text(text: str) -> str:
    return escape(printable(text))
