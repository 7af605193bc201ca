"""How processes end, and stand still: servers to end, programs that stop themselves, and what was
saved by then.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.backends.process import bare_environment
from tests.promises.programs import PROJECT


def saved(target: Path) -> list[str]:
    """The session ids in a file of results, in order."""
    lines = target.read_text().splitlines() if target.exists() else []
    return sorted(json.loads(line)["sessionId"] for line in lines)


def until_stopped(process: subprocess.Popen[str]) -> None:
    """Wait until the process has stopped itself, as a platform freezes it."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended: {status}"


@contextlib.contextmanager
def server(*command: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=bare_environment(PYTHONPATH=str(PROJECT), **environment),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def get(port: int, path: str, deadline: float) -> str:
    """The answer to a request; the first ones may come before the server listens."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # a port that nobody listens on yet has no event to wait for
        finally:
            connection.close()
