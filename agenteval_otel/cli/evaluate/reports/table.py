"""The summary for people: a table as wide as the terminal allows, and below it what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.demo.tables import Glyphs, glyphs_of
from agenteval_otel.cli.evaluate.reports.base import Report, Summary
from agenteval_otel.cli.evaluate.tallies import Tallies, Tally
from agenteval_otel.cli.evaluate.words import duration_of, plural, share_of, value_of, words_of
from agenteval_otel.intervals import Estimate
from agenteval_otel.masking import printable

__all__ = ["TableReport"]

_ROOMY, _MIDDLE, _NARROW = 92, 76, 58
_COUNTS = ("scored", "skipped", "failed")
_COLUMNS = ("criterion", "mean", "pass rate", *_COUNTS, "target")
_SHORT = {"skipped": "skip", "failed": "fail"}
_LOWEST = 5


class TableReport(Report):
    """A row for each criterion; narrow terminals get fewer columns, never broken ones.

    Args:
        file: A terminal, a pipe or a file.
        width: Of the lines; the terminal's, or 80 (`COLUMNS`) where there is none, when left out.
    """

    def __init__(self, file: IO[str], *, width: int | None = None) -> None:
        super().__init__(file)
        self.console = Console(file=file, width=width, highlight=False, emoji=False)

    def finish(self, summary: Summary) -> None:
        console, glyphs = self.console, glyphs_of(self.console)
        told = f"{plural(summary.tallies.inputs, 'input')} from {', '.join(summary.sources)} "
        told += f"in {duration_of(summary.duration_s)}"
        console.print(Text(printable(told), style="bold"))
        console.print()
        console.print(_table(summary, console.width, glyphs))
        for title, lines in _notes(summary.tallies):
            console.print()
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(no_wrap=True, style="dim", min_width=8)
            for cells in lines:
                while len(grid.columns) <= len(cells):
                    grid.add_column(overflow="fold")
                grid.add_row(title, *(Text(printable(cell)) for cell in cells))
                title = ""
            console.print(grid)
        console.print()
        words = "In brackets: 95 % intervals. Failures and skips are in no mean."
        if any(map(summary.targets_of, (None, *summary.tallies.criteria))):
            words += " A target in % is for the pass rate, another for the mean."
        console.print(Text(words, style="dim"))


def _table(summary: Summary, width: int, glyphs: Glyphs) -> Table:
    left_out = {"scored"} if width < _NARROW else set()
    if width < _MIDDLE:
        left_out.add("skipped")
    if not any(map(summary.targets_of, (None, *summary.tallies.criteria))):
        left_out.add("target")
    columns = [name for name in _COLUMNS if name not in left_out]
    table = Table(box=None, padding=(0, 2 if width >= _NARROW else 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        shown = name if width >= _ROOMY else _SHORT.get(name, name)
        if name == "criterion":
            table.add_column(shown, overflow="fold", min_width=12)
        else:
            table.add_column(shown, no_wrap=True, justify="right" if name in _COUNTS else "left")
    overall = summary.tallies.overall
    last = {
        "criterion": Text("overall score", style="bold"),
        "mean": _mean(overall, width, glyphs),
        "scored": Text(f"{0 if overall is None else overall.scores:,}"),
        "target": _targets(summary, None, glyphs),
    }
    for row in (*(_row(summary, tally, width, glyphs) for tally in summary.tallies.criteria), last):
        table.add_row(*(row.get(name, Text()) for name in columns))
    return table


def _row(summary: Summary, tally: Tally, width: int, glyphs: Glyphs) -> dict[str, Text]:
    fallen = any(not met for _, met in summary.targets_of(tally))
    return {
        "criterion": Text(printable(tally.name), style="bold red" if fallen else ""),
        "mean": _mean(tally.mean, width, glyphs),
        "pass rate": _rate(tally.pass_rate, width, glyphs),
        "scored": Text(f"{tally.scored:,}"),
        "skipped": Text(f"{tally.skipped:,}"),
        "failed": Text(f"{tally.failed:,}", style="red" if tally.failed else ""),
        "target": _targets(summary, tally, glyphs),
    }


def _mean(estimate: Estimate | None, width: int, glyphs: Glyphs) -> Text:
    return _estimate(estimate and value_of(estimate, glyphs.dash), glyphs, with_interval=width >= _MIDDLE)


def _rate(estimate: Estimate | None, width: int, glyphs: Glyphs) -> Text:
    return _estimate(estimate and share_of(estimate, glyphs.dash), glyphs, with_interval=width >= _NARROW, align=5)


def _estimate(words: str | None, glyphs: Glyphs, *, with_interval: bool, align: int = 0) -> Text:
    """The figure, and behind it, dim, its interval."""
    figure, bracket, interval = (words or glyphs.dash).partition(" (")
    cell = Text(figure.rjust(align), style="" if words else "dim")
    return cell.append(bracket + interval, style="dim") if with_interval else cell


def _targets(summary: Summary, tally: Tally | None, glyphs: Glyphs) -> Text:
    shown = Text()
    for index, (words, met) in enumerate(summary.targets_of(tally)):
        shown.append(("\n" if index else "") + words + " ")
        shown.append(glyphs.good if met else glyphs.bad, style="green" if met else "bold red")
    return shown


def _notes(tallies: Tallies) -> Iterator[tuple[str, list[list[str]]]]:
    """What the table leaves open: a title, and rows of cells."""
    failed = [[tally.name, words_of(tally.errors)] for tally in tallies.criteria if tally.failed]
    skipped = [[tally.name, words_of(tally.skips)] for tally in tallies.criteria if tally.skipped]
    labels = [
        [tally.name, words_of(tally.labels)]
        for tally in tallies.criteria if tally.labels and tally.mean is None and tally.pass_rate is None
    ]  # fmt: skip
    # One that no criterion speaks against has no verdict to show.
    lowest = [[low.place, f"{low.overall_score:.2f}", ", ".join(low.criteria)]
              for low in tallies.lowest if low.criteria][:_LOWEST]  # fmt: skip
    for title, lines in (("Labels", labels), ("Failed", failed), ("Skipped", skipped), ("Lowest", lowest)):
        if lines:
            yield title, lines
