"""Job: one evaluation on its way to a thread, a worker process or a task, and back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.execution.state import EvaluatorState
from agenteval_otel.models import EvaluationCriteria, EvaluationInput

Outcome = Any
"""The results of an evaluation (whatever the evaluator returned), or the exception that it raised."""


class Awaits(Exception):
    """An evaluation that was run as a plain function awaits something."""


@dataclass(slots=True, eq=False)
class Job:
    """One evaluation.

    Attributes:
        done: Takes the outcome, once, on the thread of `loop`; None after that, and once the job was cancelled.
        mode: Where it waits or runs; None before and after.
        expected_s: How long evaluations of this evaluator usually take; `seconds` and `cpu_s` are this one's.
        losses: How often the fork server ended while this evaluation was under way.
    """

    evaluator: Evaluator
    state: EvaluatorState
    evaluation_input: EvaluationInput
    criteria: Sequence[EvaluationCriteria]
    done: Callable[[Outcome], None] | None
    loop: asyncio.AbstractEventLoop
    mode: Execution | None = None
    limit_s: float = 0.0
    expected_s: float = 0.0
    seconds: float = 0.0
    cpu_s: float = 0.0
    losses: int = 0
    task: asyncio.Task[Any] | None = None
    context: contextvars.Context | None = None
    deliveries: Deliveries | None = None

    def finish(self, outcome: Outcome) -> None:
        """Call `done`, unless that was done before or the job was cancelled."""
        done, self.done = self.done, None
        if done is not None:
            done(outcome)

    def deliver(self, outcome: Outcome) -> None:
        """Bring the outcome to the job's loop, from any thread."""
        assert self.deliveries is not None
        self.deliveries.put(self, outcome)

    def work(self) -> Coroutine[Any, Any, Any]:
        return self.evaluator.evaluate(self.evaluation_input, self.criteria)

    def timeout(self) -> EvaluationError:
        return EvaluationError(f"no result within {self.limit_s:g} s", error_type="timeout")


class Deliveries:
    """Brings outcomes from other threads to one loop, as many at a time as there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, complete: Callable[[Job, Outcome], None]) -> None:
        self._loop, self._complete = loop, complete
        self._finished: deque[tuple[Job, Outcome]] = deque()
        self._scheduled = False

    def put(self, job: Job, outcome: Outcome) -> None:
        self._finished.append((job, outcome))
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver, context=contextvars.Context())

    def _deliver(self) -> None:
        self._scheduled = False  # first: a `put` from here on schedules the next delivery
        try:
            while self._finished:
                self._complete(*self._finished.popleft())
        finally:
            if self._finished:  # a callback raised, which its loop reports; the others are still called
                self._loop.call_soon(self._deliver)


def result_of_plain(work: Coroutine[Any, Any, Any]) -> Any:
    """Run an evaluation to its end, on this thread; raises `Awaits` where it awaits.

    What is no `Exception`, such as SystemExit, becomes an `EvaluationError` with the class's name.
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
