"""Evaluation over HTTP: ``POST /v1/evaluate``, the input and the result of `run_evaluation`.

Evaluators of a request run in a process of their own, evaluators of the settings on the event loop
of a thread. Neither makes the other wait, nor the thread on which spans arrive: there the time
limit is kept too, because an evaluator that blocks its own loop would block the limit with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.otlp.body import BodyError, Decoding, Refusal, strict_json, unpacked
from agenteval_otel.config.process import current_settings, default_pipeline, run_fields
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.compat import ENTRIES
from agenteval_otel.models import EvaluationInput
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.run import OfflineRun
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.loop import LoopThread
from agenteval_otel.sidecar.requested import (
    MAX_REPLY_BYTES,
    TOO_LARGE,
    RequestedEvaluation,
    as_job,
    check_fields,
    config_fields,
    input_of,
    json_of,
    reply_of,
)

MAX_BYTES: Final = 1024 * 1024
_AT_ONCE: Final = 8
_LIMIT_S: Final = 120.0
_GRACE_S: Final = 2.0
"""How long after `_LIMIT_S` a loop that nothing blocks may take to say that it is over."""
_MAX_BLOCKED: Final = 4
"""The most threads that evaluators of the settings may block."""
_WORKERS_LOOP: Final = LoopThread("agenteval-requested")
"""The loop that waits for worker processes. No evaluator runs on it."""
_BUSY: Final = Refusal(
    429,
    f"{_AT_ONCE} requests are evaluated, or wait for it, already: try again later",
    retry_after_s=2,
)
_LATE: Final = Refusal(503, f"not evaluated within {_LIMIT_S:g} s", retry_after_s=60)
_IS_BLOCKED: Final = Refusal(
    503, f"evaluators of the settings block {_MAX_BLOCKED} threads", retry_after_s=60
)
_OFF: Final = Refusal(503, "evaluation is switched off: enabled is false", retry_after_s=60)
_REASONS: Final = {
    400: "input", 401: "token", 405: "input", 408: "slow", 413: "size", 415: "input", 429: "busy", 500: "failed",
    503: "busy",
}  # fmt: skip
"""Why a request has no result, by its HTTP status. Others are counted where they are refused."""


class _Request(NamedTuple):
    """A checked request.

    Attributes:
        text: The request, for a worker process. Empty if the evaluators of the settings are to run.
        fields: What else the request says for the evaluators of the settings.
        evaluation_input: What they evaluate. None if the request has evaluators of its own.
    """

    text: str
    fields: Mapping[str, Any]
    evaluation_input: EvaluationInput | None


class Evaluations:
    """The requests at ``/v1/evaluate``. Used on the receivers' event loop alone.

    Each body, and each reply that is not sent yet, takes of `room`, which it shares with no other
    path: clients that evaluate cannot crowd out spans. Requests with evaluators of their own and
    those without are counted apart: neither takes the other's places.
    """

    def __init__(self) -> None:
        self.room = Decoding(_AT_ONCE * MAX_BYTES)
        # How many more may be evaluated at once, by whose evaluators.
        self._places = {"request": _AT_ONCE, "settings": _AT_ONCE}
        self._of_requests = Executor(live=True)
        self._requested = RequestedEvaluation()
        self._of_settings = _OfSettings()
        self._blocked: list[_OfSettings] = []

    def __repr__(self) -> str:
        return f"<Evaluations, free places: {self._places}>"

    @property
    def refusal(self) -> Refusal | None:
        """Return why a request would not be evaluated now, or None.

        This is known before its body is read.
        """
        if not default_pipeline().enabled:
            return _OFF
        return None if any(self._places.values()) else _BUSY

    async def reply(self, body: bytes | bytearray, encoding: str) -> str | Refusal:
        """Return the result as JSON, or why there is none."""
        refusal = self.refusal
        if refusal is not None:  # it was None when the body began
            return refusal
        request = await self.room.run(partial(checked, body, encoding))
        if isinstance(request, Refusal):
            return request
        kind = "request" if request.evaluation_input is None else "settings"
        if not self._places[kind]:
            return _BUSY
        self._places[kind] -= 1
        try:
            if request.evaluation_input is None:
                work = partial(self._by_request, request.text)
                # Shielded: where its client has left, the work still ends by itself.
                return await asyncio.shield(asyncio.wrap_future(_WORKERS_LOOP.start(work)))
            return await self._by_settings(request.evaluation_input, request.fields)
        finally:
            self._places[kind] += 1

    async def _by_settings(
        self, evaluation_input: EvaluationInput, fields: Mapping[str, Any]
    ) -> str | Refusal:
        """Evaluate with the evaluators of the settings.

        If one of them blocks their loop, replace the loop.
        """
        self._blocked = [each for each in self._blocked if each.has_thread]
        if len(self._blocked) >= _MAX_BLOCKED:
            return _IS_BLOCKED
        of_settings = self._of_settings
        result = await of_settings.result(evaluation_input, fields)
        if of_settings.is_blocked and of_settings is self._of_settings:
            self._blocked.append(of_settings)
            self._of_settings = _OfSettings()
            of_settings.close()
        return result

    async def _by_request(self, text: str) -> str | Refusal:
        """Evaluate with the evaluators of the request. Runs on the loop of `_WORKERS_LOOP`."""
        outcome = await self._in_worker(text)
        # A request that overruns its time, or ends its process, says nothing about the next one.
        self._of_requests.state(self._requested).strikes = 0
        if isinstance(outcome, EvaluationError):
            return _refusal_of(outcome)
        if isinstance(outcome, BaseException):
            return _failed(outcome)
        status, reply = reply_of(outcome)
        return reply if status == 200 else Refusal(status, reply)

    async def _in_worker(self, text: str) -> Any:
        """Return what a worker process gave for a request, or the exception that it ended with."""
        arrived = asyncio.get_running_loop().create_future()

        def done(outcome: object) -> None:
            if not arrived.done():
                arrived.set_result(outcome)

        cancel = self._of_requests.start(self._requested, as_job(text), (), done)
        try:
            return await arrived
        finally:
            cancel()

    def close(self) -> None:
        """End the thread and the processes once nothing waits for them. Does not block."""
        self.room.close()
        self._of_requests.close()
        self._of_settings.close()


class _OfSettings:
    """Evaluates with the evaluators of the settings that are in force, and their judges' limits.

    It has a loop of its own until an evaluator blocks that for longer than `_LIMIT_S`: then
    `is_blocked`, and it is of no further use. What was observed of an evaluator (it hangs, it is
    slow) is kept until then, or until the settings change.
    """

    def __init__(self) -> None:
        self.is_blocked = False
        self._loop = LoopThread("agenteval-evaluate")
        self._executor = Executor(live=True)
        self._pipeline: Pipeline | None = None
        self._given_up: asyncio.Future[None] | None = None  # done once an evaluator blocks the loop
        self._waiting = 0  # requests that wait for their result
        self._is_closed = False

    @property
    def has_thread(self) -> bool:
        return self._loop.is_running

    async def result(
        self, evaluation_input: EvaluationInput, fields: Mapping[str, Any]
    ) -> str | Refusal:
        """Return the result, or why there is none.

        Runs on the receivers' loop, which keeps the time.
        """
        if self._given_up is None:
            self._given_up = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            work = partial(self._evaluated, evaluation_input, fields)
            arriving = asyncio.wrap_future(self._loop.start(work))
            arriving.add_done_callback(_ignore_outcome)  # where nothing waits for it any more
            # It cancels nothing: where its client has left, the work still ends by itself.
            either: set[asyncio.Future[Any]] = {arriving, self._given_up}
            await asyncio.wait(
                either,
                timeout=_LIMIT_S + _GRACE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if arriving.done():
                return arriving.result()
            self.is_blocked = True
            if not self._given_up.done():
                self._given_up.set_result(None)  # the others on this loop need not wait longer
            return _LATE
        finally:
            self._waiting -= 1
            self._end_if_unused()

    async def _evaluated(
        self, evaluation_input: EvaluationInput, fields: Mapping[str, Any]
    ) -> str | Refusal:
        """Evaluate on the own loop. Its limit ends what awaits, not what blocks."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                config = self._config(evaluation_input, fields)
                with closing(OfflineRun(config, executor=self._executor)) as run:
                    reply = json_of(await run.evaluate(evaluation_input))
        except ConfigurationError as error:
            return Refusal(400, str(error))
        except TimeoutError:
            return _LATE
        except Exception as error:
            return _failed(error)
        if len(reply.encode()) > MAX_REPLY_BYTES:
            return TOO_LARGE
        return reply

    def _config(
        self, evaluation_input: EvaluationInput, fields: Mapping[str, Any]
    ) -> EvaluationRunConfig:
        settings = current_settings()
        pipeline = default_pipeline()
        if pipeline is not self._pipeline:
            self._executor.close()
            self._executor = Executor(live=True)
            self._pipeline = pipeline
        agent = evaluation_input.agent
        # Others have the defaults, and do not become names of the operator's.
        known = agent if agent in settings.agents else None
        of_settings = run_fields(settings, pipeline, known)
        return EvaluationRunConfig(**{**of_settings, **fields})  # the request's fields win

    def close(self) -> None:
        """End the threads once nothing waits for them, and nothing blocks them. Does not block."""
        self._is_closed = True
        self._executor.close()
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._is_closed and not self._waiting:
            self._loop.close()


