"""Small programs run as processes of their own, by every Python at hand that has the package.

The running Python is always one of them. Others are named in `AGENTEVAL_PYTHONS` (separated as in `PATH`).
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["PROJECT", "Finished", "pythons", "run_program"]

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "AGENTEVAL_PYTHONS"
_PROBE = "import platform, agenteval_otel.config; print(platform.python_version())"


@functools.cache
def pythons() -> dict[str, str]:
    """Interpreters by version."""
    found = {platform.python_version(): sys.executable}
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        probe = subprocess.run(
            [path, "-c", _PROBE], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=60
        )
        found.setdefault(probe.stdout.strip(), path)
    return found


class Finished(NamedTuple):
    """How a program ended: exit code, output, and the seconds from its last own line to its end (None: not said)."""

    code: int
    stdout: str
    stderr: str
    exit_s: float | None

    def lines(self, word: str) -> list[str]:
        """What stands behind the word in the output lines that begin with it."""
        return [line.split(" ", 1)[1] for line in self.stdout.splitlines() if line.startswith(f"{word} ")]


def run_program(
    source: str,
    *arguments: str,
    python: str = sys.executable,
    timeout_s: float = 60.0,
    flags: Sequence[str] = ("-W", "ignore"),
    before: Sequence[str] = (),
    **env: str,
) -> Finished:
    """Run a program to its end; it says ``main_ended <time.monotonic()>`` when its own part is over.

    Args:
        before: A program that runs it, with its arguments, such as ``strace``.

    Raises:
        subprocess.TimeoutExpired: It hung, and was killed.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AGENTEVAL_"))}
    process = subprocess.Popen(
        [*before, python, *flags, "-c", textwrap.dedent(source), *arguments], cwd=PROJECT, env={**clean, **env},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    finally:
        ended = time.monotonic()  # one clock for all processes of the machine
        process.kill()
        process.wait()
    finished = Finished(process.returncode, stdout, stderr, None)
    said = finished.lines("main_ended")
    return finished._replace(exit_s=ended - float(said[-1])) if said else finished
