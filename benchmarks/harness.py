"""How measurements are run: one process for each (subject, phase), rounds that take turns, medians."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.goals import Goal

__all__ = [
    "ROOT", "Bench", "Figure", "Numbers", "Phase", "PhaseFailed", "Size", "child_main", "clean_environment", "measure",
    "numbers_of", "progress", "standalone",
]  # fmt: skip

Numbers = dict[str, float]
"""What one process found, by name."""
ROOT = Path(__file__).resolve().parent.parent
_LIMIT_S = 1_500


class PhaseFailed(Exception):
    """The process of a phase ended without numbers."""


@dataclass(frozen=True)
class Size:
    """How much is measured: ``quick`` only shows that it runs, ``full`` takes minutes where a
    benchmark has that.
    """

    name: Literal["quick", "usual", "full"] = "usual"

    def of(self, quick: int, usual: int, full: int | None = None) -> int:
        """The number that belongs to this size."""
        return (
            quick
            if self.name == "quick"
            else usual
            if self.name == "usual" or full is None
            else full
        )


@dataclass(frozen=True)
class Phase:
    """One measurement of one subject: runs in a process of its own and gives numbers."""

    name: str
    subject: str
    run: Callable[[Size], Numbers]

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
        values: By subject: ``ours``, ``raw`` (an OpenTelemetry span, or what stands in the same
            place), ``rival``.
        goal: What ours should hold; None where the figure is only reported.
    """

    case: str
    unit: str
    values: dict[str, float | None]
    goal: Goal | None = None

    def ratio(self, subject: str) -> float | None:
        """How many times ours another subject's value is."""
        ours, other = self.values.get("ours"), self.values.get(subject)
        return other / ours if ours and other is not None else None


@dataclass(frozen=True)
class Bench:
    """A benchmark: its phases, how their medians become lines of the table, or a table of its own."""

    name: str
    title: str
    phases: Sequence[Phase]
    figures: Callable[[dict[str, Numbers]], list[Figure]]
    rounds: int = 1
    notes: Sequence[str] = field(default_factory=tuple)
    table: Callable[[dict[str, Numbers]], str] | None = None


def measure(bench: Bench, size: Size, *, rounds: int | None = None) -> dict[str, Numbers]:
    """Run every phase in turn, round after round; the median of each number by ``phase:subject``.

    Raises:
        PhaseFailed: A phase gave no numbers.
    """
    found: dict[str, list[Numbers]] = {phase.key: [] for phase in bench.phases}
    rounds = rounds or (1 if size.name == "quick" else bench.rounds)
    total, done = rounds * len(bench.phases), 0
    for _ in range(rounds):
        for phase in bench.phases:
            done += 1
            progress(f"{bench.name} {done}/{total} {phase.key}")
            found[phase.key].append(_in_process(bench.name, phase.key, size))
    progress("")
    return {key: _medians(rows) for key, rows in found.items()}


def child_main(bench: Bench, arguments: Sequence[str]) -> bool:
    """Where this process was started for one phase, run it, print its numbers as JSON and return
    True.
    """
    if "--child" not in arguments:
        return False
    at = arguments.index("--child") + 1
    phase = next(phase for phase in bench.phases if phase.key == arguments[at])
    size: Any = arguments[at + 1]
    print(json.dumps(phase.run(Size(size))), flush=True)
    # Exit handlers (providers that flush, rivals' threads) are none of the measurement. Child
    # processes end by themselves when their pipes close; the parent sees to the rest of the group.
    os._exit(0)


def clean_environment() -> dict[str, str]:
    """The environment without what would configure anybody."""
    ours = ("OTEL_", "AGENTEVAL_", "LOGFIRE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _in_process(module: str, key: str, size: Size) -> Numbers:
    return numbers_of(
        [sys.executable, "-m", f"benchmarks.{module}", "--child", key, size.name], key
    )


def numbers_of(command: Sequence[str], key: str) -> Numbers:
    """Run a process that prints its numbers as JSON; what it leaves behind ends with it.

    Raises:
        PhaseFailed: It gave none.
    """
    # Files, not pipes: what a phase leaves behind may hold a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(),
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise PhaseFailed(f"{key} has not ended after {_LIMIT_S} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                # a session of its own: nobody else's processes
                os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        err.seek(0)
        text, complaint = out.read(), err.read()
    if process.returncode != 0:
        raise PhaseFailed(f"{key} ended with exit code {process.returncode}:\n{complaint[-4000:]}")
    numbers: Numbers = json.loads(text.strip().splitlines()[-1])
    return numbers


def _medians(rows: Sequence[Numbers]) -> Numbers:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


_began = time.monotonic()


def progress(text: str) -> None:
    """Say on stderr what runs."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(f"[{time.monotonic() - _began:4.0f} s] {text}", file=sys.stderr, flush=True)


def standalone(bench: Bench) -> None:
    """`python -m benchmarks.<name> --child <phase> <size>`: what the processes of a measurement
    run.
    """
    if not child_main(bench, sys.argv[1:]):
        raise SystemExit(f"run it with: python -m benchmarks {bench.name}")
