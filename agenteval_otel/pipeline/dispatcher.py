"""Contract of dispatchers: where evaluations run, and the simplest one.

A dispatcher takes captured calls, has each processed once and settles it once, whatever happens to it: with the outcome
of the processing, as dropped, or as failed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any, Protocol

from agenteval_otel.components import Component
from agenteval_otel.engine.live import Done
from agenteval_otel.pipeline.daemon_executor import DaemonExecutor
from agenteval_otel.runtime.reentrancy import EvaluationThread
from agenteval_otel.semconv import DROPPED_SHUTDOWN, PIPELINE_FAILED

Process = Callable[[Sequence[Any], Done, Callable[[], None]], None]
"""Evaluates a list of captured calls: `done` takes each, once. Between two steps it calls the third argument, which
lets other threads have the interpreter, and may raise to end a thread that another one has replaced."""
Settle = Callable[[Any, str], None]
"""Takes the outcome of a captured call, exactly once for each; must not block."""


class Stall(Protocol):
    """What to do when the background thread is held up; called on the watchdog's thread."""

    def blame(self, task: Any, held_s: float, thread_id: int) -> Any:
        """Find, log and move what holds the thread for so long; returns it, where it is an evaluator.

        Args:
            task: The task that was running on the thread's event loop, where that is known.
        """

    def take_over(self, call: Any, blamed: Any, held_s: float) -> bool:
        """Make a call that was under way ready to be processed again; False settles it as failed."""


class Dispatcher(Component, contract="dispatcher"):
    """Runs evaluations somewhere. Implement `start`, `submit`, `flush`, `shutdown`."""

    def start(
        self,
        process: Process,
        settle: Settle,
        *,
        has_room: Callable[[], bool] = lambda: True,
        on_work: Callable[[int, float], None] = lambda calls, seconds: None,
        on_stall: Stall | None = None,
    ) -> None:
        """Set what is done with calls; starts no thread yet.

        Args:
            process: Evaluates a list of calls.
            settle: Takes its outcome.
            has_room: Whether the next call may be processed now; asked again a few milliseconds later.
            on_work: Takes the number of calls that were processed in a row, and the seconds that took.
            on_stall: Asked when the background thread is held up.
        """
        raise NotImplementedError

    def submit(self, call: Any, size_bytes: int) -> bool:
        """Take a call, on the caller's thread, without blocking; False when it was dropped (and settled as such)."""
        raise NotImplementedError

    def flush(self, timeout_s: float) -> bool:
        """Wait until all calls taken before are settled; False when the time ran out."""
        raise NotImplementedError

    def shutdown(self, timeout_s: float) -> bool:
        """Take no more calls, wait for those taken, settle the rest as dropped; False when some were dropped."""
        raise NotImplementedError

    def retire(self) -> None:
        """Let go of what waits for calls: none are expected any more; those that were taken are still processed.

        Returns at once. A call that comes nevertheless is taken as before.
        """

    def state(self) -> dict[str, int]:
        """Gauges of the queue: ``size`` in calls, of which ``waiting`` have not begun, ``bytes`` and ``max_bytes``."""
        return {"size": 0, "waiting": 0, "bytes": 0, "max_bytes": 0}


class InlineDispatcher(Dispatcher, type="inline"):
    """Evaluates on the caller's thread before the answer goes back: for tests and scripts, not for production."""

    @cached_property
    def _parts(self) -> dict[str, Any]:
        return {"closed": False}

    def start(self, process: Process, settle: Settle, **_: Any) -> None:
        self._parts.update(process=process, settle=settle)

    def submit(self, call: Any, size_bytes: int) -> bool:
        settle: Settle = self._parts["settle"]
        if self._parts["closed"]:
            settle(call, DROPPED_SHUTDOWN)
            return False
        try:
            outcome = _run_to_end(_processed(self._parts["process"], call))
        except Exception:
            outcome = PIPELINE_FAILED
        settle(call, outcome)
        return True

    def flush(self, timeout_s: float) -> bool:
        return True

    def shutdown(self, timeout_s: float) -> bool:
        self._parts["closed"] = True
        return True


async def _processed(process: Process, call: Any) -> str:
    # Inside of the task: an exception that cannot even be shown would keep `asyncio.run` from cleaning up.
    outcomes: list[str | Awaitable[str]] = []
    try:
        process([call], lambda _, outcome: outcomes.append(outcome), lambda: None)
        return outcomes[0] if isinstance(outcomes[0], str) else await outcomes[0]
    except Exception:
        return PIPELINE_FAILED


def process_each(process: Callable[[Any], str | Awaitable[str]]) -> Process:
    """The processing of lists whose calls have nothing to do with each other."""

    def processed(calls: Sequence[Any], done: Done, pause: Callable[[], None]) -> None:
        for call in calls:
            try:
                outcome = process(call)
            except BaseException:
                outcome = PIPELINE_FAILED
            done(call, outcome)
            pause()

    return processed


def _run(work: Coroutine[Any, Any, str]) -> str:
    # With a factory the runner leaves the thread's current event loop as it is: it may be the host's.
    with asyncio.Runner(debug=False, loop_factory=asyncio.new_event_loop) as runner:
        runner.get_loop().set_default_executor(DaemonExecutor())  # whose threads are known to be an evaluator's
        return runner.run(work)


def _run_to_end(work: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine in an empty context; in a thread of its own where this one already runs an event loop."""
    empty = contextvars.Context()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return empty.run(_run, work)
    outcome: list[str] = []
    thread = EvaluationThread(target=lambda: outcome.append(empty.run(_run, work)))
    thread.start()
    thread.join()
    return outcome[0] if outcome else PIPELINE_FAILED
