"""The template: imports everything once, forks the worker, watches over it, and speaks with the host.

Single-threaded and never evaluating itself, so it can fork safely at any time. It ends when the host's end of the
socket is closed or its parent is another one: however the host ended, nothing of it stays.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.runner.child.frames import CRITERIA, DEFINE, HELLO, INPUT, LOADED, STATUS, TASK, Frames, frame
from agenteval_otel.runner.child.recipes import built, with_environment
from agenteval_otel.runner.child.watch import Watch
from agenteval_otel.runner.child.worker import work
from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["PROTOCOL", "main"]

PROTOCOL = 1
_GATHER_S = 0.005
_MAX_GATHERED = 64 * 1024
_BEAT_S = 1.0
_IDLE_S = 2.0
_LOOK_S = 2.0
_FIRST, _FIRST_OF_ALL = "900", "1000"
_ORDERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Be the template; the host's end of the socket is standard input."""
    with contextlib.suppress(OSError):
        os.nice(19)  # from about the middle, where the imports ran: on a busy machine they would take minutes
    _go_before_the_host(_FIRST)
    for order in _ORDERS:
        signal.signal(order, signal.SIG_IGN)  # of a terminal's or a service's group: the host decides when we end
    warnings.simplefilter("ignore")
    with contextlib.suppress(Exception):
        import resource

        resource.setrlimit(
            resource.RLIMIT_CORE, (0, 0)
        )  # an evaluator that crashes leaves no file in the host's folder
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    Template(channel).serve()


class Template:
    """The loop between the host and the worker."""

    def __init__(self, host: socket.socket) -> None:
        host.setblocking(False)
        self._host, self._frames = host, Frames()
        self._out, self._out_since = bytearray(), 0.0
        self._evaluators: dict[int, tuple[Evaluator, Mapping[str, str]]] = {}
        self._criteria: dict[int, tuple[EvaluationCriteria, ...]] = {}
        self._watch = Watch(self._fork, self._send)
        self._parent, self._beat, self._over = os.getppid(), time.monotonic(), False
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self._wake[0], False)
        os.set_blocking(self._wake[1], False)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._prctl = _prctl()
        gc.collect()
        gc.freeze()  # what is here stays: the workers' collectors do not copy its pages

    def serve(self) -> None:
        """Until the host is gone."""
        self._send(frame(HELLO, PROTOCOL, json.dumps(list(sys.version_info[:3])).encode()))
        while not self._over and os.getppid() == self._parent:
            self._turn()
        self._watch.end()
        os._exit(0)

    def _turn(self) -> None:
        poll = select.poll()
        poll.register(self._host, select.POLLIN | (select.POLLOUT if self._ready_to_send() else 0))
        poll.register(self._wake[0], select.POLLIN)
        self._watch.register(poll)
        before = time.monotonic()
        timeout_s = self._timeout_s(before)
        poll.poll(timeout_s * 1000 + 1)
        late_s = time.monotonic() - before - timeout_s
        if late_s > 1.0:
            self._watch.thaw(late_s)  # the whole machine, or all of us, stood still: that was not the evaluator
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 512)
        self._receive()
        self._watch.turn()
        now = time.monotonic()
        if self._watch.busy and now - self._beat > _BEAT_S:
            self._status()
        self._flush()

    def _timeout_s(self, now: float) -> float:
        if self._watch.urgent or self._ready_to_send():
            return 0.0 if self._watch.urgent else _BEAT_S
        due = _BEAT_S if self._watch.busy else _IDLE_S
        due = min(due, self._watch.left_s(now))
        if self._out:
            due = min(due, self._out_since + _GATHER_S - now)
        return max(0.0, due)

    def _receive(self) -> None:
        while True:
            try:
                data = self._host.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._over = True
                return
            for kind, number, payload in self._frames.feed(data):
                self._take(kind, number, payload)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == TASK:
            self._watch.add(number, payload)
        elif kind == INPUT:
            self._watch.inputs[number] = payload
        elif kind == CRITERIA:
            self._criteria[number] = tuple(EvaluationCriteria.model_validate(one) for one in json.loads(payload))
            self._watch.outdated = True
        elif kind == DEFINE:
            self._define(number, json.loads(payload))

    def _define(self, number: int, recipe: dict[str, Any]) -> None:
        problem = ""
        try:
            with with_environment(recipe["environment"]), self._looking():
                self._evaluators[number] = built(recipe), recipe["environment"]
        except BaseException as error:
            problem = type(error).__name__
        self._watch.outdated = True  # a worker that was forked before does not know it
        self._send(frame(LOADED, number, problem.encode()))

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
            self._watch.end()
            os._exit(0)

    def _status(self) -> None:
        self._beat = time.monotonic()
        self._send(frame(STATUS, int(self._watch.cpu_s * 1e6)))

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._out_since = time.monotonic()
        self._out += data

    def _ready_to_send(self) -> bool:
        """Whether answers go out now: a few milliseconds' worth wakes the host once instead of once for each."""
        if not self._out:
            return False
        gathered = len(self._out) >= _MAX_GATHERED or time.monotonic() - self._out_since >= _GATHER_S
        return gathered or not self._watch.busy

    def _flush(self) -> None:
        if not self._ready_to_send():
            return
        if not self._watch.busy or time.monotonic() - self._beat > _BEAT_S / 4:
            self._status()
        try:
            del self._out[: self._host.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._over = True

    def _fork(self) -> tuple[int, socket.socket]:
        """A new worker: its process and our end of its socket.

        Raises:
            OSError: No process can be made now.
        """
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            ours.setblocking(False)
            return pid, ours
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for order in _ORDERS:
                # Still not for us, but what evaluators start takes them again: only what is ignored is handed down.
                signal.signal(order, lambda *_: None)
            reset_in_child(_take_orders)
            _go_before_the_host(_FIRST_OF_ALL)
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)  # what it starts itself is killed with it
            for end in (ours, self._host):
                end.close()
            for descriptor in self._wake:
                os.close(descriptor)
            work(theirs, self._evaluators, self._criteria, self._prctl)
        finally:
            os._exit(0)


def _take_orders() -> None:
    """In what an evaluator forks: it can be ended as any process can."""
    for order in _ORDERS:
        with contextlib.suppress(ValueError):  # forked from a thread of a sub-interpreter
            signal.signal(order, signal.SIG_DFL)


def _go_before_the_host(points: str) -> None:
    """Where memory runs out the kernel is to take this process and not the host (Linux)."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(points)


def _prctl() -> Callable[[int, int], int] | None:
    """The call that lets a worker die with the template, where there is one."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[[int, int], int] = ctypes.CDLL(None).prctl
        return found
    except Exception:
        return None
