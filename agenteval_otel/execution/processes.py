"""Processes: evaluations in a worker process, driven by the event loop of the background thread.

Jobs that start within one turn of the loop leave as one frame, each input encoded once. Answers are read a few
milliseconds after the first one came, so that one wake-up takes several. The fork server kills a worker that overruns a
limit: the evaluation that was under way fails, and the others go to the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution.jobs import Job, Outcome
from agenteval_otel.execution.launch import Unavailable
from agenteval_otel.execution.portable import NotPortable
from agenteval_otel.execution.server import Server
from agenteval_otel.execution.wire import answer_of
from agenteval_otel.execution.worker import Worker
from agenteval_otel.execution.worker_process import NOT_LOADED, READY

__all__ = ["Processes"]

_GATHER_S = 0.002
_CHECK_S = 1.0
_MAX_PAUSE_S = 30.0
_MAX_ATTEMPTS = 3


class Processes:
    """The fork server and the worker process of one executor. Nothing is started before the first job.

    `submit` belongs to the thread of an event loop, and all the rest happens there; `close` is for any thread.

    Args:
        complete: Takes a job and its outcome.
        unavailable: Takes a job that cannot run in a worker process, and why; None where its input cannot be sent.
    """

    def __init__(
        self, complete: Callable[[Job, Outcome], None], unavailable: Callable[[Job, Exception | None], None]
    ) -> None:
        self._complete, self._unavailable = complete, unavailable
        self._reset()

    def _reset(self) -> None:
        self._jobs: deque[Job] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._worker: Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = self._closing = False
        self._workers = self._failures = 0
        self._not_before, self._ended_cpu_s = 0.0, 0.0
        self._impossible: Unavailable | None = None

    def __repr__(self) -> str:
        return f"<Processes {'not started' if self._server is None else 'running'} waiting={self.waiting}>"

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._end()

    @property
    def waiting(self) -> int:
        """Evaluations that were submitted and not answered."""
        return len(self._jobs) + (len(self._worker.jobs) if self._worker is not None else 0)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the processes, as far as they are known."""
        worker_s = self._worker.cpu_s if self._worker is not None else 0.0
        return self._ended_cpu_s + worker_s + (self._server.cpu_s if self._server is not None else 0.0)

    def submit(self, job: Job) -> None:
        """Take a job."""
        if job.loop is not self._loop:
            self._move_to(job.loop)
        self._jobs.append(job)
        self._schedule()

    def close(self) -> None:
        """End when nobody waits for an answer any more; returns at once. Later jobs are still done."""
        self._closing = True
        loop = self._loop
        try:
            if loop is None or loop.is_closed():
                raise RuntimeError
            loop.call_soon_threadsafe(self._schedule)
        except RuntimeError:  # its loop is closed
            self._end()

    def forget(self) -> None:
        """In a forked child of the host, and at the host's end: let go of the processes."""
        server, worker = self._server, self._worker
        self._reset()
        if server is not None:
            server.forget()
        if worker is not None:
            with contextlib.suppress(OSError):
                os.close(worker.channel.detach())

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """The background thread is another one: its loop watches the sockets from now on."""
        before, self._loop = self._loop, loop
        self._scheduled, self._timer = False, None
        for part, read in ((self._server, self._server_spoke), (self._worker, self._answers_came)):
            if part is not None:
                _unwatch(before, part)
                loop.add_reader(part.channel, read, loop)

    def _schedule(self) -> None:
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._turn, self._loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # a loop that was replaced came back
        self._scheduled = False
        while self._jobs and self._jobs[0].done is None:
            self._jobs.popleft()
        if self._jobs:
            self._begin_server(loop)
        if self._server is not None:
            self._server.define(self._jobs)
            self._feed_worker(loop)
            self._send_to_server(loop)
        if self.waiting and self._timer is None:
            self._arm(loop)
        if self._closing and not self._owed:
            self._end()

    @property
    def _owed(self) -> bool:
        """Whether anybody waits for an answer."""
        under_way = self._worker.jobs.values() if self._worker is not None else ()
        return any(job.done is not None for job in (*self._jobs, *under_way))

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due_s = time.monotonic(), _CHECK_S
        if self._worker is not None:
            due_s = min(due_s, self._worker.left_s(now))
        elif self._server is None:
            due_s = min(due_s, self._not_before - now)
        due_s = max(0.02, due_s)
        self._timer = loop.call_later(due_s, self._check, loop, now + due_s)

    def _check(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Read what came, then see whether a limit is over."""
        if loop is not self._loop:
            return
        self._timer = None
        now = time.monotonic()
        stood_still_s = now - due if now - due > 1.0 else 0.0  # the process was stopped, or its loop blocked
        if self._worker is not None:
            self._worker.since += stood_still_s
            self._read_worker(loop)
        server, worker = self._server, self._worker
        if server is not None:
            server.heard += stood_still_s
            self._server_spoke(loop)
        if server is not None and self.waiting and server.is_silent(now, worker_ready=worker is None or worker.ready):
            self._lose_server()
        elif worker is not None and worker is self._worker and (error := worker.overrun(now)) is not None:
            self._lose_worker(worker, error)
        self._schedule()

    def _begin_server(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._server is not None:
            return
        reason = self._impossible
        if reason is None and time.monotonic() < self._not_before:
            if self._failures <= 1:
                return
            reason = Unavailable("the worker process ended again and again; it is tried again later")
        if reason is None:
            try:
                self._server = Server()
            except Unavailable as error:
                reason = self._impossible = error
            except OSError as error:  # the machine is short of something, which passes
                self._pause(1.0)
                reason = Unavailable(f"no process can be started at present ({type(error).__name__})")
            else:
                loop.add_reader(self._server.channel, self._server_spoke, loop)
        while reason is not None and self._jobs:  # what waits need not wait for a process
            self._unavailable(self._jobs.popleft(), reason)

    def _pause(self, first_s: float) -> None:
        self._not_before = time.monotonic() + min(_MAX_PAUSE_S, first_s * 2 ** min(self._failures, 10))
        self._failures += 1

    def _send_to_server(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            if self._server is not None and not self._server.send():
                loop.call_later(0.01, self._schedule)
        except OSError:
            self._lose_server()

    def _server_spoke(self, loop: asyncio.AbstractEventLoop) -> None:
        server = self._server
        if loop is not self._loop or server is None:
            return
        messages, ended = server.receive()
        for kind, number, *rest in messages:
            server.heard = time.monotonic()
            self._heard(server, kind, number, rest)
        if ended and server is self._server:
            self._lose_server()
        self._schedule()

    def _heard(self, server: Server, kind: str, number: Any, rest: list[Any]) -> None:
        worker = self._worker if self._worker is not None and self._worker.number == number else None
        if kind == "hello":
            server.greeted = True
            if number != list(sys.version_info[:2]):
                self._impossible = Unavailable("the Python interpreter is of another version")
                self._lose_server()
        elif kind == "loaded":
            server.loading.remove(number)
            server.cpu_s = rest[1]
        elif kind == "forked" and worker is not None:
            worker.pid = rest[0]
        elif kind == "ended":
            if worker is not None and self._loop is not None:
                self._read_worker(self._loop)
                worker.cpu_s = 0.0  # part of what the fork server says
                if worker is self._worker:
                    self._lose_worker(worker, self._crash_of(worker))
            self._ended_cpu_s += rest[0]

    def _lose_server(self) -> None:
        """The fork server died, or does not answer: another one, but not one after the other.

        What was under way three times has failed. It counts against the evaluator that was being loaded, as its module
        may end the process; else nobody is to blame: somebody killed it, such as a kernel that was out of memory.
        """
        server, self._server = self._server, None
        if server is None:
            return
        if self._worker is not None and self._loop is not None:
            self._read_worker(self._loop)  # what it answered before counts
        if self._worker is not None:
            self._requeue(self._worker)
        _unwatch(self._loop, server)
        self._ended_cpu_s += server.cpu_s
        server.end(kill=True)
        self._pause(0.1)
        loading = server.loading[0] if server.loading else None
        for job in list(self._jobs):
            job.attempts += loading in (None, job.state.number)
            if job.attempts >= _MAX_ATTEMPTS:
                self._jobs.remove(job)
                if loading is not None:
                    job.state.strike("its process ended")
                self._complete(job, _crashed())
        self._schedule()

    def _feed_worker(self, loop: asyncio.AbstractEventLoop) -> None:
        server, worker = self._server, self._worker
        if server is None or not self._jobs:
            return
        if worker is not None and not worker.jobs and not worker.knows(self._jobs[0]):
            self._end_worker(worker)  # it was forked before this evaluator was loaded
            worker = None
        if worker is None:
            self._send_to_server(loop)  # the end of the one before
            if server is not self._server:
                return  # it was gone: what waits goes to the next one
            try:
                channel = server.fork(self._workers + 1)
            except OSError:
                return  # no socket can be had now: it is tried again
            self._workers += 1
            worker = self._worker = Worker(self._workers, channel, set(server.defined))
            loop.add_reader(channel, self._answers_came, loop)
        worker.add(self._jobs, self._unavailable)
        self._write(loop, worker)

    def _write(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        if worker is not self._worker or worker.write():
            loop.remove_writer(worker.channel)
        else:
            loop.add_writer(worker.channel, self._write, loop, worker)

    def _answers_came(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in a moment, what comes until then with it."""
        worker = self._worker
        if loop is not self._loop or worker is None:
            return
        if len(worker.jobs) <= 1:
            self._read_worker(loop)
            return
        loop.remove_reader(worker.channel)
        loop.call_later(_GATHER_S, self._read_gathered, loop, worker)

    def _read_gathered(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        if worker is self._worker and loop is self._loop:
            self._read_worker(loop)
        if worker is self._worker and loop is self._loop:
            loop.add_reader(worker.channel, self._answers_came, loop)

    def _read_worker(self, loop: asyncio.AbstractEventLoop) -> None:
        worker = self._worker
        if worker is None:
            return
        messages, ended = worker.receive()
        try:
            for number, cpu_s, kind, body in messages:
                self._answered(worker, number, cpu_s, kind, body)
        except (ValueError, TypeError):  # the evaluator wrote into its socket
            ended = True
        if messages:
            worker.begin_job()
        if ended and self._server is not None:
            self._server_spoke(loop)  # where that is gone too, nobody is to blame
            if worker is self._worker:
                self._lose_worker(worker, self._crash_of(worker))
        elif self._jobs or self._closing:
            self._schedule()

    def _answered(self, worker: Worker, number: int, cpu_s: float, kind: str, body: Any) -> None:
        if kind == READY:
            worker.ready, self._failures = True, 0
            return
        job = worker.jobs.pop(number, None)
        if job is None:
            return
        job.seconds, worker.cpu_s = max(0.0, cpu_s - worker.cpu_s), cpu_s
        if kind == NOT_LOADED:
            self._unavailable(job, NotPortable("it cannot be loaded in another process"))
        else:
            self._complete(job, answer_of(kind, body))

    def _crash_of(self, worker: Worker) -> EvaluationError | None:
        job = worker.current
        if job is None or not worker.ready:
            return None
        job.state.strike("its process ended")
        return _crashed()

    def _lose_worker(self, worker: Worker, error: EvaluationError | None) -> None:
        """The worker is gone, or ended now: what it was at has failed, the rest goes to the next one."""
        if not worker.ready:
            self._failures += 1
            if self._failures >= _MAX_ATTEMPTS:
                self._lose_server()
                return
        failed = worker.jobs.pop(next(iter(worker.jobs))) if error is not None and worker.jobs else None
        self._requeue(worker)
        if failed is not None:
            self._complete(failed, error)
        self._schedule()

    def _requeue(self, worker: Worker) -> None:
        self._jobs.extendleft(job for job in reversed(worker.jobs.values()) if job.done is not None)
        self._end_worker(worker)

    def _end_worker(self, worker: Worker) -> None:
        self._worker = None
        worker.jobs = {}
        _unwatch(self._loop, worker)
        worker.channel.close()
        if self._server is not None:
            self._server.kill(worker.number)
            with contextlib.suppress(OSError):
                self._server.send()

    def _end(self) -> None:
        self._jobs.clear()  # cancelled ones
        if self._worker is not None:
            self._end_worker(self._worker)
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if server is not None:
            self._ended_cpu_s += server.cpu_s
            _unwatch(self._loop, server)
            server.end()


def _crashed() -> EvaluationError:
    return EvaluationError("its process ended while it was evaluating", error_type="crashed")


def _unwatch(loop: asyncio.AbstractEventLoop | None, part: Server | Worker) -> None:
    if loop is not None and not loop.is_closed():
        with contextlib.suppress(Exception):  # a loop of another thread, which ends just now
            loop.remove_reader(part.channel)
            loop.remove_writer(part.channel)
