"""Starting the fork server, asking it for something and ending it: the host's side, blocking."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from agenteval_otel.execution.wire import Gone, Lines, RunsHere, line
from agenteval_otel.runtime.masking import is_secret

_ALLOWED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV",
    "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT",
})  # fmt: skip
_ALLOWED_PREFIXES = ("LC_", "PYTHON")
_LATER = frozenset({"PYTHONPATH", "PYTHONSTARTUP"})
"""Not while it boots: a `sitecustomize`, such as that of `opentelemetry-instrument`, would start threads in it."""
_OWN = {"AGENTEVAL_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
_BOOT = (
    "import json, os, sys; os.closerange(3, 65536); os.nice(10); sys.path[:], later = json.loads(sys.argv.pop()); "
    "from agenteval_otel.execution.fork_server import main; os.environ.update(later); main()"
)
_PYTHON = re.compile(r"(?i)(python|pypy)[\d.]*w?(\.exe)?")
_BOOT_S, _LOADING_S, _FORKING_S = 60.0, 120.0, 30.0
_SLICE_S = 0.25


class Unavailable(RunsHere):
    """No worker process can be used here or now; the text says why."""


class Worker:
    """A worker process, the numbers of the `evaluators` that it knows, and the CPU seconds of its last answer."""

    def __init__(self, pid: int, channel: socket.socket, evaluators: set[int]) -> None:
        self.pid, self.channel, self.evaluators = pid, channel, evaluators
        self.lines, self.cpu_s = Lines(channel), 0.0

    def wait_until_ready(self) -> None:
        if self.lines.read(lambda: readable(self.channel, _FORKING_S)) is None:
            raise Gone

    def is_starved(self, limit_s: float) -> bool:
        """Whether it waits for the processor, or is stopped, and used less than half of the limit; seen on Linux."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                state, *fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return False
        used_s = (int(fields[10]) + int(fields[11])) / os.sysconf("SC_CLK_TCK") - self.cpu_s
        return state in (b"R", b"T") and used_s < limit_s / 2


class ForkServer:
    """The fork server as the host sees it. A request blocks until it is answered, and raises `Gone` where it is not.

    `problems` says why evaluators could not be loaded, by the numbers of all that were tried; empty where they were.
    Making one raises `Unavailable` without a Python or fork, and OSError where no descriptor or process is left.
    """

    def __init__(self) -> None:
        python = _python()
        ours, theirs = socket.socketpair()
        try:
            self.pid = _spawn(python, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.settimeout(None)
        self.channel = ours
        self.problems: dict[int, str] = {}
        self._lines = Lines(ours)

    def wait_until_up(self) -> None:
        self._answer(_BOOT_S)  # it imports what every worker needs

    def load(self, number: int, recipe: bytes) -> None:
        self._send(b'["load",%d,%b]\n' % (number, recipe))
        self.problems[number] = self._answer(_LOADING_S)

    def fork(self) -> Worker:
        self._send(line(["fork"]))
        if not readable(self.channel, _FORKING_S):
            raise Gone
        data, descriptors, _, _ = socket.recv_fds(self.channel, 4096, 1)
        if not data or not descriptors:
            raise Gone
        channel = socket.socket(fileno=descriptors[0])
        channel.settimeout(None)  # whatever the host's default is
        loaded = {number for number, problem in self.problems.items() if not problem}
        return Worker(json.loads(data)[0], channel, loaded)

    def end_worker(self) -> None:
        self._send(line(["end"]))
        self._answer(_FORKING_S)

    def end(self, patience_s: float = 0.0) -> None:
        """Close its socket, so that it ends; kill it if it does not; leave no zombie. Blocks until then."""
        self.channel.close()
        if not self._ends_within(patience_s):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self._ends_within(10.0)  # the lowest priority may have to wait even for its end

    def _send(self, message: bytes) -> None:
        try:
            self.channel.sendall(message, getattr(socket, "MSG_NOSIGNAL", 0))
        except OSError:
            raise Gone from None

    def _answer(self, limit_s: float) -> Any:
        answer = self._lines.read(lambda: readable(self.channel, limit_s))
        if answer is None:
            raise Gone
        return answer[0]

    def _ends_within(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        with contextlib.suppress(ChildProcessError):  # reaped by the host: the number may be another process's by now
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.002)
        return True


def readable(channel: socket.socket, limit_s: float, gives_up: Callable[[], bool] = lambda: False) -> bool:
    """Whether something arrives within the limit; time in which this process stood still does not count."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    waited_s = 0.0
    while True:
        slice_s, began = min(_SLICE_S, max(0.0, limit_s - waited_s)), time.monotonic()
        if poll.poll(slice_s * 1000):
            return True
        waited_s += min(time.monotonic() - began, 2 * _SLICE_S)
        if waited_s >= limit_s or gives_up():
            return False


def _python() -> str:
    """A Python of this version: the running program may be none (uWSGI, a program that embeds Python)."""
    if not (hasattr(os, "fork") and hasattr(os, "posix_spawn")):
        raise Unavailable("this platform cannot fork")
    if getattr(sys, "frozen", False):
        raise Unavailable("the program is frozen, and its modules are where no other Python finds them")
    own = sys.executable or ""
    if _PYTHON.fullmatch(os.path.basename(own)):
        return own
    for folder in (sys.exec_prefix, sys.base_exec_prefix):
        other = os.path.join(folder, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
        if os.access(other, os.X_OK):
            return other
    raise Unavailable("no Python interpreter is known that could be started")


def _spawn(python: str, descriptor: int) -> int:
    """Start it with the descriptor as standard input and nothing else of ours; its process."""
    environment = {
        name: value for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and name not in _LATER and not is_secret(name)
    }  # fmt: skip
    path = [part or os.getcwd() for part in sys.path if isinstance(part, str)]
    later = json.dumps([path, {name: os.environ[name] for name in sorted(_LATER) if name in os.environ}])
    flags = ["-P", "-W", "ignore", *(["-O"] * sys.flags.optimize), *(["-X", "utf8"] if sys.flags.utf8_mode else [])]
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    # A group of its own: an interrupt at the terminal is for the host. No session of its own: on Linux that would be
    # a scheduling group of its own too, in which the lowest priority means nothing to the host.
    return os.posix_spawn(
        python, [python, *flags, "-c", _BOOT, later], environment | _OWN, file_actions=actions, setpgroup=0,
        setsigmask=(), setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE),
    )  # fmt: skip
