"""Answers: what an evaluation gave, results or an exception, as JSON; the host sees what it would have seen inline."""

from __future__ import annotations

import contextvars
import functools
import json
from collections.abc import Coroutine
from typing import Any

from pydantic import TypeAdapter

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationResult

__all__ = ["answer_of", "cut_short", "result_of_work", "results_of", "was_cut_short"]

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_MESSAGE = 64 * 1024
_RESULTS, _SLOWLY, _FAILED, _BROKEN = b"R", b"S", b"F", b"B"
_NOT_DUMPED = ("filler", "probability_given_sampled")
_ADAPTER: TypeAdapter[list[EvaluationResult]] = TypeAdapter(list[EvaluationResult], config={"defer_build": True})


def result_of_work(work: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
    """Run an evaluation of the ``cpu`` lane to its end, on this thread.

    Raises:
        EvaluationError: ``wrong_lane`` when it awaits; the class's name for what is no `Exception`, such as SystemExit.
        Exception: Whatever the evaluator raised.
    """
    try:
        context.run(work.send, None)
        work.close()
    except StopIteration as end:
        return end.value
    except Exception:
        raise
    except BaseException as raised:
        raise EvaluationError(type(raised).__name__, error_type=type(raised).__name__) from None
    raise EvaluationError("an evaluator in the cpu lane must not await", error_type="wrong_lane")


def answer_of(work: Coroutine[Any, Any, Any], context: contextvars.Context) -> bytes:
    """Run an evaluation and write down what it gave; never raises."""
    try:
        results = result_of_work(work, context)
        answer = _written(results)
    except BaseException as error:
        return _failed(error)
    if len(answer) <= MAX_ANSWER_BYTES:
        return answer
    return _failed(EvaluationError("its results are larger than 4 MiB", error_type="invalid_result"))


def cut_short(message: str, error_type: str, *, to_blame: bool = True) -> bytes:
    """The answer of an evaluation that was ended: it overran its limit, or its process died.

    Args:
        message: What happened.
        error_type: Its word.
        to_blame: Whether it counts towards the quarantine.
    """
    return (_BROKEN if to_blame else _FAILED) + _failed(EvaluationError(message, error_type=error_type))[1:]


def was_cut_short(answer: bytes) -> bool:
    """Whether the evaluation was ended; an evaluator's own failure with the same word is none of these."""
    return answer[:1] == _BROKEN


def results_of(answer: bytes) -> Any:
    """What the evaluation returned; something else than results, as None.

    Raises:
        EvaluationSkipped, EvaluationError: As the evaluator did.
        Exception: Of another class: one of the same name and text.
    """
    kind, body = answer[:1], answer[1:]
    if kind == _RESULTS:
        return _ADAPTER.validate_json(body)
    said: Any = json.loads(body)
    if kind == _SLOWLY:
        if said is None:
            return None
        return [EvaluationResult.model_validate(fields).model_copy(update=unsaid) for fields, unsaid in said]
    raise _exception(said)


def _written(results: Any) -> bytes:
    if not isinstance(results, list) or not all(isinstance(result, EvaluationResult) for result in results):
        return _SLOWLY + b"null"  # refused in the host, as every list of something else
    results = [_plain(result) for result in results]
    if all(result.filler is None and result.probability_given_sampled == 1.0 for result in results):
        try:
            return _RESULTS + _ADAPTER.dump_json(results)
        except Exception:
            pass  # halves of surrogate pairs, or objects in the metadata
    fields = [(result.model_dump(), {name: getattr(result, name) for name in _NOT_DUMPED}) for result in results]
    return _SLOWLY + json.dumps(fields, default=repr).encode()


def _plain(result: EvaluationResult) -> EvaluationResult:
    """What is no score must not look like one when it comes back from JSON."""
    if result.score is None or isinstance(result.score, bool | int | float | str):
        return result
    return result.model_copy(update={"score": float("nan")})


def _failed(error: BaseException) -> bytes:
    try:
        message = str(error)[:_MAX_MESSAGE]
    except Exception:
        message = "(its message could not be read)"
    said = {
        "name": type(error).__name__,
        "kind": "skipped" if isinstance(error, EvaluationSkipped) else "failed",
        "error_type": error.error_type if isinstance(error, EvaluationError) else None,
        "message": message,
    }
    return _FAILED + json.dumps(said, default=repr).encode()


def _exception(said: dict[str, Any]) -> Exception:
    name, message = str(said["name"]), str(said["message"])
    if said["kind"] == "skipped":
        return EvaluationSkipped(message)
    if said["error_type"] is not None:
        kind = EvaluationError if name == "EvaluationError" else _named(name, EvaluationError)
        failed: Exception = kind(message, error_type=said["error_type"])
        return failed
    raised: Exception = _named(name, _Raised)(message)
    return raised


class _Raised(Exception):
    """An exception of the child's, under the name that it had there."""


@functools.lru_cache(maxsize=256)
def _named(name: str, root: type[Any]) -> type[Any]:
    return type(name, (root,), {"__module__": __name__})
