"""Small programs run as processes of their own, by the running Python and those that
`AGENTEVAL_PYTHONS` names.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.backends.process import bare_environment

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "AGENTEVAL_PYTHONS"
_PROBE = "import platform, agenteval_otel.config; print(platform.python_version())"


@functools.cache
def pythons() -> dict[str, str]:
    actual = {platform.python_version(): sys.executable}
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        probe = subprocess.run(
            [path, "-c", _PROBE],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        actual.setdefault(probe.stdout.strip(), path)
    return actual


class Finished(NamedTuple):
    """How a program ended: exit code, output, and the seconds from its last own line to its end
    (None: not printed).
    """

    code: int
    stdout: str
    stderr: str
    exit_s: float | None

    def lines(self, word: str) -> list[str]:
        """What stands behind the word in the output lines that begin with it."""
        return re.findall(rf"^{word} (.*)$", self.stdout, re.MULTILINE)

    def report(self) -> Any:
        """What a program that ended well printed as JSON behind `report`."""
        assert self.code == 0, self.stderr[-4000:]
        assert "Traceback" not in self.stderr, self.stderr[-4000:]
        return json.loads(self.lines("report")[0])


@contextmanager
def started_program(
    source: str,
    *arguments: str,
    python: str = sys.executable,
    timeout_s: float = 150.0,
    flags: Sequence[str] = ("-W", "ignore"),
    before: Sequence[str] = (),
    **env: str,
) -> Iterator[subprocess.Popen[str]]:
    """A program that runs during the block; it is killed at the end of it, and when the time is
    over.

    Args:
        before: A program that runs it, with its arguments, such as ``strace``.
    """
    process = subprocess.Popen(
        [*before, python, *flags, "-c", textwrap.dedent(source), *arguments],
        cwd=PROJECT,
        env=bare_environment(**env),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def run_program(
    source: str, *arguments: str, timeout_s: float = 60.0, stdin: str = "", **options: Any
) -> Finished:
    """Run a program to its end; it prints ``main_ended <time.monotonic()>`` when its own part is
    over.

    Raises:
        subprocess.TimeoutExpired: It hung, and was killed.
    """
    with started_program(source, *arguments, timeout_s=timeout_s + 60, **options) as process:
        stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        ended = time.monotonic()  # one clock for all processes of the machine
    finished = Finished(process.returncode, stdout, stderr, None)
    printed = finished.lines("main_ended")
    return finished._replace(exit_s=ended - float(printed[-1])) if printed else finished


def together(works: Iterable[Callable[[], object]], timeout_s: float = 60.0) -> None:
    """Run each in a thread of its own, to its end. None raises, and one that does not come back is
    a deadlock.
    """
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert raised == []


def children() -> set[int]:
    actual: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        # the thread may end
        with suppress(OSError), open(f"/proc/self/task/{task}/children") as listed:
            actual.update(map(int, listed.read().split()))
    return actual


def rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
