"""The tables: GitHub's Markdown that reads well in a terminal too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness import Bench, Figure, Numbers

__all__ = ["as_json", "legend", "render", "show", "summary"]

_SAME = "the same"
_HEADER = ["case", "unit", "ours", "raw", "raw x", "rival", "rival x", "goal", ""]


def show(parts: Sequence[tuple[Bench, Sequence[Figure]]]) -> str:
    """All figures in one table, the benchmarks' notes under it."""
    rows: list[list[str]] = []
    for bench, figures in parts:
        if figures:
            rows.append([f"**{bench.title}**", *[""] * (len(_HEADER) - 1)])
        rows.extend(_row(figure) for figure in figures)
    notes = [f"- {note}" for bench, figures in parts for note in bench.notes if figures]
    return "\n".join([render(_HEADER, rows), "", *notes])


def legend() -> str:
    """What the columns mean."""
    return (
        "- raw: an OpenTelemetry span, or what the section's note names; rival: pydantic-evals.\n"
        "- raw x, rival x: how many times ours theirs is."
    )


def summary(parts: Sequence[tuple[Bench, Sequence[Figure]]]) -> str:
    """How many goals are met, and which are not."""
    goals = [
        (_in_full(figure, figures), figure, figure.goal)
        for _, figures in parts
        for figure in figures
        if figure.goal is not None
    ]
    missed = [
        f"- {case}: {_number(figure.values.get('ours'))} {figure.unit} (goal {goal.words})"
        for case, figure, goal in goals
        if not goal.met
    ]
    return "\n".join([f"{len(goals) - len(missed)} of {len(goals)} goals met.", *missed])


def as_json(bench: Bench, figures: Sequence[Figure], raw: dict[str, Numbers]) -> dict[str, Any]:
    """Figures and the medians they came from, for a file."""
    return {"title": bench.title, "figures": [asdict(figure) for figure in figures], "medians": raw}


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One table, its columns aligned."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [_line(header, widths), "| " + " | ".join("-" * width for width in widths) + " |"]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _row(figure: Figure) -> list[str]:
    ours, raw, rival = (_number(figure.values.get(subject)) for subject in ("ours", "raw", "rival"))
    goal = figure.goal
    return [
        figure.case,
        figure.unit,
        ours,
        raw,
        _times(figure.ratio("raw")),
        rival,
        _times(figure.ratio("rival")),
        goal.words if goal else "",
        _verdict(goal.met) if goal else "",
    ]


def _in_full(figure: Figure, figures: Sequence[Figure]) -> str:
    """The case of a figure, with what "the same" stands for."""
    if not figure.case.startswith(_SAME):
        return figure.case
    before = figures[: [each is figure for each in figures].index(True)]
    named = next(each.case for each in reversed(before) if not each.case.startswith(_SAME))
    return f"{named.partition(':')[0]}{figure.case.removeprefix(_SAME)}"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        + " |"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None or ratio < 0 else f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"
