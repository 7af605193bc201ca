"""The fork server: imports everything once and forks worker processes.

It has one thread and never evaluates, so it can fork safely at any time. It ends when the host's end of the socket is
closed or its parent is another process: however the host ended, nothing of it stays.

The host sends ``["define", number, recipe]``, ``["fork", worker]`` (with the worker's end of a socket) and
``["kill", worker]``. The fork server answers ``["hello", version]``, ``["loaded", number, error, cpu_s]``,
``["forked", worker, pid]`` and ``["ended", worker, cpu_s]``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.execution.portable import load_evaluator, with_environment
from agenteval_otel.execution.wire import Lines, line
from agenteval_otel.execution.worker_process import work
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.reentrancy import mark_process

__all__ = ["main"]

_LOOK_S = 2.0
_OOM_SERVER, _OOM_WORKER = "900", "1000"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Be the fork server; the host's end of the socket is standard input."""
    with contextlib.suppress(OSError):
        os.nice(19)  # from about the middle, where the imports ran: on a busy machine they would take minutes
    _die_before_the_host(_OOM_SERVER)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # of a terminal's or a service's group: the host decides when this ends
    warnings.simplefilter("ignore")
    with contextlib.suppress(Exception):
        import resource

        resource.setrlimit(
            resource.RLIMIT_CORE, (0, 0)
        )  # an evaluator that crashes leaves no file in the host's folder
    mark_process()  # before any module of the user's is imported: `configure` and `monitor` do nothing here
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    ForkServer(channel).serve()


class ForkServer:
    """Forks workers, ends them and says when they ended."""

    def __init__(self, host: socket.socket) -> None:
        self._host, self._lines = host, Lines()
        self._descriptors: deque[int] = deque()
        self._evaluators: dict[int, tuple[Evaluator, Mapping[str, str]]] = {}
        self._workers: dict[int, int] = {}
        self._parent, self._closed = os.getppid(), False
        self._wake = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._prctl = _prctl()
        gc.collect()
        gc.freeze()  # what is here stays: the workers' collectors do not copy its pages

    def serve(self) -> None:
        """Until the host is gone."""
        self._send(["hello", list(sys.version_info[:2])])
        poll = select.poll()
        poll.register(self._host, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        while not self._closed and os.getppid() == self._parent:
            ready = dict(poll.poll(_LOOK_S * 1000))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake[0], 512)
            if self._host.fileno() in ready:
                self._receive()
            self._reap()
        self._end()

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._host, 1 << 18, 16)
        except OSError:
            data, descriptors = b"", []
        self._descriptors.extend(descriptors)
        if not data:
            self._closed = True
            return
        for message in self._lines.feed(data):
            self._obey(message[0], message[1], message[2:])

    def _obey(self, order: str, number: int, rest: list[Any]) -> None:
        if order == "define":
            self._define(number, rest[0])
        elif order == "fork":
            self._fork(number, self._descriptors.popleft())
        elif number in self._workers:
            _kill(self._workers[number])

    def _define(self, number: int, recipe: dict[str, Any]) -> None:
        problem = ""
        try:
            with with_environment(recipe["environment"]), self._looking():
                self._evaluators[number] = load_evaluator(recipe), recipe["environment"]
        except BaseException as error:
            problem = type(error).__name__
        self._send(["loaded", number, problem, time.process_time()])

    def _fork(self, number: int, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError:
            os.close(descriptor)
            self._send(["ended", number, 0.0])
            return
        if pid:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            self._workers[number] = pid
            self._send(["forked", number, pid])
            return
        try:
            self._be_a_worker(descriptor)
        finally:
            os._exit(0)

    def _be_a_worker(self, descriptor: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in _SIGNALS:
            # Still not for us, but what evaluators start takes them again: only what is ignored is handed down.
            signal.signal(number, lambda *_: None)
        reset_in_child(_take_signals)
        _die_before_the_host(_OOM_WORKER)
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # what it starts itself is killed with it
        self._host.close()
        for end in self._wake:
            os.close(end)
        os.set_inheritable(descriptor, False)
        work(socket.socket(fileno=descriptor), self._evaluators, self._prctl)

    def _reap(self) -> None:
        for number, pid in list(self._workers.items()):
            try:
                ended, _, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                ended, usage = pid, None
            if ended:
                del self._workers[number]
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)  # what the worker started itself
                self._send(["ended", number, usage.ru_utime + usage.ru_stime if usage else 0.0])

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """See by a timer whether the host is there: while a module is imported nobody reads the socket."""
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _look(self, *_: object) -> None:
        if os.getppid() != self._parent:
            self._end()

    def _send(self, message: list[Any]) -> None:
        try:
            self._host.sendall(line(message))
        except OSError:
            self._closed = True

    def _end(self) -> None:
        for pid in self._workers.values():
            _kill(pid)
        os._exit(0)


def _kill(pid: int) -> None:
    """End a process and what it started; it is reaped later."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            end(pid, signal.SIGKILL)


def _take_signals() -> None:
    """In what an evaluator forks: it can be ended as any process can."""
    for number in _SIGNALS:
        with contextlib.suppress(ValueError):  # forked from a thread of a sub-interpreter
            signal.signal(number, signal.SIG_DFL)


def _die_before_the_host(points: str) -> None:
    """Where memory runs out the kernel ends this process and not the host (Linux)."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(points)


def _prctl() -> Callable[[int, int], int] | None:
    """The call that lets a worker die with the fork server, where there is one."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
        return prctl
    except Exception:
        return None
