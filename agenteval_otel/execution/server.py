"""Server: the fork server as the host's event loop sees it, and what it was sent."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from agenteval_otel.execution.jobs import Job
from agenteval_otel.execution.launch import ForkServerProcess
from agenteval_otel.execution.wire import Lines, line
from agenteval_otel.runtime.reentrancy import EvaluationThread

__all__ = ["Server"]

_HELLO_S, _LOADING_S, _READY_S = 60.0, 120.0, 30.0


class Server:
    """One fork server.

    Attributes:
        defined: Numbers of the evaluators that it was sent.
        loading: Those that it has not loaded yet, in order.
        heard: When it last said something, or was asked for something.

    Raises:
        Unavailable: No process can be had here.
        OSError: No process can be had now.
    """

    def __init__(self) -> None:
        self.process = ForkServerProcess()
        self.channel = self.process.channel
        self.defined: set[int] = set()
        self.loading: list[int] = []
        self.greeted, self.heard, self.cpu_s = False, time.monotonic(), 0.0
        self._lines, self._out = Lines(), bytearray()
        self._fork: tuple[int, socket.socket] | None = None

    def define(self, jobs: Iterable[Job]) -> None:
        """Have the evaluators of these jobs loaded."""
        for job in jobs:
            number = job.state.number
            if number not in self.defined:
                self._out += b'["define",%d,%b]\n' % (number, job.state.recipe())
                self.defined.add(number)
                self.loading.append(number)
                self.heard = time.monotonic()

    def fork(self, number: int) -> socket.socket:
        """Ask for a worker; the host's end of its socket.

        Raises:
            OSError: No socket can be had now.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._fork, self.heard = (number, theirs), time.monotonic()
        return ours

    def kill(self, number: int) -> None:
        """Have a worker ended."""
        if self._fork is not None and self._fork[0] == number:
            self._fork[1].close()
            self._fork = None
        else:
            self._out += line(["kill", number])

    def send(self) -> bool:
        """Send what waits; False when the rest has to wait.

        Raises:
            OSError: It is gone.
        """
        try:
            while self._out:
                del self._out[: self.channel.send(self._out)]
            if self._fork is not None:
                number, theirs = self._fork
                socket.send_fds(self.channel, [line(["fork", number])], [theirs.fileno()])
                theirs.close()
                self._fork = None
        except BlockingIOError:
            return False
        return True

    def receive(self) -> tuple[list[Any], bool]:
        """What it said, and whether it is gone."""
        return self._lines.receive(self.channel)

    def is_silent(self, now: float, *, worker_ready: bool) -> bool:
        """Whether it says nothing although it should."""
        limit_s = _HELLO_S if not self.greeted else _LOADING_S if self.loading else _READY_S
        is_due = not self.greeted or self.loading or not worker_ready
        return bool(is_due) and now - self.heard > limit_s

    def end(self, *, kill: bool = False) -> None:
        """Have it end, and wait for that in a thread; its socket is no longer watched."""
        if self._fork is not None:
            self._fork[1].close()
        if kill:
            self.process.kill()
        self.channel.close()
        try:
            EvaluationThread(target=self.process.end, name="agenteval-reaper").start()
        except RuntimeError:  # no thread can be had now
            self.process.end()

    def forget(self) -> None:
        """In a forked child of the host: let go of what belongs to the parent."""
        self.process.forget()
        if self._fork is not None:
            with contextlib.suppress(OSError):
                os.close(self._fork[1].detach())
