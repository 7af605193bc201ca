"""The fork server and the worker process.

The fork server imports everything once and forks the worker process.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agenteval_otel.capture.calls import CURRENT, EVALUATING
from agenteval_otel.engine.execution.jobs import Awaits, result_of_plain
from agenteval_otel.engine.execution.wire import (
    encode_answer,
    line,
    load_evaluator,
    with_environment,
)
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.named_modules import find_in
from agenteval_otel.runtime.reentrancy import PROCESS

_LOOK_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DIE_WITH_PARENT = 1

Evaluators = dict[int, tuple[Evaluator, Mapping[str, str]]]


def main(folder: str | None) -> None:
    """Be the fork server. Standard input is the socket to the host.

    Args:
        folder: Where the host finds named modules, besides `sys.path`.
    """
    find_in(folder)
    with contextlib.suppress(OSError):
        # only now, after the imports: with this priority they would take minutes on a busy machine
        os.nice(19)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # where memory runs out the kernel ends this process and the workers, and not the host
        file.write("1000")
    for number in _SIGNALS:
        # Sent to a whole process group, but the host decides when this ends. Not SIG_IGN, which
        # programs that evaluators start would inherit.
        signal.signal(number, lambda *_: None)
    with contextlib.suppress(Exception):
        import resource

        # a crash leaves no file in the host's folder
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # before any module of the user's is imported: `configure` and `monitor` do nothing here
    PROCESS.is_ours = True
    channel = socket.socket(fileno=os.dup(0))
    channel.setblocking(True)  # not so where gevent, eventlet or a default timeout made it
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    ForkServer(channel).serve()


class ForkServer:
    """Loads evaluators, and forks a worker with them each time that the host asks for one."""

    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._evaluators: Evaluators = {}
        self._worker = 0
        self._parent = os.getppid()
        self._libc: Any = None
        with contextlib.suppress(Exception):  # a Python without ctypes
            import ctypes

            self._libc = ctypes.CDLL(None)
        # By a timer, because importing an evaluator's module may never end.
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        gc.collect()
        gc.freeze()  # what is here stays: the workers' collectors do not copy its pages

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            self._host.sendall(line(["up"]))
            for request in self._host.makefile("rb"):
                self._answer(*json.loads(request))
        self._end_worker()
        os._exit(0)

    def _answer(self, request: str, *arguments: Any) -> None:
        if request == "load":
            self._host.sendall(line([self._load(*arguments)]))
        else:
            self._end_worker()
            if request == "fork":
                self._fork()

    def _load(self, number: int, recipe: dict[str, Any]) -> str:
        try:
            with with_environment(recipe["environment"]):
                self._evaluators[number] = load_evaluator(recipe), recipe["environment"]
        except BaseException as error:
            return type(error).__name__
        return ""

    def _fork(self) -> None:
        hosts, workers = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                hosts.close()
                os.close(self._host.detach())  # its reader would keep it open
                self._prepare_worker()
                work(workers, self._evaluators)
            finally:
                os._exit(0)
        workers.close()
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._worker = pid
        socket.send_fds(self._host, [line([pid])], [hosts.fileno()])
        hosts.close()

    def _prepare_worker(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        reset_in_child(_take_signals)
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # what it starts itself is killed with it
        with contextlib.suppress(Exception):  # Linux alone has it
            self._libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)

    def _end_worker(self) -> None:
        pid = self._worker
        self._worker = 0
        if pid:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _look(self, *_: object) -> None:
        if os.getppid() != self._parent:
            self._end_worker()
            os._exit(0)


def work(channel: socket.socket, evaluators: Evaluators) -> None:
    """Run as the worker process.

    Each answer is sent at once, so an evaluation that hangs delays no earlier answer.
    """
    channel.sendall(line(["ready"]))
    reader = channel.makefile("rb", buffering=1 << 18)
    evaluation_input: EvaluationInput | None = None
    criteria: Sequence[EvaluationCriteria] | None = None
    while count := reader.readline():
        jobs = [
            (reader.readline(), reader.readline(), reader.readline()) for _ in range(int(count))
        ]
        for number, criteria_line, input_line in jobs:
            if criteria_line != b"\n":
                fields = json.loads(criteria_line)
                criteria = None
                if fields is not None:
                    criteria = tuple(map(EvaluationCriteria.model_validate, fields))
            if input_line != b"\n":
                evaluation_input = None
                with contextlib.suppress(Exception):
                    evaluation_input = EvaluationInput.model_validate_json(input_line)
            evaluator, variables = evaluators[int(number)]
            outcome = _evaluated(evaluator, variables, evaluation_input, criteria)
            channel.sendall(encode_answer(time.process_time(), outcome))


def _evaluated(
    evaluator: Evaluator,
    variables: Mapping[str, str],
    evaluation_input: EvaluationInput | None,
    criteria: Sequence[EvaluationCriteria] | None,
) -> Any:
    if evaluation_input is None:  # nested deeper than JSON may be, say
        return EvaluationError(
            "the worker process cannot read its input", error_type="invalid_input"
        )
    if criteria is None:
        criteria = evaluation_input.criteria
    pid = os.getpid()
    outcome: object
    with with_environment(variables):
        try:
            context = contextvars.Context()
            # what it calls of monitored handlers is not evaluated
            context.run(CURRENT.set, EVALUATING)
            outcome = context.run(result_of_plain, evaluator.evaluate(evaluation_input, criteria))
        except Awaits:
            outcome = EvaluationError(
                "an evaluator in a worker process must not await", error_type="awaits"
            )
        except BaseException as error:
            outcome = error
    if os.getpid() != pid:
        os._exit(0)  # the evaluator forked, and its child returned here: only the parent answers
    return outcome


def _take_signals() -> None:
    """Restore default signal handling in a process that an evaluator forks.

    So signals can end it.
    """
    for number in _SIGNALS:
        with contextlib.suppress(ValueError):  # forked from a thread of a sub-interpreter
            signal.signal(number, signal.SIG_DFL)
