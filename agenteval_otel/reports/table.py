"""The table of the criteria, for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from agenteval_otel.models.intervals import Estimate
from agenteval_otel.reports.figures import BAD, DASH, GOOD, with_interval
from agenteval_otel.reports.totals import Target, Totals
from agenteval_otel.runtime.masking import printable

_WIDE = 76
_COUNTS = ("scored", "skip", "fail")
_COLUMNS = ("criterion", "mean", "pass rate", *_COUNTS, "target")
_LOWEST = 5


def console_for(file: IO[str], *, width: int | None = None, colour: bool | None = None) -> Console:
    """A console that prints texts as they are; in colour where the file is a terminal, or on
    request.
    """
    return Console(
        file=file, width=width, force_terminal=colour, highlight=False, emoji=False, markup=False
    )


def tables_of(
    heading: str, totals: Totals, targets: Sequence[Target] = (), *, width: int
) -> Iterator[RenderableType]:
    """The heading, the table of the criteria, why results failed or were skipped, the lowest
    inputs, a legend.
    """
    yield Text(printable(heading), style="bold")
    yield ""
    yield criteria_table(totals, targets, width=width)
    lowest: list[tuple[str, ...]] = [
        (low.place, f"{low.overall_score:.2f}", ", ".join(low.criteria))
        for low in totals.lowest
        if low.criteria
    ]
    for name, rows in (*totals.notes(), ("Lowest", lowest[:_LOWEST])):
        if rows:
            yield ""
            yield grid_of((name if row is rows[0] else "", *row) for row in rows)
    legend = "In brackets: 95 % intervals. Means leave out failed and skipped results."
    if targets:
        legend += " A target in % applies to the pass rate, a plain number to the mean."
    yield ""
    yield Text(legend, style="dim")


def criteria_table(
    totals: Totals,
    targets: Sequence[Target],
    *,
    width: int,
    columns: Sequence[str] = _COLUMNS,
    trends: Mapping[str, str] | None = None,
) -> Table:
    """The table; below 76 columns (`width`) without intervals, skips and scored. `trends` is the
    column ``trend``.
    """
    wide = width >= _WIDE
    hidden = {*(() if wide else ("scored", "skip")), *(() if targets else ("target",))}
    shown = [name for name in columns if name not in hidden]
    table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0), pad_edge=False, header_style="dim")
    for name in shown:
        if name == "criterion":
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, no_wrap=True, justify="right" if name in _COUNTS else "left")
    for item in totals.criteria:
        missed = any(not target.met for target in targets if target.criterion == item.name)
        row: dict[str, Text | str] = {
            "criterion": Text(printable(item.name), style="bold red" if missed else ""),
            "mean": _estimate(item.mean, wide),
            "pass rate": _estimate(item.pass_rate, wide, rate=True),
            "scored": f"{item.scored:,}",
            "skip": f"{item.skipped:,}",
            "fail": Text(f"{item.failed:,}", style="red" if item.failed else ""),
            "target": _targets(targets, item.name),
            "trend": Text((trends or {}).get(item.name, ""), style="cyan"),
        }
        table.add_row(*(row[name] for name in shown))
    if "mean" in shown:
        overall = totals.overall
        row = {
            "criterion": Text("overall score", style="bold"),
            "mean": _estimate(overall, wide),
            "scored": f"{overall.scores if overall else 0:,}",
            "target": _targets(targets, None),
        }
        table.add_row(*(row.get(name, "") for name in shown))
    return table


def _estimate(estimate: Estimate | None, wide: bool, *, rate: bool = False) -> Text:
    if estimate is None:
        return Text(DASH.rjust(5 if rate else 0), style="dim")
    figure, bracket, interval = with_interval(estimate, rate=rate).partition(" (")
    return Text(figure.rjust(5 if rate else 0)).append(
        bracket + interval if wide else "", style="dim"
    )


def _targets(targets: Sequence[Target], criterion: str | None) -> Text:
    signs = {True: (GOOD, "green"), False: (BAD, "bold red")}
    own = [
        Text.assemble(f"{item.shown} ", signs[item.met])
        for item in targets
        if item.criterion == criterion
    ]
    return Text("\n").join(own)


def grid_of(rows: Iterable[Sequence[str]], style: str = "") -> Table:
    """Rows of a short name and texts, which are folded where the terminal is narrow."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style=style or "dim", min_width=8)
    for row in rows:
        while len(grid.columns) < len(row):
            grid.add_column(overflow="fold", style=style)
        grid.add_row(*(Text(printable(cell)) for cell in row))
    return grid
