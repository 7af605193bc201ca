"""The worker: forked from the template, it evaluates one task after the other until its socket is closed."""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping

from agenteval_otel.capture import CURRENT, EVALUATING
from agenteval_otel.dispatch.own import take_process
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runner.child.answers import answer_of, cut_short
from agenteval_otel.runner.child.frames import ANSWER, INPUT, READY, TASK, Frames, TaskOrder, frame
from agenteval_otel.runner.child.recipes import with_environment

__all__ = ["CPU_TIME", "work"]

CPU_TIME = struct.Struct("!d")
"""Before every answer: the CPU seconds that this worker used so far."""
_DIE_WITH_PARENT = 1
_UNREADABLE = cut_short("the child process cannot read its input", "invalid_input", to_blame=False)


def work(
    channel: socket.socket,
    evaluators: Mapping[int, tuple[Evaluator, Mapping[str, str]]],
    criteria: Mapping[int, tuple[EvaluationCriteria, ...]],
    prctl: Callable[[int, int], int] | None,
) -> None:
    """Serve the template until it is gone."""
    if prctl is not None:
        with contextlib.suppress(Exception):
            prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    take_process()  # monitored functions that evaluators call are not to be evaluated
    channel.setblocking(True)
    channel.sendall(frame(READY, 0))
    frames = Frames()
    held: EvaluationInput | None = None
    while data := channel.recv(1 << 18):
        for kind, number, payload in frames.feed(data):
            if kind == INPUT:
                held = _read(payload)
            elif kind == TASK:
                order = TaskOrder.decoded(payload)
                answer = _UNREADABLE if held is None else _evaluated(order, held, evaluators, criteria)
                channel.sendall(frame(ANSWER, number, CPU_TIME.pack(time.process_time()) + answer))


def _read(payload: bytes) -> EvaluationInput | None:
    """The input; None when it cannot be read, as when it is nested deeper than JSON may be: no evaluator's doing."""
    try:
        return EvaluationInput.model_validate_json(payload)
    except Exception:
        return None


def _evaluated(
    order: TaskOrder,
    held: EvaluationInput,
    evaluators: Mapping[int, tuple[Evaluator, Mapping[str, str]]],
    criteria: Mapping[int, tuple[EvaluationCriteria, ...]],
) -> bytes:
    known = evaluators.get(order.evaluator)
    if known is None:
        return cut_short("the child process does not know this evaluator", "crashed")
    evaluator, variables = known
    asked = criteria[order.criteria] if order.criteria else held.criteria
    pid = os.getpid()
    with with_environment(variables):
        context = contextvars.Context()
        context.run(CURRENT.set, EVALUATING)  # what it calls of monitored handlers is none of their work
        answer = answer_of(evaluator.evaluate(held, asked), context)
    if os.getpid() != pid:
        os._exit(0)  # the evaluator forked, and its child came back here: the answer is its parent's to give
    return answer
