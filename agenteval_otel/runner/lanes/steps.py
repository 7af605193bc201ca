"""Steps: driving an evaluator's coroutine by hand, to see how long it holds the interpreter between two awaits."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from time import thread_time
from typing import Any

from agenteval_otel.errors import EvaluationError

__all__ = ["Steps", "continued"]

_HOLDS_S = 0.002


class Steps:
    """Runs a coroutine and adds up the CPU time of the steps that are long enough to be felt by others."""

    def __init__(self) -> None:
        self.held_s = 0.0

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The coroutine's result."""
        return await self._run(work)

    @types.coroutine
    def _run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            begun = thread_time()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            except SystemExit:  # out of a task asyncio lets it end the loop, which may be the caller's
                raise EvaluationError("SystemExit", error_type="SystemExit") from None
            finally:
                took_s = thread_time() - begun
                if took_s > _HOLDS_S:
                    self.held_s += took_s
            error = None
            try:
                yield awaited
            except BaseException as raised:
                error = raised


@types.coroutine
def continued(awaited: Any, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The rest of a coroutine whose first step was taken by hand, and gave `awaited`."""
    while True:
        try:
            yield awaited
        except BaseException as error:
            step, value = work.throw, error
        else:
            step, value = work.send, None  # type: ignore[assignment]
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value
