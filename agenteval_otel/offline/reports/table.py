"""The table of the criteria, for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.reports.figures import BAD, DASH, GOOD, with_interval
from agenteval_otel.offline.reports.totals import TargetOutcome, Totals
from agenteval_otel.runtime.masking import printable

_WIDE = 76
_COUNTS = ("scored", "skip", "fail")
_COLUMNS = ("criterion", "mean", "pass rate", *_COUNTS, "target")
_LOWEST = 5
_NAME = 8
_LEAST_FOLDED = 30  # a folded column reads well down to here
_LEAST_NAME = 16  # so does a name
_LEAST_LINE = 12


def console_for(file: IO[str], *, width: int | None = None, colour: bool | None = None) -> Console:
    """Return a console that prints texts as they are.

    It is in colour if the file is a terminal, or on request.
    """
    return Console(
        file=file, width=width, force_terminal=colour, highlight=False, emoji=False, markup=False
    )


def tables_of(
    heading: str, totals: Totals, targets: Sequence[TargetOutcome] = (), *, width: int
) -> Iterator[RenderableType]:
    """Yield the parts of a report on a terminal.

    They are the heading, the table of the criteria, why results failed or were skipped, the
    lowest inputs, and a legend.
    """
    yield Text(printable(heading), style="bold")
    yield ""
    yield fitting(criteria_table(totals, targets, width=width))
    lowest: list[tuple[str, ...]] = []
    for low in totals.lowest:
        if low.criteria:
            lowest.append((low.place, f"{low.overall_score:.2f}", ", ".join(low.criteria)))
    for name, rows in (*totals.notes(), ("Lowest", lowest[:_LOWEST])):
        if name == "Failed":
            rows = list(totals.failures())
        if rows:
            yield ""
            yield named_grid(name, rows)
    legend = "In brackets: 95 % intervals. Means leave out failed and skipped results."
    if targets:
        legend += " A target in % applies to the pass rate, a plain number to the mean."
    yield ""
    yield Text(legend, style="dim")


def criteria_table(
    totals: Totals,
    targets: Sequence[TargetOutcome],
    *,
    width: int,
    columns: Sequence[str] = _COLUMNS,
    trends: Mapping[str, str] | None = None,
) -> Table:
    """Return the table.

    Below 76 columns (`width`) it has no intervals, skips and scored. `trends` is the column
    ``trend``.
    """
    wide = width >= _WIDE
    hidden: set[str] = set()
    if not wide:
        hidden |= {"scored", "skip"}
    if not targets:
        hidden.add("target")
    shown = [name for name in columns if name not in hidden]
    padding = (0, 2 if wide else 1, 0, 0)
    table = Table(box=None, padding=padding, pad_edge=False, header_style="dim")
    for name in shown:
        if name == "criterion":
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, no_wrap=True, justify="right" if name in _COUNTS else "left")
    for item in totals.criteria:
        missed = any(not target.met for target in targets if target.criterion == item.name)
        name_style = "bold red" if missed else ""
        failed_style = "red" if item.failed else ""
        trend = (trends or {}).get(item.name, "")
        row: dict[str, Text | str] = {
            "criterion": Text(printable(item.name), style=name_style),
            "mean": _estimate(item.mean, wide),
            "pass rate": _estimate(item.pass_rate, wide, rate=True),
            "scored": f"{item.scored:,}",
            "skip": f"{item.skipped:,}",
            "fail": Text(f"{item.failed:,}", style=failed_style),
            "target": _targets(targets, item.name),
            "trend": Text(trend, style="cyan"),
        }
        table.add_row(*(row[name] for name in shown))
    if "mean" in shown:
        overall = totals.overall
        scores = overall.scores if overall else 0
        row = {
            "criterion": Text("overall score", style="bold"),
            "mean": _estimate(overall, wide),
            "scored": f"{scores:,}",
            "target": _targets(targets, None),
        }
        table.add_row(*(row.get(name, "") for name in shown))
    return table


def _estimate(estimate: Estimate | None, wide: bool, *, rate: bool = False) -> Text:
    width = 5 if rate else 0
    if estimate is None:
        return Text(DASH.rjust(width), style="dim")
    figure, bracket, interval = with_interval(estimate, rate=rate).partition(" (")
    text = Text(figure.rjust(width))
    return text.append(bracket + interval if wide else "", style="dim")


def _targets(targets: Sequence[TargetOutcome], criterion: str | None) -> Text:
    own: list[Text] = []
    for item in targets:
        if item.criterion == criterion:
            sign = (GOOD, "green") if item.met else (BAD, "bold red")
            own.append(Text.assemble(f"{item.shown} ", sign))
    return Text("\n").join(own)


def fitting(table: Table) -> RenderableType:
    """Return the table for any width of the terminal. Its cells and headers are texts."""
    return _FittingTable(table)


class _FittingTable:
    """Shows a table for any width.

    If it would be cut or become ribbons, a row's figures stand under its first cell.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._fits(options.max_width):
            yield self._table
            return
        columns = self._table.columns
        names = [_plain(column.header) for column in columns]
        rows = zip(*[column.cells for column in columns], strict=True)
        for first, *cells in rows:
            yield first if isinstance(first, Text) else Text(str(first))
            shown: list[str] = []
            for name, cell in zip(names[1:], cells, strict=True):
                text = _plain(cell)
                if text:
                    shown.append(f"{name} {text}")
            for line in _wrapped_cells(shown, max(_LEAST_LINE, options.max_width - 2)):
                yield Text(f"  {line}")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _fits(self, width: int) -> bool:
        """Tell whether only the columns that may be folded are, to a width that reads well."""
        needed = 0
        for column in self._table.columns:
            lines = _plain(column.header).split("\n")
            for cell in column.cells:
                lines += _plain(cell).split("\n")
            widest = max(map(cell_len, lines))
            needed += widest if column.no_wrap else min(widest, _LEAST_NAME)
        padding = self._table.padding[1] + self._table.padding[3]
        return needed + padding * (len(self._table.columns) - 1) <= width


