"""The host's side of worker processes: a thread that keeps one running and sends evaluations to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agenteval_otel.engine.execution.jobs import Job
from agenteval_otel.engine.execution.wire import Gone, Lines, NotPortable, RunsHere, answer_of, line
from agenteval_otel.errors import EvaluationError
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.masking import is_secret
from agenteval_otel.runtime.named_modules import folder_of_named_modules
from agenteval_otel.runtime.reentrancy import EvaluationThread

_MAX_BATCH = 256
_MAX_BATCH_BYTES = 1 << 20
_GATHER_S = 0.002
_STARVED_AT_MOST = 4
_MAX_FAILED_LOADS = 3
# the host may have the default action of SIGPIPE, which ends it
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_MAX_PAUSE_S = 30.0
_END_S = 1.0
_ALLOWED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV",
    "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT",
})  # fmt: skip
_ALLOWED_PREFIXES = ("LC_", "PYTHON")
# Not while it boots: a `sitecustomize`, such as that of `opentelemetry-instrument`, would start
# threads in it.
_LATER = frozenset({"PYTHONPATH", "PYTHONSTARTUP"})
_OWN = {"AGENTEVAL_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
_BOOT = (
    "import json, os, sys; os.closerange(3, 65536); os.nice(10); "
    "sys.path[:], later, folder = json.loads(sys.argv.pop()); "
    "from agenteval_otel.engine.execution.fork_server import main; os.environ.update(later); main(folder)"
)
_PYTHON = re.compile(r"(?i)(python|pypy)[\d.]*w?(\.exe)?")
_BOOT_S = 60.0
_LOADING_S = 120.0
_FORKING_S = 30.0
_SLICE_S = 0.25


class NoWorkerProcess(RunsHere):
    """Says that no worker process can be used here or now. The text says why."""


class Supervisor:
    """Runs the fork server and the worker process of one executor.

    Nothing is started before the first job.
    """

    def __init__(self) -> None:
        self._reset()
        reset_in_child(self._forget)

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self.server: ForkServerClient | None = None
        self._worker: WorkerHandle | None = None
        self._failures = 0  # of the fork server
        self._not_before = 0.0  # of the fork server

    def __repr__(self) -> str:
        return f"<Supervisor {'not started' if self.server is None else 'running'}>"

    def submit(self, job: Job) -> None:
        with self._lock:
            if self._thread is None:
                thread = EvaluationThread(target=self._run, name="agenteval-supervisor")
                thread.start()
                self._thread = thread
            self._jobs.put(job)

    def close(self) -> None:
        """End the processes after the waiting jobs. Returns at once. Later jobs are still done."""
        self._closing = True
        self._jobs.put(None)

    def _forget(self) -> None:
        """Let go of what belongs to the parent, in a forked child of the host."""
        for part in (self.server, self._worker):
            if part is not None:
                part.channel.close()
        self._reset()

    def leave(self) -> None:
        """Let the processes end with the host, and start nothing any more."""
        self._not_before = math.inf
        for part in (self.server, self._worker):
            if part is not None:
                part.channel.detach()  # Python would warn of a socket that stays open

    def _run(self) -> None:
        while True:
            self._serve(self._next_batch())
            if self._closing and self._jobs.empty():
                self._end()
                with self._lock:
                    if self._jobs.empty():
                        self._thread = None
                        return

    def _next_batch(self) -> deque[Job]:
        jobs = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while len(jobs) < _MAX_BATCH:
                jobs.append(self._jobs.get_nowait())
        return deque(job for job in jobs if job is not None)

    def _serve(self, jobs: deque[Job]) -> None:
        """Have these jobs done. Each is delivered whatever happens."""
        while jobs:
            try:
                server = self._running_server()
                self._load(server, jobs)
                if jobs:
                    self._exchange(server, self._worker_for(server, jobs), jobs)
            except NoWorkerProcess as error:
                while jobs:
                    jobs.popleft().deliver(error)
            except Exception:  # mostly `Gone`: the fork server has ended
                self._end(patience_s=0.0)
                self._pause()

    def _running_server(self) -> ForkServerClient:
        if self.server is None:
            if time.monotonic() < self._not_before:
                raise NoWorkerProcess("no worker process could be started. It is tried again later")
            try:
                self.server = ForkServerClient()
            except OSError as error:  # the machine is short of something, which passes
                self._pause()
                raise NoWorkerProcess(
                    f"no process can be started at present ({type(error).__name__})"
                ) from None
            self.server.wait_until_up()
        return self.server

    def _load(self, server: ForkServerClient, jobs: deque[Job]) -> None:
        """Load the jobs' evaluators. Jobs of evaluators that cannot be loaded run elsewhere."""
        for job in list(jobs):
            state = job.state
            if state.number not in server.problems:
                if state.failed_loads < _MAX_FAILED_LOADS:
                    state.failed_loads += 1  # until it is loaded: the server may end meanwhile
                    server.load(state.number, state.recipe(job.evaluator))
                    state.failed_loads = 0
                else:  # the host has already imported its module, so running it there is safe
                    server.problems[state.number] = "it ends the process that imports it"
            if problem := server.problems[state.number]:
                jobs.remove(job)
                job.deliver(NotPortable(f"it cannot be loaded in another process ({problem})"))

    def _worker_for(self, server: ForkServerClient, jobs: deque[Job]) -> WorkerHandle:
        worker = self._worker
        if worker is not None:
            has_ended = readable(worker.channel, 0.0)
            if has_ended or not all(job.state.number in worker.evaluators for job in jobs):
                self._end_worker(server)
        if self._worker is None:
            self._worker = server.fork()
            self._worker.wait_until_ready()
        return self._worker

    def _exchange(self, server: ForkServerClient, worker: WorkerHandle, jobs: deque[Job]) -> None:
        """Send jobs and deliver their answers, until all are answered or the worker is lost."""
        for left in range(self._send(worker, jobs), 0, -1):
            job = jobs.popleft()
            began = time.monotonic()
            is_lost = False
            try:
                worker.cpu_s, kind, body = self._answer(worker, job, has_more=left > 1)
                outcome = answer_of(kind, body)
                self._failures = 0
            except (Gone, EvaluationError) as error:
                outcome = error
                is_lost = True
            if isinstance(outcome, Gone):
                job.state.strike("its process ended")
                outcome = EvaluationError(
                    "its process ended while it was evaluating", error_type="crashed"
                )
            job.seconds = time.monotonic() - began
            job.deliver(outcome)
            if is_lost:
                self._end_worker(server)
                return

    def _send(self, worker: WorkerHandle, jobs: deque[Job]) -> int:
        """Send the first of these jobs, and return how many.

        Jobs that were cancelled, are quarantined or have no JSON form are left out.
        """
        messages: list[bytes] = []
        size = 0
        before: Job | None = None
        for job in list(jobs):
            if size > _MAX_BATCH_BYTES:
                break
            if quarantined := job.state.quarantine():  # since it began to wait
                jobs.remove(job)
                job.deliver(quarantined)
                continue
            try:
                message = None if job.done is None else _message(job, before)
            except Exception:
                job.deliver(RunsHere())
                message = None
            if message is None:
                jobs.remove(job)
                continue
            messages.append(message)
            size += len(message)
            before = job
        with contextlib.suppress(OSError):  # it has ended, which shows when its answer is read
            worker.channel.sendall(b"%d\n%b" % (len(messages), b"".join(messages)), _NO_SIGNAL)
        return len(messages)

    def _answer(self, worker: WorkerHandle, job: Job, *, has_more: bool) -> Any:
        """Return the answer to a job.

        Raises `Gone` if the worker has ended, and the time-out of the job.

        The worker runs at the lowest priority: while it waits for the processor it gets up to four
        times the limit.
        """

        def wait() -> bool:
            if not readable(worker.channel, job.limit_s, lambda: job.done is None):
                return False
            if has_more:
                time.sleep(_GATHER_S)  # one wake-up of this thread takes several answers
            return True

        for _ in range(_STARVED_AT_MOST):
            answer = worker.lines.read(wait)
            if isinstance(answer, list) and len(answer) == 3:
                return answer
            if answer is not None:  # an evaluator has written to the socket
                raise Gone
            if job.done is None or not worker.is_starved(job.limit_s):
                break
        if job.done is not None:
            job.state.strike("it overran its time limit")
        raise job.timeout()

    def _end_worker(self, server: ForkServerClient) -> None:
        worker = self._worker
        self._worker = None
        if worker is not None:
            worker.channel.close()
            server.end_worker()

    def _pause(self) -> None:
        """Set when the next fork server may start: at once the first time, later after a pause."""
        self._failures += 1
        pause_s = 0.0
        if self._failures != 1:
            pause_s = min(_MAX_PAUSE_S, 2.0 ** min(self._failures - 2, 10))
        self._not_before = max(self._not_before, time.monotonic() + pause_s)

    def _end(self, patience_s: float = _END_S) -> None:
        server = self.server
        worker = self._worker
        self.server = self._worker = None
        if worker is not None:
            worker.channel.close()
        if server is not None:
            server.end(patience_s)