def checked(body: bytes | bytearray, encoding: str) -> _Request:
    """Return the request in a body.

    Raises `BodyError`. Runs on the thread of `Evaluations.room`.
    """
    data = unpacked(body, encoding, MAX_BYTES)
    text, value = strict_json(data)
    if not isinstance(value, dict):
        raise BodyError(400, 'expected an object such as {"input": {"response": "..."}}')
    try:
        check_fields(value)
        if "evaluators" in value or ENTRIES in value:
            return _Request(text, {}, None)
        return _Request("", config_fields(value), input_of(value))
    except ConfigurationError as error:
        raise BodyError(400, str(error)) from None


def _refusal_of(error: EvaluationError) -> Refusal:
    """Return why a worker process gave no reply."""
    if error.error_type in ("unavailable", "queue_full", "quarantined"):
        return Refusal(503, "no process for it can be started at present", retry_after_s=30)
    if error.error_type == "timeout":
        return Refusal(413, f"not evaluated: {error}")
    if error.error_type == "invalid_result":
        return TOO_LARGE
    return Refusal(413, "not evaluated: it ended the process that evaluates it")


def _ignore_outcome(future: asyncio.Future[Any]) -> None:
    """Look at the outcome, or asyncio complains of an exception that was not looked at."""
    if not future.cancelled():
        future.exception()


def _failed(error: BaseException) -> Refusal:
    log.warning("request_failed", part="evaluate", error_type=type(error).__name__)
    return Refusal(500, "not evaluated: an error of the receiver")


def count_request(status: int) -> None:
    """Count a request at ``/v1/evaluate`` by what became of it."""
    accounting = default_pipeline().accounting
    if status == 200:
        accounting.count_request("evaluated")
        return
    reason = _REASONS.get(status)
    if reason is None:
        return
    accounting.count_request("failed" if reason == "failed" else "refused")
    accounting.fail(f"requests:evaluate_{reason}")
    log.warning("request_refused", part=f"evaluate_{reason}", status=status)
