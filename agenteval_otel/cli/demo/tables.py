"""What the live view and the summary have in common: the table of criteria, intervals, trends, the accounting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.demo.changes import Point
from agenteval_otel.cli.demo.ledger import CriterionRecord, Ledger, estimate_of_points
from agenteval_otel.intervals import Estimate

__all__ = ["Glyphs", "Window", "accounting_line", "criteria_table", "glyphs_of", "percent", "shown_bytes"]


class Glyphs(NamedTuple):
    """The signs that not every terminal has."""

    levels: str = "▁▂▃▄▅▆▇█"
    dash: str = "\u2013"
    down: str = "▼"
    arrow: str = "→"
    dot: str = "·"
    bar: str = "━"
    rest: str = "─"
    good: str = "✓"
    bad: str = "✗"


_PLAIN = Glyphs("_.,-~=+#", "-", "v", "->", "|", "=", ".", "ok:", "!!")


def glyphs_of(console: Console) -> Glyphs:
    """Signs that the console's encoding can show."""
    return Glyphs() if console.encoding.lower().startswith("utf") else _PLAIN


class Window(NamedTuple):
    """The latest part of a series: what it is called and how it is cut off."""

    label: str
    cut: Callable[[Sequence[Point]], Sequence[Point]]


class _Layout(NamedTuple):
    """Which columns there is room for."""

    recent: bool
    mean: bool
    scored: bool
    others: bool
    bins: int

    @classmethod
    def of(cls, width: int, *, recent: bool, with_counts: bool) -> _Layout:
        recent = recent and width >= 48
        roomy, wide, middle = width >= 108, width >= 76, width >= 64
        used = 18 + 15 + 15 * recent + (17 if wide or (middle and not recent) else 0) + 8 * with_counts
        return cls(
            recent=recent, mean=wide or (middle and not recent), scored=with_counts, others=with_counts and roomy,
            bins=max(0, min(40, width - used - 18 * (with_counts and roomy))),
        )  # fmt: skip


def criteria_table(
    ledger: Ledger,
    *,
    width: int,
    glyphs: Glyphs,
    window: Window | None = None,
    fallen: Sequence[str] = (),
    with_counts: bool = False,
) -> Table:
    """A row for each criterion: pass rate, mean and, where there is room, trend; with 95 % intervals.

    Args:
        ledger: What was found.
        width: Columns of the terminal; narrow ones get fewer columns of the table, never broken ones.
        glyphs: Signs to use.
        window: The recent part to show beside the whole.
        fallen: Criteria whose rate fell.
        with_counts: Show how many were scored, too, and on wide terminals how many skipped and failed.
    """
    layout = _Layout.of(width, recent=window is not None, with_counts=with_counts)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False)
    for name, shown in (
        ("criterion", True), ("pass rate", True), (window.label if window else "", layout.recent),
        ("mean", layout.mean), ("scored", layout.scored), ("skipped", layout.others), ("failed", layout.others),
        ("trend", layout.bins > 3),
    ):  # fmt: skip
        if shown:
            table.add_column(name, no_wrap=True, justify="right" if name in ("scored", "skipped", "failed") else "left")
    for name, record in list(ledger.criteria.items()):
        table.add_row(*_row(name, record, layout, glyphs, window, fallen=name in fallen))
    return table


def _row(
    name: str, record: CriterionRecord, layout: _Layout, glyphs: Glyphs, window: Window | None, *, fallen: bool
) -> list[Text]:
    points = record.series()
    cells = [Text(name[:16], style="bold red" if fallen else "bold"), _rate(record.passes.estimate(), glyphs)]
    if window is not None and layout.recent:
        recent = estimate_of_points(window.cut(points))
        cells.append(_rate(recent, glyphs, style="bold red" if fallen else ""))
    if layout.mean:
        cells.append(_mean(record.scores.estimate(), glyphs))
    if layout.scored:
        cells.append(Text(f"{record.scored:,}"))
    if layout.others:
        cells += [Text(f"{record.skipped:,}"), Text(f"{record.failed:,}")]
    if layout.bins > 3:
        cells.append(_trend(points, layout.bins, glyphs, fallen=fallen))
    return cells


def percent(share: float) -> str:
    """A share as a whole percentage; only what is all or nothing is shown as 100 or 0."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        rounded = 99
    if rounded == 0 and share > 0:
        rounded = 1
    return f"{rounded} %"


def _rate(estimate: Estimate | None, glyphs: Glyphs, style: str = "") -> Text:
    if estimate is None:
        return Text(glyphs.dash, style="dim")
    low, high = round(100 * estimate.low), round(100 * estimate.high)
    return Text.assemble((f"{percent(estimate.mean):>5}", style), (f" {low:>2}{glyphs.dash}{high:<3}", "dim"))


def _mean(estimate: Estimate | None, glyphs: Glyphs) -> Text:
    if estimate is None:
        return Text(glyphs.dash, style="dim")
    return Text.assemble(f"{estimate.mean:.2f}", (f" {estimate.low:.2f}{glyphs.dash}{estimate.high:.2f}", "dim"))


def _trend(points: Sequence[Point], bins: int, glyphs: Glyphs, *, fallen: bool) -> Text:
    """The pass rate from the first verdict to the last, on the scale from 0 to 1."""
    count = min(bins, len(points) // 3)
    levels = ""
    for index in range(count):
        part = points[index * len(points) // count : (index + 1) * len(points) // count]
        estimate = estimate_of_points(part)
        if estimate is not None:
            levels += glyphs.levels[min(len(glyphs.levels) - 1, int(estimate.mean * len(glyphs.levels)))]
    return Text(levels, style="red" if fallen else "cyan")


def accounting_line(calls: int, outcomes: Mapping[str, int]) -> str:
    """The calls as the sum of what became of them."""
    parts = [f"{count:,} {outcome}" for outcome, count in outcomes.items() if count]
    under_way = calls - sum(outcomes.values())
    if under_way:
        parts.append(f"{under_way:,} under way")
    return f"{calls:,} calls = {' + '.join(parts) or '0'}"


def shown_bytes(number: int) -> str:
    """Bytes in the unit that people would use."""
    if number >= 1024 * 1024:
        return f"{number / 1024 / 1024:.0f} MiB"
    return f"{number / 1024:.0f} KiB" if number >= 1024 else f"{number} B"