def _message(job: Job, before: Job | None) -> bytes:
    """Return a job as three lines (see `wire`). Raises if its input has no JSON form."""
    criteria = b""
    encoded = b""
    if before is None or job.evaluation_input is not before.evaluation_input:
        encoded = job.evaluation_input.model_dump_json(exclude_unset=True).encode()
    if job.criteria is job.evaluation_input.criteria:
        criteria = b"null"
    elif before is None or job.criteria is not before.criteria:
        criteria = line([criterion.model_dump(mode="json") for criterion in job.criteria]).rstrip()
    return b"%d\n%b\n%b\n" % (job.state.number, criteria, encoded)


class WorkerHandle:
    """Holds a worker process and the channel to it.

    `evaluators` are the numbers of those that it knows, `cpu_s` the CPU seconds of its last answer.
    """

    def __init__(self, pid: int, channel: socket.socket, evaluators: set[int]) -> None:
        self.pid = pid
        self.channel = channel
        self.evaluators = evaluators
        self.lines = Lines(channel)
        self.cpu_s = 0.0

    def wait_until_ready(self) -> None:
        if self.lines.read(lambda: readable(self.channel, _FORKING_S)) is None:
            raise Gone

    def is_starved(self, limit_s: float) -> bool:
        """Tell whether it waits for the processor, or is stopped.

        Return False if it used half of the limit or more. This is seen on Linux.
        """
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                state, *fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return False
        ticks = int(fields[10]) + int(fields[11])
        used_s = ticks / os.sysconf("SC_CLK_TCK") - self.cpu_s
        return state in (b"R", b"T") and used_s < limit_s / 2


