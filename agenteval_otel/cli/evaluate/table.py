"""The table of criteria, as wide as the terminal, and the report that prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.evaluate.reports import Report
from agenteval_otel.cli.evaluate.targets import Summary
from agenteval_otel.cli.evaluate.totals import CriterionTotals, Totals
from agenteval_otel.cli.figures import Glyphs, count_of, duration_of, frequencies, glyphs_of, with_interval
from agenteval_otel.runtime.masking import printable
from agenteval_otel.scoring.intervals import Estimate

__all__ = ["TableReport", "criteria_table"]

_WIDE, _MIDDLE, _NARROW = 92, 76, 58
_COUNTS = ("scored", "skipped", "failed")
_COLUMNS = ("criterion", "mean", "pass rate", *_COUNTS, "target")
_SHORT = {"skipped": "skip", "failed": "fail"}
_LOWEST = 5

Targets = Callable[[CriterionTotals | None], list[tuple[str, bool]]]
"""The targets of a criterion, or (None) of the overall scores, and whether each is met."""


class TableReport(Report):
    """A row for each criterion; narrow terminals get fewer columns, never broken ones.

    Args:
        file: A terminal, a pipe or a file.
        width: Columns; the terminal's, or 80 (`COLUMNS`) where there is none, when left out.
    """

    def __init__(self, file: IO[str], *, width: int | None = None) -> None:
        super().__init__(file)
        self.console = Console(file=file, width=width, highlight=False, emoji=False)

    def finish(self, summary: Summary) -> None:
        console, totals = self.console, summary.totals
        title = f"{count_of(totals.inputs, 'input')} from {', '.join(summary.sources)} "
        title += f"in {duration_of(summary.duration_s)}"
        console.print(Text(printable(title), style="bold"))
        console.print()
        console.print(criteria_table(totals, summary.targets_of, width=console.width, glyphs=glyphs_of(console)))
        for heading, lines in _notes(totals):
            console.print()
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(no_wrap=True, style="dim", min_width=8)
            for cells in lines:
                while len(grid.columns) <= len(cells):
                    grid.add_column(overflow="fold")
                grid.add_row(heading, *(Text(printable(cell)) for cell in cells))
                heading = ""
            console.print(grid)
        console.print()
        legend = "In brackets: 95 % intervals. Means leave out failed and skipped results."
        if summary.has_targets:
            legend += " A target in % applies to the pass rate, a plain number to the mean."
        console.print(Text(legend, style="dim"))


def criteria_table(
    totals: Totals,
    targets_of: Targets,
    *,
    width: int,
    glyphs: Glyphs,
    columns: Sequence[str] = _COLUMNS,
    trends: Mapping[str, str] | None = None,
) -> Table:
    """The table.

    Args:
        totals: What it shows.
        targets_of: The targets of a criterion.
        width: Columns of the terminal; narrow tables leave columns out.
        glyphs: Signs to use.
        columns: Those to show where there is room.
        trends: The text of the column ``trend``, by criterion.
    """
    hidden = {"scored"} if width < _NARROW else set()
    if width < _MIDDLE:
        hidden.add("skipped")
    if not any(map(targets_of, (None, *totals.criteria))):
        hidden.add("target")
    columns = [name for name in columns if name not in hidden]
    table = Table(box=None, padding=(0, 2 if width >= _NARROW else 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        shown = name if width >= _WIDE else _SHORT.get(name, name)
        if name == "criterion":
            table.add_column(shown, overflow="fold", min_width=12)
        else:
            table.add_column(shown, no_wrap=True, justify="right" if name in _COUNTS else "left")
    rows = [_row(criterion, targets_of(criterion), width, glyphs) for criterion in totals.criteria]
    for row, criterion in zip(rows, totals.criteria, strict=True):
        row["trend"] = Text((trends or {}).get(criterion.name, ""), style="cyan")
    overall = totals.overall
    if "mean" in columns:
        rows.append({
            "criterion": Text("overall score", style="bold"),
            "mean": _mean(overall, width, glyphs),
            "scored": Text(f"{0 if overall is None else overall.scores:,}"),
            "target": _targets(targets_of(None), glyphs),
        })  # fmt: skip
    for row in rows:
        table.add_row(*(row.get(name, Text()) for name in columns))
    return table


def _row(criterion: CriterionTotals, targets: list[tuple[str, bool]], width: int, glyphs: Glyphs) -> dict[str, Text]:
    missed = any(not met for _, met in targets)
    rate = criterion.pass_rate and with_interval(criterion.pass_rate, glyphs.dash, rate=True)
    return {
        "criterion": Text(printable(criterion.name), style="bold red" if missed else ""),
        "mean": _mean(criterion.mean, width, glyphs),
        "pass rate": _estimate(rate, glyphs, interval=width >= _NARROW, align=5),
        "scored": Text(f"{criterion.scored:,}"),
        "skipped": Text(f"{criterion.skipped:,}"),
        "failed": Text(f"{criterion.failed:,}", style="red" if criterion.failed else ""),
        "target": _targets(targets, glyphs),
    }


def _mean(estimate: Estimate | None, width: int, glyphs: Glyphs) -> Text:
    return _estimate(estimate and with_interval(estimate, glyphs.dash), glyphs, interval=width >= _MIDDLE)


def _estimate(words: str | None, glyphs: Glyphs, *, interval: bool, align: int = 0) -> Text:
    """The figure, followed by its dimmed interval."""
    figure, bracket, rest = (words or glyphs.dash).partition(" (")
    cell = Text(figure.rjust(align), style="" if words else "dim")
    return cell.append(bracket + rest, style="dim") if interval else cell


def _targets(targets: list[tuple[str, bool]], glyphs: Glyphs) -> Text:
    shown = Text()
    for index, (words, met) in enumerate(targets):
        shown.append(("\n" if index else "") + words + " ")
        shown.append(glyphs.good if met else glyphs.bad, style="green" if met else "bold red")
    return shown


def _notes(totals: Totals) -> Iterator[tuple[str, list[list[str]]]]:
    """The notes below the table: a heading, and rows of cells."""
    criteria = totals.criteria
    without_figures = [item for item in criteria if item.labels and item.mean is None and item.pass_rate is None]
    yield from (
        (heading, lines)
        for heading, lines in (
            ("Labels", [[item.name, frequencies(item.labels)] for item in without_figures]),
            ("Failed", [[item.name, frequencies(item.errors)] for item in criteria if item.failed]),
            ("Skipped", [[item.name, frequencies(item.skips)] for item in criteria if item.skipped]),
            ("Lowest", [[low.place, f"{low.overall_score:.2f}", ", ".join(low.criteria)]
                        for low in totals.lowest if low.criteria][:_LOWEST]),
        )
        if lines
    )  # fmt: skip
