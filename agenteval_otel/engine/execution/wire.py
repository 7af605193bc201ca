"""What passes between this process and a worker process.

Evaluators pass as recipes, and everything passes as lines of JSON that execute nothing.

A batch is the number of its jobs as a line, and then three lines for each job: the evaluator's
number, the criteria (``null``: the input's own) and the input. An empty line stands for the same as
in the job before. An answer is ``[cpu_s, kind, body]``: the worker's CPU seconds so far, and
results as lists of field values or an exception.
"""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agenteval_otel.components.explained import explain_validation
from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import MAIN, Evaluator, importable, imported
from agenteval_otel.models import EvaluationResult

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_MESSAGE = 64 * 1024
_RESULTS = "results"
_FAILED = "failed"
_SKIPPED = "skipped"
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_FIELDS = tuple(name for name in EvaluationResult.model_fields if name != "judgement")


class Gone(Exception):
    """Says that the other side has ended, or sends what is no message."""


def line(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":"), default=_plain).encode() + b"\n"


class Lines:
    """Reads and writes messages on a socket, one a line."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._buffer = bytearray()

    def read(self, wait: Callable[[], bool]) -> Any:
        """Return the next message. Raises `Gone`.

        Return None if there is none and `wait` for the socket returns False.
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
    try:
        values = json.loads(message)
    except (ValueError, RecursionError):
        raise Gone from None
    if not isinstance(values, list) or not values:
        raise Gone
    return values


def encode_answer(cpu_s: float, outcome: object) -> bytes:
    """Return the answer to a job. Raises nothing."""
    try:
        answer = line([cpu_s, *_encoded(outcome)])
        if len(answer) > _MAX_ANSWER_BYTES:
            raise EvaluationError("its results are larger than 4 MiB", error_type="invalid_result")
        return answer
    except Exception as error:
        return line([cpu_s, *_encoded_error(error)])


def answer_of(kind: Any, body: Any) -> Any:
    """Return the results of the evaluation, or the exception that it raised.

    An unreadable answer is a failure.
    """
    try:
        if kind == _RESULTS:
            return [
                EvaluationResult.model_validate(dict(zip(_FIELDS, values, strict=True)))
                for values in body
            ]
        name = str(body[0])
        error_type = body[1]
        message = str(body[2])
        if kind == _SKIPPED:
            return EvaluationSkipped(message)
        if error_type is None:
            return _named(name, _Raised)(message)
        failure = EvaluationError if name == "EvaluationError" else _named(name, EvaluationError)
        return failure(message, error_type=str(error_type))
    except (LookupError, TypeError, ValueError):
        return EvaluationError("its results cannot be read", error_type="invalid_result")


def _encoded(outcome: object) -> tuple[str, Any]:
    if isinstance(outcome, BaseException):
        return _encoded_error(outcome)
    if not isinstance(outcome, list) or not all(
        isinstance(result, EvaluationResult) for result in outcome
    ):
        raise EvaluationError("expected a list of EvaluationResult", error_type="invalid_result")
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


def _plain(value: object) -> Any:
    try:
        return _ANY.dump_python(value, mode="json")
    except Exception:
        return repr(value)


class _Raised(Exception):
    """Stands for an exception of the worker's, under the name that it had there."""


@functools.lru_cache(maxsize=256)
def _named(name: str, root: type[Any]) -> type[Any]:
    return type(name, (root,), {"__module__": __name__})


class RunsHere(Exception):
    """Says that the evaluation cannot run in a worker process.

    It runs in a thread of this process.
    """


class NotPortable(RunsHere):
    """Says that the evaluator cannot be made again in another process. The text says why."""


def serialize_evaluator(evaluator: Evaluator) -> dict[str, Any]:
    """Return what `load_evaluator` needs to make an equal evaluator in another process, in JSON.

    Raises `NotPortable`.
    """
    kind = type(evaluator)
    try:
        place = importable(kind)
        fields = evaluator.to_child()
        again = kind.from_child(fields)
    except (ConfigurationError, ValidationError) as error:
        wrong = error if isinstance(error, ConfigurationError) else explain_validation(error, kind)
        raise NotPortable(
            f"what {wrong.path or 'it'} holds cannot be made again in another process"
        ) from None
    except Exception as error:
        # Our own words name types and modules; what others raise may quote their configuration.
        reason = f"{type(error).__name__} in its fields"
        if type(error) is LookupError:
            reason = str(error)
        raise NotPortable(reason) from None
    if again != evaluator or again.fingerprint != evaluator.fingerprint:
        raise NotPortable("its fields hold something that is not in its dump")
    function = fields.get("function")
    of_main = place[0] == MAIN or (isinstance(function, tuple | list) and MAIN in function)
    main = _main() if of_main else None
    environment = {name: os.environ[name] for name in kind.child_environment if name in os.environ}
    return {
        "place": place,
        "fields": fields,
        "fingerprint": evaluator.fingerprint,
        "main": main,
        "environment": environment,
    }


def load_evaluator(recipe: Mapping[str, Any]) -> Evaluator:
    """Return the evaluator of a recipe, in another process.

    Raises whatever its module or its class raises.
    """
    if recipe["main"] is not None:
        from multiprocessing.spawn import prepare

        # loads the program's file under another name, so its `__main__` block does not run
        prepare(recipe["main"])
    evaluator: Evaluator = imported(*recipe["place"]).from_child(recipe["fields"])
    # A function of the program itself has another module's name here; its results are signed as
    # they are there.
    evaluator.__dict__["fingerprint"] = recipe["fingerprint"]
    evaluator.prepare()
    return evaluator


@contextmanager
def with_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while: only this evaluator sees its own, and only while it runs."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _main() -> dict[str, str]:
    """Return how `multiprocessing` loads the program's own file without running it."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        raise NotPortable("it is defined in a program without a file of its own")
    try:
        with open(path, "rb") as file:
            has_guard = re.search(rb"^if __name__ == ['\"]__main__['\"]", file.read(), re.MULTILINE)
    except OSError:
        raise NotPortable("it is defined in a program whose file cannot be read") from None
    if not has_guard:
        raise NotPortable('it is defined in a program without `if __name__ == "__main__":`')
    name = getattr(spec, "name", None)
    # of `python -m package` only the path is loaded again
    if isinstance(name, str) and not name.endswith(MAIN):
        return {"init_main_from_name": name}
    return {"init_main_from_path": os.path.abspath(path)}
