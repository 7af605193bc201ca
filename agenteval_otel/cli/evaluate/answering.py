"""``--run module:function``: make the answers of a dataset.

They are captured as those of a monitored call are, with the facts given to `annotate`.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CURRENT, CapturedCall
from agenteval_otel.components.loading import import_function
from agenteval_otel.config import disable, enable
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation.wrappers import unmonitored
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.log import log

_OPTION = "--run"
# What a dataset says of an earlier answer.
_OF_THE_ANSWER = (
    "response",
    "tool_calls",
    "usage",
    "cost",
    "duration_s",
    "turns",
    "memory_stats",
    "steps",
    "response_id",
    "model",
    "finish_reason",
    "error_type",
    "stream_end",
    "timestamp",
)
_OF_THE_DATASET = frozenset({"criteria", "agent", "agent_id"})


def _log_bad_fact(name: str, why: str = "") -> None:
    reason = {"why": why} if why else {}
    log.warning("fact_left_out", part=name, **reason)


class Answering:
    """Calls the function for each input, at most `concurrency` at once.

    Sync functions run on a thread.

    Live evaluation is disabled meanwhile: monitored functions run, but their calls are not
    evaluated.
    """

    def __init__(self, name: str, concurrency: int) -> None:
        self._function = unmonitored(import_function(name, path=_OPTION))
        self._takes_input = _takes_input(self._function, name)
        self._threads = ThreadPoolExecutor(concurrency, "agenteval-run")

    def __enter__(self) -> Self:
        disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None
    ) -> None:
        enable()
        self._threads.shutdown(wait=kind is None, cancel_futures=True)

    def check(self, evaluation_input: EvaluationInput) -> None:
        if evaluation_input.prompt is None and not self._takes_input:
            raise ConfigurationError(
                f"is missing: what {_OPTION} passes to the function. If it has another name: --column prompt=NAME",
                path="prompt",
            )

    async def __call__(self, evaluation_input: EvaluationInput) -> EvaluationInput:
        """Return the input with the function's answer, and with what the function annotated.

        Raises what the function raises.
        """
        call = CapturedCall("")
        call.started_ns = time.time_ns()
        tick = time.perf_counter_ns()
        token = CURRENT.set(call)
        argument = evaluation_input if self._takes_input else evaluation_input.prompt
        try:
            await self._answer(call, argument)
        finally:
            CURRENT.reset(token)
        call.ended_ns = call.started_ns + time.perf_counter_ns() - tick
        if call.facts is not None:
            call.keep_facts()
        made = build_input(call, on_bad_fact=_log_bad_fact)
        fields: dict[str, Any] = dict.fromkeys(_OF_THE_ANSWER)
        for name in EvaluationInput.model_fields:
            value = getattr(made, name)
            if value is not None and name not in _OF_THE_DATASET:
                fields[name] = value
        metadata = {**(evaluation_input.metadata or {}), **(made.metadata or {})}
        fields["metadata"] = metadata or None
        return copy_with(evaluation_input, fields)

    async def _answer(self, call: CapturedCall, argument: str | EvaluationInput | None) -> None:
        # The thread only makes a coroutine. The coroutine runs on the event loop.
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        answer, is_stream = await loop.run_in_executor(
            self._threads, run, _called, self._function, argument
        )
        if inspect.isawaitable(answer):
            answer = await answer
        if inspect.isasyncgen(answer):
            answer = [chunk async for chunk in answer]
            is_stream = True
        if not is_stream:
            call.keep_answer(answer)
            return
        chunks: list[Any] = []
        for chunk in answer:
            if type(chunk) is str:
                chunks.append(chunk)
            else:
                call.keep_chunk(chunk, chunks)
        call.keep_stream(chunks, "completed", False)


def _called(
    function: Callable[[Any], Any], argument: str | EvaluationInput | None
) -> tuple[Any, bool]:
    """Return the answer, and whether it is the chunks of a generator."""
    answer = function(argument)
    if inspect.isgenerator(answer):
        return list(answer), True
    return answer, False


def _takes_input(function: object, name: str) -> bool:
    """Tell whether the function takes the input, and not its prompt.

    Raises `ConfigurationError` if it takes anything else.
    """
    if not callable(function):
        kind = type(function).__name__
        raise ConfigurationError(
            f"expected module:function, found {name!r} of type {kind}", path=_OPTION
        )
    try:
        parameters = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind is not p.VAR_KEYWORD
        ]
    except (TypeError, ValueError):  # of a function in C
        return False
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if not parameters or len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        expected = "expected a function of one argument: the prompt, or an EvaluationInput"
        raise ConfigurationError(
            f"{expected}, found {name}{inspect.signature(function)}", path=_OPTION
        )
    annotation = parameters[0].annotation
    annotated = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return (
        annotated.rpartition(".")[2] == EvaluationInput.__name__
        or parameters[0].name == "evaluation_input"
    )