class ForkServerClient:
    """Represents the fork server to the host.

    A request blocks until it is answered, and raises `Gone` where it is not.

    `problems` maps the number of each evaluator to why it could not be loaded. The text is empty if
    it was loaded.
    """

    def __init__(self) -> None:
        python = _python()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self.pid = _spawn(python, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        ours.settimeout(None)  # whatever the host's default is
        self.channel = ours
        self.problems: dict[int, str] = {}
        self._lines = Lines(ours)

    def wait_until_up(self) -> None:
        self._answer(_BOOT_S)  # it imports what every worker needs

    def load(self, number: int, recipe: bytes) -> None:
        self._send(b'["load",%d,%b]\n' % (number, recipe))
        self.problems[number] = self._answer(_LOADING_S)

    def fork(self) -> WorkerHandle:
        self._send(line(["fork"]))
        if not readable(self.channel, _FORKING_S):
            raise Gone
        data, descriptors, _, _ = socket.recv_fds(self.channel, 4096, 1)
        if not data or not descriptors:
            raise Gone
        channel = socket.socket(fileno=descriptors[0])
        channel.settimeout(None)
        loaded = {number for number, problem in self.problems.items() if not problem}
        return WorkerHandle(json.loads(data)[0], channel, loaded)

    def end_worker(self) -> None:
        self._send(line(["end"]))

    def end(self, patience_s: float) -> None:
        """Close its socket, so that it ends, and kill it if it does not.

        No zombie is left. Blocks until then.
        """
        self.channel.close()
        if not self._ends_within(patience_s):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self._ends_within(10.0)  # the lowest priority may have to wait even for its end

    def _send(self, message: bytes) -> None:
        try:
            self.channel.sendall(message, _NO_SIGNAL)
        except OSError:
            raise Gone from None

    def _answer(self, limit_s: float) -> Any:
        answer = self._lines.read(lambda: readable(self.channel, limit_s))
        if answer is None:
            raise Gone
        return answer[0]

    def _ends_within(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        # reaped by the host: the number may be another process's by now
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.002)
        return True


def readable(
    channel: socket.socket, limit_s: float, gives_up: Callable[[], bool] = lambda: False
) -> bool:
    """Tell whether something arrives within the limit.

    Time in which this process stood still does not count.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    waited_s = 0.0
    while True:
        slice_s = min(_SLICE_S, max(0.0, limit_s - waited_s))
        began = time.monotonic()
        if poll.poll(slice_s * 1000):
            return True
        waited_s += min(time.monotonic() - began, 2 * _SLICE_S)
        if waited_s >= limit_s or gives_up():
            return False


def _python() -> str:
    """Return the path of a Python of this version.

    The running program may be none (uWSGI, a program that embeds Python).
    """
    if not (hasattr(os, "fork") and hasattr(os, "posix_spawn")):
        raise NoWorkerProcess("this platform cannot fork")
    own = sys.executable or ""
    if _PYTHON.fullmatch(os.path.basename(own)):
        return own
    for folder in (sys.exec_prefix, sys.base_exec_prefix):
        other = os.path.join(folder, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
        if os.access(other, os.X_OK):
            return other
    raise NoWorkerProcess("no Python interpreter is known that could be started")


def _spawn(python: str, descriptor: int) -> int:
    """Start it with the descriptor as standard input and none of our other ones.

    Return its process id.
    """
    environment: dict[str, str] = {}
    for name, value in os.environ.items():
        is_allowed = name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)
        if is_allowed and name not in _LATER and not is_secret(name):
            environment[name] = value
    path = [part or os.getcwd() for part in sys.path if isinstance(part, str)]
    variables = {name: os.environ[name] for name in sorted(_LATER) if name in os.environ}
    later = json.dumps([path, variables, folder_of_named_modules()])
    flags = ["-P", "-W", "ignore"]
    flags += ["-O"] * sys.flags.optimize
    if sys.flags.utf8_mode:
        flags += ["-X", "utf8"]
    command = [python, *flags, "-c", _BOOT, later]
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    reset_signals = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
    # Its own process group, so that an interrupt at the terminal reaches only the host. Not its own
    # session: on Linux that is also its own scheduling group, where its low priority would not
    # favor the host.
    return os.posix_spawn(
        python,
        command,
        environment | _OWN,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=reset_signals,
    )
