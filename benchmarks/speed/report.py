"""The table: ratios first, then medians with the range of the rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.harness import Numbers
from benchmarks.speed.rows import ROWS, Line
from benchmarks.speed.subjects import TITLES

__all__ = ["Measured", "as_markdown", "as_text"]

Measured = Mapping[str, Mapping[str, Sequence[Numbers]]]
"""What the rounds gave, by row and subject."""
_OTHERS = ("bare", "raw", "late", "splunk", "pydantic")


def as_markdown(measured: Measured, failed: Mapping[str, str]) -> str:
    """For docs/performance.md."""
    header = ["", "goal", "", "ours / others", "ours", *(TITLES[subject] for subject in _OTHERS)]
    lines = [_cells(header), _cells(["---"] * len(header))]
    for name, by_subject in measured.items():
        lines.append(_cells([f"**{ROWS[name].title}**", *[""] * (len(header) - 1)]))
        for line in ROWS[name].lines:
            values = [_figure(by_subject, subject, line) for subject in _OTHERS]
            lines.append(
                _cells(
                    [
                        line.title,
                        line.goal,
                        _verdict(line, by_subject),
                        _ratios(by_subject, line),
                        _figure(by_subject, _ours(line), line),
                        *values,
                    ]
                )
            )
    return "\n".join([*lines, "", *(f"- {note}" for note in _notes(measured, failed))])


def as_text(measured: Measured, failed: Mapping[str, str]) -> str:
    """For a terminal."""
    lines: list[str] = []
    for name, by_subject in measured.items():
        lines.append(f"\n{ROWS[name].title}")
        for line in ROWS[name].lines:
            goal = f"   goal {line.goal}: {_verdict(line, by_subject)}" if line.goal else ""
            lines.append(f"  {line.title}{goal}")
            if ratios := _ratios(by_subject, line):
                lines.append(f"    ours / others: {ratios}")
            values = [
                (TITLES[subject], _figure(by_subject, subject, line))
                for subject in (_ours(line), *_OTHERS)
            ]
            lines.append(
                "    " + "; ".join(f"{title} {figure}" for title, figure in values if figure)
            )
    return "\n".join([*lines, "", *(f"- {note}" for note in _notes(measured, failed))])


def _ours(line: Line) -> str:
    return "ours_thread" if line.title.endswith("ours as a thread") else "ours"


def _notes(measured: Measured, failed: Mapping[str, str]) -> list[str]:
    notes = [
        f"{ROWS[row].title}: {TITLES[subject]} not measured: {why}."
        for row in measured
        for subject, why in ROWS[row].without.items()
    ]
    return notes + [f"NOT MEASURED: {key}: {why}" for key, why in failed.items()]


def _verdict(line: Line, by_subject: Mapping[str, Sequence[Numbers]]) -> str:
    if line.met is None:
        return ""
    asked: list[float] = []

    def values(subject: str, number: str) -> float:
        asked.append(_median(by_subject, subject, number))
        return asked[-1]

    met = line.met(values)
    if any(math.isnan(value) for value in asked):
        return "not measured"
    return "met" if met else "MISSED"


def _ratios(by_subject: Mapping[str, Sequence[Numbers]], line: Line) -> str:
    ours = _median(by_subject, _ours(line), line.number)
    parts = []
    for subject in _OTHERS:
        other = _median(by_subject, subject, line.number)
        if not math.isnan(ours + other) and other > 0:
            parts.append(f"{TITLES[subject]} {ours / other:.2f}")
    return ", ".join(parts)


def _median(by_subject: Mapping[str, Sequence[Numbers]], subject: str, number: str) -> float:
    rounds = by_subject.get(subject, ())
    return statistics.median(row[number] for row in rounds) if rounds else float("nan")


def _figure(by_subject: Mapping[str, Sequence[Numbers]], subject: str, line: Line) -> str:
    rounds = [row[line.number] for row in by_subject.get(subject, ())]
    if not rounds:
        return ""
    median, low, high = _short(statistics.median(rounds)), _short(min(rounds)), _short(max(rounds))
    return median if low == high else f"{median} ({low}-{high})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
