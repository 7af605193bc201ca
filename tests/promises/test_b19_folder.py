"""B19: no command runs a file of the current folder, except what settings and arguments name."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from agenteval_otel.cli import COMMANDS
from tests.backends.process import bare_environment
from tests.promises.figures import Recorder
from tests.promises.served import trace_request

SETTINGS = """
plugins: [named_plugin]
evaluators:
  - ResponseHealth
  - {type: Named, execution: process}
  - named_functions:short
storage: [{type: sqlite, path: results.db}]
benchmarks: {faq: {dataset: [answers.jsonl]}}
sidecar: {quiet_s: 0.1}
"""
# No judge answers there: a connection is tried, for which libraries are imported.
WITH_JUDGE = """
evaluators:
  - type: LLMJudge
    description: Is the answer kind?
    judge: {type: openai_compatible, model: m, base_url: "http://127.0.0.1:1/v1", api_key: none}
"""
FILES = {
    "agenteval.yaml": SETTINGS,
    "judge.yaml": WITH_JUDGE,
    "named_plugin.py": "import beside_plugin\n",
    "beside_plugin.py": (
        "from agenteval_otel import Score\n"
        "from agenteval_otel.evaluators import CriterionEvaluator\n"
        "class Named(CriterionEvaluator, type='Named'):\n"
        "    criterion_name: str = 'named'\n"
        "    def score(self, evaluation_input):\n"
        "        import sys, beside_later\n"
        "        is_worker = 'agenteval_otel.engine.execution.fork_server' in sys.modules\n"
        "        return Score(value=beside_later.VALUE if is_worker else 1.0)\n"
    ),
    "beside_later.py": "VALUE = 0.25\n",
    "named_functions.py": (
        "def short(evaluation_input):\n    return 0.5\n"
        "def answer(prompt):\n    import beside_later\n    return f'An answer to {prompt}.'\n"
    ),
    "answers.jsonl": "".join(
        json.dumps({"prompt": f"Question {n}?", "response": f"Answer {n}.", "label": "good"}) + "\n"
        for n in range(4)
    ),
}
TO_END: Final = {
    "demo": ("--seconds", "1", "--calls", "5"),
    "init": ("written.yaml",),
    "check": ("agenteval.yaml",),
    "explain": ("sampler",),
    "evaluate": ("answers.jsonl", "--settings", "agenteval.yaml", "--run", "named_functions:answer",
                 "--results", "a.jsonl"),
    "replay": ("requests.binpb", "--settings", "agenteval.yaml", "--no-telemetry"),
    "compare": ("a.jsonl", "a.jsonl"),
    "benchmark": ("run", "faq", "--settings", "agenteval.yaml", "--version", "1"),
    "calibrate": ("answers.jsonl", "--settings", "agenteval.yaml", "--label", "response_health=label",
                  "--positive", "good"),
    "judge": ("check", "answers.jsonl", "--settings", "judge.yaml", "--label", "label"),
    "provision": ("all", "--settings", "agenteval.yaml", "--output", "monitoring"),
    "feedback": ("--url", "http://127.0.0.1:1", "--conversation-id", "c", "--thumbs", "up"),
    "truth": ("review", "--from", "results.db", "--to", "truth.csv", "--list"),
    "erase": ("--settings", "agenteval.yaml", "--before", "2020-01-01", "--yes"),
    "schema": (),
    "completion": ("bash",),
}  # fmt: skip
UNTIL_STOPPED: Final = {
    "serve": ("ready", "--settings", "agenteval.yaml", "--grpc-port", "0", "--http-port", "0"),
    "ui": ("token=", "results.db", "--no-open", "--port", "0"),
}
MORE: Final = {
    "evaluate with a judge": ("evaluate", "answers.jsonl", "--settings", "judge.yaml"),
    "serve --once": ("serve", "--once", "requests.binpb", "--settings", "agenteval.yaml"),
}
# The first to be asked for a module: it writes one of this name into the folder, and finds nothing.
SETS_TRAPS = """
import os, sys
class Traps:
    def find_spec(self, name, path=None, target=None):
        folder = os.environ["TRAPS"]
        file = os.path.join(folder, name + ".py")
        known = name == "agenteval_otel" or name in sys.stdlib_module_names
        if path is not None or known or os.path.exists(file):
            return None
        with open(file, "w") as trap:
            trap.write(os.environ["TRAP"])
        for entry in ("", folder):
            sys.path_importer_cache.pop(entry, None)
