"""The worker process: forked by the fork server, it evaluates one job after the other until its socket is closed.

A frame is a line of JSON, ``[criteria, jobs, sizes]``, and then the inputs as JSON of these sizes: criteria that the
worker does not know yet by their number, and jobs as ``[number, evaluator, input, criteria]`` (criteria 0: the input's
own). Each answer is sent as soon as it is there, so none waits behind an evaluation that hangs.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agenteval_otel.capture import CURRENT, EVALUATING
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.execution.jobs import Awaits, result_of_plain
from agenteval_otel.execution.portable import with_environment
from agenteval_otel.execution.wire import encode_answer, line
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runtime.reentrancy import mark_process

__all__ = ["NOT_LOADED", "READY", "work"]

READY, NOT_LOADED = "ready", "not_loaded"
_DIE_WITH_PARENT = 1

Known = Mapping[int, tuple[Evaluator, Mapping[str, str]]]


def work(channel: socket.socket, evaluators: Known, prctl: Callable[[int, int], int] | None) -> None:
    """Serve the host until it is gone.

    Args:
        channel: The socket to the host.
        evaluators: The evaluators that the fork server loaded, with their variables.
        prctl: The system's call that ends this process with the fork server (Linux).
    """
    if prctl is not None:
        with contextlib.suppress(Exception):
            prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    mark_process()  # monitored functions that evaluators call are not evaluated
    channel.setblocking(True)
    channel.sendall(line([0, 0.0, READY, None]))
    criteria: dict[int, tuple[EvaluationCriteria, ...]] = {}
    reader = channel.makefile("rb", buffering=1 << 18)
    while head := reader.readline():
        new_criteria, jobs, sizes = json.loads(head)
        for number, fields in new_criteria:
            criteria[number] = tuple(EvaluationCriteria.model_validate(criterion) for criterion in fields)
        inputs = [reader.read(size) for size in sizes]
        read: tuple[int, EvaluationInput | None] = (-1, None)
        for number, evaluator, index, wanted in jobs:
            if index != read[0]:
                read = index, _read(inputs[index])
            known = evaluators.get(evaluator)
            if known is None:
                channel.sendall(line([number, time.process_time(), NOT_LOADED, None]))
                continue
            outcome = _evaluated(known, read[1], criteria.get(wanted))
            channel.sendall(encode_answer(number, time.process_time(), outcome))


def _read(encoded: bytes) -> EvaluationInput | None:
    """The input; None where it cannot be read, as when it is nested deeper than JSON may be."""
    try:
        return EvaluationInput.model_validate_json(encoded)
    except Exception:
        return None


def _evaluated(
    known: tuple[Evaluator, Mapping[str, str]],
    evaluation_input: EvaluationInput | None,
    criteria: Sequence[EvaluationCriteria] | None,
) -> Any:
    """The results, or what the evaluation raised."""
    if evaluation_input is None:
        return EvaluationError("the worker process cannot read its input", error_type="invalid_input")
    evaluator, variables = known
    wanted = evaluation_input.criteria if criteria is None else criteria
    pid = os.getpid()
    outcome: Any
    with with_environment(variables):
        try:
            context = contextvars.Context()
            context.run(CURRENT.set, EVALUATING)  # what it calls of monitored handlers is not evaluated
            outcome = context.run(result_of_plain, evaluator.evaluate(evaluation_input, wanted))
        except Awaits:
            outcome = EvaluationError("an evaluator in a worker process must not await", error_type="awaits")
        except BaseException as error:
            outcome = error
    if os.getpid() != pid:
        os._exit(0)  # the evaluator forked, and its child came back here: the answer is its parent's to give
    return outcome
