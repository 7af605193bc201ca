"""Worker: a worker process as the host's event loop sees it: what it was sent, in the order of its answers."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution.jobs import Job
from agenteval_otel.execution.wire import Lines, encode_input, line
from agenteval_otel.models import EvaluationCriteria

__all__ = ["Worker"]

_AHEAD = 256
_MAX_FRAME = 1 << 20
_MAX_CRITERIA = 64
_STARVED_AT_MOST = 4.0


class Worker:
    """One worker process.

    Args:
        number: The fork server's number for it.
        channel: The socket to it.
        evaluators: Numbers of the evaluators that it knows: those that were loaded before it was forked.
    """

    def __init__(self, number: int, channel: socket.socket, evaluators: set[int]) -> None:
        self.number, self.channel = number, channel
        self.jobs: dict[int, Job] = {}
        self.ready, self.pid, self.cpu_s = False, 0, 0.0
        self.since = time.monotonic()
        self._evaluators = evaluators
        self._lines, self._out = Lines(), bytearray()
        self._criteria: list[Sequence[EvaluationCriteria]] = []
        self._jobs_sent, self._cpu_before_s = 0, 0.0

    @property
    def current(self) -> Job | None:
        """The job that it is at."""
        return next(iter(self.jobs.values()), None)

    def knows(self, job: Job) -> bool:
        """Whether it was forked after the job's evaluator was loaded."""
        return job.state.number in self._evaluators

    def begin_job(self) -> None:
        """The time of the current job runs from now on."""
        self.since, self._cpu_before_s = time.monotonic(), self.cpu_s

    def add(self, jobs: deque[Job], refuse: Callable[[Job, None], None]) -> None:
        """Take as many of the jobs as it may have; `refuse` those whose input has no JSON form."""
        if not self.jobs and self.ready:
            self.begin_job()
        while self._has_room() and jobs and (jobs[0].done is None or self.knows(jobs[0])):
            self._add_frame(jobs, refuse)

    def _has_room(self) -> bool:
        return len(self.jobs) < _AHEAD and len(self._out) < _MAX_FRAME

    def _add_frame(self, waiting: deque[Job], refuse: Callable[[Job, None], None]) -> None:
        criteria: list[Any] = []
        jobs: list[tuple[int, int, int, int]] = []
        inputs: list[bytes] = []
        indexes: dict[int, int] = {}
        size = 0
        while waiting and len(self.jobs) < _AHEAD and size < _MAX_FRAME:
            job = waiting[0]
            if job.done is not None and not self.knows(job):
                break
            waiting.popleft()
            if job.done is None:
                continue
            index = indexes.get(id(job.evaluation_input))
            try:
                if index is None:
                    encoded = encode_input(job.evaluation_input)
                    index = indexes[id(job.evaluation_input)] = len(inputs)
                    inputs.append(encoded)
                    size += len(encoded)
                number = self._number_of(job, criteria)
            except Exception:
                refuse(job, None)
                continue
            self._jobs_sent += 1
            jobs.append((self._jobs_sent, job.state.number, index, number))
            self.jobs[self._jobs_sent] = job
        if jobs:
            self._out += line([criteria, jobs, list(map(len, inputs))])
            self._out += b"".join(inputs)

    def _number_of(self, job: Job, new: list[Any]) -> int:
        """The number of the job's criteria; 0 where they are the input's own."""
        if job.criteria is job.evaluation_input.criteria:
            return 0
        for number, known in enumerate(self._criteria, 1):
            if known is job.criteria:
                return number
        encoded = [criterion.model_dump(mode="json") for criterion in job.criteria]
        self._criteria.append(job.criteria)
        if len(self._criteria) >= _MAX_CRITERIA:
            self._evaluators = set()  # made anew for each answer: the next worker begins with none of them
        new.append([len(self._criteria), encoded])
        return len(self._criteria)

    def write(self) -> bool:
        """Send what waits; False when the rest has to wait. That it is gone shows when it is read."""
        try:
            while self._out:
                del self._out[: self.channel.send(self._out)]
        except BlockingIOError:
            return False
        except OSError:
            self._out.clear()
        return True

    def receive(self) -> tuple[list[Any], bool]:
        """Its answers, and whether it is gone."""
        return self._lines.receive(self.channel)

    def left_s(self, now: float) -> float:
        """Until the limit of the current job."""
        job = self.current
        return 60.0 if job is None or not self.ready else self.since + job.limit_s - now

    def overrun(self, now: float) -> EvaluationError | None:
        """The failure of the current job, where it overran its limit; held against its evaluator, unless it starved.

        It runs at the lowest priority: one that waits for the processor gets up to four times its limit.
        """
        job = self.current
        if job is None or not self.ready or self.left_s(now) >= 0:
            return None
        used_s, runnable = _cpu_of(self.pid)
        if not (runnable and used_s - self._cpu_before_s < job.limit_s / 2):
            job.state.strike("it overran its time limit")
        elif now - self.since <= job.limit_s * _STARVED_AT_MOST:
            return None
        return EvaluationError(f"no result within {job.limit_s:g} s", error_type="timeout")


def _cpu_of(pid: int) -> tuple[float, bool]:
    """CPU seconds of a process, and whether it wants to run or is stopped; zero and False where that is not seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), words[0] in (b"R", b"T")
    except (OSError, ValueError, IndexError):
        return 0.0, False