def _plain(cell: RenderableType) -> str:
    return cell.plain.strip() if isinstance(cell, Text) else str(cell).strip()


def named_grid(name: str, rows: Sequence[Sequence[str]]) -> RenderableType:
    """Return rows of texts as `grid_of` does, with the name before the first one."""
    names = [name, *[""] * (len(rows) - 1)]
    return grid_of([first, *texts] for first, texts in zip(names, rows, strict=True))


def grid_of(rows: Iterable[Sequence[str]], style: str = "") -> RenderableType:
    """Return rows of a short name and texts, for any width of the terminal."""
    return _Grid([[printable(cell) for cell in row] for row in rows], style)


class _Grid:
    """Shows rows in columns.

    If a column would become a ribbon, a row's texts stand under its name.
    """

    def __init__(self, rows: Sequence[Sequence[str]], style: str) -> None:
        self._rows = rows
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._fits(options.max_width):
            yield self._table()
        else:
            yield from self._lines(options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _fits(self, width: int) -> bool:
        """Tell whether only the widest column has to be folded, to a width that reads well."""
        columns = max(map(len, self._rows), default=0)
        widths = [0] * columns
        for row in self._rows:
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], cell_len(cell))
        widest = max(widths, default=0)
        folded = min(widest, _LEAST_FOLDED)
        return sum(widths) - widest + folded + 2 * (columns - 1) <= width

    def _table(self) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=self._style or "dim", min_width=_NAME)
        for row in self._rows:
            while len(grid.columns) < len(row):
                grid.add_column(overflow="fold", style=self._style)
            grid.add_row(*map(Text, row))
        return grid

    def _lines(self, width: int) -> Iterator[Text]:
        names = [cell_len(row[0]) for row in self._rows if row]
        beside = max([_NAME, *names]) + 2
        if beside > width // 3:
            beside = 2  # the names stand on lines of their own
        for name, *cells in self._rows:
            if cell_len(name) + 2 > beside:
                yield Text(name, style=self._style or "dim", overflow="fold")
                name = ""
            room = max(_LEAST_LINE, width - beside)
            for line in _wrapped_cells(cells, room):
                begin = Text(name.ljust(beside), style=self._style or "dim")
                yield begin.append(line, style=self._style or "not dim")
                name = ""


def _wrapped_cells(cells: Sequence[str], width: int) -> Iterator[str]:
    """Yield the cells two blanks apart, in lines of this width. All but the first are indented."""
    line = ""
    indent = ""
    for cell in filter(None, cells):
        if line.strip() and cell_len(line) + 2 + cell_len(cell) > width:
            yield line
            indent = "  "
            line = ""
        if line.strip():
            line += f"  {cell}"
            continue
        *whole, line = textwrap.wrap(
            cell, width, initial_indent=indent, subsequent_indent="  ", break_on_hyphens=False
        ) or [""]
        yield from whole
        indent = "  "
    if line.strip():
        yield line
