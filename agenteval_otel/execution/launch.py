"""Starting and ending the fork server, from the host's side, without any of the host's state."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time

from agenteval_otel.runtime.masking import is_secret

__all__ = ["ForkServerProcess", "Unavailable"]

_ALLOWED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV",
    "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT",
})  # fmt: skip
_ALLOWED_BEGINNINGS = ("LC_", "PYTHON")
_LATER = frozenset({"PYTHONPATH", "PYTHONSTARTUP"})
"""Not while it boots: a `sitecustomize`, such as that of `opentelemetry-instrument`, would start threads in it."""
_OWN = {"AGENTEVAL_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
_BOOT = (
    "import json, os, sys; os.closerange(3, 65536); os.nice(10); sys.path[:], later = json.loads(sys.argv.pop()); "
    "from agenteval_otel.execution.fork_server import main; os.environ.update(later); main()"
)
_PYTHON = re.compile(r"(?i)(python|pypy)[\d.]*w?(\.exe)?")


class Unavailable(Exception):
    """No worker process can be had here; the text says why."""


class ForkServerProcess:
    """The fork server as the host sees it: a socket, and the means to end it.

    Raises:
        Unavailable: No Python is known that could be started, or the platform cannot fork.
        OSError: The process has no descriptor or no process left.
    """

    def __init__(self) -> None:
        python = _python()
        ours, theirs = socket.socketpair()
        self._pidfd: int | None = None
        try:
            self._pid = _spawn(python, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self.channel = ours
        # By number alone it could be another process already, where the host's code reaps every child that it finds.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self._pid)

    def end(self, patience_s: float = 1.0) -> None:
        """Close its socket, so that it ends; kill it if it does not; leave no zombie. Blocks until then."""
        self.channel.close()
        if not self._ended_within(patience_s):
            self.kill()
            self._ended_within(10 * patience_s)  # the lowest priority may have to wait even for its end
        self._close_pidfd()

    def kill(self) -> None:
        """End it at once, whatever it is at."""
        with contextlib.suppress(OSError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            elif not self._is_gone():
                os.kill(self._pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a forked child of the host: let go of what belongs to the parent."""
        with contextlib.suppress(OSError):
            os.close(self.channel.detach())
        self._close_pidfd()

    def _ended_within(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not (gone := self._is_gone()) and time.monotonic() < deadline:
            time.sleep(0.002)
        return gone

    def _is_gone(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True  # the host's own code reaped it

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(OSError):
                os.close(self._pidfd)
            self._pidfd = None


def _python() -> str:
    """A Python of this version: the running program may be none (uWSGI, a program that embeds Python)."""
    if not (hasattr(os, "fork") and hasattr(os, "posix_spawn") and hasattr(os, "wait4")):
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


def _environment() -> dict[str, str]:
    allowed = {
        name: value for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_BEGINNINGS)) and name not in _LATER and not is_secret(name)
    }  # fmt: skip
    return allowed | _OWN


def _argument() -> str:
    """What it learns once it is up: where modules are, and what programs that evaluators start should find."""
    path = [part or os.getcwd() for part in sys.path if isinstance(part, str)]
    return json.dumps([path, {name: os.environ[name] for name in sorted(_LATER) if name in os.environ}])


def _spawn(python: str, descriptor: int) -> int:
    """Start it with the descriptor as standard input and nothing else of ours; its process."""
    flags = ["-P", "-W", "ignore", *(["-O"] * sys.flags.optimize), *(["-X", "utf8"] if sys.flags.utf8_mode else [])]
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    # A group of its own: an interrupt at the terminal is for the host. No session of its own: on Linux that would be
    # a scheduling group of its own too, in which the lowest priority means nothing to the host.
    return os.posix_spawn(
        python, [python, *flags, "-c", _BOOT, _argument()], _environment(), file_actions=actions, setpgroup=0,
        setsigmask=(), setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE),
    )  # fmt: skip
