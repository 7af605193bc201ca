"""The command: rounds in which the subjects take turns, each measurement in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Numbers, PhaseFailed, Size, numbers_of, progress
from benchmarks.speed import splunk
from benchmarks.speed.report import as_markdown, as_text
from benchmarks.speed.rows import ROWS

__all__ = ["main"]

_RIVALS = ("pydantic", "splunk")


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write it where a file is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*ROWS],
        metavar="ROW",
        help=f"some of: {', '.join(ROWS)}",
    )
    parser.add_argument(
        "--rivals", action=argparse.BooleanOptionalAction, default=True, help="measure them too"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers: to see that it runs, not to compare"
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write the table there, for docs/performance.md",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every round's numbers there"
    )
    chosen = parser.parse_args(arguments)
    size = Size("quick" if chosen.quick else "usual")
    measured, failed = _measure(chosen.only or [*ROWS], chosen.rounds, size, rivals=chosen.rivals)
    machine = f"Python {platform.python_version()}, {sys.platform}, {os.cpu_count()} cores, {chosen.rounds} rounds"
    print(f"{machine}\n{as_text(measured, failed)}")
    if chosen.markdown:
        chosen.markdown.write_text(
            f"{machine}\n\n{as_markdown(measured, failed)}\n", encoding="utf-8"
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def _measure(
    rows: Sequence[str], rounds: int, size: Size, *, rivals: bool
) -> tuple[dict[str, dict[str, list[Numbers]]], dict[str, str]]:
    """Numbers by row and subject; and why a measurement gave none, by row and subject."""
    measured: dict[str, dict[str, list[Numbers]]] = {row: {} for row in rows}
    failed: dict[str, str] = {}
    tasks = [
        (row, subject)
        for row in rows
        for subject in ROWS[row].subjects
        if rivals or subject not in _RIVALS
    ]
    for number in range(rounds):
        for row, subject in tasks:
            key = f"{row} of {subject}"
            if key in failed:
                continue
            progress(f"speed, round {number + 1} of {rounds}: {key}")
            try:
                python = splunk.python() if subject == "splunk" else sys.executable
                numbers = numbers_of(
                    [python, "-m", "benchmarks.speed", row, subject, size.name], key
                )
            except (PhaseFailed, RuntimeError) as error:  # the others are worth having
                failed[key] = f"{error}"[-500:]
                continue
            measured[row].setdefault(subject, []).append(numbers)
    progress("")
    return measured, failed
