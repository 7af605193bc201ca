"""Job: one evaluation on its way to where it runs, and back.

`EvaluatorState` is what was observed of its evaluator.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from agenteval_otel.engine.execution.wire import serialize_evaluator
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runtime.log import log

MAX_STRIKES = 3
"""Overruns, crashes and blocked background threads after which an evaluator is quarantined."""
CHEAP_S = 0.001
"""CPU seconds below which an evaluation counts as cheap."""
INLINE_SAMPLE = 64
"""The engine reports every inline evaluation that was not cheap, and of the cheap ones one out of
so many.
"""
_CALLS = 100
_MAX_POINTS = 12.0
_MAX_POINTS_OF_A_CALL = 6.0
_NUMBERS = itertools.count(1)
Outcome = Any
"""The results of an evaluation (whatever the evaluator returned), or the exception that it raised.
"""


class Awaits(Exception):
    """Says that an evaluation that was run as a plain function awaits something."""


@dataclass(slots=True, eq=False)
class Job:
    """Holds one evaluation.

    `done` takes the outcome, once, on the thread of `loop`. It is None after that, or when
    cancelled.

    `mode` is where it waits or runs, None before and after. `expected_s` is what evaluations of
    this evaluator usually take. `seconds` and `cpu_s` are this one's.
    """

    evaluator: Evaluator
    state: EvaluatorState
    evaluation_input: EvaluationInput
    criteria: Sequence[EvaluationCriteria]
    done: Callable[[Outcome], None] | None
    loop: asyncio.AbstractEventLoop
    complete: Callable[[Job, Outcome], None]
    mode: Execution | None = None
    limit_s: float = 0.0
    expected_s: float = 0.0
    seconds: float = 0.0
    cpu_s: float = 0.0
    task: asyncio.Task[Any] | None = None
    context: contextvars.Context | None = None

    def finish(self, outcome: Outcome) -> None:
        done = self.done
        self.done = None
        if done is not None:
            done(outcome)

    def deliver(self, outcome: Outcome) -> None:
        """Bring the outcome to the job's loop, from any thread."""
        # the loop is closed, as that of a thread that was replaced
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(
                self.complete, self, outcome, context=contextvars.Context()
            )

    def work(self) -> Coroutine[Any, Any, Any]:
        return self.evaluator.evaluate(self.evaluation_input, self.criteria)

    def timeout(self) -> EvaluationError:
        return EvaluationError(f"no result within {self.limit_s:g} s", error_type="timeout")


def result_of_plain(work: Coroutine[Any, Any, Any]) -> Any:
    """Run an evaluation to its end, on this thread. Raises `Awaits` if it awaits.

    What is no `Exception`, such as SystemExit, becomes an `EvaluationError` with the class's name.
    """
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error) == "no running event loop":
            raise Awaits from None
        raise
    except BaseException as error:
        raise EvaluationError(type(error).__name__, error_type=type(error).__name__) from None
    with contextlib.suppress(BaseException):
        work.close()
    raise Awaits


class EvaluatorState:
    """Keeps what the executor has observed of one evaluator.

    The fork server identifies the evaluator by `number`.
    """

    def __init__(self, evaluator: Evaluator, *, live: bool) -> None:
        self.number = next(_NUMBERS)
        self.label = evaluator.label
        self.mode: Execution = evaluator.resolved_execution
        self.in_own_loop = evaluator.calls_model and self.mode == "thread"  # it awaits, on a thread
        self.strikes = self.failed_loads = 0
        self.usual_s = 0.0  # of an evaluation; 0 while unknown
        self._chosen = evaluator.execution is not None
        self._live = live
        self._may_become_inline = (
            live and not self._chosen and evaluator.preferred_execution() in (None, "inline")
        )
        self._calls = self._expensive = 0
        self._points = 0.0
        self._recipe: bytes | None = None
        self._logged: set[str] = set()
        if not live and self.mode == "process":
            self.mode = "thread"

    def recipe(self, evaluator: Evaluator) -> bytes:
        """Return how another process makes an equal evaluator, as JSON. Raises `NotPortable`."""
        if self._recipe is None:
            self._recipe = json.dumps(serialize_evaluator(evaluator)).encode()
        return self._recipe

    def quarantine(self) -> EvaluationError | None:
        if self.strikes < MAX_STRIKES:
            return None
        return EvaluationError(
            "quarantined: it overran its time limit, ended its process or blocked the background thread too often",
            error_type="quarantined",
        )

    def strike(self, reason: str) -> None:
        """Count a strike.

        It overran its limit and did not stop, ended its process, or blocked the background
        thread.
        """
        self.strikes += 1
        self._may_become_inline = False
        if self.strikes == MAX_STRIKES:
            self.log("evaluator_quarantined", f"{reason}, for the {MAX_STRIKES}rd time")

    def blocked(self, seconds: float) -> None:
        """Note that it blocked the background thread.

        From now on it runs on a thread, whatever its settings say.
        """
        reason = f"it blocked the background thread for {seconds:.1f} s"
        self.log("evaluator_blocked", f"{reason}, and runs in a thread from now on")
        self.in_own_loop = self.mode == "async" or self.in_own_loop
        self.mode = "thread"
        self.strike(reason)

    def ran_in_thread(self, cpu_s: float) -> None:
        """Count a run on a thread. An evaluator that proves cheap there runs inline from now on."""
        if not self._may_become_inline or self.mode != "thread" or self.in_own_loop:
            return
        self._calls += 1
        self._expensive += cpu_s >= CHEAP_S
        if self._calls >= _CALLS:
            if self._expensive <= 1:
                self.mode = "inline"
            self._calls = self._expensive = 0

    def ran_inline(self, cpu_s: float) -> None:
        """Note an inline run.

        An evaluator that stops being cheap goes to a thread for good (see `INLINE_SAMPLE`).

        A single long call does not move it: a collection of the host's garbage may run in any call.
        """
        if self._chosen or not self._live or self.mode != "inline":
            return
        if cpu_s < CHEAP_S:
            self._points = max(0.0, self._points - INLINE_SAMPLE / 100)
            return
        self._points += min(_MAX_POINTS_OF_A_CALL, 1 + 100 * cpu_s)
        if self._points >= _MAX_POINTS:
            self.mode = "thread"
            self._may_become_inline = False
            self.log(
                "evaluator_moved",
                f"it took {cpu_s * 1000:.0f} ms of CPU and runs in a thread from now on. "
                'With execution="process" it would not use the interpreter of this process',
            )

    def awaits(self) -> None:
        """Run an evaluator that awaits as a task from now on.

        If its execution was set, run it in a thread with its own loop.
        """
        self._may_become_inline = False
        self.in_own_loop = self._chosen
        self.mode = "thread" if self._chosen else "async"

    def leave_process(self, reason: str) -> None:
        self.mode = "thread"
        self.log("evaluator_not_portable", f"{reason}: it runs in a thread of this process")

    def measured(self, seconds: float) -> None:
        weight = 0.1 if self.usual_s else 1.0
        self.usual_s += (seconds - self.usual_s) * weight

    def log(self, event: str, reason: str) -> None:
        if event not in self._logged:  # once for each
            self._logged.add(event)
            log.warning(event, part=self.label, reason=reason)
