"""Builds the real programs that the backend tests run: `uv run python -m tests.backends.build`.

Programs land in a cache outside the tree, one folder for each, named by program, version and a hash of its recipe. What
is there already is not built again. A build happens in a temporary folder that is moved into place when it is whole.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .recipes import PROGRAMS, Program

BUILD_COMMAND = "uv run python -m tests.backends.build"
PROGRESS_EVERY_S = 15.0
STEP_LIMIT_S = 1800.0
LOG_TAIL_LINES = 25


class BuildError(Exception):
    """A program could not be built; the message is one line that says why and where the log is."""


def cache_root() -> Path:
    """The folder of built programs: `$AGENTEVAL_BACKENDS` or `~/.cache/agenteval-otel/backends`."""
    chosen = os.environ.get("AGENTEVAL_BACKENDS")
    return (Path(chosen) if chosen else Path("~/.cache/agenteval-otel/backends")).expanduser().absolute()


def executable_path(program: Program, root: Path | None = None) -> Path:
    kept = Path(program.executable).relative_to(program.keeps) if program.keeps else Path(program.executable).name
    return (root or cache_root()) / program.key / kept


def installed(name: str) -> Path | None:
    """The executable of a program of `PROGRAMS`, or None while it is not built in its present version."""
    path = executable_path(next(program for program in PROGRAMS if program.name == name))
    return path if path.is_file() else None


def build(program: Program, root: Path | None = None, *, say: Callable[[str], None] = print) -> Path:
    """Builds the program if the cache does not hold it; gives its executable."""
    root = root or cache_root()
    target = executable_path(program, root)
    if target.is_file():
        say(f"{program.name} {program.version}: already built, {target}")
        return target
    missing = [command for command in program.needs if shutil.which(command) is None]
    if missing:
        raise BuildError(f"{program.name} {program.version}: cannot build, not on the PATH: {', '.join(missing)}")
    root.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{program.key}-", dir=root, ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        _run_steps(program, work, kept_log=root / f"{program.key}.failed.log", say=say)
        _move_into_place(program, work, target)
    say(f"{program.name} {program.version}: built in {time.monotonic() - started:.0f} s, {target}")
    return target


def _run_steps(program: Program, work: Path, *, kept_log: Path, say: Callable[[str], None]) -> None:
    """Runs every step; on failure keeps the log outside the temporary folder and shows its end."""
    log = work / "build.log"
    for number, step in enumerate(program.steps, start=1):
        label = f"{program.name} {program.version}, step {number} of {len(program.steps)}: {step.says}"
        say(f"{label} ...")
        problem = _run_step(program.command(step), work, log, say, label)
        if problem:
            shutil.copyfile(log, kept_log)
            tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            say(f"last lines of the log:\n{tail}")
            raise BuildError(f"{label} failed: {problem}; whole log: {kept_log}")


def _run_step(command: Sequence[str], work: Path, log: Path, say: Callable[[str], None], label: str) -> str | None:
    """Runs one command in the build folder, output to the log; gives what went wrong, or None."""
    started = time.monotonic()
    argv = [str(work / command[0]) if "/" in command[0] else command[0], *command[1:]]
    environment = {**os.environ, "GOBIN": str(work / "bin")}
    with log.open("ab") as output:
        # Its own group: a compiler's children end with it when the step is given up.
        process = subprocess.Popen(
            argv, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            while time.monotonic() - started < STEP_LIMIT_S:
                try:
                    code = process.wait(timeout=PROGRESS_EVERY_S)
                except subprocess.TimeoutExpired:
                    say(f"{label}: still at work after {time.monotonic() - started:.0f} s")
                    continue
                say(f"{label}: {time.monotonic() - started:.0f} s")
                return None if code == 0 else f"exit code {code}"
            return f"not finished after {STEP_LIMIT_S:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _move_into_place(program: Program, work: Path, target: Path) -> None:
    """Moves the executable and the log into the cache in one rename; a build that came first is kept."""
    made = work / program.executable
    if not made.is_file():
        raise BuildError(f"{program.name} {program.version}: the steps left no {program.executable}")
    whole = work / (program.keeps or "whole")
    if not program.keeps:
        whole.mkdir()
        made.replace(whole / target.name)
    (work / "build.log").replace(whole / "build.log")
    place = work.parent / program.key
    try:
        os.replace(whole, place)
    except OSError as error:
        if not target.is_file():
            raise BuildError(f"{program.name} {program.version}: cannot be put at {place}: {error}") from error


def _print_path(name: str) -> int:
    """Prints the executable's path alone, for use in a shell; exit code 1 when it is not built."""
    path = installed(name)
    print(path if path else f"error: {name} is not built: {BUILD_COMMAND}", file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: builds what is missing, or with `--path` only prints where a program is."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.build", description="Build the real test backends.")
    parser.add_argument("--path", choices=[program.name for program in PROGRAMS], help="print where a built program is")
    chosen = parser.parse_args(arguments)
    root = cache_root()
    if chosen.path:
        return _print_path(chosen.path)
    try:
        for program in PROGRAMS:
            build(program, root, say=lambda text: print(text, flush=True))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
