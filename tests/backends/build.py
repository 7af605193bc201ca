"""Builds the real programs that the backend tests run: `uv run python -m tests.backends.build`.

Programs land in a cache outside the tree, one folder for each, named by program, version and a hash
of its recipe. What is there already is not built again. A build happens in a temporary folder that
is moved into place when it is whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .recipes import PROGRAMS, Program

BUILD_COMMAND = "uv run python -m tests.backends.build"
LIMIT_VARIABLE = "AGENTEVAL_BUILD_STEP_S"
STEP_LIMIT_S = float(os.environ.get(LIMIT_VARIABLE, "3600"))  # Jaeger took over 1800 on busy cores
LOG_TAIL_LINES = 25


class BuildError(Exception):
    """A program could not be built; the message says why and where the log is."""


def cache_root() -> Path:
    """The folder of built programs: `$AGENTEVAL_BACKENDS` or `~/.cache/agenteval-otel/backends`."""
    chosen = os.environ.get("AGENTEVAL_BACKENDS")
    return Path(chosen or "~/.cache/agenteval-otel/backends").expanduser().absolute()


def executable_path(program: Program) -> Path:
    kept = (
        Path(program.executable).relative_to(program.keeps)
        if program.keeps
        else Path(program.executable).name
    )
    return cache_root() / program.key / kept


def installed(name: str) -> Path | None:
    """The executable of a program of `PROGRAMS`, or None while it is not built in its present
    version.
    """
    path = executable_path(next(program for program in PROGRAMS if program.name == name))
    return path if path.is_file() else None


def build(program: Program) -> None:
    """Builds the program if the cache does not hold it."""
    title, root, target = (
        f"{program.name} {program.version}",
        cache_root(),
        executable_path(program),
    )
    if target.is_file():
        print(f"{title}: already built, {target}", flush=True)
        return
    missing = [command for command in program.needs if shutil.which(command) is None]
    if missing:
        raise BuildError(f"{title}: cannot build, not on the PATH: {', '.join(missing)}")
    root.mkdir(parents=True, exist_ok=True)
    log = root / f"{program.key}.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{program.key}-", dir=root, ignore_cleanup_errors=True
    ) as folder:
        work = Path(folder)
        for step in program.steps:
            print(f"{title}: {step.says} ...", flush=True)
            _run_step(program.command(step), work, log)
        made, whole = work / program.executable, work / (program.keeps or "whole")
        if not made.is_file():
            raise BuildError(f"{title}: the steps left no {program.executable}")
        if not program.keeps:
            whole.mkdir()
            made.replace(whole / target.name)
        os.replace(whole, root / program.key)
    print(f"{title}: built, {target}", flush=True)


def _run_step(command: list[str], work: Path, log: Path) -> None:
    argv = [str(work / command[0]) if "/" in command[0] else command[0], *command[1:]]
    try:
        with log.open("ab") as output:
            done = subprocess.run(
                argv,
                cwd=work,
                env={**os.environ, "GOBIN": str(work / "bin")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=STEP_LIMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        limit = f"took more than {STEP_LIMIT_S:.0f} s. {LIMIT_VARIABLE}=7200 gives it more"
        raise BuildError(f"{' '.join(argv)}: {limit}") from None
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(f"{' '.join(argv)}: exit code {done.returncode}; end of {log}:\n{tail}")


def main(arguments: list[str]) -> None:
    """Builds all programs; with `--path NAME` it prints where that one is."""
    match arguments:
        case ["--path", name] if name in [program.name for program in PROGRAMS]:
            print(installed(name) or sys.exit(f"error: {name} is not built yet: {BUILD_COMMAND}"))
        case []:
            for program in PROGRAMS:
                build(program)
        case _:
            sys.exit(
                f"usage: {BUILD_COMMAND} [--path {{{','.join(program.name for program in PROGRAMS)}}}]"
            )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BuildError as error:
        sys.exit(f"error: {error}")
