"""What becomes of a hundred sampled calls whose evaluations are pending when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import subjects
from benchmarks.goals import holds
from benchmarks.harness import ROOT, Bench, Figure, Numbers, Phase, Size, clean_environment, standalone
from benchmarks.machine import Machine

__all__ = ["BENCH"]

_CALLS = 100
_PATIENCE_S = 5.0
_UNBOUNDED = 100_000
_WAYS = ("end of main", "exception", "end of asyncio.run", "SIGTERM, asked", "SIGTERM, not asked", "half of them hang")


# --- the program that ends --------------------------------------------------------------------------------------------
def _program(subject: str, way: str, folder: str) -> None:
    """A hundred calls, then the end; what is known of them is in the folder afterwards."""
    mark = str(Path(folder, "evaluated"))
    evaluators = [_judge(mark, way)]
    wrap = (_ours if subject == "ours" else _rivals)(evaluators, folder, way)
    if way == "end of asyncio.run":
        handler = wrap(subjects.answer_async)

        async def serve() -> None:
            await asyncio.gather(*(handler(f"{index}") for index in range(_CALLS)))

        asyncio.run(serve())
        return
    handler = wrap(subjects.answer)
    for index in range(_CALLS):
        handler(f"{index}")
    if way == "exception":
        raise RuntimeError("the program fails")
    if way.startswith("SIGTERM"):
        print("ready", flush=True)
        time.sleep(60)


def _judge(mark: str, way: str) -> Any:
    from agenteval_otel.evaluators import CriterionEvaluator
    from agenteval_otel.models import EvaluationInput, Score
    from benchmarks.evaluators import note

    taken = iter(range(_CALLS + 1))

    class Judge(CriterionEvaluator, type="BenchmarkEndingJudge"):
        criterion_name: str = "judge"

        async def score(self, evaluation_input: EvaluationInput) -> Score:
            if way == "half of them hang" and next(taken) % 2:
                await asyncio.Event().wait()
            await asyncio.sleep(0.02)
            note(mark)
            return Score(value=1.0)

    return Judge()


def _ours(evaluators: list[Any], folder: str, way: str) -> Any:
    import agenteval_otel

    # Registered first, so it runs last: after the package's own handler.
    atexit.register(lambda: Path(folder, "accounting").write_text(json.dumps(agenteval_otel.accounting())))
    asked = {"handle_sigterm": True} if way == "SIGTERM, asked" else {}
    agenteval_otel.configure(evaluators=evaluators, sample_rate=1.0, **asked)
    return agenteval_otel.monitor


def _rivals(evaluators: list[Any], folder: str, way: str) -> Any:
    subject = subjects.Rival(evaluators=[subjects.same_as(each) for each in evaluators], limit=_UNBOUNDED)
    if way == "SIGTERM, asked":
        signal.signal(signal.SIGTERM, lambda *_: (subject.drain(2.0), sys.exit(0)))
    return subject.wrap


# --- and who watches it -----------------------------------------------------------------------------------------------
def _ends(subject: str, way: str, size: Size) -> Numbers:
    """Evaluated, counted as not evaluated, and seconds from its last call to the end of its process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.exits", "--program", subject, way, folder]
        process = subprocess.Popen(
            command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        if way.startswith("SIGTERM"):
            process.stdout.readline()
            process.terminate()
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S + 2)
        took = time.monotonic() - began
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        marks, accounts = Path(folder, "evaluated"), Path(folder, "accounting")
        evaluated = marks.stat().st_size if marks.exists() else 0
        outcomes = json.loads(accounts.read_text()) if accounts.exists() else {}
    counted = sum(outcomes.values())
    return {
        "evaluated": float(outcomes.get("evaluated", evaluated)), "scored": float(evaluated),
        "counted": float(counted) if outcomes else float(evaluated), "s": took,
    }  # fmt: skip


_PHASES = tuple(
    Phase(way, subject, partial(_ends, subject, way)) for way in _WAYS for subject in ("ours", "rival")
)  # fmt: skip


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    lines: list[Figure] = []
    for way in _WAYS:
        kept = _pair(found, way, "evaluated")
        goal = None
        if way == "half of them hang":
            goal = holds(f"{_CALLS // 2}", kept["ours"] == _CALLS / 2)
        elif way != "SIGTERM, not asked":
            goal = holds("all", kept["ours"] == _CALLS)
        lines.append(Figure(f"pending at {way}: evaluated" if goal and goal.words == "all" else f"{way}: evaluated",
                            f"of {_CALLS}", kept, goal))  # fmt: skip
        counted = _pair(found, way, "counted")
        if way == "half of them hang":
            lines.append(Figure("the same: evaluated + counted as dropped", f"of {_CALLS}", counted,
                                holds("all", counted["ours"] == _CALLS)))  # fmt: skip
            took = _pair(found, way, "s")
            lines.append(Figure("the same: process, start to end", "s", took))
    return lines


def _pair(found: dict[str, Numbers], way: str, name: str) -> dict[str, float | None]:
    return {subject: found[f"{way}:{subject}"][name] for subject in ("ours", "rival")}


BENCH = Bench(
    "exits", "Pending at the process's end", _PHASES, _figures,
    notes=(
        f"Pending at the end: {_CALLS} sampled calls with a 20 ms judge, then the process ends at once; the rival's "
        "limit of ten at once is raised, so that it refuses none. SIGTERM, asked: ours with `handle_sigterm=True`, "
        "the rival with a handler of the application's that calls `wait_for_evaluations(timeout=2)`. Not asked: "
        "nobody handles the signal, and Python runs no exit handlers. A process that has not ended after "
        f"{_PATIENCE_S + 2:g} s is killed.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    if "--program" in sys.argv:
        _program(*sys.argv[sys.argv.index("--program") + 1 :])
    else:
        standalone(BENCH)