sys.meta_path.insert(0, Traps())
"""
TRAP = """
import os
with open(os.environ["RUN"], "a") as file:
    file.write(__name__ + "\\n")
"""
GROUPS = (
    "pydantic", "agenteval_otel.evaluators", "agenteval_otel.samplers", "opentelemetry_context",
    "opentelemetry_propagator", "opentelemetry_environment_variables", "opentelemetry_tracer_provider",
    "opentelemetry_resource_detector", "opentelemetry_traces_exporter", "sqlalchemy.dialects",
)  # fmt: skip


class Folder:
    """A current folder with files of a project, and commands that run in it."""

    def __init__(self, path: Path, **environment: str) -> None:
        path.mkdir()
        for name, text in FILES.items():
            (path / name).write_text(text)
        (path / "requests.binpb").write_bytes(trace_request(77))
        self.path, self._env = path, bare_environment(**environment)

    def add_entry_points(self) -> None:
        """Write what a distribution in the folder would announce, and modules that Python looks for
        by itself.
        """
        for name in ("sitecustomize", "usercustomize", "trap_of_entry_points"):
            (self.path / f"{name}.py").write_text(TRAP)
        distribution = self.path / "trap-1.0.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: trap\nVersion: 1.0\n")
        (distribution / "entry_points.txt").write_text(
            "".join(f"[{group}]\ntrap = trap_of_entry_points\n" for group in GROUPS)
        )

    def run_all(self, program: list[str]) -> dict[str, str]:
        """Run every command, and return what each printed."""
        printed = {}
        for name, arguments in TO_END.items():
            printed[name] = self.run([*program, name, *arguments])
        for name, command in MORE.items():
            printed[name] = self.run([*program, *command])
        for name, (word, *arguments) in UNTIL_STOPPED.items():
            printed[name] = self._run_until(word, [*program, name, *arguments])
        return printed

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr

    def _run_until(self, word: str, command: list[str]) -> str:
        log = self.path / "printed.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=self.path, env=self._env, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline, never = time.monotonic() + 60, threading.Event()
        while word not in log.read_text() and process.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            never.wait(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        return log.read_text()


@pytest.mark.timeout(900)
def test_no_command_runs_the_current_folder(tmp_path: Path, promise: Recorder) -> None:
    """Whatever module a command asks for, installed or not, the folder has one of this name by then.
    None is run, and what the settings name works, with what it imports beside it.
    """
    assert {*TO_END, *UNTIL_STOPPED} == set(COMMANDS)
    listens, run = tmp_path / "listens", tmp_path / "run"
    listens.mkdir()
    (listens / "sitecustomize.py").write_text(SETS_TRAPS)
    folder = Folder(
        tmp_path / "folder",
        PYTHONPATH=str(listens),
        TRAPS=str(tmp_path / "folder"),
        TRAP=TRAP,
        RUN=str(run),
    )
    folder.add_entry_points()
    printed = folder.run_all([str(Path(sys.executable).with_name("agenteval-otel"))])
    # `python -m` puts the current folder first.
    printed["python -m"] = folder.run(
        [sys.executable, "-m", "agenteval_otel", "check", "agenteval.yaml"]
    )
    ran = run.read_text().split() if run.exists() else []
    assert ran == [], f"{sorted(set(ran))} of the current folder"
    for name, text in printed.items():
        assert "Traceback (most recent" not in text, f"{name}: {text[-2_000:]}"
    with contextlib.closing(sqlite3.connect(folder.path / "results.db")) as database:
        scores = set(database.execute("SELECT criterion, score FROM agenteval_results"))
    assert {("named", 0.25), ("short", 0.5)} <= scores, printed["serve --once"]
    count = len(list(folder.path.glob("*.py"))) - sum(name.endswith(".py") for name in FILES)
    # One that is not installed, which uvicorn asks for, and one that is.
    assert {"uvloop", "yaml"} <= {file.stem for file in folder.path.glob("*.py")}
    promise(
        "B19",
        figure=f"{len(printed)} commands, {count} modules and {len(GROUPS)} entry points in the "
        "folder: 0 run; a plugin, its neighbours and a function found",
    )
