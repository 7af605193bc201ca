"""Job: one evaluation on its way to a thread or a worker process and back; `Deliveries` brings answers to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.execution.state import EvaluatorState
from agenteval_otel.models import EvaluationCriteria, EvaluationInput

__all__ = ["Awaits", "Deliveries", "Job", "Outcome", "result_of_plain"]

Outcome = Any
"""What an evaluation gave: its results (whatever it returned), or the exception that it raised."""


class Awaits(Exception):
    """An evaluation that was run as a plain function awaits something."""


class Job:
    """One evaluation. `done` is called once, on the thread of `loop`."""

    __slots__ = (
        "attempts", "context", "cpu_s", "criteria", "deliveries", "done", "evaluation_input", "evaluator", "expected_s",
        "limit_s", "loop", "mode", "number", "seconds", "state",
    )  # fmt: skip

    def __init__(
        self,
        evaluator: Evaluator,
        state: EvaluatorState,
        evaluation_input: EvaluationInput,
        criteria: Sequence[EvaluationCriteria],
        done: Callable[[Outcome], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.evaluator, self.state, self.loop = evaluator, state, loop
        self.evaluation_input, self.criteria = evaluation_input, criteria
        self.done: Callable[[Outcome], None] | None = done
        self.limit_s = self.expected_s = 0.0
        self.mode: Execution | None = None
        self.deliveries: Deliveries | None = None
        self.context: contextvars.Context | None = None
        self.cpu_s = self.seconds = 0.0
        self.attempts = self.number = 0

    def finish(self, outcome: Outcome) -> None:
        """Hand the outcome to whoever waits; a second one, and that of a cancelled job, is dropped."""
        done, self.done = self.done, None
        if done is not None:
            done(outcome)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.done = None

    def work(self) -> Coroutine[Any, Any, Any]:
        """The evaluation, not begun."""
        return self.evaluator.evaluate(self.evaluation_input, self.criteria)


class Deliveries:
    """Brings outcomes from other threads to one loop, as many at a time as there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, complete: Callable[[Job, Outcome], None]) -> None:
        self._loop, self._complete = loop, complete
        self._finished: deque[tuple[Job, Outcome]] = deque()
        self._scheduled = False

    def put(self, job: Job, outcome: Outcome) -> None:
        """From any thread."""
        self._finished.append((job, outcome))
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver, context=contextvars.Context())

    def _deliver(self) -> None:
        self._scheduled = False  # first: whoever puts one from here on schedules the next delivery
        try:
            while self._finished:
                self._complete(*self._finished.popleft())
        finally:
            if self._finished:  # a callback raised: that is its loop's to report, the others still come
                self._loop.call_soon(self._deliver)


def result_of_plain(work: Coroutine[Any, Any, Any]) -> Any:
    """Run an evaluation that does not await to its end, on this thread.

    Raises:
        Awaits: It does await.
        EvaluationError: With the class's name, for what is no `Exception`, such as SystemExit.
        Exception: Whatever the evaluator raised.
    """
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    except RuntimeError as error:
        if str(error) == "no running event loop":
            raise Awaits from None
        raise
    except Exception:
        raise
    except BaseException as error:
        raise EvaluationError(type(error).__name__, error_type=type(error).__name__) from None
    with contextlib.suppress(BaseException):
        work.close()
    raise Awaits
