"""How measurements are run and shown: one process for each (subject, phase), rounds that take turns, one table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Bench", "Figure", "Numbers", "Phase", "child_main", "measure", "show", "standalone"]

Numbers = dict[str, float]
"""What one process found, by name."""
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Phase:
    """One measurement of one subject: runs in a process of its own and gives numbers."""

    name: str
    subject: str
    run: Callable[[bool], Numbers]

    @property
    def key(self) -> str:
        """What names it on the command line of its process."""
        return f"{self.name}:{self.subject}"


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        case: What is measured.
        unit: Unit of every value in the line.
        values: By subject: ``ours``, ``raw`` (an OpenTelemetry span, or what stands in the same place), ``rival``.
        goal: What ours should hold, in words; empty where the figure is only reported.
        met: Whether it does; None where there is no goal.
    """

    case: str
    unit: str
    values: dict[str, float | None]
    goal: str = ""
    met: bool | None = None

    def ratio(self, subject: str) -> float | None:
        """How many times ours another subject's value is."""
        ours, other = self.values.get("ours"), self.values.get(subject)
        return other / ours if ours and other is not None else None


@dataclass(frozen=True)
class Bench:
    """A benchmark: its phases, and how their medians become lines of the table."""

    name: str
    title: str
    phases: Sequence[Phase]
    figures: Callable[[dict[str, Numbers]], list[Figure]]
    rounds: int = 3
    notes: Sequence[str] = field(default_factory=tuple)


def measure(bench: Bench, *, quick: bool) -> dict[str, Numbers]:
    """Run every phase in turn, round after round; the median of each number by ``phase:subject``."""
    found: dict[str, list[Numbers]] = {phase.key: [] for phase in bench.phases}
    rounds = 1 if quick else bench.rounds
    total, done = rounds * len(bench.phases), 0
    for _ in range(rounds):
        for phase in bench.phases:
            done += 1
            _progress(f"{bench.name} {done}/{total} {phase.key}")
            found[phase.key].append(_in_process(bench.name, phase.key, quick=quick))
    _progress("")
    return {key: _medians(rows) for key, rows in found.items()}


def child_main(bench: Bench, arguments: Sequence[str]) -> bool:
    """Where this process was started for one phase, run it, print its numbers as JSON and return True."""
    if "--child" not in arguments:
        return False
    key = arguments[arguments.index("--child") + 1]
    phase = next(phase for phase in bench.phases if phase.key == key)
    print(json.dumps(phase.run("--quick" in arguments)), flush=True)
    # Exit handlers (providers that flush, rivals' threads) are none of the measurement.
    os._exit(0)


def standalone(bench: Bench) -> None:
    """`python -m benchmarks.<name> [--quick]`: this benchmark alone."""
    if not child_main(bench, sys.argv[1:]):
        figures = bench.figures(measure(bench, quick="--quick" in sys.argv[1:]))
        print(show([(bench, figures)]))


def show(parts: Sequence[tuple[Bench, Sequence[Figure]]]) -> str:
    """The table, as GitHub's Markdown that reads well in a terminal too."""
    header = ["case", "unit", "ours", "raw", "raw / ours", "pydantic-evals", "theirs / ours", "goal", ""]
    rows: list[list[str]] = []
    for bench, figures in parts:
        rows.append([f"**{bench.title}**", *[""] * 8])
        rows.extend(_row(figure) for figure in figures)
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [_line(header, widths), "| " + " | ".join("-" * width for width in widths) + " |"]
    lines += [_line(row, widths) for row in rows]
    notes = [f"- {note}" for bench, _ in parts for note in bench.notes]
    return "\n".join([*lines, "", *notes])


def as_json(bench: Bench, figures: Sequence[Figure], raw: dict[str, Numbers]) -> dict[str, Any]:
    """Figures and the medians they came from, for a file."""
    return {"title": bench.title, "figures": [asdict(figure) for figure in figures], "medians": raw}


def _row(figure: Figure) -> list[str]:
    ours, raw, rival = (_number(figure.values.get(subject)) for subject in ("ours", "raw", "rival"))
    verdict = "" if figure.met is None else "met" if figure.met else "MISSED"
    return [
        figure.case, figure.unit, ours, raw, _times(figure.ratio("raw")), rival, _times(figure.ratio("rival")),
        figure.goal, verdict,
    ]  # fmt: skip


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None or ratio < 0 else f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"


def _in_process(module: str, key: str, *, quick: bool) -> Numbers:
    command = [sys.executable, "-m", f"benchmarks.{module}", "--child", key, *(["--quick"] if quick else [])]
    ours = ("OTEL_", "AGENTEVAL_", "LOGFIRE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{key} failed with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    numbers: Numbers = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def _medians(rows: Sequence[Numbers]) -> Numbers:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


_began = time.monotonic()


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(f"[{time.monotonic() - _began:4.0f} s] {text}", file=sys.stderr, flush=True)
