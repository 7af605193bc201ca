"""What passes between this process and a worker process: lines of JSON; nothing in them can be executed.

An answer is ``[job, cpu_s, kind, body]``: the worker's CPU seconds so far, and results as lists of field values, or an
exception as its class's name, kind, ``error_type`` and text. The host sees what it would have seen inline.
"""

from __future__ import annotations

import functools
import json
import socket
from typing import Any

from pydantic import TypeAdapter

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, EvaluationResult

__all__ = ["Lines", "Malformed", "answer_of", "encode_answer", "encode_input", "line"]

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_MESSAGE = 64 * 1024
_RESULTS, _OTHER, _FAILED, _SKIPPED = "results", "other", "failed", "skipped"
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_FIELDS = tuple(name for name in EvaluationResult.model_fields if name != "judgement")


class Malformed(Exception):
    """The other side does not speak as it should."""


def line(message: Any) -> bytes:
    """A message as a line of JSON."""
    return json.dumps(message, separators=(",", ":"), default=_plain).encode() + b"\n"


class Lines:
    """Puts messages together from what arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete with this.

        Raises:
            Malformed: It is not JSON, or larger than a message may be.
        """
        complete, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += data
            if len(self._rest) > 2 * MAX_ANSWER_BYTES:
                raise Malformed
            return []
        complete, self._rest = self._rest + complete, rest
        try:
            messages = json.loads(b"[" + complete.replace(b"\n", b",") + b"]")
        except (ValueError, RecursionError):
            raise Malformed from None
        assert isinstance(messages, list)
        return messages

    def receive(self, channel: socket.socket) -> tuple[list[Any], bool]:
        """The messages that are there now, and whether the other side is gone; a malformed one counts as that."""
        messages: list[Any] = []
        try:
            while data := channel.recv(1 << 18):
                messages += self.feed(data)
        except BlockingIOError:
            return messages, False
        except (OSError, Malformed):
            return messages, True
        return messages, True


def encode_input(evaluation_input: EvaluationInput) -> bytes:
    """The input as JSON, for one frame however many evaluators it is for.

    Raises:
        Exception: It holds what has no JSON form.
    """
    return evaluation_input.__pydantic_serializer__.to_json(evaluation_input, exclude_unset=True)


def encode_answer(number: int, cpu_s: float, outcome: Any) -> bytes:
    """The answer to a job; never raises."""
    try:
        answer = line([number, cpu_s, *_encoded(outcome)])
    except Exception as error:
        return line([number, cpu_s, *_encoded_error(error)])
    if len(answer) <= MAX_ANSWER_BYTES:
        return answer
    too_large = EvaluationError("its results are larger than 4 MiB", error_type="invalid_result")
    return line([number, cpu_s, *_encoded_error(too_large)])


def answer_of(kind: Any, body: Any) -> Any:
    """What the evaluation gave: its results, or the exception that it raised; what cannot be read has failed."""
    try:
        if kind == _RESULTS:
            return [EvaluationResult.model_validate(dict(zip(_FIELDS, values, strict=True))) for values in body]
        if kind == _OTHER:
            return None  # refused where every list of something else than results is
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
    values = result.__dict__
    fields = [values[name] for name in _FIELDS]
    score = fields[1]
    if score is not None and not isinstance(score, bool | int | float | str):
        fields[1] = float("nan")  # what is no score must not look like one when it comes out of JSON
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
