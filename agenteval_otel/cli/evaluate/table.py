"""The table of criteria, as wide as the terminal, and the report that prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.evaluate.reports import Report, heading_of
from agenteval_otel.cli.evaluate.targets import Summary, Target
from agenteval_otel.cli.evaluate.totals import CriterionTotals, Totals
from agenteval_otel.cli.figures import Glyphs, glyphs_of, with_interval
from agenteval_otel.runtime.masking import printable
from agenteval_otel.scoring.intervals import Estimate

_MIDDLE, _NARROW = 76, 58
_COUNTS = ("scored", "skip", "fail")
_COLUMNS = ("criterion", "mean", "pass rate", *_COUNTS, "target")
_LOWEST = 5


class TableReport(Report):
    """A row for each criterion; narrow terminals get fewer columns, never broken ones.

    Without `width`, the table is as wide as the terminal, or 80 columns (`COLUMNS`) in a pipe or file.
    """

    def __init__(self, file: IO[str], *, width: int | None = None) -> None:
        super().__init__(file)
        self.console = Console(file=file, width=width, highlight=False, emoji=False)

    def finish(self, summary: Summary) -> None:
        console, totals = self.console, summary.totals
        console.print(Text(printable(heading_of(summary)), style="bold"))
        console.print()
        console.print(criteria_table(totals, summary.targets, width=console.width, glyphs=glyphs_of(console)))
        lowest: list[tuple[str, ...]] = [
            (low.place, f"{low.overall_score:.2f}", ", ".join(low.criteria)) for low in totals.lowest
        ]
        for heading, rows in (*totals.notes(), ("Lowest", [row for row in lowest if row[-1]][:_LOWEST])):
            if rows:
                console.print()
                console.print(_note(heading, rows))
        console.print()
        legend = "In brackets: 95 % intervals. Means leave out failed and skipped results."
        if summary.targets:
            legend += " A target in % applies to the pass rate, a plain number to the mean."
        console.print(Text(legend, style="dim"))


def criteria_table(
    totals: Totals,
    targets: Sequence[Target],
    *,
    width: int,
    glyphs: Glyphs,
    columns: Sequence[str] = _COLUMNS,
    trends: Mapping[str, str] | None = None,
) -> Table:
    """The table; a terminal of few columns (`width`) gets fewer `columns`. `trends` is the column ``trend``."""
    hidden = {"skip" if width < _MIDDLE else "", "scored" if width < _NARROW else "", "" if targets else "target"}
    table = Table(box=None, padding=(0, 2 if width >= _NARROW else 1, 0, 0), pad_edge=False, header_style="dim")
    shown = [name for name in columns if name not in hidden]
    for name in shown:
        if name == "criterion":
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, no_wrap=True, justify="right" if name in _COUNTS else "left")
    overall = totals.overall
    rows = [_row(criterion, width, glyphs) for criterion in totals.criteria]
    if "mean" in shown:
        count = Text(f"{0 if overall is None else overall.scores:,}")
        rows.append({"criterion": Text("overall score", style="bold"), "mean": _mean(overall, width, glyphs),
                     "scored": count})  # fmt: skip
    for row, key in zip(rows, (*(criterion.name for criterion in totals.criteria), None), strict=False):
        own = [target for target in targets if target.criterion == key]
        row["target"] = Text("\n").join(_target(target, glyphs) for target in own)
        row["trend"] = Text((trends or {}).get(key or "", ""), style="cyan")
        if key is not None and not all(target.met for target in own):
            row["criterion"].stylize("bold red")
        table.add_row(*(row.get(name, Text()) for name in shown))
    return table


def _row(criterion: CriterionTotals, width: int, glyphs: Glyphs) -> dict[str, Text]:
    rate = criterion.pass_rate and with_interval(criterion.pass_rate, glyphs.dash, rate=True)
    return {
        "criterion": Text(printable(criterion.name)),
        "mean": _mean(criterion.mean, width, glyphs),
        "pass rate": _estimate(rate, glyphs, interval=width >= _NARROW, align=5),
        "scored": Text(f"{criterion.scored:,}"),
        "skip": Text(f"{criterion.skipped:,}"),
        "fail": Text(f"{criterion.failed:,}", style="red" if criterion.failed else ""),
    }


def _mean(estimate: Estimate | None, width: int, glyphs: Glyphs) -> Text:
    return _estimate(estimate and with_interval(estimate, glyphs.dash), glyphs, interval=width >= _MIDDLE)


def _estimate(words: str | None, glyphs: Glyphs, *, interval: bool, align: int = 0) -> Text:
    """The figure, followed by its dimmed interval."""
    figure, bracket, rest = (words or glyphs.dash).partition(" (")
    cell = Text(figure.rjust(align), style="" if words else "dim")
    return cell.append(bracket + rest, style="dim") if interval else cell


def _target(target: Target, glyphs: Glyphs) -> Text:
    sign = (glyphs.good, "green") if target.met else (glyphs.bad, "bold red")
    return Text.assemble(f"{target.shown} ", sign)


def _note(heading: str, rows: Sequence[Sequence[str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim", min_width=8)
    for _ in rows[0]:
        grid.add_column(overflow="fold")
    for number, cells in enumerate(rows):
        grid.add_row(heading if number == 0 else "", *(Text(printable(cell)) for cell in cells))
    return grid
