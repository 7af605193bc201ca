"""Watch: feeds the worker, and ends one that overruns its limit. The task that was under way fails, no other does."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from agenteval_otel.runner.child.answers import cut_short
from agenteval_otel.runner.child.frames import ANSWER, INPUT, READY, TASK, Frames, TaskOrder, frame
from agenteval_otel.runner.child.worker import CPU_TIME

__all__ = ["Watch"]

_AHEAD = 32
_READY_S = 30.0
_MAX_UNREADY = 3
_STARVED_AT_MOST = 4.0


class _Task(NamedTuple):
    number: int
    payload: bytes
    order: TaskOrder


class _Worker:
    """One forked worker and what it was given, in the order of its answers."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self.channel, self.frames = pid, channel, Frames()
        self.given: deque[_Task] = deque()
        self.out = bytearray()
        self.input = 0
        self.ready, self.lost, self.starved = False, False, False
        self.overran: int | None = None
        self.since, self.cpu_s, self.cpu_before_s = time.monotonic(), 0.0, 0.0

    def kill(self) -> None:
        """End it and what it started, and wait for its end."""
        for end in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                end(self.pid, signal.SIGKILL)
        self.is_dead(0)

    def is_dead(self, options: int = os.WNOHANG) -> bool:
        """Whether it ended; then it is known what it used."""
        try:
            pid, _, usage = os.wait4(self.pid, options)
        except ChildProcessError:
            return True
        if pid:
            self.cpu_s = usage.ru_utime + usage.ru_stime
        return pid != 0


