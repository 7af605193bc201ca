"""What passes between this process and a worker process: lines of JSON; nothing in them can be executed.

A batch is the number of its jobs as a line, and then three lines for each job: the evaluator's number, the criteria
(``null``: the input's own) and the input; an empty line stands for the same as in the job before. An answer is
``[cpu_s, kind, body]``: the worker's CPU seconds so far, and results as lists of field values or an exception.
"""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, EvaluationResult

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_MESSAGE = 64 * 1024
_RESULTS, _OTHER, _FAILED, _SKIPPED = "results", "other", "failed", "skipped"
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_FIELDS = tuple(name for name in EvaluationResult.model_fields if name != "judgement")


class Gone(Exception):
    """The other side has ended, or sends what is no message."""


def line(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), default=_plain).encode() + b"\n"


class Lines:
    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._buffer = channel, bytearray()

    def read(self, wait: Callable[[], bool]) -> Any:
        """The next message; None where there is none and `wait`, which waits for the socket, returns False. Raises
        `Gone`.
        """
        while (end := self._buffer.find(b"\n")) < 0:
            if not wait():
                return None
            try:
                data = self._channel.recv(1 << 18)
            except OSError:
                raise Gone from None
            if not data or len(self._buffer) > 2 * _MAX_ANSWER_BYTES:
                raise Gone
            self._buffer += data
        message = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decoded(message)


def decoded(message: bytes) -> list[Any]:
    """A line as a message; raises `Gone` where it is not a list in JSON."""
    try:
        values = json.loads(message)
    except (ValueError, RecursionError):
        raise Gone from None
    if not isinstance(values, list) or not values:
        raise Gone
    return values


def encode_input(evaluation_input: EvaluationInput) -> bytes:
    return evaluation_input.__pydantic_serializer__.to_json(evaluation_input, exclude_unset=True)


def encode_answer(cpu_s: float, outcome: Any) -> bytes:
    """The answer to a job; never raises."""
    try:
        answer = line([cpu_s, *_encoded(outcome)])
    except Exception as error:
        return line([cpu_s, *_encoded_error(error)])
    if len(answer) <= _MAX_ANSWER_BYTES:
        return answer
    too_large = EvaluationError("its results are larger than 4 MiB", error_type="invalid_result")
    return line([cpu_s, *_encoded_error(too_large)])


def answer_of(kind: Any, body: Any) -> Any:
    """The results of the evaluation, or the exception that it raised; an unreadable answer is a failure."""
    try:
        if kind == _RESULTS:
            return [EvaluationResult.model_validate(dict(zip(_FIELDS, values, strict=True))) for values in body]
        if kind == _OTHER:
            return None  # refused like every value that is no list of results
        name, error_type, message = str(body[0]), body[1], str(body[2])
        if kind == _SKIPPED:
            return EvaluationSkipped(message)
        if error_type is None:
            return _named(name, _Raised)(message)
        failure = EvaluationError if name == "EvaluationError" else _named(name, EvaluationError)
        return failure(message, error_type=str(error_type))
    except (LookupError, TypeError, ValueError):
        return EvaluationError("its results cannot be read", error_type="invalid_result")


def _encoded(outcome: Any) -> tuple[str, Any]:
    if isinstance(outcome, BaseException):
        return _encoded_error(outcome)
    if not isinstance(outcome, list) or not all(isinstance(result, EvaluationResult) for result in outcome):
        return _OTHER, None
    return _RESULTS, [_values(result) for result in outcome]


def _values(result: EvaluationResult) -> list[Any]:
    fields = [result.__dict__[name] for name in _FIELDS]
    score = fields[1]
    if score is not None and not isinstance(score, bool | int | float | str):
        fields[1] = float("nan")  # an invalid score must not look valid when it comes out of JSON
    return fields


def _encoded_error(error: BaseException) -> tuple[str, Any]:
    try:
        message = str(error)[:_MAX_MESSAGE]
    except Exception:
        message = "(its message could not be read)"
    kind = _SKIPPED if isinstance(error, EvaluationSkipped) else _FAILED
    error_type = error.error_type if isinstance(error, EvaluationError) else None
    return kind, [type(error).__name__, error_type, message]


def _plain(value: Any) -> Any:
    try:
        return _ANY.dump_python(value, mode="json")
    except Exception:
        return repr(value)


class _Raised(Exception):
    """An exception of the worker's, under the name that it had there."""


@functools.lru_cache(maxsize=256)
def _named(name: str, root: type[Any]) -> type[Any]:
    return type(name, (root,), {"__module__": __name__})
