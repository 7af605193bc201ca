"""Processes: the host's end of the worker process, on the event loop of the background thread.

Jobs that start within one turn of the loop leave as one frame, each input encoded once. Answers are read a few
milliseconds after the first one came, so that one wake-up takes several. The fork server kills a worker that overruns a
limit: the evaluation that was under way fails, and the others go to the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from agenteval_otel.dispatch.own import OwnThread
from agenteval_otel.errors import EvaluationError
from agenteval_otel.execution.jobs import Job, Outcome
from agenteval_otel.execution.launch import ForkServerProcess, Unavailable
from agenteval_otel.execution.portable import NotPortable
from agenteval_otel.execution.wire import Lines, Malformed, answer_of, encode_input, line
from agenteval_otel.execution.worker_process import NOT_LOADED, READY
from agenteval_otel.models import EvaluationCriteria

__all__ = ["Processes"]

_AHEAD = 256
_MAX_FRAME = 1 << 20
_GATHER_S = 0.002
_CHECK_S = 1.0
_HELLO_S, _LOADING_S, _READY_S = 60.0, 120.0, 30.0
_MAX_PAUSE_S = 30.0
_MAX_ATTEMPTS = 3
_STARVED_AT_MOST = 4.0


class _Worker:
    """One worker: its socket, the jobs that it was sent in the order of its answers, and what it knows."""

    def __init__(self, number: int, channel: socket.socket, evaluators: set[int]) -> None:
        self.number, self.channel, self.evaluators = number, channel, evaluators
        self.lines, self.out = Lines(), bytearray()
        self.jobs: dict[int, Job] = {}
        self.criteria: list[Sequence[EvaluationCriteria]] = []
        self.ready, self.pid = False, 0
        self.since, self.cpu_s, self.cpu_before_s = time.monotonic(), 0.0, 0.0


class _Server:
    """The fork server, and what it was sent."""

    def __init__(self) -> None:
        self.process = ForkServerProcess()
        self.channel = self.process.channel
        self.lines, self.out = Lines(), bytearray()
        self.defined: set[int] = set()
        self.loading: list[int] = []
        self.greeted, self.heard, self.cpu_s = False, time.monotonic(), 0.0
        self.fork: tuple[int, socket.socket] | None = None


class Processes:
    """The worker process of one executor. Nothing is started before the first job.

    Args:
        complete: Takes a job and its outcome, on the loop's thread.
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
        self._server: _Server | None = None
        self._worker: _Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = self._closing = False
        self._number, self._workers = 0, 0
        self._failures, self._not_before = 0, 0.0
        self._ended_cpu_s = 0.0
        self._impossible: Unavailable | None = None

    def __repr__(self) -> str:
        state = "not started" if self._server is None else "running"
        return f"<Processes {state} waiting={self.waiting}>"

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
        """Take a job, on its loop's thread."""
        if job.loop is not self._loop:
            self._move_to(job.loop)
        self._jobs.append(job)
        self._schedule()

    def close(self) -> None:
        """End when nothing waits any more; from any thread, returns at once. Later jobs are still done."""
        self._closing = True
        loop = self._loop
        try:
            if loop is None or loop.is_closed():
                raise RuntimeError
            loop.call_soon_threadsafe(self._schedule)
        except RuntimeError:  # its loop is closed
            self._end()

    def forget(self) -> None:
        """In a forked child of the host: the processes are the parent's."""
        server, worker, closing = self._server, self._worker, self._closing
        self._reset()
        self._closing = closing
        if server is not None:
            server.process.forget()
            if server.fork is not None:
                _detach(server.fork[1])
        if worker is not None:
            _detach(worker.channel)

    # The loop: everything below runs on its thread.

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """The background thread is another one: its loop watches the sockets from now on."""
        before, self._loop = self._loop, loop
        self._scheduled, self._timer = False, None
        if before is not None and not before.is_closed():
            for channel in self._channels():
                with contextlib.suppress(Exception):
                    before.remove_reader(channel)
                    before.remove_writer(channel)
        for channel, read in self._channels().items():
            loop.add_reader(channel, read, loop)

    def _channels(self) -> dict[socket.socket, Callable[[asyncio.AbstractEventLoop], None]]:
        channels: dict[socket.socket, Callable[[asyncio.AbstractEventLoop], None]] = {}
        if self._server is not None:
            channels[self._server.channel] = self._read_server
        if self._worker is not None:
            channels[self._worker.channel] = self._answers_came
        return channels

    def _schedule(self) -> None:
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._turn, self._loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # a loop that was replaced came back
        self._scheduled = False
        if self._jobs:
            if self._server is None:
                self._begin_server()
            if self._server is not None:
                self._define_next()
                self._send_jobs()
                self._send_to_server()
        if self.waiting and self._timer is None:
            self._arm()
        if self._closing and not self._owed:
            self._end()

    def _arm(self) -> None:
        assert self._loop is not None
        worker, now = self._worker, time.monotonic()
        due_s = _CHECK_S
        if worker is not None and worker.jobs and worker.ready:
            due_s = min(due_s, worker.since + next(iter(worker.jobs.values())).limit_s - now)
        elif self._server is None:
            due_s = min(due_s, self._not_before - now)
        self._timer = self._loop.call_later(max(0.02, due_s), self._check, self._loop, now + max(0.02, due_s))

    def _check(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Read what came, then see whether a limit is over."""
        if loop is not self._loop:
            return
        self._timer = None
        late_s = time.monotonic() - due
        if late_s > 1.0:  # the process was stopped, or its loop blocked: that was not the evaluator
            if self._worker is not None:
                self._worker.since += late_s
            if self._server is not None:
                self._server.heard += late_s
        if self._worker is not None:
            self._read_worker(loop)
        if self._server is not None:
            self._read_server(loop)
        self._check_limits()
        self._schedule()

    def _check_limits(self) -> None:
        now, server, worker = time.monotonic(), self._server, self._worker
        if server is not None and self.waiting:
            expects = not server.greeted or server.loading or (worker is not None and not worker.ready)
            limit_s = _HELLO_S if not server.greeted else _LOADING_S if server.loading else _READY_S
            if expects and now - server.heard > limit_s:
                self._lose_server()
                return
        if worker is None or not worker.ready or not worker.jobs:
            return
        job = next(iter(worker.jobs.values()))
        took_s = now - worker.since
        if took_s <= job.limit_s:
            return
        used_s, runnable = _cpu_of(worker.pid)
        # At the lowest priority: one that waits for the processor is not to blame, and gets more time.
        starved = runnable and used_s - worker.cpu_before_s < job.limit_s / 2
        if not starved or took_s > job.limit_s * _STARVED_AT_MOST:
            if not starved:
                job.state.strike("it overran its time limit")
            self._lose_worker(EvaluationError(f"no result within {job.limit_s:g} s", error_type="timeout"))

    @property
    def _owed(self) -> bool:
        """Whether anybody waits for an answer."""
        under_way = self._worker.jobs.values() if self._worker is not None else ()
        return any(job.done is not None for job in (*self._jobs, *under_way))

    # The fork server.

    def _begin_server(self) -> None:
        now = time.monotonic()
        if self._impossible is not None:
            self._refuse_all(self._impossible)
            return
        if now < self._not_before:
            if self._failures > 1:  # what waits need not wait for it
                self._refuse_all(Unavailable("the worker process ended again and again; it is tried again later"))
            return
        try:
            self._server = _Server()
        except Unavailable as unavailable:
            self._impossible = unavailable
            self._refuse_all(unavailable)
            return
        except OSError as error:  # the machine is short of something, which passes
            self._pause(1.0)
            self._refuse_all(Unavailable(f"no process can be started at present ({type(error).__name__})"))
            return
        assert self._loop is not None
        self._loop.add_reader(self._server.channel, self._read_server, self._loop)

    def _pause(self, first_s: float) -> None:
        self._not_before = time.monotonic() + min(_MAX_PAUSE_S, first_s * 2 ** min(self._failures, 10))
        self._failures += 1

    def _define_next(self) -> None:
        """Have the evaluators of the jobs that wait loaded."""
        server = self._server
        assert server is not None
        for job in self._jobs:
            number = job.state.number
            if number not in server.defined:
                server.out += b'["define",%d,%b]\n' % (number, job.state.recipe())
                server.defined.add(number)
                server.loading.append(number)
                server.heard = time.monotonic()

    def _send_to_server(self) -> None:
        server = self._server
        if server is None:
            return
        try:
            while server.out:
                del server.out[: server.channel.send(server.out)]
            if server.fork is not None:
                number, theirs = server.fork
                socket.send_fds(server.channel, [line(["fork", number])], [theirs.fileno()])
                theirs.close()
                server.fork = None
        except BlockingIOError:
            assert self._loop is not None
            self._loop.call_later(0.01, self._schedule)
        except OSError:
            self._lose_server()

    def _read_server(self, loop: asyncio.AbstractEventLoop) -> None:
        server = self._server
        if loop is not self._loop or server is None:
            return
        try:
            messages = []
            while data := server.channel.recv(1 << 16):
                messages += server.lines.feed(data)
            ended = True
        except BlockingIOError:
            ended = False
        except (OSError, Malformed):
            ended = True
        for message in messages:
            self._obey(server, message)
        if ended and self._server is server:
            self._lose_server()
        self._schedule()

    def _obey(self, server: _Server, message: list[Any]) -> None:
        kind, number = message[0], message[1]
        server.heard = time.monotonic()
        worker = self._worker
        if kind == "hello":
            server.greeted = number == list(sys.version_info[:2])
            if not server.greeted:
                self._impossible = Unavailable("the Python interpreter is of another version")
                self._lose_server()
        elif kind == "loaded":
            server.loading.remove(number)
            server.cpu_s = message[3]
        elif kind == "forked" and worker is not None and worker.number == number:
            worker.pid = message[2]
        elif kind == "ended":
            if worker is not None and worker.number == number:
                self._worker_ended()
            self._ended_cpu_s += message[2]

    def _lose_server(self) -> None:
        """The fork server died, or does not answer: another one, but not one after the other.

        What was under way three times has failed; it counts against the evaluator that was being loaded, as its module
        may end the process.
        """
        server, self._server = self._server, None
        if server is None:
            return
        self._forget_channel(server.channel)
        if server.fork is not None:
            server.fork[1].close()
        self._ended_cpu_s += server.cpu_s
        server.process.kill()
        _in_thread(server.process.end)
        if self._worker is not None:
            self._read_worker(self._worker_loop())
        if self._worker is not None:
            self._requeue(self._worker)
        loading = server.loading[0] if server.loading else None
        self._pause(0.1)
        failed = []
        for job in self._jobs:
            job.attempts += loading in (None, job.state.number)
            if job.attempts >= _MAX_ATTEMPTS:
                failed.append(job)
        for job in failed:
            self._jobs.remove(job)
            if loading is not None:
                job.state.strike("its process ended")
            self._complete(job, EvaluationError("its process ended while it was evaluating", error_type="crashed"))
        self._schedule()

    # The worker.

    def _worker_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def _send_jobs(self) -> None:
        server, worker = self._server, self._worker
        assert server is not None
        while self._jobs and self._jobs[0].done is None:
            self._jobs.popleft()
        if not self._jobs:
            return
        if worker is not None and not worker.jobs and self._jobs[0].state.number not in worker.evaluators:
            self._end_worker(worker)  # it was forked before this evaluator was loaded
            worker = None
        if worker is None:
            worker = self._fork_worker(server)
        if worker is None:
            return
        while self._jobs and len(worker.jobs) < _AHEAD and len(worker.out) < _MAX_FRAME:
            if not self._add_frame(worker):
                break
        self._write_worker()

    def _fork_worker(self, server: _Server) -> _Worker | None:
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            self._refuse_all(Unavailable("no socket can be had at present"))
            return None
        ours.setblocking(False)
        self._workers += 1
        server.fork = self._workers, theirs
        server.heard = time.monotonic()
        self._worker = _Worker(self._workers, ours, set(server.defined))
        self._worker_loop().add_reader(ours, self._answers_came, self._worker_loop())
        return self._worker

    def _add_frame(self, worker: _Worker) -> bool:
        """One frame with as many of the waiting jobs as fit; False when the next one has to wait."""
        criteria: list[Any] = []
        jobs: list[Any] = []
        inputs: list[bytes] = []
        indexes: dict[int, int] = {}
        size = 0
        if not worker.jobs and worker.ready:
            self._begins(worker)
        while self._jobs and len(worker.jobs) < _AHEAD and size < _MAX_FRAME:
            job = self._jobs[0]
            if job.state.number not in worker.evaluators:
                break
            self._jobs.popleft()
            if job.done is None:
                continue
            index = indexes.get(id(job.evaluation_input))
            try:
                if index is None:
                    encoded = encode_input(job.evaluation_input)
                    index = indexes[id(job.evaluation_input)] = len(inputs)
                    inputs.append(encoded)
                    size += len(encoded)
                asked = self._criteria(worker, job, criteria)
            except Exception:  # what has no JSON form
                self._unavailable(job, None)
                continue
            self._number += 1
            job.number = self._number
            jobs.append((job.number, job.state.number, index, asked))
            worker.jobs[job.number] = job
        if jobs:
            worker.out += line([criteria, jobs, [len(encoded) for encoded in inputs]])
            worker.out += b"".join(inputs)
        return bool(jobs)

    def _criteria(self, worker: _Worker, job: Job, new: list[Any]) -> int:
        if job.criteria is job.evaluation_input.criteria:
            return 0
        for number, known in enumerate(worker.criteria, 1):
            if known is job.criteria:
                return number
        if len(worker.criteria) >= 64:  # made anew for each answer: the worker forgets nothing, so it is replaced
            worker.evaluators = set()
        worker.criteria.append(job.criteria)
        new.append([len(worker.criteria), [criterion.model_dump(mode="json") for criterion in job.criteria]])
        return len(worker.criteria)

    def _write_worker(self) -> None:
        worker = self._worker
        if worker is None:
            return
        loop = self._worker_loop()
        try:
            while worker.out:
                del worker.out[: worker.channel.send(worker.out)]
            loop.remove_writer(worker.channel)
        except BlockingIOError:
            loop.add_writer(worker.channel, self._write_worker)
        except OSError:
            loop.remove_writer(worker.channel)  # its end is read as such

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

    def _read_gathered(self, loop: asyncio.AbstractEventLoop, worker: _Worker) -> None:
        if worker is not self._worker or loop is not self._loop:
            return
        self._read_worker(loop)
        if worker is self._worker:
            loop.add_reader(worker.channel, self._answers_came, loop)

    def _read_worker(self, loop: asyncio.AbstractEventLoop) -> None:
        worker = self._worker
        if loop is not self._loop or worker is None:
            return
        messages: list[Any] = []
        try:
            while data := worker.channel.recv(1 << 18):
                messages += worker.lines.feed(data)
            ended = True
        except BlockingIOError:
            ended = False
        except (OSError, Malformed):
            ended = True
        try:
            for number, cpu_s, kind, body in messages:
                self._answered(worker, number, cpu_s, kind, body)
        except (ValueError, TypeError, Malformed):
            ended = True
        if messages and worker.jobs:
            self._begins(worker)
        if ended and worker is self._worker:
            self._lose_worker(self._crash(worker))
        elif self._jobs or self._closing:
            self._schedule()

    def _answered(self, worker: _Worker, number: int, cpu_s: float, kind: str, body: Any) -> None:
        if kind == READY:
            worker.ready, self._failures = True, 0
            self._begins(worker)
            return
        job = worker.jobs.pop(number, None)
        if job is None:
            return
        job.seconds, worker.cpu_s = max(0.0, cpu_s - worker.cpu_s), cpu_s
        if kind == NOT_LOADED:
            self._unavailable(job, NotPortable("it cannot be loaded in another process"))
        else:
            self._complete(job, answer_of(kind, body))

    def _begins(self, worker: _Worker) -> None:
        worker.since, worker.cpu_before_s = time.monotonic(), worker.cpu_s

    def _worker_ended(self) -> None:
        """The fork server reaped the worker."""
        worker = self._worker
        if worker is not None:
            worker.cpu_s = 0.0  # part of what the fork server says
            self._read_worker(self._worker_loop())
        if worker is not None and worker is self._worker:
            self._lose_worker(self._crash(worker))

    def _crash(self, worker: _Worker) -> EvaluationError | None:
        if not worker.ready or not worker.jobs:
            return None
        next(iter(worker.jobs.values())).state.strike("its process ended")
        return EvaluationError("its process ended while it was evaluating", error_type="crashed")

    def _lose_worker(self, error: EvaluationError | None) -> None:
        """The worker is gone, or ended now: what it was at has failed, the rest goes to the next one."""
        worker = self._worker
        if worker is None:
            return
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

    def _requeue(self, worker: _Worker) -> None:
        self._jobs.extendleft(job for job in reversed(worker.jobs.values()) if job.done is not None)
        worker.jobs = {}
        self._end_worker(worker)

    def _end_worker(self, worker: _Worker) -> None:
        self._worker = None
        self._forget_channel(worker.channel)
        server = self._server
        if server is not None:
            if server.fork is not None and server.fork[0] == worker.number:
                server.fork[1].close()
                server.fork = None
            else:
                server.out += line(["kill", worker.number])
                self._send_to_server()

    # The end.

    def _forget_channel(self, channel: socket.socket) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(Exception):
                loop.remove_reader(channel)
                loop.remove_writer(channel)
        channel.close()

    def _refuse_all(self, reason: Unavailable) -> None:
        if self._worker is not None:
            self._requeue(self._worker)
        while self._jobs:
            self._unavailable(self._jobs.popleft(), reason)

    def _end(self) -> None:
        self._jobs.clear()  # cancelled ones
        if self._worker is not None:
            self._worker.jobs = {}
            self._end_worker(self._worker)
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if server is not None:
            self._ended_cpu_s += server.cpu_s
            self._forget_channel(server.channel)
            _in_thread(server.process.end)


def _detach(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.close(channel.detach())


def _in_thread(work: Callable[[], None]) -> None:
    """Wait for a process's end where nobody waits for us; at once where no thread can be had."""
    try:
        OwnThread(target=work, name="agenteval-reaper").start()
    except RuntimeError:
        work()


def _cpu_of(pid: int) -> tuple[float, bool]:
    """CPU seconds of a process, and whether it wants to run or is stopped; zero and False where that is not seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), words[0] in (b"R", b"T")
    except (OSError, ValueError, IndexError):
        return 0.0, False