class Watch:
    """The worker's side of the template.

    Args:
        fork: Makes a worker.
        answer: Takes frames for the host.
    """

    def __init__(self, fork: Callable[[], tuple[int, socket.socket]], answer: Callable[[bytes], None]) -> None:
        self._fork, self._answer = fork, answer
        self._worker: _Worker | None = None
        self._waiting: deque[_Task] = deque()
        self.inputs: dict[int, bytes] = {}
        self._uses: dict[int, int] = {}
        self._closed_inputs: set[int] = set()
        self._reaped_s = 0.0
        self._unready, self._next_fork = 0, 0.0
        self.outdated = False

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        return bool(self._waiting) or bool(self._worker and self._worker.given)

    @property
    def urgent(self) -> bool:
        """Whether the next turn must not wait."""
        return bool(self._waiting) and self._worker is None and time.monotonic() >= self._next_fork

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the template and of its workers, as far as they said."""
        return time.process_time() + self._reaped_s + (self._worker.cpu_s if self._worker else 0.0)

    def add(self, number: int, payload: bytes) -> None:
        """Take a task; its input came before."""
        order = TaskOrder.decoded(payload)
        self._uses[order.input] = self._uses.get(order.input, 0) + 1
        if order.last:
            self._closed_inputs.add(order.input)
        self._waiting.append(_Task(number, payload, order))

    def register(self, poll: select.poll) -> None:
        """Have the poll wait for the worker too."""
        if self._worker is not None:
            poll.register(self._worker.channel, select.POLLIN | (select.POLLOUT if self._worker.out else 0))

    def left_s(self, now: float) -> float:
        """How long until a limit is over."""
        worker = self._worker
        if worker is None:
            return max(0.0, self._next_fork - now) if self._waiting else 60.0
        if not worker.ready:
            return max(0.0, worker.since + _READY_S - now)
        # One that waits for the processor is looked at again in a moment.
        return max(0.02, worker.since + worker.given[0].order.limit_s - now) if worker.given else 60.0

    def thaw(self, stood_still_s: float) -> None:
        """Time passed in which nobody could run: it is not the evaluator's."""
        if self._worker is not None:
            self._worker.since += stood_still_s

    def turn(self) -> None:
        """Read the worker's answers, judge it, give it what is next."""
        worker = self._worker
        if worker is not None:
            self._read(worker)
            if worker.is_dead():
                self._bury(worker)
            elif worker.lost or (self.outdated and not worker.given):
                worker.kill()
                self._bury(worker)
            elif self._is_over_its_limit(worker):
                worker.overran = worker.given[0].number if worker.given else None
                worker.kill()
                self._bury(worker)
        self._begin_worker()
        self._give()

    def end(self) -> None:
        """No more of this."""
        if self._worker is not None:
            self._worker.kill()

    def _begin_worker(self) -> None:
        if self._worker is not None or not self._waiting or time.monotonic() < self._next_fork:
            return
        try:
            self._worker = _Worker(*self._fork())
            self.outdated = False
        except OSError:
            self._next_fork = time.monotonic() + 0.2

    def _give(self) -> None:
        worker = self._worker
        if worker is None:
            return
        # One that does not know the newest evaluators ends what it has; the next one gets the rest.
        while self._waiting and not self.outdated and len(worker.given) < _AHEAD and len(worker.out) < 1 << 20:
            task = self._waiting.popleft()
            if not worker.given and worker.ready:
                self._begins(worker)
            if worker.input != task.order.input:
                worker.input = task.order.input
                worker.out += frame(INPUT, task.order.input, self.inputs[task.order.input])
            worker.out += frame(TASK, task.number, task.payload)
            worker.given.append(task)
        if worker.out:
            with contextlib.suppress(OSError):
                del worker.out[: worker.channel.send(worker.out)]

    def _begins(self, worker: _Worker) -> None:
        worker.since, worker.cpu_before_s = time.monotonic(), _cpu_of(worker.pid)[0]

    def _read(self, worker: _Worker) -> None:
        while True:
            try:
                data = worker.channel.recv(1 << 18)
            except OSError:  # nothing now, or nothing any more
                return
            if not data:
                worker.lost = True
                return
            for kind, number, payload in worker.frames.feed(data):
                if kind == READY:
                    worker.ready, self._unready = True, 0
                    self._begins(worker)
                elif kind == ANSWER and worker.given and worker.given[0].number == number:
                    (worker.cpu_s,) = CPU_TIME.unpack_from(payload)
                    self._done(worker.given.popleft(), payload[CPU_TIME.size :])
                    self._begins(worker)

    def _done(self, task: _Task, answer: bytes) -> None:
        self._answer(frame(ANSWER, task.number, answer))
        used = task.order.input
        self._uses[used] -= 1
        if not self._uses[used]:
            del self._uses[used]
            if used in self._closed_inputs:
                self._closed_inputs.discard(used)
                self.inputs.pop(used, None)

    def _is_over_its_limit(self, worker: _Worker) -> bool:
        now = time.monotonic()
        if not worker.ready:
            return now - worker.since > _READY_S
        if not worker.given or now - worker.since <= (limit_s := worker.given[0].order.limit_s):
            return False
        used_s, runnable = _cpu_of(worker.pid)
        # It runs at the lowest priority: one that waits for the processor is not to blame, and gets more time.
        worker.starved = runnable and used_s - worker.cpu_before_s < limit_s / 2
        return not worker.starved or now - worker.since > limit_s * _STARVED_AT_MOST

    def _bury(self, worker: _Worker) -> None:
        """The worker is gone: what it had answered counts, what it was at has failed, the rest goes to the next one."""
        self._read(worker)
        worker.channel.close()
        with contextlib.suppress(OSError):
            os.killpg(worker.pid, signal.SIGKILL)
        self._reaped_s += worker.cpu_s
        self._worker = None
        if worker.ready and worker.given and worker.overran in (None, worker.given[0].number):
            self._fail(worker, worker.given.popleft())
        elif not worker.ready:
            self._unready += 1
            self._next_fork = time.monotonic() + 0.1 * self._unready
        self._waiting.extendleft(reversed(worker.given))
        if self._unready >= _MAX_UNREADY:
            os._exit(1)  # no worker comes up: the host decides what then

    def _fail(self, worker: _Worker, task: _Task) -> None:
        if worker.overran is not None:
            said, to_blame = f"no result within {task.order.limit_s:g} s", not worker.starved
            self._done(task, cut_short(said, "timeout", to_blame=to_blame))
        else:
            self._done(task, cut_short("its process ended while it was evaluating", "crashed"))


def _cpu_of(pid: int) -> tuple[float, bool]:
    """CPU seconds of a process, and whether it wants to run; zero and False where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), words[0] == b"R"
    except (OSError, ValueError, IndexError):
        return 0.0, False
