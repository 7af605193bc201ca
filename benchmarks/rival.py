"""Where pydantic-evals fails its users, and what ours does there: each case run with both, side by
side.

Facts, no adjectives; a row says which of the two did better, whichever it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import ROOT, PhaseFailed, clean_environment
from benchmarks.tables import render

__all__ = ["Fact", "as_json", "compare", "show"]

_PATIENCE_S = 10.0
_WORDS = {
    "blocked_loop": "an evaluator of 500 ms CPU work, async handler",
    "hung_judges": "ten judges hang, then 990 calls",
    "hung_at_exit": "a judge hangs, sync handler, the program ends",
    "end_of_run": "5 calls pending when `asyncio.run` ends",
    "loop_closed": "1 call pending when its loop is closed",
    "broken_sampler": "the user's sampler raises",
    "leaking_error": "an evaluator's error quotes the answer",
    "generators": "handlers that stream",
}
_PENDING = {"end_of_run": 5, "loop_closed": 1}
_ENDING = ("hung_at_exit", *_PENDING)
"""Cases whose process is watched to its end."""
_MORE_IS_BETTER = ("scored", "known")


class Fact(NamedTuple):
    """One row: what happened with ours and with the rival, and who did better."""

    case: str
    fact: str
    ours: Any
    rival: Any
    better: str


def compare() -> list[Fact]:
    """Run every case with both; about a minute and a half."""
    facts: list[Fact] = []
    for name, words in _WORDS.items():
        print(f"rival: {name}", file=sys.stderr, flush=True)
        try:
            ours, rivals = _run(name, "ours"), _run(name, "rival")
        except PhaseFailed as error:  # the others are worth having
            facts.append(Fact(words, f"NOT MEASURED: {error}", None, None, ""))
            continue
        facts += [
            Fact(
                words,
                fact,
                ours[fact],
                rivals.get(fact),
                _better(fact, ours[fact], rivals.get(fact)),
            )
            for fact in ours
        ]
    return facts


def show(facts: list[Fact]) -> str:
    """The table."""
    header = ["case", "what happened", "ours", "pydantic-evals", "better"]
    rows, before = [], ""
    for fact in facts:
        rows.append(
            [
                "" if fact.case == before else fact.case,
                fact.fact,
                f"{fact.ours}",
                f"{fact.rival}",
                fact.better,
            ]
        )
        before = fact.case
    notes = (
        "- Each case is a process of its own with defaults on both sides; a process that has not ended after "
        f"{_PATIENCE_S:g} s is killed and shown as such.\n"
        '- "Fate known": evaluated, failed, or counted as not evaluated, under evaluation or logged.'
    )
    return f"Where pydantic-evals fails its users, and ours\n\n{render(header, rows)}\n\n{notes}"


def as_json(facts: list[Fact]) -> list[dict[str, Any]]:
    """For a file."""
    return [fact._asdict() for fact in facts]


def _run(name: str, subject: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.rival_cases", name, subject, folder]
        with tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            line = process.stdout.readline()
            ended = _seconds_to_end(process, _PATIENCE_S if name in _ENDING else 0.0)
            process.stdout.close()
            if not line:
                err.seek(0)
                raise PhaseFailed(f"{name} with {subject}: {err.read()[-300:]}")
        facts: dict[str, Any] = json.loads(line)
        marks = Path(folder, "scored")
        if name in _PENDING:
            facts[f"of {_PENDING[name]}: scored"] = marks.stat().st_size if marks.exists() else 0
    if name == "hung_at_exit":
        facts["seconds until the process has ended"] = (
            round(ended, 1) if ended is not None else f"still there after {_PATIENCE_S:g}"
        )
    return facts


def _seconds_to_end(process: subprocess.Popen[str], patience_s: float) -> float | None:
    began = time.monotonic()
    ended = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
        ended = time.monotonic() - began
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return ended


def _better(fact: str, ours: Any, rival: Any) -> str:
    if ours == rival:
        return "same"
    if fact.endswith("evaluator gets"):
        return "ours" if str(ours).startswith("'") else "rival"
    if isinstance(rival, str) or rival is None:
        return "ours"
    if isinstance(ours, str):
        return "rival"
    more_is_better = any(word in fact for word in _MORE_IS_BETTER)
    return "ours" if (ours > rival) == more_is_better else "rival"
